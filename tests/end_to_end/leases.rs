//! Exclusive leases: exclusion, cost, and the errors that callers get.

mod ends;

use tests::{clock, prelude::*};
use webhook_serializer::{
    engine::store::Store,
    leases::{CommitOutcome, KeyDisplay, LeaseError, RunError},
    protocol::lease::LeaseId,
};

fn subscription() -> EntityKey {
    key("invoice_gen/SUB-1234")
}

fn faulty(plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static) -> (TestWorld, Arc<FaultyTable>) {
    let mut world = TestWorld::new();
    let table = world.break_table(plan);
    (world, table)
}

#[derive(Default)]
struct Room {
    inside: AtomicU64,
    crowds: AtomicU64,
    tokens: Mutex<Vec<FencingToken>>,
    left_at: Mutex<Option<Duration>>,
    hand_overs: Mutex<Vec<Duration>>,
}

impl Room {
    async fn visit(&self, lease: Lease, env: &Env) -> Result<(), Infallible> {
        if let Some(left) = self.left_at.lock().unwrap().take() {
            self.hand_overs.lock().unwrap().push(env.monotonic() - left);
        }
        if self.inside.fetch_add(1, Relaxed) > 0 {
            self.crowds.fetch_add(1, Relaxed);
        }
        self.tokens.lock().unwrap().push(lease.token());
        env.sleep(Duration::from_millis(50)).await;
        self.inside.fetch_sub(1, Relaxed);
        *self.left_at.lock().unwrap() = Some(env.monotonic());
        Ok(())
    }

    fn visits(&self) -> usize {
        let tokens = self.tokens.lock().unwrap();
        assert_eq!(self.crowds.load(Relaxed), 0, "two were inside");
        assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
        tokens.len()
    }
}

#[tokio::test(start_paused = true)]
async fn uncontended_lease_costs_two_writes() {
    let (world, table) = faulty(|_| Fault::None);
    for _ in 0..3 {
        let before = (table.requests(), table.writes());
        let work = async |_| Ok::<_, Infallible>(7);
        assert_eq!(world.leases("a test").run(&subscription(), Terms::default(), work).await.unwrap(), 7);
        assert_eq!((table.requests() - before.0, table.writes() - before.1), (2, 2));
    }
    let row = world.state("invoice_gen/SUB-1234").await;
    assert!(row.held.is_none());
    assert!(world.memory.rows(&TableName::Entities)[0].number("purge_at").is_some(), "an idle row has a purge time");
    assert_eq!(world.messages.sent(), 0, "nothing waits, and no wake-up is sent");
}

/// Runs five callers of one key, then thirty-two callers of twenty keys.
#[tokio::test(start_paused = true)]
async fn lease_has_one_holder_and_growing_tokens() {
    for (callers, keys, visits) in [(5, 1, 4), (32, 20, 5)] {
        let (world, table) = faulty(|_| Fault::None);
        let rooms: Vec<Room> = (0..keys).map(|_| Room::default()).collect();
        join_all((0..callers).map(|caller| {
            let leases = world.leases(&format!("caller {caller}"));
            let env = world.env.clone();
            let rooms = &rooms;
            async move {
                for visit in 0..visits {
                    let number = (caller + visit * 7) % keys;
                    let key = key(&format!("test/{number}"));
                    let visit = |lease| rooms[number].visit(lease, &env);
                    leases.run(&key, Terms::default(), visit).await.unwrap();
                }
            }
        }))
        .await;
        assert_eq!(rooms.iter().map(Room::visits).sum::<usize>(), callers * visits);
        // Each visit takes two writes, each poll a read, and each poll that found the lease free a write.
        let reads = table.requests() - table.writes();
        let writes = table.writes();
        assert_eq!(reads, world.events.polls(), "a look is one read, and nothing else reads");
        let granted_and_released = 2 * (callers * visits) as u64;
        assert!(writes >= granted_and_released && writes <= granted_and_released + callers as u64 + reads);
    }
}

