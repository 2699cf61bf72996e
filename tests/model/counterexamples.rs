//! The counterexamples: for each change, where it shows, what breaks, and in
//! how many steps.

use webhook_serializer::sources::deliver::Deliver;

use crate::{
    audit::{CHARGED, DECIDED_ONCE, EXCLUSION, HOLD, NO_LATE_EFFECT, NO_LOSS, ONCE, ORDER, PENDING, REWOUND, SKIPPED},
    protocol::Protocol,
    state::Budget,
    without::Rule,
};

/// One control.
pub struct Control {
    /// As the table of `docs/protocol.md` has it.
    pub change: &'static str,
    pub changes: &'static [Rule],
    /// What is different already where the protocol must still hold.
    pub anyway: &'static [Rule],
    pub property: &'static str,
    /// The steps of a shortest counterexample.
    pub steps: usize,
    pub wrong: &'static str,
    /// Where it shows.
    pub model: Protocol,
}

pub const NOTHING: Budget = Budget {
    ingest_crashes: 0,
    worker_crashes: 0,
    voids: 0,
    copies: 0,
    lost_replies: 0,
    take_overs: 0,
    overruns: 0,
    failures: 0,
    timeouts: 0,
    rejections: 0,
    renewals: 0,
    expiries: 0,
    visitor_crashes: 0,
    visits: 0,
    redrives: 0,
    unblocks: 0,
    forced: 0,
    purges: 0,
    outages: 0,
    slices: 0,
    holds: 0,
    skips: 0,
    rewinds: 0,
    rewind_ends: 0,
    late_writes: 0,
};

