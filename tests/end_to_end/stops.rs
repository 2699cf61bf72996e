//! How operators stop an order and let it continue: hold, skip, retry, and the operations log.

use tests::prelude::*;
use webhook_serializer::{
    engine::queue::Queue,
    operator::StateChange,
    protocol::{
        hold::Hold,
        inbox::RetryNow,
        maintain::{BeginHold, EndHold},
    },
};

const DAY: Duration = Duration::from_secs(86_400);

fn because() -> Reason {
    Reason::new("ada", "the warehouse counts its stock")
}

/// A handler whose start is shorter than the time for which a worker trusts its last read of the row.
#[derive(Debug, Clone, Copy)]
struct ShortStart {
    commits: bool,
}

impl Handler for ShortStart {
    async fn handle(&self, _: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        context.env().sleep(Duration::from_millis(300)).await;
        Ok(if self.commits { Outcome::Commit(Vec::new()) } else { Outcome::Done })
    }
}

/// Puts the order on hold while its first handler runs.
async fn held_while_at_work(world: &TestWorld, commits: bool) {
    let operator = world.operator();
    let hold = async {
        world.env.sleep(Duration::from_millis(100)).await;
        operator.hold(&entity()).await.expect("memory answers")
    };
    let drainers = [world.drainer(ShortStart { commits })];
    tokio::join!(hold, world.work(&drainers));
}

fn operator(world: &TestWorld) -> Operator {
    world.operator().because(because())
}

async fn on_hold(world: &TestWorld) -> StateChange {
    operator(world).hold(&entity()).await.expect("memory answers")
}

async fn resumed(world: &TestWorld) -> StateChange {
    operator(world).resume(&entity()).await.expect("memory answers")
}

async fn skipped(world: &TestWorld, sequence: Sequence) -> SkipOutcome {
    operator(world).skip(&entity(), sequence).await.expect("memory answers")
}

/// Promise: an order on hold starts no handler, and nothing of it expires.
#[tokio::test(start_paused = true)]
async fn held_order_starts_nothing_until_resumed() {
    let world = TestWorld::new();
    assert!(matches!(on_hold(&world).await, StateChange::Done(state) if state.is_empty()));
    world.append_all("test/a", ["1", "2", "3"]).await;
    assert!(world.messages.is_empty(), "what arrives owes no wake-up");
    world.waker().wake(&entity(), Duration::ZERO, Duration::from_secs(5)).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started(), [""; 0]);
    assert!(matches!(on_hold(&world).await, StateChange::Unchanged(Some(_))));

    assert!(matches!(resumed(&world).await, StateChange::Done(_)));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1", "2", "3"]);
    assert!(matches!(resumed(&world).await, StateChange::Unchanged(Some(_))));
}

#[tokio::test(start_paused = true)]
async fn hold_lets_the_running_handler_finish() {
    for commits in [false, true] {
        let world = TestWorld::with("test/a", ["1", "2", "3"]).await;
        held_while_at_work(&world, commits).await;
        assert_eq!(world.started(), ["1"], "commits: {commits}");
        let state = world.state("test/a").await;
        assert_eq!((state.waiting(), state.held), (2, None), "it is settled and released");
        resumed(&world).await;
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.started(), ["1", "2", "3"]);
    }
}

