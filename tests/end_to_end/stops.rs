//! An order that a person stops, and lets go on: on hold, skipped, tried at once;
//! and what is written down of it.

use std::time::Duration;

use tests::{
    handlers::{Done, Slow, answering},
    world::World,
};
use webhook_serializer::{
    handler::{Context, Handler, HandlerError, Outcome},
    leases::Terms,
    operator::{Operator, OperatorError, Skipped, Turned},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
        format::attribute as a,
        hold::Hold,
        maintain::{BeginHold, EndHold, Reason, Verb},
        operation::Operation,
        receipt::Settlement,
        state::BlockReason,
        table::{TableName, Written},
    },
};

const DAY: Duration = Duration::from_secs(86_400);

fn entity() -> EntityKey {
    EntityKey::parse("test/a").expect("a key")
}

fn because() -> Reason {
    Reason::new("ada", "the warehouse counts its stock")
}

/// At work for less time than a worker goes by what it saw of the row.
#[derive(Debug, Clone, Copy)]
struct AtWork {
    commits: bool,
}

impl Handler for AtWork {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.surroundings().sleep(Duration::from_millis(300)).await;
        Ok(if self.commits { Outcome::Commit(Vec::new()) } else { Outcome::Done })
    }
}

/// An operator with a reason.
fn operator(world: &World) -> Operator {
    world.operator().because(because())
}

async fn on_hold(world: &World) -> Turned {
    operator(world).hold(&entity()).await.expect("memory answers")
}

async fn resumed(world: &World) -> Turned {
    operator(world).resume(&entity()).await.expect("memory answers")
}

async fn skipped(world: &World, sequence: Sequence) -> Skipped {
    operator(world).skip(&entity(), sequence).await.expect("memory answers")
}

/// Two of a source that blocks; the first has failed as often as it may.
async fn blocked() -> World {
    let world = World::new();
    for id in ["1", "2"] {
        world.inbox().append(&world.incoming_from("block", "test/a", id)).await.expect("it is appended");
    }
    world.work(&[world.drainer(answering(|_, _| Outcome::retry("not now")))]).await;
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
    world
}

#[tokio::test(start_paused = true)]
async fn on_hold_nothing_starts_and_resumed_all_of_it_in_order() {
    let world = World::new();
    assert!(matches!(on_hold(&world).await, Turned::Done(state) if state.is_empty()));
    for id in ["1", "2", "3"] {
        world.append("test/a", id).await;
    }
    assert!(world.messages.is_empty(), "what arrives owes no wake-up");
    world.waker().wake(&entity(), Duration::ZERO, Duration::from_secs(5)).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), [""; 0]);
    assert!(matches!(on_hold(&world).await, Turned::Unchanged(Some(_))));

    assert!(matches!(resumed(&world).await, Turned::Done(_)));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1", "2", "3"]);
    assert!(matches!(resumed(&world).await, Turned::Unchanged(Some(_))));
}

/// What is at work is settled, whichever way; no other starts.
#[tokio::test(start_paused = true)]
async fn a_hold_lets_the_handler_that_is_at_work_end_and_no_other_begin() {
    for commits in [false, true] {
        let world = World::new();
        for id in ["1", "2", "3"] {
            world.append("test/a", id).await;
        }
        let operator = world.operator();
        let hold = async {
            world.surroundings.sleep(Duration::from_millis(100)).await;
            operator.hold(&entity()).await.expect("memory answers")
        };
        let drainers = [world.drainer(AtWork { commits })];
        let (_, ()) = tokio::join!(hold, world.work(&drainers));
        assert_eq!(world.started(), ["1"], "commits: {commits}");
        let state = world.state("test/a").await;
        assert_eq!((state.waiting(), state.held), (2, None), "it is settled and let go");
        resumed(&world).await;
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.started(), ["1", "2", "3"]);
    }
}

/// The last of an inbox would leave the row to be deleted.
#[tokio::test(start_paused = true)]
async fn a_row_on_hold_is_never_deleted_for_idleness() {
    for commits in [false, true] {
        let world = World::new();
        world.append("test/a", "1").await;
        let operator = world.operator();
        let hold = async {
            world.surroundings.sleep(Duration::from_millis(100)).await;
            operator.hold(&entity()).await.expect("memory answers")
        };
        let drainers = [world.drainer(AtWork { commits })];
        let (_, ()) = tokio::join!(hold, world.work(&drainers));
        // A visitor's release is no reason either.
        world.leases("ada").acquire(&entity(), Terms::default()).await.unwrap().release().await.unwrap();
        let state = world.state("test/a").await;
        assert_eq!((state.is_empty(), state.held, state.pending_since), (true, None, None), "commits: {commits}");
        let purged = |table| world.memory.rows(&table).iter().filter(|row| row.get(a::PURGE_AT).is_some()).count();
        assert_eq!(purged(TableName::Entities), 0);
        assert!(matches!(world.operator().erase(&entity()).await, Err(OperatorError::InUse)));
        resumed(&world).await;
        assert_eq!(purged(TableName::Entities), 1, "idle and resumed it may go");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_first_try_changes_neither_a_later_hold_nor_its_end() {
    let world = World::new();
    let now = world.surroundings.now();
    let late_hold = BeginHold { entity: &entity(), seen: Hold::default(), now }.write();
    let Turned::Done(held) = on_hold(&world).await else { panic!("it was not on hold") };
    let late_end = EndHold { seen: &held, purge_at: None }.write();
    resumed(&world).await;
    assert!(matches!(world.table.write(&late_hold).await, Ok(Written::Refused(_))));
    on_hold(&world).await;
    assert!(matches!(world.table.write(&late_end).await, Ok(Written::Refused(_))));
    assert!(world.state("test/a").await.hold.since() > held.hold.since(), "each has a number of its own");
}

#[tokio::test(start_paused = true)]
async fn a_block_and_a_hold_are_ended_each_by_itself() {
    let world = blocked().await;
    on_hold(&world).await;
    world.operator().unblock(&entity()).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), [""; 0], "it is on hold");

    let world = blocked().await;
    on_hold(&world).await;
    resumed(&world).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), [""; 0], "it is blocked");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_put_on_hold() {
    let job = EntityKey::parse("cron/report").unwrap();
    assert_eq!(World::new().operator().hold(&job).await, Err(OperatorError::IsAJob));
}

