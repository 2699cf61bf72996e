//! The protocol's rules, each with the negative controls that violate it. In the model, a control changes
//! operations. In the simulation, it changes the requests that the code sends to its store or queue.

use std::time::Duration;

use webhook_serializer::protocol::{
    entity::Sequence,
    format::attribute as a,
    receipt::{Receipt, Recent, Settlement},
    table::{Action, Change, Comparison, Condition, Operand, TableName, Value, Write},
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

/// Changes an operation's write, if the rule's control does that in the model and in the simulation alike.
pub fn change_write(rule: ViolatedRule, write: &mut Write) {
    let ends_lease = ends_lease(write);
    let fails = ends_lease && sets(write, a::ATTEMPTS);
    match rule {
        ViolatedRule::ReleaseWithoutTail if ends_lease && !fails => {
            drop_parts(&mut write.condition, &|part| match part {
                Condition::Compare(name, Comparison::Equal, Operand::Attribute(_)) => name == a::HEAD,
                Condition::Compare(name, Comparison::Equal, Operand::Value(_)) => name == a::TAIL,
                _ => false,
            });
        }
        ViolatedRule::VoidUnconditionally => {
            if matches!(&write.action, Action::Put(row) if row.get(a::VOID).is_some()) {
                write.condition = Condition::Always;
            }
        }
        ViolatedRule::SettleRemembersNothing => forget_settled(write),
        ViolatedRule::FailWithoutHead if fails => drop_comparisons(&mut write.condition, a::HEAD),
        ViolatedRule::PendingOutlivesTheDrain if ends_lease && sets(write, a::HEAD) => {
            if let Action::Update(changes) = &mut write.action {
                changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::PENDING_SINCE));
            }
        }
        ViolatedRule::SettleKeepsWaits if sets(write, a::HEAD) => {
            if let Action::Update(changes) = &mut write.action {
                changes.retain(|change| !matches!(change, Change::Remove(name) if name == a::WAITS));
            }
        }
        _ => {}
    }
}

pub fn ends_lease(write: &Write) -> bool {
    write.key.table == TableName::Entities
        && changes(write, |change| matches!(change, Change::Remove(name) if name == a::HOLDER))
}

pub fn changes(write: &Write, is: impl Fn(&Change) -> bool) -> bool {
    matches!(&write.action, Action::Update(changes) if changes.iter().any(is))
}

pub fn sets(write: &Write, attribute: &str) -> bool {
    write.key.table == TableName::Entities
        && changes(write, |change| matches!(change, Change::Set(name, _) if name == attribute))
}

pub fn drop_parts(condition: &mut Condition, goes: &impl Fn(&Condition) -> bool) {
    if let Condition::All(parts) = condition {
        parts.retain(|part| !goes(part));
        for part in parts {
            drop_parts(part, goes);
        }
    }
}

pub fn drop_comparisons(condition: &mut Condition, attribute: &str) {
    drop_parts(condition, &|part| matches!(part, Condition::Compare(name, ..) if name == attribute));
}