/// Every control, those of the protocol's table first.
pub fn controls() -> Vec<Control> {
    let one = || Protocol::default();
    let two = || Protocol { arrivals: &[0, 1], ..Protocol::default() };
    let control = |change, changes, property, steps, wrong, model| Control {
        change,
        changes,
        anyway: &[],
        property,
        steps,
        wrong,
        model,
    };
    vec![
        control(
            "receivers ignore the token",
            &[Rule::ReceiversIgnoreTokens],
            NO_LATE_EFFECT,
            15,
            "a paused holder's effect lands after a newer one",
            Protocol { workers: 2, budget: Budget { take_overs: 1, ..NOTHING }, ..two() },
        ),
        control(
            "one token for a whole drain",
            &[Rule::OneTokenForADrain],
            NO_LATE_EFFECT,
            11,
            "a handler given up after its timeout lands its effect after the next delivery's",
            Protocol { attempts: 1, budget: Budget { timeouts: 1, ..NOTHING }, ..two() },
        ),
        control(
            "a group's failure is charged to the delivery in front",
            &[Rule::GroupIsCharged],
            CHARGED,
            10,
            "A is counted a failure that may be B's",
            Protocol { deliver: Deliver::UpTo(2), budget: Budget { failures: 1, ..NOTHING }, ..two() },
        ),
        control(
            "of a group only the last is remembered",
            &[Rule::GroupRemembersItsLast],
            ONCE,
            10,
            "A comes again, and is applied again",
            Protocol { arrivals: &[0, 1, 0], deliver: Deliver::UpTo(2), ..one() },
        ),
        control(
            "a group takes what stands behind a hole for what belongs there",
            &[Rule::GroupOverAHole],
            NO_LOSS,
            8,
            "what comes to that place later is settled already, as another",
            Protocol { deliver: Deliver::UpTo(2), ..two() },
        ),
        control(
            "release without `head = tail`",
            &[Rule::ReleaseWithoutTail],
            NO_LOSS,
            8,
            "a delivery claimed under the lease, its wake-up skipped, is never looked at",
            two(),
        ),
        control(
            "step over gaps",
            &[Rule::StepOverGaps],
            ORDER,
            8,
            "the place was empty when it was read; B is applied before A although A was answered first",
            two(),
        ),
        control(
            "void without put-if-absent",
            &[Rule::VoidUnconditionally],
            DECIDED_ONCE,
            6,
            "the marker overwrites a delivery that came meanwhile: one sequence decided twice",
            one(),
        ),
        control(
            "delete a wake-up at a drain's expired, empty lease",
            &[Rule::DeleteAtExpiredEmptyLease],
            NO_LOSS,
            12,
            "a worker that took it over from an exclusive holder has died; a claimer with a slow clock skips its \
             wake-up on its lease: stuck",
            Protocol {
                stray: true,
                budget: Budget { visits: 1, visitor_crashes: 1, worker_crashes: 1, take_overs: 2, ..NOTHING },
                ..one()
            },
        ),
        control(
            "drop a wake-up because another worker drains",
            &[Rule::DropWhileDrained],
            NO_LOSS,
            11,
            "that worker's own message was a copy of the one dropped; it crashes: stuck",
            Protocol { workers: 2, budget: Budget { copies: 1, worker_crashes: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a wake-up owed is forgotten after a void",
            &[Rule::ForgetOwedAfterVoid],
            NO_LOSS,
            7,
            "the second claim comes under the lease of a worker with a deleted message, whose copy did not show its \
             receive count, and which crashes: stuck",
            Protocol {
                stray: true,
                counts_are_shown: false,
                budget: Budget { voids: 1, worker_crashes: 1, ..NOTHING },
                ..one()
            },
        ),
        control(
            "a claim whose reply was lost is simply retried",
            &[Rule::RetryClaimWithoutDoubt],
            NO_LOSS,
            5,
            "the retry sees such a worker's lease and skips the wake-up that the first try owed: stuck",
            Protocol {
                stray: true,
                counts_are_shown: false,
                budget: Budget { lost_replies: 1, worker_crashes: 1, ..NOTHING },
                ..one()
            },
        ),
        control(
            "release recognised without the token",
            &[Rule::ReleaseRecognisedWithoutToken],
            NO_LOSS,
            13,
            "a paused holder takes another's release for its own and deletes the only wake-up: stuck",
            Protocol { budget: Budget { visits: 1, take_overs: 1, ..NOTHING }, ..one() },
        ),
        control(
            "fail keeps its old message instead of sending a fresh one",
            &[Rule::FailKeepsItsMessage],
            NO_LOSS,
            9,
            "it was a copy, not shown as one, of one already deleted; the ingest that owed a wake-up died: stuck",
            Protocol {
                stray: true,
                counts_are_shown: false,
                budget: Budget { failures: 1, ingest_crashes: 1, ..NOTHING },
                ..two()
            },
        ),
        control(
            "received-again messages acquire without a fresh one",
            &[Rule::ReceivedAgainAcquiresAtOnce],
            NO_LOSS,
            6,
            "a copy, an ingest crash and a worker crash together: stuck",
            Protocol { stray: true, budget: Budget { worker_crashes: 1, ingest_crashes: 1, ..NOTHING }, ..two() },
        ),
        control(
            "a lease is taken though the message may have come back meanwhile",
            &[Rule::AcquiresThoughItMayBeBack],
            NO_LOSS,
            6,
            "another worker has let it go; an ingest crash and a worker crash: stuck",
            Protocol {
                stray: true,
                may_be_back: true,
                budget: Budget { worker_crashes: 1, ingest_crashes: 1, ..NOTHING },
                ..two()
            },
        ),
        Control {
            anyway: &[Rule::DoubtfulCommitFails, Rule::OneTokenForADrain],
            ..control(
                "`fail` without `head` = sequence - 1, where settles do not change the token and a commit in doubt \
                 counts as a failure",
                &[Rule::FailWithoutHead],
                CHARGED,
                9,
                "a commit that landed unseen is charged to the next delivery",
                Protocol { commit: true, budget: Budget { lost_replies: 1, ..NOTHING }, ..two() },
            )
        },
        control(
            "holder id from the request",
            &[Rule::HolderFromRequest],
            EXCLUSION,
            12,
            "a repeated request's id is taken for \"my lost reply\": two holders",
            Protocol { workers: 2, budget: Budget { copies: 1, take_overs: 1, ..NOTHING }, ..one() },
        ),
        control(
            "settle-and-release recognised by the token alone",
            &[Rule::ReleaseRecognisedWithoutHead],
            NO_LOSS,
            13,
            "taken over and released by an exclusive holder, the entity is free one token on: the paused holder \
             believes its delivery settled and deletes the only wake-up",
            Protocol { budget: Budget { visits: 1, take_overs: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a redrive that does not ask how the delivery was settled",
            &[Rule::RedriveUnasked],
            ONCE,
            22,
            "parked by a holder that died or lost its lease before settling, applied by the next, put back and \
             applied again",
            Protocol {
                budget: Budget { worker_crashes: 1, take_overs: 1, rejections: 1, redrives: 1, ..NOTHING },
                ..one()
            },
        ),
        control(
            "a settle remembers nothing of what it is about",
            &[Rule::SettleRemembersNothing],
            ONCE,
            8,
            "a repeat runs again",
            Protocol { arrivals: &[0, 0], budget: NOTHING, ..one() },
        ),
        control(
            "what leaves the row is not written elsewhere before",
            &[Rule::DropWithoutReceipt],
            ONCE,
            15,
            "its holder dies, and a repeat two places later runs again",
            Protocol { arrivals: &[0, 1, 0], capacity: 1, budget: Budget { worker_crashes: 1, ..NOTHING }, ..one() },
        ),
        control(
            "receipts that have left the row are not read",
            &[Rule::ReceiptsUnread],
            ONCE,
            15,
            "another holder runs a repeat of what the row has no room for",
            Protocol { arrivals: &[0, 1, 0], capacity: 1, budget: NOTHING, ..one() },
        ),
        control(
            "a holder forgets what has left the row since its grant",
            &[Rule::DropsForgotten],
            ONCE,
            12,
            "it has read no receipts, and runs a repeat of what it has dropped itself",
            Protocol { arrivals: &[0, 1, 0], capacity: 1, budget: NOTHING, ..one() },
        ),
        control(
            "an idle row is deleted before it may forget",
            &[Rule::PurgedBeforeItIsForgotten],
            ONCE,
            15,
            "an exclusive holder who keeps nothing for long has released it; a repeat runs again",
            Protocol { arrivals: &[0, 0], budget: Budget { visits: 1, purges: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a redrive keeps its number",
            &[Rule::RedriveKeepsItsNumber],
            NO_LOSS,
            14,
            "it is a repeat of what was parked, and gone",
            Protocol { budget: Budget { rejections: 1, redrives: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a redrive removes what is parked first",
            &[Rule::RedriveForgetsFirst],
            NO_LOSS,
            11,
            "the operator's process dies in between",
            Protocol { budget: Budget { rejections: 1, redrives: 1, ingest_crashes: 1, ..NOTHING }, ..one() },
        ),
        control(
            "unblock without a wake-up",
            &[Rule::UnblockWithoutWakeUp],
            NO_LOSS,
            9,
            "the one that found it blocked was deleted: stuck",
            Protocol { attempts: 1, block: true, budget: Budget { failures: 1, unblocks: 1, ..NOTHING }, ..one() },
        ),
        control(
            "hand over without a wake-up",
            &[Rule::HandOverWithoutWakeUp],
            NO_LOSS,
            8,
            "the old one is deleted as the function ends: stuck",
            Protocol { budget: Budget { overruns: 1, ..NOTHING }, ..one() },
        ),
        control(
            "answer before the owed wake-up was sent",
            &[Rule::AnswerBeforeWakeUp],
            NO_LOSS,
            2,
            "the instance is frozen or dies: stuck",
            one(),
        ),
        control(
            "a purged row starts at its old numbers",
            &[Rule::PurgedRowsStartAtTheSame],
            EXCLUSION,
            11,
            "tokens come again: a receiver refuses a rightful holder, or accepts one of long ago",
            Protocol { budget: Budget { purges: 1, ..NOTHING }, ..two() },
        ),
        control(
            "a claim leaves `purge_at`",
            &[Rule::ClaimKeepsPurgeAt],
            NO_LOSS,
            10,
            "TTL deletes a row with deliveries waiting",
            Protocol { budget: Budget { purges: 1, ..NOTHING }, ..two() },
        ),
        control(
            "a claim during a rate's wait owes no wake-up",
            &[Rule::NoWakeUpDuringARatesWait],
            NO_LOSS,
            8,
            "the inbox was empty, and nobody looks when the wait is over: stuck",
            Protocol { rated: true, budget: NOTHING, ..two() },
        ),
        control(
            "a take-over charges an attempt, whether a start was written or not",
            &[Rule::ChargeWithoutAStart],
            CHARGED,
            10,
            "a holder that vanished before it had started anything costs the delivery an attempt",
            Protocol { budget: Budget { worker_crashes: 1, take_overs: 1, ..NOTHING }, ..one() },
        ),
        control(
            "an exclusive holder's release says that a wake-up is under way",
            &[Rule::EveryReleaseSaysHandedOver],
            NO_LOSS,
            8,
            "its holder dies before it sends one, and later claims send none either: stuck",
            Protocol { budget: Budget { visits: 1, visitor_crashes: 1, ingest_crashes: 1, ..NOTHING }, ..two() },
        ),
        control(
            "a hold asks only whether it is on hold, and so does its end",
            &[Rule::HoldsUnnumbered],
            HOLD,
            6,
            "a first try that lands late holds again what was resumed: stuck, and nobody was told",
            Protocol { budget: Budget { holds: 1, late_writes: 1, ..NOTHING }, ..one() },
        ),
        control(
            "an idle row on hold may be deleted",
            &[Rule::PurgedOnHold],
            HOLD,
            9,
            "TTL deletes the hold, and what comes next is handled",
            Protocol { budget: Budget { holds: 1, purges: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a commit does not ask whether its entity was put on hold",
            &[Rule::CommitBlindToHold],
            HOLD,
            10,
            "its answer does not bring the row, and the next handler starts",
            Protocol { commit: true, budget: Budget { holds: 1, ..NOTHING }, ..two() },
        ),
        control(
            "the end of a hold sends no wake-up",
            &[Rule::ResumeWithoutWakeUp],
            NO_LOSS,
            6,
            "what came meanwhile owed none: stuck",
            Protocol { budget: Budget { holds: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a skip takes whatever is in front once it has the lease",
            &[Rule::SkipsWhatIsInFront],
            SKIPPED,
            10,
            "the one that a person saw is applied by then, and the next is set aside",
            Protocol { budget: Budget { skips: 1, ..NOTHING }, ..two() },
        ),
        control(
            "a rewind asks only for the head it saw",
            &[Rule::RewindWithoutLease],
            REWOUND,
            19,
            "a first try that lands late has all of it run once more, and nobody asked for that",
            Protocol { budget: Budget { rewinds: 1, late_writes: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a rewind leaves what the row remembers without rows of its own",
            &[Rule::RewindWithoutReceipts],
            REWOUND,
            18,
            "what was set aside is run",
            Protocol { budget: Budget { rewinds: 1, rejections: 1, ..NOTHING }, ..one() },
        ),
        control(
            "a receipt makes a repeat of what stands at its own place",
            &[Rule::RepeatsItself],
            REWOUND,
            17,
            "what a person wants run again is left out as a repeat of itself",
            Protocol { budget: Budget { rewinds: 1, ..NOTHING }, ..one() },
        ),
        control(
            "the receipt of an earlier run stands",
            &[Rule::OlderRunStands],
            NO_LOSS,
            26,
            "what was set aside when it was run again counts as applied, and is not put back",
            Protocol {
                arrivals: &[0, 1],
                capacity: 1,
                attempts: 1,
                budget: Budget { rewinds: 1, failures: 1, redrives: 1, ..NOTHING },
                ..Protocol::default()
            },
        ),
        control(
            "`pending_since` outlives a drain",
            &[Rule::PendingOutlivesTheDrain],
            PENDING,
            6,
            "the next delivery looks as old as the first one did, to the alarm and to retention",
            Protocol { budget: NOTHING, ..two() },
        ),
    ]
}