/// Has five callers work on one key for 50 ms each, twenty times, with 3 ms for each request. Returns the
/// median hand-over time and the requests per caller.
async fn hand_overs(client: impl AsyncFn(&Leases, &Env, &Room)) -> (Duration, f64) {
    let (world, table) = faulty(|_| Fault::Slow(Duration::from_millis(3)));
    let mut times = Vec::new();
    for _ in 0..20 {
        let room = Room::default();
        join_all((0..5).map(async |_| client(&world.leases("a caller"), &world.env, &room).await)).await;
        assert_eq!(room.visits(), 5);
        times.append(&mut room.hand_overs.lock().unwrap());
    }
    times.sort_unstable();
    (times[times.len() / 2], table.requests() as f64 / 100.0)
}

/// Polls by writing each time, as other lock clients do.
async fn polling(leases: &Leases, env: &Env, room: &Room, first: Duration, factor: u32) {
    let mut wait = first;
    let guard = loop {
        match leases.acquire(&subscription(), Terms::at_once()).await {
            Ok(guard) => break guard,
            Err(LeaseError::Contended { .. }) => env.sleep(env.jittered(wait)).await,
            Err(error) => panic!("{error}"),
        }
        wait = (wait * factor).min(Duration::from_secs(2));
    };
    room.visit(guard.lease().clone(), env).await.unwrap();
    guard.release().await.unwrap();
}

/// Promise: a lease waiter gets in sooner than by polling.
#[tokio::test(start_paused = true)]
async fn lease_waiter_acquires_sooner_than_by_polling() {
    let (ours, requests) = hand_overs(async |leases, env, room| {
        let visit = |lease| room.visit(lease, env);
        leases.run(&subscription(), Terms::default(), visit).await.unwrap();
    })
    .await;
    let second = Duration::from_secs(1);
    let fixed = hand_overs(async |leases, by, room| polling(leases, by, room, second, 1).await).await;
    let doubling = hand_overs(async |leases, by, room| polling(leases, by, room, second / 10, 2).await).await;
    println!(
        "median hand-over and requests each: ours {ours:?}, {requests}; a second {fixed:?}; doubling {doubling:?}"
    );
    assert!(ours * 3 < doubling.0 && ours * 10 < fixed.0, "{ours:?}, {fixed:?}, {doubling:?}");
}

/// Promise: `run_unless_held` is `None` if the lease is held.
#[tokio::test(start_paused = true)]
async fn error_of_contended_lease_names_holder() {
    let world = TestWorld::new();
    let guard = world.leases("the nightly run").acquire(&subscription(), Terms::default()).await.unwrap();
    let others = world.leases("a request");
    let began = world.env.monotonic();
    for (terms, most) in [(Terms::at_once(), 0), (Terms::default().wait(Duration::from_secs(3)), 3)] {
        let refused = others.acquire(&subscription(), terms).await.unwrap_err();
        assert!(matches!(&refused, LeaseError::Contended { by, .. } if by == "the nightly run"), "{refused}");
        assert_eq!((world.env.monotonic() - began).as_secs(), most);
    }
    let skipped = others.run_unless_held(&subscription(), Terms::default(), async |_| Ok::<_, Infallible>(1)).await;
    assert_eq!(skipped.unwrap(), None);
    guard.release().await.unwrap();
    let done = others.run_unless_held(&subscription(), Terms::default(), async |_| Ok::<_, Infallible>(1)).await;
    assert_eq!(done.unwrap(), Some(1));
}

/// Promise: `run` renews while the work runs.
#[tokio::test(start_paused = true)]
async fn lease_is_renewed_during_long_work() {
    let (world, table) = faulty(|_| Fault::None);
    let env = world.env.clone();
    let work = async |_| {
        env.sleep(Duration::from_secs(62)).await;
        Ok::<_, Infallible>(())
    };
    world.leases("a test").run(&subscription(), Terms::default(), work).await.unwrap();
    assert_eq!(table.writes(), 2 + 12, "a renewal every five seconds");
}

fn noted(id: &str) -> Write {
    Write {
        key: Key { table: TableName::Named("notes".into()), partition: ("id".into(), id.into()), sort: None },
        condition: Condition::absent("done"),
        action: Action::Update(vec![Change::Add { attribute: "times".into(), base: 0, by: 1 }]),
    }
}

fn times_noted(world: &TestWorld) -> Option<u64> {
    world.memory.rows(&TableName::Named("notes".into())).first().and_then(|row| row.number("times"))
}

