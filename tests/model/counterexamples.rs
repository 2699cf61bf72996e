//! Controls. Each control changes one rule, and the changed protocol must violate a property. The length of a
//! shortest counterexample is pinned.

use webhook_serializer::sources::deliver::Deliver::UpTo;

use crate::{
    audit::{CHARGED, DECIDED_ONCE, EXCLUSION, HOLD, NO_LATE_EFFECT, NO_LOSS, ONCE, ORDER, PENDING, REWOUND, SKIPPED},
    configurations::{model, one, repeated, two, with_repeat},
    protocol::Protocol,
    without::ViolatedRule,
};

pub struct Control {
    pub change: &'static str,
    pub rule: ViolatedRule,
    /// Further changed rules. With these alone, the protocol must still hold.
    pub assumes: &'static [ViolatedRule],
    pub property: &'static str,
    /// The length of a shortest counterexample.
    pub steps: usize,
    pub wrong: &'static str,
    pub model: Protocol,
}

macro_rules! controls {
    ($($rule:ident $change:literal, $property:ident in $steps:literal: $wrong:literal,
        $base:ident $fields:tt may $budget:tt;)*) => {
        vec![$(Control {
            change: $change,
            rule: ViolatedRule::$rule,
            assumes: match ViolatedRule::$rule {
                ViolatedRule::FailWithoutHead => &[ViolatedRule::DoubtfulCommitFails, ViolatedRule::OneTokenPerDrain],
                _ => &[],
            },
            property: $property,
            steps: $steps,
            wrong: $wrong,
            model: model!($base $fields may $budget),
        }),*]
    };
}

