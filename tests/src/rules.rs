//! The protocol's rules that controls violate, one at a time. The model changes its
//! operations; the simulation changes requests between the code and its store or queue.

use std::time::Duration;

use webhook_serializer::protocol::{
    entity::Sequence,
    format::attribute as a,
    receipt::{Receipt, Recent, Settlement},
    table::{Action, Change, Value, Write},
};

/// Turns every remembered settlement into a void.
pub fn forget_settled(write: &mut Write) {
    remember(write, |_, _| false);
}

/// Turns the remembered settlements that are not kept into voids; `is_kept` gets each receipt
/// and the last sequence.
fn remember(write: &mut Write, is_kept: impl Fn(&Receipt, Sequence) -> bool) {
    let Action::Update(changes) = &mut write.action else { return };
    for change in changes {
        if let Change::Set(name, Value::B(bytes)) = change
            && name == a::RECENT
        {
            let known = Recent::from_stored(bytes).expect("stored rows are readable");
            let last = known.last().expect("a settle names a sequence").sequence;
            let void = |receipt: &Receipt| match is_kept(receipt, last) {
                true => receipt.clone(),
                false => Receipt { identity: None, settlement: Settlement::Void, ..receipt.clone() },
            };
            let forgotten = known.iter().map(void);
            let forgotten = forgotten.fold(Recent::default(), |recent, receipt| recent.with(receipt, Duration::ZERO));
            *bytes = forgotten.to_stored().expect("a settle names a sequence");
        }
    }
}

/// Forgets what a settle decides from `first` on, except its last.
pub fn forget_members(write: &mut Write, first: Sequence) {
    remember(write, |receipt, last| receipt.sequence < first || receipt.sequence == last);
}

/// A violated rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rule {
    ReceiversIgnoreTokens,
    OneTokenPerDrain,
    /// Releases without asking for `head = tail`.
    ReleaseWithoutTail,
    StepOverGaps,
    /// Voids without put-if-absent.
    VoidUnconditionally,
    /// Deletes a wake-up at an expired, empty lease.
    DeleteAtExpiredEmptyLease,
    /// Deletes a wake-up because another worker drains.
    DropWhileDrained,
    ForgetOwedAfterVoid,
    /// Retries a claim whose reply was lost as if it had not landed.
    RetryClaimWithoutDoubt,
    ReleaseRecognisedWithoutToken,
    /// Sends no fresh message after a failure.
    FailKeepsItsMessage,
    /// Takes the lease for a redelivered message without sending a fresh one.
    RedeliveryAcquiresAtOnce,
    /// Takes the lease though the visibility timeout may have ended.
    AcquireAfterVisibilityTimeout,
    /// Fails without asking for `head` = sequence - 1.
    FailWithoutHead,
    HolderFromRequest,
    SettleRemembersNothing,
    /// Drops from the row what has no receipt row yet.
    DropWithoutReceipt,
    ReceiptsUnread,
    /// The holder forgets what left the row since its grant.
    HolderForgetsDrops,
    /// Deletes an idle row before the retention ends.
    PurgedBeforeItIsForgotten,
    RedriveKeepsItsNumber,
    /// Deletes the parked row before the append.
    RedriveForgetsFirst,
    UnblockWithoutWakeUp,
    HandOverWithoutWakeUp,
    AnswerBeforeWakeUp,
    /// A recreated row starts at the deleted numbers.
    RecreatedRowsReuseNumbers,
    ClaimKeepsPurgeAt,
    /// Redrives without reading how the delivery was settled.
    RedriveWithoutLookup,
    ReleaseRecognisedWithoutHead,
    /// Counts a commit whose reply was lost as failed.
    DoubtfulCommitFails,
    NoWakeUpInRateWait,
    /// A takeover counts an attempt though nothing started.
    CountAttemptWithoutStart,
    EveryReleaseSaysHandedOver,
    PendingOutlivesTheDrain,
    /// Starts a tick without asking whether it is recorded.
    StartWithoutTick,
    GroupFailureCountsForFirst,
    GroupSpansGap,
    GroupRemembersItsLast,
    /// Erases what was settled since, too.
    EraseRemovesNewer,
    /// A hold and its end do not compare their number.
    HoldsUnnumbered,
    PurgedOnHold,
    CommitIgnoresHold,
    ResumeWithoutWakeUp,
    /// Skips the delivery in front, whichever it is.
    SkipTakesAnyHead,
    /// Rewinds before the receipts have separate rows.
    RewindWithoutReceipts,
    /// Rewinds with a condition on the head only.
    RewindWithoutLease,
    /// Takes a delivery's own receipt for a repeat.
    RepeatsItself,
    /// Lets the receipt of an earlier run decide.
    OlderRunDecides,
    /// Deletes a deferred delivery that the store refuses again.
    DeferredOnce,
    RestoreKeepsTokens,
    RestoreKeepsSequences,
    RestoreKeepsLeases,
    /// Drops the receipts in the rows.
    RestoreForgets,
    /// Settles what waits as parked, without parked rows.
    RestoreParksNothing,
    RestoreStopsAtTheTail,
    RestoreRunsTicksAgain,
    RestoreResumesBlocked,
    BreakerWaitCountsAttempt,
    /// A breaker lasts for one batch.
    BreakerForgets,
    PostponedStartCountsAttempt,
    EachAnswerResetsWait,
    /// A deferred delivery replaces earlier ones, under `latest`.
    DeferredSupersedes,
    /// Finds an equal body within one period only.
    RepeatsWithinAPeriod,
}