/// Without the hold, settling the last delivery would set an expiry.
#[tokio::test(start_paused = true)]
async fn row_of_order_on_hold_never_expires() {
    for commits in [false, true] {
        let world = TestWorld::with("test/a", ["1"]).await;
        held_while_at_work(&world, commits).await;
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
async fn hold_or_resume_write_landing_late_is_refused() {
    let world = TestWorld::new();
    let now = world.env.now();
    let late_hold = BeginHold { entity: &entity(), seen: Hold::default(), now }.write();
    let StateChange::Done(held) = on_hold(&world).await else { panic!("it was not on hold") };
    let late_end = EndHold { seen: &held, purge_at: None }.write();
    resumed(&world).await;
    assert!(matches!(world.table.write(&late_hold).await, Ok(Written::Refused(_))));
    on_hold(&world).await;
    assert!(matches!(world.table.write(&late_end).await, Ok(Written::Refused(_))));
    assert!(world.state("test/a").await.hold.since() > held.hold.since(), "each has a number of its own");
}

#[tokio::test(start_paused = true)]
async fn unblock_keeps_hold_and_resume_keeps_block() {
    let world = TestWorld::blocked().await;
    on_hold(&world).await;
    world.operator().unblock(&entity()).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), [""; 0], "it is on hold");

    let world = TestWorld::blocked().await;
    on_hold(&world).await;
    resumed(&world).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), [""; 0], "it is blocked");
}

#[tokio::test(start_paused = true)]
async fn hold_of_a_job_is_refused() {
    let job = key("cron/report");
    assert_eq!(TestWorld::new().operator().hold(&job).await, Err(OperatorError::IsAJob));
}

/// Promise: `skip` parks only the delivery the operator saw.
#[tokio::test(start_paused = true)]
async fn blocked_order_continues_after_skipping_first_delivery() {
    let world = TestWorld::blocked().await;
    let first = world.state("test/a").await.next();
    assert_eq!(skipped(&world, first).await, SkipOutcome::As(Settlement::Parked));
    let receipts = world.operator().receipts(&entity()).await.unwrap();
    assert_eq!(receipts.iter().map(|receipt| receipt.attempts).collect::<Vec<_>>(), [2], "it was tried before");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["2"]);
    assert!(matches!(skipped(&world, first).await, SkipOutcome::NotInFront(_)), "asked twice");

    let parked = world.operator().parked(&entity()).await.unwrap();
    let [parked] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!(parked.error, "skipped by ada: the warehouse counts its stock");
    world.operator().redrive(parked, None).await.unwrap();
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["2", "1"]);
}

#[tokio::test(start_paused = true)]
async fn last_waiting_delivery_can_be_skipped() {
    for holds in [false, true] {
        let world = TestWorld::with("test/a", ["1"]).await;
        if holds {
            on_hold(&world).await;
        }
        let first = world.state("test/a").await.next();
        assert_eq!(skipped(&world, first).await, SkipOutcome::As(Settlement::Parked));
        let state = world.state("test/a").await;
        assert_eq!((state.is_empty(), state.held.clone(), state.pending_since), (true, None, None));
        assert_eq!(state.hold.since().is_some(), holds);
        let row = &world.memory.rows(&TableName::Entities)[0];
        assert_eq!(row.get(a::PURGE_AT).is_some(), !holds);
    }
}