/// Passes the list of rules to a macro. A text says what the changed code does.
///
/// - `mutation 7 seed 1`: `simulate --mutation 7` leaves out the rule, and that seed is known to show it. Only the
///   model shows mutations 6 and 8: none of 1,000 seeds does. None can show 13: without the condition that
///   `head` = sequence - 1, nothing changes, because every settle changes the token, and `fail` checks the token
///   too (`head_condition_of_fail_operation_is_redundant`).
/// - `assumes [Other]`: the model also leaves out these rules. With these alone, the protocol must still hold.
/// - `model PROPERTY in 5: "what goes wrong", …`: the model violates that property with a shortest
///   counterexample of so many steps, in that configuration.
///
/// The others among the mutations are mistakes that the code once had, or rules that a restore, jobs, deferral or a
/// breaker must keep.
#[macro_export]
macro_rules! with_rules {
    ($list:ident) => {
        $list! {
            ReceiversIgnoreTokens "receivers ignore the token" mutation 1 seed 4
                model NO_LATE_EFFECT in 15: "a paused holder's effect lands after a newer one",
                two { workers: 2 } may { take_overs: 1 };
            OneTokenPerDrain "one token for a whole drain" mutation 2 seed 88
                model NO_LATE_EFFECT in 11: "the effect of a handler that timed out lands after the next delivery's",
                two { attempts: 1 } may { timeouts: 1 };
            GroupFailureCountsForFirst "a group's failure counts for its first delivery"
                model CHARGED in 10: "an attempt is counted for A, although B may have failed",
                two { deliver: UpTo(2) } may { failures: 1 };
            GroupRemembersItsLast "a group leaves a receipt of its last delivery only"
                model ONCE in 10: "a repeat of A is applied",
                with_repeat { deliver: UpTo(2) } may {};
            GroupSpansGap "a group includes deliveries after a gap"
                model NO_LOSS in 8: "the delivery that fills the gap later is settled already, with another's outcome",
                two { deliver: UpTo(2) } may {};
            ReleaseWithoutTail "release without `head = tail`" mutation 3 seed 21
                model NO_LOSS in 8: "a delivery was claimed under the lease, without a wake-up: stuck",
                two {} may {};
            StepOverGaps "step over gaps" mutation 4 seed 3
                model ORDER in 8: "B is applied before A, which was answered first",
                two {} may {};
            VoidUnconditionally "tombstone without put-if-absent" mutation 5 seed 28
                model DECIDED_ONCE in 6: "the tombstone overwrites a delivery",
                one {} may {};
            DeleteAtExpiredEmptyLease "delete a wake-up at a drain's expired, empty lease" mutation 6
                model NO_LOSS in 12:
                    "a claim with a slow clock relies on a dead worker's lease and sends no wake-up: stuck",
                one { stray: true } may { exclusive_leases: 1, exclusive_crashes: 1, worker_crashes: 1, take_overs: 2 };
            DropWhileDrained "drop a wake-up because another worker drains" mutation 7 seed 1
                model NO_LOSS in 11: "the other worker has only a copy of a deleted message, and crashes: stuck",
                one { workers: 2 } may { copies: 1, worker_crashes: 1 };
            ForgetOwedAfterVoid "send no wake-up after a tombstone, though the first claim owed it" mutation 8
                model NO_LOSS in 7:
                    "the second claim relies on a worker that has only a copy of a deleted message and crashes: stuck",
                one { stray: true, counts_are_shown: false } may { voids: 1, worker_crashes: 1 };
            RetryClaimWithoutDoubt "retry a claim whose reply was lost like a first try" mutation 9 seed 23
                model NO_LOSS in 5:
                    "the retry relies on a worker that has only a copy of a deleted message, and sends no wake-up: stuck",
                one { stray: true, counts_are_shown: false } may { lost_replies: 1, worker_crashes: 1 };
            ReleaseRecognisedWithoutToken "recognise a release without the token" mutation 10 seed 942
                model NO_LOSS in 13:
                    "a paused holder takes another's release for its own and deletes the only wake-up: stuck",
                one {} may { exclusive_leases: 1, take_overs: 1 };
            FailKeepsItsMessage "`fail` keeps its message instead of sending a new one" mutation 11 seed 1199
                model NO_LOSS in 9:
                    "the message was a copy of a deleted one, and the ingest that owed a wake-up died: stuck",
                two { stray: true, counts_are_shown: false } may { failures: 1, ingest_crashes: 1 };
            RedeliveryAcquiresAtOnce "a message received again acquires without sending a new one"
                mutation 12 seed 18
                model NO_LOSS in 6: "the message was a copy of a deleted one; an ingest and the worker crash: stuck",
                two { stray: true } may { worker_crashes: 1, ingest_crashes: 1 };
            AcquireAfterVisibilityTimeout "acquire although the message may be visible again"
                model NO_LOSS in 6: "another worker is done with the message; an ingest and a worker crash: stuck",
                two { stray: true, may_be_back: true } may { worker_crashes: 1, ingest_crashes: 1 };
            FailWithoutHead "`fail` without `head` = sequence - 1, if settles keep the token and a commit in doubt counts as failed"
                mutation 13
                model CHARGED in 9: "after a commit whose reply was lost, a failure is counted for the next delivery",
                two { commit: true } may { lost_replies: 1 }
                assumes [DoubtfulCommitFails, OneTokenPerDrain];
            HolderFromRequest "holder id from the request" mutation 14 seed 1
                model EXCLUSION in 12: "a repeated request takes another's grant for its own: two holders",
                one { workers: 2 } may { copies: 1, take_overs: 1 };
            ReleaseRecognisedWithoutHead "recognise settle-and-release by the token alone"
                model NO_LOSS in 13:
                    "after an exclusive holder's release, the paused worker believes its delivery settled and deletes the only wake-up: stuck",
                one {} may { exclusive_leases: 1, take_overs: 1 };
            RedriveWithoutLookup "redrive without checking the settlement"
                model ONCE in 22:
                    "the holder that parked the delivery lost its lease before the settle; the next holder applied it, and the redrive applies it again",
                one {} may { worker_crashes: 1, take_overs: 1, rejections: 1, redrives: 1 };
            SettleRemembersNothing "a settle leaves no receipt" mutation 19 seed 1
                model ONCE in 8: "a repeat runs again",
                repeated {} may {};
            DropWithoutReceipt "receipts leave the row without a copy" mutation 20 seed 6
                model ONCE in 15: "the holder dies, and a repeat two sequences later runs again",
                with_repeat { capacity: 1 } may { worker_crashes: 1 };
            ReceiptsUnread "receipts that have left the row are not read" mutation 21 seed 4
                model ONCE in 15: "another holder runs a repeat whose receipt has left the row",
                with_repeat { capacity: 1 } may {};
            HolderForgetsDrops "a drain forgets the receipts that left the row since its grant"
                model ONCE in 12: "the drain runs a repeat of a delivery whose receipt it dropped",
                with_repeat { capacity: 1 } may {};
            PurgedBeforeItIsForgotten "an idle row is deleted before its receipts may be forgotten"
                model ONCE in 15: "a holder with a short retention released the row; a repeat runs again",
                repeated {} may { exclusive_leases: 1, purges: 1 };
            RedriveKeepsItsNumber "a redrive keeps its number"
                model NO_LOSS in 14: "the redriven delivery is settled as a repeat of the parked one, and lost",
                one {} may { rejections: 1, redrives: 1 };
            RedriveForgetsFirst "a redrive deletes the parked copy first"
                model NO_LOSS in 11: "the operator's process dies in between: lost",
                one {} may { rejections: 1, redrives: 1, ingest_crashes: 1 };
            UnblockWithoutWakeUp "unblock without a wake-up"
                model NO_LOSS in 9: "the wake-up that found the block was deleted: stuck",
                one { attempts: 1, block: true } may { failures: 1, unblocks: 1 };
            HandOverWithoutWakeUp "hand over without a wake-up"
                model NO_LOSS in 8: "the old wake-up is deleted: stuck",
                one {} may { overruns: 1 };
            AnswerBeforeWakeUp "answer before the owed wake-up is sent"
                model NO_LOSS in 2: "the instance is frozen or dies: stuck",
                one {} may {};
            RecreatedRowsReuseNumbers "a purged row starts again at its old numbers"
                model EXCLUSION in 11: "tokens repeat: a receiver refuses the current holder",
                two {} may { purges: 1 };
            ClaimKeepsPurgeAt "a claim keeps `purge_at`"
                model NO_LOSS in 10: "TTL deletes a row whose deliveries wait",
                two {} may { purges: 1 };
            NoWakeUpInRateWait "a claim owes no wake-up while a rate limit delays the next start"
                model NO_LOSS in 8: "nobody looks when the wait ends: stuck",
                two { rated: true } may {};
            CountAttemptWithoutStart "a take-over counts an attempt even without a recorded start" mutation 16 seed 0
                model CHARGED in 10: "a start that never happened counts an attempt",
                one {} may { worker_crashes: 1, take_overs: 1 };
            EveryReleaseSaysHandedOver "an exclusive release claims that a wake-up is on its way"
                model NO_LOSS in 8: "the holder dies before it sends one: stuck",
                two {} may { exclusive_leases: 1, exclusive_crashes: 1, ingest_crashes: 1 };
            FollowedBeforeSent "record that a wake-up follows an exclusive lease before it is sent"
                model NO_LOSS in 14:
                    "the worker dies in between, and its own wake-up is deleted when it is received again: stuck",
                one {} may { exclusive_leases: 1, worker_crashes: 1 };
            HoldsUnnumbered "begin and end of a hold check only whether it is on"
                model HOLD in 6: "a late first try puts an order on hold whose hold has ended: stuck",
                one {} may { holds: 1, late_writes: 1 };
            PurgedOnHold "an idle row on hold may be deleted"
                model HOLD in 9: "TTL deletes the hold, and the next delivery is handled",
                one {} may { holds: 1, purges: 1 };
            CommitIgnoresHold "a commit does not check for a hold"
                model HOLD in 10: "the reply to a commit does not return the row, so the next handler starts",
                two { commit: true } may { holds: 1 };
            ResumeWithoutWakeUp "a hold ends without a wake-up"
                model NO_LOSS in 6: "no wake-up was sent for deliveries that arrived during the hold: stuck",
                one {} may { holds: 1 };
            SkipTakesAnyHead "a skip takes any delivery in front"
                model SKIPPED in 10: "another delivery than the operator saw is parked",
                two {} may { skips: 1 };
            RewindWithoutLease "a rewind checks only `head`"
                model REWOUND in 19: "a late first try runs everything again",
                one {} may { rewinds: 1, late_writes: 1 };
            RewindWithoutReceipts "a rewind leaves receipts without rows of their own"
                model REWOUND in 18: "a parked delivery is run",
                one {} may { rewinds: 1, rejections: 1 };
            RepeatsItself "a receipt makes the delivery at its own sequence a repeat" mutation 22 seed 0
                model REWOUND in 17: "a rewound delivery is settled as a repeat of itself",
                one {} may { rewinds: 1 };
            OlderRunDecides "the receipt of an earlier run stays"
                model REWOUND in 30: "a delivery parked by its second run is run",
                one { attempts: 1 } may { rewinds: 2, failures: 1 };
            SpilledUnmarked "a settle drops receipts without a mark where they are"
                model ONCE in 15: "another holder runs a repeat whose receipt has left the row",
                with_repeat { capacity: 1 } may {};
            OlderRowDecides "a receipt's row counts, although a page has a later one"
                model NO_LOSS in 26: "a delivery parked by its second run counts as applied and is not redriven",
                two { capacity: 1, attempts: 1 } may { rewinds: 1, failures: 1, redrives: 1 };
            PendingOutlivesTheDrain "`pending_since` survives a drain" mutation 18 seed 3
                model PENDING in 6: "the next delivery looks as old as the first",
                two {} may {};
            StartWithoutTick "start a tick without checking whether it is recorded" mutation 15 seed 1;
            EraseRemovesNewer "erase also deliveries that were settled after the erase began" mutation 17 seed 33;
            DeferredOnce "delete a deferred delivery if the store refuses it again" mutation 23 seed 1;
            RestoreKeepsTokens "a restore advances no tokens" mutation 24 seed 2;
            RestoreKeepsSequences "a restore advances no sequences" mutation 25 seed 2;
            RestoreKeepsLeases "a restore ends no leases" mutation 26 seed 3;
            RestoreForgets "a restore drops the receipts in the rows" mutation 27 seed 2;
            RestoreParksNothing "a restore settles waiting deliveries as parked, without writing parked rows"
                mutation 28 seed 4;
            RestoreStopsAtTheTail "a restore does not look behind the tail" mutation 29 seed 8;
            RestoreRunsTicksAgain "a restore runs recorded ticks again" mutation 30 seed 0;
            RestoreResumesBlocked "a restore resumes blocked orders" mutation 31 seed 10;
            BreakerWaitCountsAttempt "a breaker's wait counts an attempt" mutation 32 seed 10;
            BreakerForgets "a breaker forgets its state after each batch" mutation 33 seed 39;
            PostponedStartCountsAttempt "a postponed start counts an attempt" mutation 34 seed 2;
            EachAnswerResetsWait "each failure forgets the waits before it" mutation 35 seed 16;
            DeferredSupersedes "under `latest`, a deferred delivery replaces earlier ones" mutation 36 seed 0;
            RepeatsWithinAPeriod "recognise an equal body only within one retry period of its sender"
                mutation 37 seed 3;
            RefusalBlocks "block an order at a delivery whose start a breaker refuses" mutation 38 seed 0;
            ProbeUnclaimed "probe a destination although another process has claimed the probe" mutation 40 seed 1;
            OutageOutlivesSuccess "a probe's success does not end the outage" mutation 41 seed 0;
            OutageUnread "start handlers of a destination that is down for all processes" mutation 42 seed 0;
            OwnClockDecides "decide about leases by the process's own clock" mutation 39 seed 0;
            SettleKeepsWaits "a settle leaves the mark of a failed order" mutation 43 seed 0
                model WAITS in 11: "a settled order is listed as failing",
                one {} may { failures: 1 };
            MissingCopyIsIgnored "settle a delivery of `fan-out` although a copy was not appended" mutation 44 seed 11;
            DoubtfulCommitFails "count a failed attempt if the reply of a commit was lost";
        }
    };
}

