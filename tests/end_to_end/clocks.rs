//! Leases among processes whose clocks are wrong by up to a day. The store's time decides.

use tests::{clock::TokioClock, dated::DatedTable, prelude::*};
use webhook_serializer::{
    engine::store::Store,
    jobs::{Job, once::Once},
    leases::LeaseError,
};

const SECOND: i64 = 1000;
const DAY: i64 = 86_400 * SECOND;

/// Clocks of two processes, in milliseconds ahead.
const CLOCKS: [[i64; 2]; 8] = [
    [0, 16 * SECOND],
    [0, -16 * 60 * SECOND],
    [0, DAY],
    [0, -DAY],
    [16 * SECOND, 0],
    [-16 * 60 * SECOND, 0],
    [DAY, -DAY],
    [-DAY, DAY],
];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

struct ClockedWorld {
    clock: TokioClock,
    world: TestWorld,
    table: Arc<FaultyTable>,
}

impl ClockedWorld {
    /// Returns a place with a request time of 3 ms. The store's clock shows `phase` milliseconds of its second.
    async fn new(phase: u64) -> Self {
        let clock = TokioClock::start();
        clock.sleep(Duration::from_millis(phase)).await;
        let mut world = TestWorld::by(Env::new(clock, SeededRandom::new(1)));
        let table = world.break_table(|_| Fault::Slow(Duration::from_millis(3)));
        Self { clock, world, table }
    }

    fn process(&self, ahead: i64) -> (Leases, Env) {
        let env = ShiftedClock::ahead(self.clock, ahead).env(ahead.unsigned_abs() + 7);
        let table = Arc::new(DatedTable::new(self.world.table.clone(), &env, self.clock));
        (Leases::new(Store::new(table, env.clone()), "a process").observed_by(self.world.events.clone()), env)
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_clocks_take_over_no_live_lease() {
    for [holder, waiter] in CLOCKS {
        for (length, phase) in [(1, 0), (1, 400), (1, 996), (15, 0), (15, 996), (900, 0)] {
            let place = ClockedWorld::new(phase).await;
            let (leases, env) = place.process(holder);
            let (others, _) = place.process(waiter);
            let terms = Terms::default().lease(seconds(length));
            let mut guard = leases.acquire(&entity(), terms).await.expect("it is free");
            let hold = async {
                guard.hold(env.sleep(seconds(60))).await.expect("the lease is never lost");
                guard.release().await.expect("the lease is still held");
            };
            let wait = async {
                let refused = others.acquire(&entity(), Terms::default().wait(seconds(50))).await;
                let is_held = matches!(refused, Err(LeaseError::Contended { .. }));
                assert!(is_held, "{holder} {waiter} {length} {phase}: {refused:?}");
            };
            tokio::join!(hold, wait);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lease_of_dead_holder_is_taken_over_despite_wrong_clocks() {
    for ([holder, waiter], phase) in CLOCKS.into_iter().zip((0..).step_by(140)) {
        let place = ClockedWorld::new(phase).await;
        let leases = place.process(holder).0;
        let others = place.process(waiter).0;
        let begun = place.clock.monotonic();
        drop(leases.acquire(&entity(), Terms::default()).await.expect("it is free"));
        others.acquire(&entity(), Terms::default()).await.expect("it has expired").release().await.expect("it is held");
        let waited = place.clock.monotonic() - begun;
        // The length of a lease, a second for each side's knowledge of the store's time, and a poll.
        assert!((seconds(15)..seconds(18)).contains(&waited), "{holder} {waiter}: {waited:?}");
    }
}

/// Promise: if a process's clock is wrong, its first lease costs a third request.
#[tokio::test(start_paused = true)]
async fn only_first_lease_by_wrong_clock_costs_third_request() {
    for (ahead, first, phase) in
        [(0, 2, 0), (0, 2, 500), (0, 2, 996), (900, 2, 0), (-900, 2, 996), (DAY, 3, 0), (-DAY, 3, 0)]
    {
        let place = ClockedWorld::new(phase).await;
        let (leases, _) = place.process(ahead);
        for expected in [first, 2] {
            let before = place.table.requests();
            leases.run(&entity(), Terms::default(), async |_| Ok::<_, Infallible>(())).await.expect("it is free");
            assert_eq!(place.table.requests() - before, expected, "{ahead}");
        }
    }
}

/// At its first start, sets the clock of its process forward. The time that the clock skips counts as passed, as after a
/// freeze. At each start, checks that other processes see that the
/// lease runs.
struct SetsForward {
    memory: Arc<MemoryTable>,
    others: Env,
    clock: ShiftedClock,
    skipped: Duration,
    starts: AtomicU64,
}

impl Handler for SetsForward {
    async fn handle(&self, _: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        let store = Store::new(self.memory.clone(), self.others.clone());
        let state = store.entity(&entity(), seconds(5)).await.expect("memory answers").expect("the row exists");
        let number = self.starts.fetch_add(1, Relaxed);
        assert!(state.held.expect("it is held").runs(self.others.now()), "{:?}, start {number}", self.skipped);
        if number == 0 {
            self.clock.pass(self.skipped);
        }
        Ok(Outcome::Done)
    }
}

/// The time that the clock skips ends the slice, so the worker hands over before its next start.
#[tokio::test(start_paused = true)]
async fn clock_set_forward_during_handler_lets_nobody_in_beside_the_next_one() {
    for skipped in [seconds(10), seconds(60), seconds(17 * 60), seconds(86_400)] {
        let right = TokioClock::start();
        let clock = ShiftedClock::new(right);
        let env = Env::new(clock.clone(), SeededRandom::new(1));
        let mut world = TestWorld::by(env.clone());
        world.function_time = 2 * seconds(86_400);
        world.table = Arc::new(DatedTable::new(world.memory.clone(), &env, right));
        world.append_all(entity().as_str(), 1..=4).await;
        let handler = SetsForward {
            memory: world.memory.clone(),
            others: Env::new(right, SeededRandom::new(2)),
            clock,
            skipped,
            starts: AtomicU64::new(0),
        };
        let handler = Arc::new(handler);
        world.work(&[world.drainer(handler.clone())]).await;
        assert_eq!(handler.starts.load(Relaxed), 4, "{skipped:?}");
    }
}

#[tokio::test]
async fn embedded_dynamodb_dates_its_replies() {
    let testbed = TestBed::start().await;
    let env = Env::new(TokioClock::start(), SeededRandom::new(1));
    let store = testbed.engines.connect(&env, None).store;
    assert_eq!(store.entity(&entity(), seconds(5)).await, Ok(None));
    let by_machine = Env::system().now();
    let apart = by_machine.since(env.now()).max(env.now().since(by_machine));
    assert!(apart < seconds(60), "{apart:?}");
}

#[tokio::test(start_paused = true)]
async fn tick_runs_by_the_stores_time() {
    for ahead in [0, 14 * 60 * SECOND, -14 * 60 * SECOND, DAY, -DAY] {
        let place = ClockedWorld::new(500).await;
        let env = ShiftedClock::ahead(place.clock, ahead).env(7);
        let table = Arc::new(DatedTable::new(place.world.table.clone(), &env, place.clock));
        let job = Job::new("report", "* * * * *", async |_| Ok::<_, Infallible>(()));
        let once = Once::new(Store::new(table, env.clone()), job, "a host").expect("a job");
        let report = once.run().await.expect("memory answers");
        let [run] = &report.ran[..] else { panic!("{ahead}: {report:?}") };
        let now = place.clock.now();
        assert!(run.tick <= now && now.since(run.tick) < seconds(60), "{ahead}: {} at {now}", run.tick);
    }
}