#[tokio::test(start_paused = true)]
async fn skip_of_an_applied_delivery_changes_nothing() {
    let world = TestWorld::with("test/a", ["1", "2"]).await;
    let first = world.state("test/a").await.next();
    let operator = world.operator();
    let skip = async {
        world.env.sleep(Duration::from_millis(100)).await;
        operator.skip(&entity(), first).await.expect("memory answers")
    };
    let drainers = [world.drainer(Slow(Duration::from_secs(2)))];
    let (skipped, ()) = tokio::join!(skip, world.work(&drainers));
    assert!(matches!(skipped, SkipOutcome::NotInFront(_)), "{skipped:?}");
    assert_eq!(world.applied(), ["1", "2"]);
    assert!(world.operator().parked(&entity()).await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn skip_of_unknown_order_creates_no_row() {
    let world = TestWorld::new();
    let skip = world.operator().skip(&entity(), Sequence(1)).await;
    assert_eq!(skip, Err(OperatorError::Unknown));
    assert!(world.memory.rows(&TableName::Entities).is_empty());
}

#[tokio::test(start_paused = true)]
async fn retry_command_keeps_counted_attempts() {
    let world = TestWorld::with("test/a", ["1"]).await;
    let began = world.env.now();
    let drainers = [world.drainer(answering(|delivery, _| match delivery.attempt() {
        1 => Outcome::retry_after(DAY / 4, "not now"),
        _ => Outcome::Done,
    }))];
    let retry = async {
        world.env.sleep(Duration::from_secs(5)).await;
        world.operator().retry(&entity()).await.expect("memory answers")
    };
    let (retried, ()) = tokio::join!(retry, world.work(&drainers));
    assert!(matches!(retried, StateChange::Done(state) if state.attempts == 1));
    assert_eq!(world.started(), ["1", "1"]);
    let ended = world.journal.runs().last().expect("it ran").ended;
    assert!(ended < Duration::from_secs(60), "{ended:?} since {began}");
    let again = world.operator().retry(&entity()).await;
    assert!(matches!(again, Ok(StateChange::Unchanged(Some(_)))), "nothing waits");
}

/// Promise: operations are logged until erased; concurrent ones end as if in turn.
#[tokio::test(start_paused = true)]
async fn operations_log_keeps_operator_and_reason() {
    let world = TestWorld::blocked().await;
    let first = world.state("test/a").await.next();
    let a_moment = async || world.env.sleep(Duration::from_secs(1)).await;
    on_hold(&world).await;
    a_moment().await;
    skipped(&world, first).await;
    a_moment().await;
    skipped(&world, first).await;
    a_moment().await;
    resumed(&world).await;
    let acts = world.operator().acts(&entity()).await.unwrap();
    let told = |verb: &str, sequence: Option<Sequence>, ended: &str| {
        (verb.to_owned(), sequence, because(), Some(ended.to_owned()))
    };
    let acts: Vec<_> = acts.into_iter().map(|act| (act.verb, act.sequence, act.reason, act.ended)).collect();
    assert_eq!(
        acts,
        [
            told("hold", None, "done"),
            told("skip", Some(first), "settled as parked"),
            told("skip", Some(first), "nothing was changed: the delivery is not the next one"),
            told("resume", None, "done"),
        ]
    );
    world.work(&[world.drainer(Done)]).await;
    // The rows of two deliveries, the parked one and four operations, and the receipts in the order's row.
    assert_eq!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { rows: 2 + 1 + 4 + 1 }));
    assert_eq!(world.operator().acts(&entity()).await.unwrap(), []);
}

#[derive(Debug)]
struct DownQueue;

impl Queue for DownQueue {
    fn send<'a>(&'a self, _: &'a Message, _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(ready(Err(QueueError::Unavailable("it is down".into()))))
    }
}

#[tokio::test(start_paused = true)]
async fn operator_command_changes_nothing_if_wake_up_fails() {
    let mut world = TestWorld::blocked().await;
    on_hold(&world).await;
    let first = world.state("test/a").await.next();
    let queue = std::mem::replace(&mut world.queue, Arc::new(DownQueue));
    let before = world.state("test/a").await;
    let nobody = Err(OperatorError::NobodyToWake(QueueError::Unavailable("it is down".into())));
    assert_eq!(world.operator().resume(&entity()).await, nobody);
    assert_eq!(world.operator().unblock(&entity()).await.map(drop), nobody.clone().map(|_: StateChange| ()));
    assert_eq!(world.operator().skip(&entity(), first).await.map(drop), nobody.map(|_: StateChange| ()));
    let after = world.state("test/a").await;
    assert_eq!((after.hold, after.blocked, after.head, after.held), (before.hold, before.blocked, before.head, None));
    assert!(world.operator().parked(&entity()).await.unwrap().is_empty());
    world.queue = queue;
    resumed(&world).await;
}