/// Promise: `commit` lands with the release or not at all; a dropped guard is logged, and its lease expires.
#[tokio::test(start_paused = true)]
async fn commit_and_lease_release_land_together() {
    let (world, table) = faulty(|_| Fault::None);
    let leases = world.leases("a test");
    let value = leases
        .commit(&subscription(), Terms::default(), async |_| Ok::<_, Infallible>(("sent", vec![noted("n")])))
        .await
        .unwrap();
    assert_eq!((value, times_noted(&world), table.requests()), ("sent", Some(1), 2));
    assert!(world.state("invoice_gen/SUB-1234").await.held.is_none());
    let refusing = Write { condition: Condition::exists("done"), ..noted("n") };
    let refused = leases
        .commit(&subscription(), Terms::default(), async |_| Ok::<_, Infallible>(((), vec![noted("m"), refusing])))
        .await
        .unwrap_err();
    assert!(matches!(refused, RunError::NotCommitted), "{refused}");
    assert_eq!(world.memory.rows(&TableName::Named("notes".into())).len(), 1, "nothing of it landed");
    assert!(world.state("invoice_gen/SUB-1234").await.held.is_none(), "and the lease was released");
}

#[tokio::test(start_paused = true)]
async fn commit_sends_wake_up_for_deliveries_arrived_meanwhile() {
    let world = TestWorld::new();
    let leases = world.leases("a request");
    let mut guard = leases.acquire(&key("test/a"), Terms::default()).await.unwrap();
    guard.hold(world.append("test/a", "1")).await.unwrap();
    let sends = world.messages.sent();
    assert!(matches!(guard.commit(vec![noted("n")]).await.unwrap(), CommitOutcome::Committed));
    assert_eq!((times_noted(&world), world.messages.sent() - sends), (Some(1), 1));
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1"]);
}