macro_rules! rules {
    ($($name:ident $text:literal $(mutation $number:literal $(seed $seed:literal)?)?
        $(model $property:ident in $steps:literal: $wrong:literal, $base:ident $fields:tt may $budget:tt
        $(assumes [$($assumed:ident),*])?)?;)*) => {
        /// A rule that a negative control violates.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum ViolatedRule { $(#[doc = $text] $name,)* }

        impl ViolatedRule {
            pub const ALL: &[ViolatedRule] = &[$(ViolatedRule::$name,)*];
        }

        const MUTATION_COUNT: usize = [$($($number,)?)*].len();

        /// The simulation's mutations in the order of their numbers, with the seed that is known to show each.
        pub const MUTATIONS: [(ViolatedRule, Option<u64>); MUTATION_COUNT] = {
            let mut mutations = [None; MUTATION_COUNT];
            $($(
                assert!(mutations[$number - 1].is_none(), "two mutations have one number");
                mutations[$number - 1] = Some((ViolatedRule::$name, [$(Some($seed),)? None][0]));
            )?)*
            let mut all = [(ViolatedRule::ReceiversIgnoreTokens, None); MUTATION_COUNT];
            let mut number = 0;
            while number < MUTATION_COUNT {
                all[number] = mutations[number].expect("the number of mutations is the largest number");
                number += 1;
            }
            all
        };
    };
}

with_rules!(rules);