/// The operator's process dies before each of its calls in turn, and no sweep runs.
#[tokio::test(start_paused = true)]
async fn operator_command_killed_midway_leaves_no_order_without_wake_up() {
    for what in ["resume", "skip", "unblock", "retry"] {
        for survives in 1.. {
            let mut world = match what {
                "resume" => TestWorld::new(),
                "retry" => failing_for_hours().await,
                _ => TestWorld::blocked().await,
            };
            if what == "resume" {
                on_hold(&world).await;
                world.append("test/a", "2").await;
            }
            let first = world.state("test/a").await.next();
            let table = world.fail(Fault::SilentAfter, move |call| call.request >= survives);
            let operator = operator(&world);
            world.table = world.memory.clone();
            let work = async {
                match what {
                    "resume" => drop(operator.resume(&entity()).await),
                    "skip" => drop(operator.skip(&entity(), first).await),
                    "unblock" => drop(operator.unblock(&entity()).await),
                    _ => drop(operator.retry(&entity()).await),
                }
            };
            let _ = world.env.within(Duration::from_secs(1), work).await;
            // Wake-ups that are delayed by up to a minute arrive in this time; a retry in hours does not.
            let within = world.env.within(Duration::from_secs(120), world.work(&[world.drainer(Done)])).await;
            let state = world.state("test/a").await;
            let goes_on = state.is_empty() || state.is_stopped() || state.retry_at.is_some();
            assert!(goes_on, "{what}, dead at call {survives}: {state:?}, {within:?}");
            if table.requests() < survives {
                break;
            }
        }
    }
}

async fn failing_for_hours() -> TestWorld {
    let world = TestWorld::with("test/a", ["1"]).await;
    let fails = answering(|_, _| Outcome::retry_after(DAY / 4, "not now"));
    let _ = world.env.within(Duration::from_secs(5), world.work(&[world.drainer(fails)])).await;
    world
}

/// A slow put lands after the skip's read and before its tombstone.
#[tokio::test(start_paused = true)]
async fn delivery_stored_during_a_skip_is_parked() {
    for before in 1..12_u64 {
        let mut world = TestWorld::new();
        world.append_from("block", "test/a", "1").await;
        world.messages.clear();
        let expired = Change::set(a::BLOCKED, BlockReason::Expired.as_str());
        world.memory.write(&Write::update(entity_row(&entity()), vec![expired])).await.unwrap();
        let first = world.state("test/a").await.next();
        let key = delivery_row(&entity(), first);
        let stored = world.memory.get(&key).await.unwrap().unwrap();
        world.memory.write(&Write::delete(key.clone())).await.unwrap();
        let pause = Duration::from_millis(500);
        let (operator, _) = world.failing_operator(Fault::Slow(pause), move |call| call.request == before);
        let late = async {
            world.env.sleep(Duration::from_millis(300)).await;
            let put = Write { condition: Condition::absent(a::ITEM), ..Write::put(key, stored) };
            matches!(world.memory.write(&put).await, Ok(Written::Landed(_)))
        };
        let entity = entity();
        let (skipped, landed) = tokio::join!(operator.skip(&entity, first), late);
        let parked = world.operator().parked(&entity).await.unwrap().len();
        assert_eq!(parked, usize::from(landed), "before call {before}: {skipped:?}");
    }
}

/// The next delivery does not have to wait for a requeued wake-up.
#[tokio::test(start_paused = true)]
async fn skip_sends_wake_up_for_next_delivery() {
    let world = TestWorld::blocked().await;
    world.messages.clear();
    for wakes in [1, 0] {
        let next = world.state("test/a").await.next();
        assert_eq!(skipped(&world, next).await, SkipOutcome::As(Settlement::Parked));
        let at_once = world.messages.delays().into_iter().filter(Duration::is_zero).count();
        assert_eq!(at_once, wakes, "{next:?}");
        world.messages.clear();
    }
}

