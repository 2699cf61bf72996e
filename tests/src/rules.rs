//! The rules of the protocol that a control leaves out, one at a time: each must
//! then be noticed. One list for the model, which changes the operations, and
//! for the simulation, which stands between the real code and its store or
//! queue; either takes those that it can reach. Production code has no such
//! switches.

use std::time::Duration;

use webhook_serializer::protocol::{
    entity::Sequence,
    format::attribute as a,
    receipt::{Receipt, Recent, Settlement},
    table::{Action, Change, Value, Write},
};

/// Has a settle's memory say of each place that nothing ever stood there.
pub fn forget_settled(write: &mut Write) {
    remember(write, |_, _| false);
}

/// Has a settle's memory say of each place that is not kept that nothing ever
/// stood there. What is kept is asked for each and the last place.
fn remember(write: &mut Write, is_kept: impl Fn(&Receipt, Sequence) -> bool) {
    let Action::Update(changes) = &mut write.action else { return };
    for change in changes {
        if let Change::Set(name, Value::B(bytes)) = change
            && name == a::RECENT
        {
            let known = Recent::from_stored(bytes).expect("our own rows can be read");
            let last = known.last().expect("a settle is about a place").sequence;
            let void = |receipt: &Receipt| match is_kept(receipt, last) {
                true => receipt.clone(),
                false => Receipt { identity: None, settlement: Settlement::Void, ..receipt.clone() },
            };
            let forgotten = known.iter().map(void);
            let forgotten = forgotten.fold(Recent::default(), |recent, receipt| recent.with(receipt, Duration::ZERO));
            *bytes = forgotten.to_stored().expect("a settle is about a place");
        }
    }
}

/// Has a settle's memory forget what it decides before its last place, from this
/// place on.
pub fn forget_members(write: &mut Write, first: Sequence) {
    remember(write, |receipt, last| receipt.sequence < first || receipt.sequence == last);
}

/// A rule left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Rule {
    /// Receivers ignore the token.
    ReceiversIgnoreTokens,
    /// One token for a whole drain.
    OneTokenForADrain,
    /// Release without `head = tail`.
    ReleaseWithoutTail,
    /// Step over gaps.
    StepOverGaps,
    /// Void without put-if-absent.
    VoidUnconditionally,
    /// Delete a wake-up at an expired, empty lease.
    DeleteAtExpiredEmptyLease,
    /// Drop a wake-up because another worker drains.
    DropWhileDrained,
    /// A wake-up owed is forgotten after a void.
    ForgetOwedAfterVoid,
    /// A claim whose reply was lost is simply retried.
    RetryClaimWithoutDoubt,
    /// A release is recognised without the token.
    ReleaseRecognisedWithoutToken,
    /// `fail` keeps its old message instead of sending a fresh one.
    FailKeepsItsMessage,
    /// Messages received again acquire without a fresh one.
    ReceivedAgainAcquiresAtOnce,
    /// A lease is taken though the message may have come back meanwhile.
    AcquiresThoughItMayBeBack,
    /// `fail` without `head` = sequence - 1.
    FailWithoutHead,
    /// The holder is taken from the request.
    HolderFromRequest,
    /// A settle remembers nothing of what it is about.
    SettleRemembersNothing,
    /// What leaves the row is not written elsewhere before.
    DropWithoutReceipt,
    /// Receipts that have left the row are not read.
    ReceiptsUnread,
    /// What has left the row since the grant is not remembered by its holder.
    DropsForgotten,
    /// An idle row is deleted before it may forget.
    PurgedBeforeItIsForgotten,
    /// A redrive keeps its number.
    RedriveKeepsItsNumber,
    /// A redrive forgets what was parked before it appends.
    RedriveForgetsFirst,
    /// Unblocking sends no wake-up.
    UnblockWithoutWakeUp,
    /// A hand-over sends no wake-up.
    HandOverWithoutWakeUp,
    /// A sender is answered before the wake-up owed is sent.
    AnswerBeforeWakeUp,
    /// A row made anew begins at the same numbers.
    PurgedRowsStartAtTheSame,
    /// A claim keeps the time at which an idle row is purged.
    ClaimKeepsPurgeAt,
    /// A redrive does not ask how the delivery was settled.
    RedriveUnasked,
    /// A release is recognised without `head`.
    ReleaseRecognisedWithoutHead,
    /// A commit whose reply was lost counts as failed.
    DoubtfulCommitFails,
    /// A claim owes no wake-up while a rate has the entity wait.
    NoWakeUpDuringARatesWait,
    /// Whoever takes a drain over that had something to do charges an attempt,
    /// whether or not anything was started.
    ChargeWithoutAStart,
    /// Every release says that a wake-up is under way.
    EveryReleaseSaysHandedOver,
    /// The age of what waited outlives a drain that ends on an emptied inbox.
    PendingOutlivesTheDrain,
    /// A tick is started without asking whether it is recorded.
    StartWithoutTick,
    /// A group's failure is charged to the delivery in front.
    GroupIsCharged,
    /// A group takes what stands behind a hole for what belongs into it.
    GroupOverAHole,
    /// Of a group only the last is remembered.
    GroupRemembersItsLast,
    /// Erasing forgets what was settled since, too.
    EraseTakesAll,
    /// A hold and its end ask only whether it is on hold.
    HoldsUnnumbered,
    /// A row on hold is left to be deleted for idleness.
    PurgedOnHold,
    /// A commit does not ask whether its entity was put on hold.
    CommitBlindToHold,
    /// The end of a hold sends no wake-up.
    ResumeWithoutWakeUp,
    /// A skip takes whatever is in front once it has the lease.
    SkipsWhatIsInFront,
    /// A rewind leaves the row without its receipts having rows of their own.
    RewindWithoutReceipts,
    /// A rewind asks only for the head it saw.
    RewindWithoutLease,
    /// A receipt makes a repeat of what stands at its own place.
    RepeatsItself,
    /// A receipt of an earlier run of the same place stands.
    OlderRunStands,
    /// What the store does not take yet is let go, and not deferred again.
    DeferredOnce,
    /// A restore leaves tokens where they were in the copy.
    RestoreKeepsTokens,
    /// A restore leaves sequences where they were in the copy.
    RestoreKeepsSequences,
    /// A restore leaves leases to whoever had them.
    RestoreKeepsLeases,
    /// A restore drops what the rows remember.
    RestoreForgets,
    /// A restore settles what waits as parked, and parks nothing.
    RestoreParksNothing,
    /// A restore does not look behind the tail for what the later copy holds.
    RestoreStopsAtTheTail,
    /// A restore leaves ticks due that may have been run since.
    RestoreRunsTicksAgain,
    /// A restore puts nothing on hold that was blocked.
    RestoreLetsGoOn,
    /// What a breaker holds back is charged an attempt.
    HeldBackIsCharged,
    /// A breaker lasts for one batch.
    BreakerForgets,
    /// A start that began nothing is charged.
    NotNowIsCharged,
    /// Each answer forgets how long its delivery has waited before.
    WaitsStartAnew,
    /// A deferred delivery stands for those in front of it, under `latest`.
    DeferredSupersedes,
    /// An equal body counts as a repeat within one period only.
    RepeatsWithinAPeriod,
}