/// Each request fails once in each way. Each failure costs at most three more requests.
#[tokio::test(start_paused = true)]
async fn request_error_does_not_lose_the_lease() {
    let unanswered = Fault::Before(TableError::Unknown("the request was lost".into()));
    let conflict = Fault::Before(TableError::Conflict);
    let throttled = Fault::Before(TableError::Throttled);
    for commit in [false, true] {
        for number in 1..=2 {
            for fault in [Fault::ReplyLost, Fault::SilentAfter, unanswered.clone(), conflict.clone(), throttled.clone()]
            {
                let told = format!("commit {commit}, request {number}, {fault:?}");
                let planned = fault.clone();
                let (world, table) =
                    faulty(move |call| if call.request == number { planned.clone() } else { Fault::None });
                let leases = world.leases("a test");
                let began = world.env.monotonic();
                if commit {
                    let work = async |_| Ok::<_, Infallible>(((), vec![noted("n")]));
                    leases.commit(&subscription(), Terms::default(), work).await.expect(&told);
                    assert_eq!(times_noted(&world), Some(1), "{told}");
                } else {
                    leases
                        .run(&subscription(), Terms::default(), async |_| Ok::<_, Infallible>(()))
                        .await
                        .expect(&told);
                }
                assert!(world.state("invoice_gen/SUB-1234").await.held.is_none(), "{told}");
                assert!(table.requests() <= 5, "{told}: {} requests", table.requests());
                assert!(world.env.monotonic() - began < Duration::from_secs(2), "{told}");
                assert_eq!(world.events.lost(), 0, "{told}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_under_lease_does_not_start_during_outage() {
    let started = AtomicU64::new(0);
    let outcome = async |fault: Fault, from: u64| {
        let (world, _) = faulty(move |call| if call.request >= from { fault.clone() } else { Fault::None });
        let work = async |_| {
            started.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(())
        };
        match world.leases("a test").run(&subscription(), Terms::default(), work).await {
            Err(RunError::Lease(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome(Fault::Before(TableError::Throttled), 1).await, LeaseError::Throttled);
    assert!(matches!(outcome(Fault::Silent, 1).await, LeaseError::Unreachable(_)));
    assert!(matches!(outcome(Fault::SilentAfter, 1).await, LeaseError::Unreachable(_)));
    let denied = Fault::Before(TableError::Invalid("AccessDeniedException".into()));
    assert!(matches!(outcome(denied, 1).await, LeaseError::Refused(_)));
    assert_eq!(started.load(Relaxed), 0);
    // The work is done, but the release may not have landed, so the call does not report success.
    assert!(matches!(outcome(Fault::Silent, 2).await, LeaseError::Unknown(_)));
    assert_eq!(started.load(Relaxed), 1);
}

/// Only throttling slows the polls down; silence and refusals do not.
#[tokio::test(start_paused = true)]
async fn throttling_makes_lease_waiter_poll_less_often() {
    let wait = Duration::from_secs(10);
    let count = async |fault: Fault| {
        let reads = Arc::new(AtomicU64::new(0));
        let counted = reads.clone();
        let (world, _) = faulty(move |call| {
            if call.write > 0 {
                return Fault::None;
            }
            counted.fetch_add(1, Relaxed);
            fault.clone()
        });
        let guard = world.leases("a holder").acquire(&subscription(), Terms::default()).await.unwrap();
        let began = world.env.monotonic();
        let refused = world.leases("a waiter").acquire(&subscription(), Terms::default().wait(wait)).await.unwrap_err();
        let waited = world.env.monotonic() - began;
        assert!(waited >= wait && waited < wait + Duration::from_secs(3), "{waited:?}: {refused}");
        guard.release().await.unwrap();
        reads.load(Relaxed)
    };
    let calm = count(Fault::None).await;
    let throttled = count(Fault::Before(TableError::Throttled)).await;
    let unknown = count(Fault::Before(TableError::Unknown("the request was lost".into()))).await;
    assert!(throttled * 4 < calm * 3, "{throttled} looks while throttled, {calm} otherwise");
    assert!(unknown * 3 > calm * 2, "{unknown} looks without an answer, {calm} otherwise");
}

/// Promise: a draining worker yields after its current delivery, a reacquiring caller lets deliveries pass.
#[tokio::test(start_paused = true)]
async fn lease_caller_waits_for_at_most_one_handler() {
    const DELIVERIES: usize = 1000;
    let world = TestWorld::new();
    let ids: Vec<String> = (0..DELIVERIES).map(|id| id.to_string()).collect();
    world.append_all("test/a", &ids).await;
    let workers = [world.drainer(Slow(Duration::from_millis(100))), world.drainer(Slow(Duration::from_millis(100)))];
    let request = async {
        world.env.sleep(Duration::from_millis(1050)).await;
        let leases = world.leases("a user's request");
        let started_before = world.started().len();
        let work = async |_: Lease| Ok::<_, Infallible>(world.started().len());
        let seen = leases.run(&key("test/a"), Terms::default(), work).await.unwrap();
        (started_before, seen)
    };
    let ((), (before, seen)) = tokio::join!(world.work(&workers), request);
    assert!(before > 0, "the drain was under way");
    assert!(seen <= before + 1, "{before} handlers had ended when it was asked for, {seen} when it was granted");
    assert_eq!(world.applied(), ids);
}

#[tokio::test(start_paused = true)]
async fn delivery_under_exclusive_lease_starts_at_its_release() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.work(&[world.drainer(Done)]).await;
    let guard = world.leases("a user's request").acquire(&key("test/a"), Terms::default()).await.unwrap();
    let request = async {
        world.env.sleep(Duration::from_millis(200)).await;
        guard.release().await.unwrap();
    };
    world.append("test/a", "2").await;
    let began = world.env.monotonic();
    let drainers = [world.drainer(Done)];
    tokio::join!(world.work(&drainers), request);
    let runs = world.journal.runs();
    assert_eq!(world.applied(), ["1", "2"]);
    assert_eq!(runs[1].started - began, Duration::from_millis(200));
    assert_eq!(world.events.drains_waited(), 0, "no worker waits meanwhile");
}

/// Promise: tokens grow over release, take-over, force release and deletion.
#[tokio::test(start_paused = true)]
async fn tokens_keep_growing_after_row_deletion() {
    let world = TestWorld::new();
    let leases = world.leases("a test");
    let mut tokens = Vec::new();
    let mut acquire = async || {
        let guard = leases.acquire(&subscription(), Terms::default()).await.unwrap();
        tokens.push(guard.lease().token());
        guard
    };
    acquire().await.release().await.unwrap();
    drop(acquire().await);
    drop(acquire().await);
    let seen = leases.look(&subscription()).await.unwrap().unwrap();
    assert!(leases.force_release(&seen, "ops", "a stuck run").await.unwrap().is_some());
    acquire().await.release().await.unwrap();
    let gone = Write { key: entity_row(&subscription()), condition: Condition::Always, action: Action::Delete };
    world.memory.write(&gone).await.unwrap();
    acquire().await.release().await.unwrap();
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn lease_lookup_hashes_key_and_holder_on_request() {
    let world = TestWorld::new();
    let leases = world.leases("invoices of Jane");
    let guard = leases.acquire(&subscription(), Terms::default().lease(Duration::from_secs(9))).await.unwrap();
    let id: LeaseId = guard.lease().id().to_string().parse().unwrap();
    let view = leases.look_by_id(&id).await.unwrap().expect("it is held");
    assert!(view.is_held());
    assert_eq!(view.token(), guard.lease().token());
    assert_eq!(
        (view.key(KeyDisplay::Raw), view.by(KeyDisplay::Raw)),
        ("invoice_gen/SUB-1234".into(), Some("invoices of Jane".into()))
    );
    let shown = format!("{} {}", view.key(KeyDisplay::Hashed), view.by(KeyDisplay::Hashed).unwrap());
    assert!(shown.starts_with("invoice_gen/#") && !shown.contains("1234") && !shown.contains("Jane"), "{shown}");
    let began = world.env.now();
    assert_eq!((view.since(), view.until()), (Some(began), Some(began + Duration::from_secs(9))));
    assert_eq!((view.id().as_ref(), view.kind(), view.waiting()), (Some(&id), Some(LeaseKind::Exclusive), 0));
    guard.release().await.unwrap();
    assert!(leases.look_by_id(&id).await.unwrap().is_none(), "it has ended");
    assert!("not-a-lease-id".parse::<LeaseId>().is_err());
    for number in 0..7 {
        leases.acquire(&key(&format!("test/{number}")), Terms::default()).await.unwrap().release().await.unwrap();
    }
    let mut from = None;
    let mut seen = Vec::new();
    loop {
        let page = leases.list(from, 3).await.unwrap();
        assert!(page.leases.len() <= 3);
        seen.extend(page.leases.iter().map(|view| view.key(KeyDisplay::Hashed)));
        match page.next {
            Some(next) => from = Some(next),
            None => break,
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 8);
    assert!(seen.contains(&view.key(KeyDisplay::Hashed)), "each time the same");
}

#[tokio::test(start_paused = true)]
async fn lease_view_counts_waiting_deliveries() {
    let world = TestWorld::new();
    let guard = world.leases("a user's request").acquire(&key("test/a"), Terms::default()).await.unwrap();
    world.append_all("test/a", ["1", "2"]).await;
    let view = world.leases("an operator").look(&key("test/a")).await.unwrap().expect("it is held");
    assert_eq!(view.waiting(), 2);
    guard.release().await.unwrap();
}

/// Promise: leases need only a table.
#[tokio::test(start_paused = true)]
async fn leases_need_a_table_but_no_queue() {
    let env = clock::env(1);
    let table = Arc::new(MemoryTable::new());
    let leases = Leases::new(Store::new(table, env), "a script");
    leases.run(&subscription(), Terms::default(), async |_| Ok::<_, Infallible>(())).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn oversized_commit_is_refused_and_releases_the_lease() {
    let world = TestWorld::new();
    let alone = Write { action: Action::Put(Row::new()), ..noted("n") };
    let too_many: Vec<Write> = std::iter::repeat_n(alone, 200).collect();
    let terms = Terms::default().wait(Duration::MAX);
    let work = async |_| Ok::<_, Infallible>(((), too_many.clone()));
    let refused = world.leases("a test").commit(&subscription(), terms, work).await.unwrap_err();
    assert!(matches!(refused, RunError::Lease(LeaseError::Refused(_))), "{refused}");
    assert!(world.state("invoice_gen/SUB-1234").await.held.is_none());
}