#[rustfmt::skip]
pub fn controls() -> Vec<Control> {
    controls! {
        ReceiversIgnoreTokens "receivers ignore the token", NO_LATE_EFFECT in 15:
            "a paused holder's effect lands after a newer one",
            two { workers: 2 } may { take_overs: 1 };
        OneTokenPerDrain "one token for a whole drain", NO_LATE_EFFECT in 11:
            "the effect of a handler that timed out lands after the next delivery's",
            two { attempts: 1 } may { timeouts: 1 };
        GroupFailureCountsForFirst "a group's failure counts for its first delivery", CHARGED in 10:
            "an attempt is counted for A, although B may have failed",
            two { deliver: UpTo(2) } may { failures: 1 };
        GroupRemembersItsLast "a group leaves a receipt of its last delivery only", ONCE in 10:
            "a repeat of A is applied",
            with_repeat { deliver: UpTo(2) } may {};
        GroupSpansGap "a group includes deliveries after a gap", NO_LOSS in 8:
            "the delivery that fills the gap later is settled already, with another's outcome",
            two { deliver: UpTo(2) } may {};
        ReleaseWithoutTail "release without `head = tail`", NO_LOSS in 8:
            "a delivery was claimed under the lease, without a wake-up: stuck",
            two {} may {};
        StepOverGaps "step over gaps", ORDER in 8:
            "B is applied before A, which was answered first",
            two {} may {};
        VoidUnconditionally "tombstone without put-if-absent", DECIDED_ONCE in 6:
            "the tombstone overwrites a delivery",
            one {} may {};
        DeleteAtExpiredEmptyLease "delete a wake-up at a drain's expired, empty lease", NO_LOSS in 12:
            "a claim with a slow clock relies on a dead worker's lease and sends no wake-up: stuck",
            one { stray: true } may { exclusive_leases: 1, exclusive_crashes: 1, worker_crashes: 1, take_overs: 2 };
        DropWhileDrained "drop a wake-up because another worker drains", NO_LOSS in 11:
            "the other worker has only a copy of a deleted message, and crashes: stuck",
            one { workers: 2 } may { copies: 1, worker_crashes: 1 };
        ForgetOwedAfterVoid "send no wake-up after a tombstone, though the first claim owed it", NO_LOSS in 7:
            "the second claim relies on a worker that has only a copy of a deleted message and crashes: stuck",
            one { stray: true, counts_are_shown: false } may { voids: 1, worker_crashes: 1 };
        RetryClaimWithoutDoubt "retry a claim whose reply was lost like a first try", NO_LOSS in 5:
            "the retry relies on a worker that has only a copy of a deleted message, and sends no wake-up: stuck",
            one { stray: true, counts_are_shown: false } may { lost_replies: 1, worker_crashes: 1 };
        ReleaseRecognisedWithoutToken "recognise a release without the token", NO_LOSS in 13:
            "a paused holder takes another's release for its own and deletes the only wake-up: stuck",
            one {} may { exclusive_leases: 1, take_overs: 1 };
        FailKeepsItsMessage "`fail` keeps its message instead of sending a new one", NO_LOSS in 9:
            "the message was a copy of a deleted one, and the ingest that owed a wake-up died: stuck",
            two { stray: true, counts_are_shown: false } may { failures: 1, ingest_crashes: 1 };
        RedeliveryAcquiresAtOnce "a message received again acquires without sending a new one", NO_LOSS in 6:
            "the message was a copy of a deleted one; an ingest and the worker crash: stuck",
            two { stray: true } may { worker_crashes: 1, ingest_crashes: 1 };
        AcquireAfterVisibilityTimeout "acquire although the message may be visible again", NO_LOSS in 6:
            "another worker is done with the message; an ingest and a worker crash: stuck",
            two { stray: true, may_be_back: true } may { worker_crashes: 1, ingest_crashes: 1 };
        FailWithoutHead "`fail` without `head` = sequence - 1, if settles keep the token and a commit in doubt counts as failed", CHARGED in 9:
            "after a commit whose reply was lost, a failure is counted for the next delivery",
            two { commit: true } may { lost_replies: 1 };
        HolderFromRequest "holder id from the request", EXCLUSION in 12:
            "a repeated request takes another's grant for its own: two holders",
            one { workers: 2 } may { copies: 1, take_overs: 1 };
        ReleaseRecognisedWithoutHead "recognise settle-and-release by the token alone", NO_LOSS in 13:
            "after an exclusive holder's release, the paused worker believes its delivery settled and deletes the only wake-up: stuck",
            one {} may { exclusive_leases: 1, take_overs: 1 };
        RedriveWithoutLookup "redrive without checking the settlement", ONCE in 22:
            "the holder that parked the delivery lost its lease before the settle; the next holder applied it, and the redrive applies it again",
            one {} may { worker_crashes: 1, take_overs: 1, rejections: 1, redrives: 1 };
        SettleRemembersNothing "a settle leaves no receipt", ONCE in 8:
            "a repeat runs again",
            repeated {} may {};
        DropWithoutReceipt "receipts leave the row without rows of their own", ONCE in 15:
            "the holder dies, and a repeat two sequences later runs again",
            with_repeat { capacity: 1 } may { worker_crashes: 1 };
        ReceiptsUnread "receipts that have left the row are not read", ONCE in 15:
            "another holder runs a repeat whose receipt has left the row",
            with_repeat { capacity: 1 } may {};
        HolderForgetsDrops "a drain forgets the receipts that left the row since its grant", ONCE in 12:
            "the drain runs a repeat of a delivery whose receipt it dropped",
            with_repeat { capacity: 1 } may {};
        PurgedBeforeItIsForgotten "an idle row is deleted before its receipts may be forgotten", ONCE in 15:
            "a holder with a short retention released the row; a repeat runs again",
            repeated {} may { exclusive_leases: 1, purges: 1 };
        RedriveKeepsItsNumber "a redrive keeps its number", NO_LOSS in 14:
            "the redriven delivery is settled as a repeat of the parked one, and lost",
            one {} may { rejections: 1, redrives: 1 };
        RedriveForgetsFirst "a redrive deletes the parked copy first", NO_LOSS in 11:
            "the operator's process dies in between: lost",
            one {} may { rejections: 1, redrives: 1, ingest_crashes: 1 };
        UnblockWithoutWakeUp "unblock without a wake-up", NO_LOSS in 9:
            "the wake-up that found the block was deleted: stuck",
            one { attempts: 1, block: true } may { failures: 1, unblocks: 1 };
        HandOverWithoutWakeUp "hand over without a wake-up", NO_LOSS in 8:
            "the old wake-up is deleted: stuck",
            one {} may { overruns: 1 };
        AnswerBeforeWakeUp "answer before the owed wake-up is sent", NO_LOSS in 2:
            "the instance is frozen or dies: stuck",
            one {} may {};
        RecreatedRowsReuseNumbers "a purged row starts again at its old numbers", EXCLUSION in 11:
            "tokens repeat: a receiver refuses the current holder",
            two {} may { purges: 1 };
        ClaimKeepsPurgeAt "a claim keeps `purge_at`", NO_LOSS in 10:
            "TTL deletes a row whose deliveries wait",
            two {} may { purges: 1 };
        NoWakeUpInRateWait "a claim owes no wake-up while a rate limit delays the next start", NO_LOSS in 8:
            "nobody looks when the wait ends: stuck",
            two { rated: true } may {};
        CountAttemptWithoutStart "a take-over counts an attempt even without a recorded start", CHARGED in 10:
            "a start that never happened counts an attempt",
            one {} may { worker_crashes: 1, take_overs: 1 };
        EveryReleaseSaysHandedOver "an exclusive release claims that a wake-up is on its way", NO_LOSS in 8:
            "the holder dies before it sends one: stuck",
            two {} may { exclusive_leases: 1, exclusive_crashes: 1, ingest_crashes: 1 };
        FollowedBeforeSent "record that a wake-up follows an exclusive lease before it is sent", NO_LOSS in 14:
            "the worker dies in between, and its own wake-up is deleted when it is received again: stuck",
            one {} may { exclusive_leases: 1, worker_crashes: 1 };
        HoldsUnnumbered "begin and end of a hold check only whether it is on", HOLD in 6:
            "a late first try puts an order on hold whose hold has ended: stuck",
            one {} may { holds: 1, late_writes: 1 };
        PurgedOnHold "an idle row on hold may be deleted", HOLD in 9:
            "TTL deletes the hold, and the next delivery is handled",
            one {} may { holds: 1, purges: 1 };
        CommitIgnoresHold "a commit does not check for a hold", HOLD in 10:
            "the reply to a commit does not return the row, so the next handler starts",
            two { commit: true } may { holds: 1 };
        ResumeWithoutWakeUp "a hold ends without a wake-up", NO_LOSS in 6:
            "no wake-up was sent for deliveries that arrived during the hold: stuck",
            one {} may { holds: 1 };
        SkipTakesAnyHead "a skip takes any delivery in front", SKIPPED in 10:
            "another delivery than the operator saw is parked",
            two {} may { skips: 1 };
        RewindWithoutLease "a rewind checks only `head`", REWOUND in 19:
            "a late first try runs everything again",
            one {} may { rewinds: 1, late_writes: 1 };
        RewindWithoutReceipts "a rewind leaves receipts without rows of their own", REWOUND in 18:
            "a parked delivery is run",
            one {} may { rewinds: 1, rejections: 1 };
        RepeatsItself "a receipt makes the delivery at its own sequence a repeat", REWOUND in 17:
            "a rewound delivery is settled as a repeat of itself",
            one {} may { rewinds: 1 };
        OlderRunDecides "the receipt of an earlier run stays", NO_LOSS in 26:
            "a delivery parked by its second run counts as applied and is not redriven",
            two { capacity: 1, attempts: 1 } may { rewinds: 1, failures: 1, redrives: 1 };
        PendingOutlivesTheDrain "`pending_since` survives a drain", PENDING in 6:
            "the next delivery looks as old as the first",
            two {} may {};
    }
}