#[tokio::test(start_paused = true)]
async fn a_blocked_order_goes_on_behind_what_is_skipped_which_can_be_put_back() {
    let world = blocked().await;
    let first = world.state("test/a").await.next();
    assert_eq!(skipped(&world, first).await, Skipped::As(Settlement::Parked));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["2"]);
    assert!(matches!(skipped(&world, first).await, Skipped::NotInFront(_)), "asked twice");

    let parked = world.operator().parked(&entity()).await.unwrap();
    let [parked] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!(parked.error, "skipped by ada: the warehouse counts its stock");
    world.operator().redrive(parked, None).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["2", "1"]);
}

/// The last one leaves an idle row; it may be on hold, and stays so.
#[tokio::test(start_paused = true)]
async fn the_last_that_waits_is_skipped_on_hold_or_not() {
    for holds in [false, true] {
        let world = World::new();
        world.append("test/a", "1").await;
        if holds {
            on_hold(&world).await;
        }
        let first = world.state("test/a").await.next();
        assert_eq!(skipped(&world, first).await, Skipped::As(Settlement::Parked));
        let state = world.state("test/a").await;
        assert_eq!((state.is_empty(), state.held.clone(), state.pending_since), (true, None, None));
        assert_eq!(state.hold.since().is_some(), holds);
        let row = &world.memory.rows(&TableName::Entities)[0];
        assert_eq!(row.get(a::PURGE_AT).is_some(), !holds);
    }
}

/// A handler that is at work on it ends first.
#[tokio::test(start_paused = true)]
async fn what_was_applied_by_the_time_that_it_is_skipped_stays_so() {
    let world = World::new();
    for id in ["1", "2"] {
        world.append("test/a", id).await;
    }
    let first = world.state("test/a").await.next();
    let operator = world.operator();
    let skip = async {
        world.surroundings.sleep(Duration::from_millis(100)).await;
        operator.skip(&entity(), first).await.expect("memory answers")
    };
    let drainers = [world.drainer(Slow(Duration::from_secs(2)))];
    let (skipped, ()) = tokio::join!(skip, world.work(&drainers));
    assert!(matches!(skipped, Skipped::NotInFront(_)), "{skipped:?}");
    assert_eq!(world.applied(), ["1", "2"]);
    assert!(world.operator().parked(&entity()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_order_that_nobody_knows_is_not_made_by_a_skip() {
    let world = World::new();
    let skip = world.operator().skip(&entity(), Sequence(1)).await;
    assert_eq!(skip, Err(OperatorError::Unknown));
    assert!(world.memory.rows(&TableName::Entities).is_empty());
}

#[tokio::test(start_paused = true)]
async fn tried_now_it_does_not_wait_and_its_attempts_stay_counted() {
    let world = World::new();
    world.append("test/a", "1").await;
    let began = world.surroundings.now();
    let drainers = [world.drainer(answering(|delivery, _| match delivery.attempt() {
        1 => Outcome::retry_after(DAY / 4, "not now"),
        _ => Outcome::Done,
    }))];
    let retry = async {
        world.surroundings.sleep(Duration::from_secs(5)).await;
        world.operator().retry(&entity()).await.expect("memory answers")
    };
    let (retried, ()) = tokio::join!(retry, world.work(&drainers));
    assert!(matches!(retried, Turned::Done(state) if state.attempts == 1));
    assert_eq!(world.started(), ["1", "1"]);
    let ended = world.journal.runs().last().expect("it ran").ended;
    assert!(ended < Duration::from_secs(60), "{ended:?} since {began}");
    let again = world.operator().retry(&entity()).await;
    assert!(matches!(again, Ok(Turned::Unchanged(Some(_)))), "nothing waits");
}

#[tokio::test(start_paused = true)]
async fn what_operators_do_is_told_with_who_and_why_until_it_is_erased() {
    let world = blocked().await;
    let first = world.state("test/a").await.next();
    on_hold(&world).await;
    skipped(&world, first).await;
    skipped(&world, first).await;
    resumed(&world).await;
    let acts = world.operator().acts(&entity()).await.unwrap();
    let told = |verb, sequence: Option<Sequence>, ended: &str| (verb, sequence, because(), Some(ended.to_owned()));
    let acts: Vec<_> = acts.into_iter().map(|act| (act.verb, act.sequence, act.reason, act.ended)).collect();
    assert_eq!(
        acts,
        [
            told(Verb::Hold, None, "done"),
            told(Verb::Skip, Some(first), "settled as parked"),
            told(Verb::Skip, Some(first), "nothing done: it was not in front"),
            told(Verb::Resume, None, "done"),
        ]
    );
    world.work(&[world.drainer(Done)]).await;
    world.operator().erase(&entity()).await.expect("it is idle");
    assert_eq!(world.operator().acts(&entity()).await.unwrap(), []);
}
