//! The protocol's rules, each with a negative control that violates it. In the model, the control changes
//! operations. In the simulation, it changes the requests that the code sends to its store or queue.

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

/// A rule that a negative control violates. Each comment says what the changed code does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ViolatedRule {
    ReceiversIgnoreTokens,
    OneTokenPerDrain,
    /// Releases the lease without checking that `head = tail`.
    ReleaseWithoutTail,
    StepOverGaps,
    /// Writes tombstones without put-if-absent.
    VoidUnconditionally,
    /// Deletes a wake-up that finds an expired lease on an empty inbox.
    DeleteAtExpiredEmptyLease,
    /// Deletes a wake-up because another worker drains the order.
    DropWhileDrained,
    ForgetOwedAfterVoid,
    /// After the reply of a claim was lost, claims again as if the first claim had not landed.
    RetryClaimWithoutDoubt,
    ReleaseRecognisedWithoutToken,
    /// After a failure, keeps the wake-up instead of sending a fresh one.
    FailKeepsItsMessage,
    /// Takes the lease for a redelivered wake-up without sending a fresh wake-up.
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
    /// If the reply of a commit was lost, counts a failed attempt.
    DoubtfulCommitFails,
    NoWakeUpInRateWait,
    /// On a take-over, counts an attempt although no start was recorded.
    CountAttemptWithoutStart,
    EveryReleaseSaysHandedOver,
    /// Records that a wake-up follows an exclusive lease before that wake-up is sent.
    FollowedBeforeSent,
    PendingOutlivesTheDrain,
    /// Starts a tick without checking whether it is recorded already.
    StartWithoutTick,
    GroupFailureCountsForFirst,
    GroupSpansGap,
    GroupRemembersItsLast,
    /// Erases also the deliveries that were settled after the erase began.
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
    /// Rewinds if `head` is unchanged, without checking the lease.
    RewindWithoutLease,
    /// Settles a delivery that should run again as a repeat of itself, because its sequence has a receipt.
    RepeatsItself,
    /// Keeps the receipt of an earlier run of a delivery instead of the receipt of its newest run.
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
    /// Recognises an equal body only within one retry period of its sender.
    RepeatsWithinAPeriod,
    /// Blocks an order at a delivery whose start a breaker refuses.
    RefusalBlocks,
    /// Decides about leases by the process's own clock.
    OwnClockDecides,
}
