//! The protocol's rules that controls violate, one at a time. In the model a control changes operations; in
//! the simulation it changes requests between the code and its store or queue.

use std::time::Duration;

use webhook_serializer::protocol::{
    entity::Sequence,
    format::attribute as a,
    receipt::{Receipt, Recent, Settlement},
    table::{Action, Change, Value, Write},
};

/// Replaces every remembered settlement by a tombstone's.
pub fn forget_settled(write: &mut Write) {
    remember(write, |_, _| false);
}

/// Replaces remembered settlements by a tombstone's, except those that are kept. `is_kept` gets each receipt
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

/// Forgets the settlements that one settle decides from `first` on, except the last one.
pub fn forget_members(write: &mut Write, first: Sequence) {
    remember(write, |receipt, last| receipt.sequence < first || receipt.sequence == last);
}

/// A violated rule. Each text says what the changed code does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rule {
    ReceiversIgnoreTokens,
    OneTokenPerDrain,
    /// Releases the lease without checking that `head = tail`.
    ReleaseWithoutTail,
    StepOverGaps,
    /// Writes tombstones without put-if-absent.
    VoidUnconditionally,
    /// Deletes a wake-up that finds an expired lease on an empty inbox.
    DeleteAtExpiredEmptyLease,
    /// Deletes a wake-up because another worker drains.
    DropWhileDrained,
    ForgetOwedAfterVoid,
    /// Retries a claim whose reply was lost as if the first try had not landed.
    RetryClaimWithoutDoubt,
    ReleaseRecognisedWithoutToken,
    /// Sends no fresh message after a failure.
    FailKeepsItsMessage,
    /// Takes the lease for a redelivered message without sending a fresh one.
    RedeliveryAcquiresAtOnce,
    /// Acquires the lease even if the visibility timeout may have ended.
    AcquireAfterVisibilityTimeout,
    /// Counts a failure without checking that `head` = sequence - 1.
    FailWithoutHead,
    HolderFromRequest,
    SettleRemembersNothing,
    /// Drops receipts from the order's row before they have separate rows.
    DropWithoutReceipt,
    ReceiptsUnread,
    /// The holder forgets which receipts have left the row since its grant.
    HolderForgetsDrops,
    /// Deletes an idle row before its retention ends.
    PurgedBeforeItIsForgotten,
    RedriveKeepsItsNumber,
    /// Deletes the parked row before the delivery is appended again.
    RedriveForgetsFirst,
    UnblockWithoutWakeUp,
    HandOverWithoutWakeUp,
    AnswerBeforeWakeUp,
    /// Recreates a row with numbers that the deleted row had used.
    RecreatedRowsReuseNumbers,
    ClaimKeepsPurgeAt,
    /// Redrives without reading how the delivery was settled.
    RedriveWithoutLookup,
    ReleaseRecognisedWithoutHead,
    /// Counts a commit whose reply was lost as a failed attempt.
    DoubtfulCommitFails,
    NoWakeUpInRateWait,
    /// Counts an attempt at a take-over although no handler was started.
    CountAttemptWithoutStart,
    EveryReleaseSaysHandedOver,
    PendingOutlivesTheDrain,
    /// Starts a tick without checking whether it is recorded already.
    StartWithoutTick,
    GroupFailureCountsForFirst,
    GroupSpansGap,
    GroupRemembersItsLast,
    /// Erases deliveries that were settled after the erase began, too.
    EraseRemovesNewer,
    /// Holds and resumes without comparing the hold's number.
    HoldsUnnumbered,
    PurgedOnHold,
    CommitIgnoresHold,
    ResumeWithoutWakeUp,
    /// Skips whatever delivery is in front.
    SkipTakesAnyHead,
    /// Rewinds before the receipts are in separate rows.
    RewindWithoutReceipts,
    /// Rewinds on a condition about the head only.
    RewindWithoutLease,
    /// Takes a delivery's own receipt for a repeat.
    RepeatsItself,
    /// Lets the receipt of an earlier run decide.
    OlderRunDecides,
    /// Deletes a deferred delivery if the store refuses it again.
    DeferredOnce,
    RestoreKeepsTokens,
    RestoreKeepsSequences,
    RestoreKeepsLeases,
    /// A restore drops the receipts in the rows.
    RestoreForgets,
    /// A restore settles waiting deliveries as parked, without writing parked rows.
    RestoreParksNothing,
    RestoreStopsAtTheTail,
    RestoreRunsTicksAgain,
    RestoreResumesBlocked,
    BreakerWaitCountsAttempt,
    /// A breaker forgets its state after each batch.
    BreakerForgets,
    PostponedStartCountsAttempt,
    EachAnswerResetsWait,
    /// Under `latest`, a deferred delivery replaces earlier ones.
    DeferredSupersedes,
    /// Recognises an equal body within one period only.
    RepeatsWithinAPeriod,
}