#[tokio::test(start_paused = true)]
async fn unfilled_sequence_is_not_skipped() {
    let world = TestWorld::new();
    let patience = Duration::from_secs(5);
    let (place, nonce) = world.claim("test/a").await;
    assert_eq!(skipped(&world, place).await, SkipOutcome::NotThereYet);
    let envelope = Envelope::pack(&world.incoming("test/a", "late"), &nonce, world.env.now() + 30 * DAY);
    world.store().run(&Put { envelope: &envelope, sequence: place }, patience).await.expect("memory answers");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["late"]);
}

#[tokio::test(start_paused = true)]
async fn skip_or_retry_does_not_bypass_the_rate() {
    for skips in [true, false] {
        let world = TestWorld::new();
        world.append_all_from("rarely", "test/a", ["1", "2", "3"]).await;
        let began = world.env.monotonic();
        let drainers = [world.drainer(Done)];
        let act = async {
            world.env.sleep(Duration::from_millis(500)).await;
            if skips {
                let next = world.state("test/a").await.next();
                assert_eq!(world.operator().skip(&entity(), next).await, Ok(SkipOutcome::As(Settlement::Parked)));
            } else {
                let retried = world.operator().retry(&entity()).await;
                assert!(matches!(retried, Ok(StateChange::Unchanged(Some(_)))), "{retried:?}");
            }
        };
        tokio::join!(act, world.work(&drainers));
        assert_eq!(world.applied(), if skips { vec!["1", "3"] } else { vec!["1", "2", "3"] });
        let second = world.journal.runs()[1].started;
        assert!(second - began >= Duration::from_secs(3), "{second:?}: three seconds after the first");
    }
}

#[tokio::test(start_paused = true)]
async fn retry_command_changes_no_order_blocked_or_on_hold_or_leased() {
    let world = TestWorld::blocked().await;
    assert!(matches!(world.operator().retry(&entity()).await, Ok(StateChange::Unchanged(Some(_)))));
    let world = failing_for_hours().await;
    on_hold(&world).await;
    assert!(matches!(world.operator().retry(&entity()).await, Ok(StateChange::Unchanged(Some(_)))));
    resumed(&world).await;
    let late = RetryNow { seen: &world.state("test/a").await }.write();
    let guard = world.leases("ada").acquire(&entity(), Terms::default()).await.unwrap();
    assert!(matches!(world.table.write(&late).await, Ok(Written::Refused(_))), "it is held");
    guard.release().await.unwrap();
    assert!(matches!(world.table.write(&late).await, Ok(Written::Refused(_))), "somebody had it since");
}

#[tokio::test(start_paused = true)]
async fn row_of_resumed_empty_order_expires_after_lease_release() {
    let world = TestWorld::new();
    on_hold(&world).await;
    let guard = world.leases("ada").acquire(&entity(), Terms::default()).await.unwrap();
    resumed(&world).await;
    guard.release().await.unwrap();
    let row = &world.memory.rows(&TableName::Entities)[0];
    assert!(row.get(a::PURGE_AT).is_some(), "{row:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_time_after_skip_counts_from_next_deliverys_arrival() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.env.sleep(Duration::from_secs(60)).await;
    let came = world.env.now();
    world.append("test/a", "2").await;
    world.env.sleep(Duration::from_secs(60)).await;
    let first = world.state("test/a").await.next();
    skipped(&world, first).await;
    assert_eq!(world.state("test/a").await.pending_since, Some(came));
}

#[tokio::test(start_paused = true)]
async fn skip_keeps_all_receipts() {
    let world = TestWorld::new();
    for number in 0..30 {
        world.append("test/a", &number.to_string()).await;
        if number % 2 == 1 {
            let next = world.state("test/a").await.next();
            skipped(&world, next).await;
        }
        world.work(&[world.drainer(Done)]).await;
    }
    world.append_all("test/a", 0..30).await;
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.started().len(), world.applied().len());
    let once: BTreeSet<_> = world.started().into_iter().collect();
    assert_eq!(once.len(), world.started().len(), "{:?}", world.started());
}
