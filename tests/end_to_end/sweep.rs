//! The sweep as deployed: a job of the scheduler. Each minute it continues where the last tick stopped.

mod limits;
mod mending;
mod rows;
mod watched;

use tests::{
    clock::START,
    forwarding::{Forwarding, Layer, TableReply, TableRequest},
    prelude::*,
};
use webhook_serializer::{
    engine::{
        queue::{Depth, Queue},
        sweep::Sweeper,
    },
    functions::scheduler::sweep,
    jobs::switch::Switch,
    protocol::{
        keys::sweep_position_row,
        maintain::Position,
        table::{Scanned, Segment},
    },
    telemetry::Swept,
};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

/// The function's timeout in `template.yaml`.
const FUNCTION: Duration = Duration::from_secs(300);

fn minute(number: u64) -> Timestamp {
    START + Duration::from_secs(60 * number)
}

#[derive(Debug, Default)]
struct Sweeps(Mutex<Vec<Swept>>);

impl Observer for Sweeps {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Swept { swept } = event {
            self.0.lock().expect("no panic under the lock").push(**swept);
        }
    }
}

struct SweepDeployment {
    ticker: Ticker,
    told: Arc<Sweeps>,
    env: Env,
}

impl SweepDeployment {
    fn by(world: &TestWorld) -> Self {
        Self::with(world, world.sweeper())
    }

    fn with(world: &TestWorld, sweeper: Sweeper) -> Self {
        let told = Arc::new(Sweeps::default());
        let jobs = Jobs::new().add(sweep(sweeper, told.clone()));
        let ticker = Ticker::new(world.store(), &jobs, FUNCTION, &Switch::On, HolderInfo::new("a scheduler"));
        let ticker = ticker.expect("the job is right").isolated(Isolation::Inline);
        Self { ticker, told, env: world.env.clone() }
    }

    /// Runs a minute's tick when it is due. The tick ends before the next one.
    async fn minute(&self, number: u64) -> Swept {
        let due = minute(number);
        self.env.sleep(due.since(self.env.now())).await;
        let deadline = self.env.monotonic() + FUNCTION;
        self.ticker.tick(due, deadline).await.expect("the job's row can be read");
        assert!(self.env.now() < minute(number + 1), "it ended before the next tick");
        self.told.0.lock().expect("no panic under the lock").pop().expect("it swept")
    }

    async fn minutes(&self, numbers: impl IntoIterator<Item = u64>) -> Swept {
        let mut all = Swept::default();
        for number in numbers {
            let Swept { seen, woken, unserved, unreadable, .. } = self.minute(number).await;
            all.seen += seen;
            all.woken += woken;
            all.unserved += unserved;
            all.unreadable += unreadable;
        }
        all
    }
}

#[derive(Debug, Default)]
struct Woken(Mutex<BTreeMap<String, u32>>);

impl Woken {
    fn times(&self, entity: &str) -> u32 {
        self.0.lock().expect("no panic under the lock").get(entity).copied().unwrap_or(0)
    }

    fn count(&self) -> (usize, u32) {
        let woken = self.0.lock().expect("no panic under the lock");
        (woken.len(), woken.values().copied().max().unwrap_or(0))
    }
}

type SendAnswer = fn(&str) -> Result<(), QueueError>;

/// A slow queue that answers each order's send as `says` decides.
struct Picky {
    woken: Arc<Woken>,
    env: Env,
    takes: Duration,
    waiting: u64,
    says: SendAnswer,
}

impl Queue for Picky {
    fn send<'a>(&'a self, message: &'a Message, _: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async {
            self.env.sleep(self.takes).await;
            let entity = message.entity().as_str();
            (self.says)(entity)?;
            *self.woken.0.lock().expect("no panic under the lock").entry(entity.to_owned()).or_default() += 1;
            Ok(())
        })
    }
}

impl Depth for Picky {
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        Box::pin(async { Ok(self.waiting) })
    }
}

fn picks(world: &mut TestWorld, woken: &Arc<Woken>, takes: Duration, waiting: u64, says: SendAnswer) {
    let queue = Arc::new(Picky { woken: woken.clone(), env: world.env.clone(), takes, waiting, says });
    (world.queue, world.depth) = (queue.clone(), queue);
}

/// Returns a world with `count` orders that have waited for ten minutes without a wake-up.
async fn forgotten(count: usize, takes: Duration, says: SendAnswer) -> (TestWorld, Arc<Woken>) {
    let mut world = TestWorld::new();
    for number in 0..count {
        world.append(&format!("test/{number:03}"), &number.to_string()).await;
    }
    tokio::time::advance(10 * MINUTE - world.env.monotonic()).await;
    let woken = Arc::new(Woken::default());
    picks(&mut world, &woken, takes, 0, says);
    (world, woken)
}

async fn position(world: &TestWorld) -> Position {
    let row = world.memory.get(&sweep_position_row()).await.expect("memory answers").expect("it is remembered");
    Position::parse(&row).expect("it can be read")
}

/// Promise: the sweep visits every order within the hour, within three hours if there are more than 50,000, and later
/// above 18 million; a tick reads at most 100,000 rows.
#[tokio::test(start_paused = true)]
async fn sweep_visits_every_row_each_hour() {
    let (world, woken) = forgotten(50, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::by(&world);
    for number in 10..70 {
        assert_eq!(deployed.minute(number).await.segments, 1);
    }
    assert_eq!(woken.count(), (50, 1));
    deployed.minutes(70..130).await;
    assert_eq!(woken.count(), (50, 2));
}

#[tokio::test(start_paused = true)]
async fn sweep_catches_up_on_missed_minutes() {
    let (world, woken) = forgotten(50, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::by(&world);
    deployed.minutes(10..20).await;
    assert_eq!(deployed.minute(40).await.segments, 21);
    deployed.minutes(41..70).await;
    assert_eq!(woken.count(), (50, 1), "an hour is an hour");
    // A repeated or late invocation, or one by another clock, sweeps no further segment.
    let again = deployed.ticker.tick(minute(65), deployed.env.monotonic() + FUNCTION).await;
    assert_eq!((again.expect("the row can be read").ran.len(), woken.count()), (0, (50, 1)));
}

/// A virtual table with slow pages. Each page represents many idle rows.
struct Vast {
    env: Env,
    pages: u64,
    takes: Duration,
    visits: Mutex<BTreeMap<(u32, u64), Visits>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Visits {
    times: u32,
    last: Duration,
    longest_without: Duration,
}

impl Vast {
    async fn page(&self, segment: &Segment) -> Scanned {
        self.env.sleep(self.takes).await;
        let after = segment.after.as_ref().map(|key| match &key.partition.1 {
            Value::S(text) => text.rsplit_once('-').expect("a page's key").1.parse::<u64>().expect("its number"),
            _ => unreachable!("keys are texts"),
        });
        let page = after.map_or(0, |after| after + 1);
        let now = self.env.monotonic();
        let mut visits = self.visits.lock().expect("no panic under the lock");
        let visits = visits.entry((segment.number, page)).or_default();
        visits.longest_without = visits.longest_without.max(now - visits.last);
        (visits.times, visits.last) = (visits.times + 1, now);
        let entity = key(&format!("vast/{}-{page}", segment.number));
        let key = entity_row(&entity);
        let row = key.to_row().with(a::VERSION, webhook_serializer::protocol::format::FORMAT);
        let row = [a::TAIL, a::HEAD, a::TOKEN].into_iter().fold(row, |row, name| row.with(name, 7_u32));
        Scanned { rows: vec![row], after: (page + 1 < self.pages).then_some(key) }
    }
}

impl Layer for Vast {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        match request {
            TableRequest::Scan(_, segment) => Ok(TableReply::Scanned(self.page(segment).await)),
            other => other.of(inner).await,
        }
    }
}

/// Asserts that the sweep continues a segment in the next minutes. Without a limit of rows, at 10,000 rows a
/// second for 50 s of each minute, 100 million rows take 200 minutes, and a segment takes 167 s.
#[tokio::test(start_paused = true)]
async fn sweep_reaches_hundred_million_rows_in_hours() {
    const ROWS: u64 = 100_000_000;
    const ROWS_A_SECOND: u64 = 10_000;
    const ROWS_A_PAGE: u64 = 5_000;
    let mut world = TestWorld::new();
    let vast = Vast {
        env: world.env.clone(),
        pages: (ROWS / 60).div_ceil(ROWS_A_PAGE),
        takes: Duration::from_secs(1) * ROWS_A_PAGE as u32 / ROWS_A_SECOND as u32,
        visits: Mutex::default(),
    };
    let vast = Arc::new(Forwarding::through(vast, world.table.clone()));
    world.table = vast.clone();
    let deployed = SweepDeployment::by(&world);
    deployed.minutes(0..420).await;
    let visits = vast.visits.lock().unwrap();
    assert_eq!(visits.len() as u64, 60 * vast.pages, "every page was reached");
    let longest = visits.values().map(|visits| visits.longest_without).max().unwrap();
    assert!(longest <= Duration::from_secs(210 * 60), "{longest:?}");
    let [least, most] = [visits.values().min_by_key(|visits| visits.times), visits.values().max_by_key(|v| v.times)]
        .map(|visits| visits.expect("there are pages").times);
    // One visit more for the current pass, and one for a page that was read at the end of a minute.
    assert!(least >= 2 && most <= least + 2, "{least} to {most} times");
}

#[tokio::test(start_paused = true)]
async fn unfinished_sweep_segment_continues_at_stored_position() {
    // Each wake-up takes a second, so 200 of them take four minutes.
    let (world, woken) = forgotten(200, Duration::from_millis(800), |_| Ok(())).await;
    let deployed = SweepDeployment::by(&world);
    deployed.minutes(10..20).await;
    for number in [75, 76, 77, 78, 79] {
        deployed.minute(number).await;
    }
    let (entities, most) = woken.count();
    assert_eq!(entities, 200);
    assert!(most <= 2, "the ten segments that had their turn an hour ago have it again");
    assert!(position(&world).await.turn.number >= 60);
}

/// The limit bounds the bill of a large table.
/// Asserts the budget of docs/budgets.md, and that the store accepts a segment that continues behind any of
/// its rows.
#[tokio::test]
async fn sweep_segment_costs_three_reads_and_one_write() {
    let testbed = TestBed::start().await;
    for number in 0..40 {
        testbed.inbox().append(&testbed.incoming(&format!("test/{number}"), "1")).await.expect("it is appended");
    }
    let parts = testbed.parts();
    let sweeper = Sweeper::new(parts.store.clone(), parts.waker, parts.queue, 30 * DAY);
    let until = testbed.env().monotonic() + FUNCTION;
    let mut seen = 0;
    for number in 0..60 {
        let before = testbed.meter.reading();
        let (swept, ended) = sweeper.go_on(minute(number), until).await;
        assert_eq!((swept.segments, ended), (1, Ok(())));
        let Reading { write_units, writes, reads, refusals, .. } = testbed.meter.reading() - before;
        assert_eq!((write_units, writes, reads, refusals), (1.0, 1, 3, 0));
        seen += swept.seen;
    }
    assert_eq!(seen, 40);
    let all = Segment { number: 1, of: 3, after: None, limit: 100 };
    let rows = parts.store.scan(&TableName::Entities, &all, MINUTE).await.expect("it answers").rows;
    assert!(rows.len() > 3, "{} rows", rows.len());
    for (number, row) in rows.iter().enumerate() {
        let rest = Segment { after: key_of(&TableName::Entities, row), ..all.clone() };
        let rest = parts.store.scan(&TableName::Entities, &rest, MINUTE).await.expect("it answers").rows;
        assert_eq!(rest, rows[number + 1..]);
    }
}

#[tokio::test(start_paused = true)]
async fn sweep_skips_an_unreadable_row() {
    let (world, woken) = forgotten(20, Duration::ZERO, |_| Ok(())).await;
    for key in ["test/newer", "no-namespace", "test/old\u{ffff}key"] {
        let key = Key { table: TableName::Entities, partition: (a::ENTITY.into(), key.into()), sort: None };
        let row = key.to_row().with(a::VERSION, 77_u32);
        world.memory.write(&Write::put(key, row)).await.unwrap();
    }
    let swept = SweepDeployment::by(&world).minutes(10..70).await;
    assert_eq!((swept.unreadable, swept.seen, woken.count()), (3, 24, (20, 1)), "with the job's own row");
}

#[tokio::test(start_paused = true)]
async fn sweep_skips_row_whose_wake_up_is_refused() {
    let refuses = |entity: &str| match entity {
        "test/007" => Err(QueueError::Refused("InvalidMessageContents".into())),
        _ => Ok(()),
    };
    let (world, woken) = forgotten(20, Duration::ZERO, refuses).await;
    let deployed = SweepDeployment::by(&world);
    let mut unserved = 0;
    for number in 10..70 {
        let swept = deployed.minute(number).await;
        assert_eq!(swept.segments, 1, "it costs no other its turn");
        unserved += swept.unserved;
    }
    assert_eq!((unserved, woken.count(), woken.times("test/007")), (1, (19, 1), 0));
}

/// Each send for the row fails as if the queue were down.
#[tokio::test(start_paused = true)]
async fn failing_wake_up_delays_the_sweep_one_minute() {
    let fails = |entity: &str| match entity {
        "test/007" => Err(QueueError::Unavailable("InternalError".into())),
        _ => Ok(()),
    };
    let (world, woken) = forgotten(20, Duration::ZERO, fails).await;
    let deployed = SweepDeployment::by(&world);
    let swept = deployed.minutes(10..71).await;
    assert_eq!((woken.count().0, woken.times("test/007"), swept.unserved), (19, 0, 1));
    assert_eq!(position(&world).await.turn.number, 61);
}

#[tokio::test(start_paused = true)]
async fn sweep_skips_one_row_per_tick_while_queue_is_unavailable() {
    let (mut world, woken) = forgotten(40, Duration::ZERO, |_| Err(QueueError::Unavailable("out".into()))).await;
    let swept = SweepDeployment::by(&world).minutes(10..20).await;
    assert!(swept.unserved <= 10, "{swept:?}");
    picks(&mut world, &woken, Duration::ZERO, 0, |_| Ok(()));
    SweepDeployment::by(&world).minutes(20..140).await;
    assert_eq!(woken.count().0, 40);
}

#[tokio::test(start_paused = true)]
async fn refused_scan_delays_the_sweep_one_minute() {
    let (mut world, woken) = forgotten(30, Duration::ZERO, |_| Ok(())).await;
    // DynamoDB refuses a start key of another segment in this way.
    struct Refusing;
    impl Layer for Refusing {
        async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
            match request {
                TableRequest::Scan(_, Segment { number: 3, .. }) => {
                    Err(TableError::Invalid("the start key is of another segment".into()))
                }
                other => other.of(inner).await,
            }
        }
    }
    world.table = Arc::new(Forwarding::through(Refusing, world.table.clone()));
    let mut there = 0;
    for number in (0..60).filter(|number| *number != 3) {
        let segment = Segment { number, of: 60, after: None, limit: 100 };
        there += world.memory.scan(&TableName::Entities, &segment).await.expect("memory answers").rows.len();
    }
    SweepDeployment::by(&world).minutes(10..71).await;
    assert_eq!((woken.count().0, position(&world).await.turn.number), (there, 61));
}

/// A later pass wakes the other orders.
#[tokio::test(start_paused = true)]
async fn sweep_stops_at_ten_thousand_waiting_wake_ups() {
    for (rows, waiting, more, lagging) in
        [(10, 10_001, 0, true), (10, 9_996, 5, true), (10, 0, 10, false), (0, 10_000, 0, false), (0, 10_001, 0, true)]
    {
        let (mut world, woken) = forgotten(rows, Duration::ZERO, |_| Ok(())).await;
        picks(&mut world, &woken, Duration::ZERO, waiting, |_| Ok(()));
        let swept = world.sweeper().sweep_all().await.expect("it sweeps");
        assert_eq!((swept.seen, swept.woken, swept.lagging), (rows as u64, more, lagging), "{waiting} wait");
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_sweeps_skip_no_row() {
    let (world, woken) = forgotten(100, Duration::from_millis(100), |_| Ok(())).await;
    let one = world.sweeper();
    let other = world.sweeper();
    for number in 10..70 {
        let until = world.env.monotonic() + Duration::from_secs(50);
        let ((first, ended), (second, also_ended)) =
            tokio::join!(one.go_on(minute(number), until), other.go_on(minute(number), until));
        assert_eq!((ended, also_ended), (Ok(()), Ok(())));
        assert!((1..=2).contains(&(first.segments + second.segments)));
        assert_eq!(position(&world).await.turn.number, number - 9, "it moves on by one turn");
    }
    let (entities, most) = woken.count();
    assert!(entities == 100 && most <= 2, "{entities} entities, {most} times");
}

#[tokio::test(start_paused = true)]
async fn frozen_sweep_never_moves_sweep_position_back() {
    let (mut world, woken) = forgotten(60, Duration::ZERO, |_| Ok(())).await;
    let whole = world.table.clone();
    // The sweep freezes before it writes its position, and thaws ten minutes later.
    let late = world.break_table(|call: &TableCall<'_>| match call.write {
        1 => Fault::Late(10 * MINUTE),
        _ => Fault::None,
    });
    let frozen = world.sweeper();
    let until = world.env.monotonic() + Duration::from_secs(50);
    let seen = world.env.within(Duration::from_millis(800), frozen.go_on(minute(10), until)).await;
    assert!(seen.is_none(), "it never heard of it");
    world.table = whole;
    let deployed = SweepDeployment::by(&world);
    deployed.minutes(10..40).await;
    assert_eq!((late.late(), position(&world).await.turn.number), ((0, 1), 30));
    deployed.minutes(40..70).await;
    assert_eq!(woken.count().0, 60);
}

#[tokio::test(start_paused = true)]
async fn killed_sweep_repeats_at_most_ten_seconds_of_work() {
    let (world, woken) = forgotten(150, Duration::from_millis(700), |_| Ok(())).await;
    SweepDeployment::by(&world).minutes([10]).await;
    // Nearly an hour's segments are due, which take 100 s. The sweep dies in the middle.
    let sweeper = world.sweeper();
    let until = || world.env.monotonic() + 10 * MINUTE;
    let killed = world.env.within(Duration::from_secs(35), sweeper.go_on(minute(68), until())).await;
    assert!(killed.is_none());
    let before = woken.count().0;
    assert!(before > 40, "{before}");
    sweeper.go_on(minute(68), until()).await.1.expect("store and queue answer");
    let twice = woken.0.lock().unwrap().values().filter(|times| **times == 2).count();
    let (entities, most) = woken.count();
    assert!(most == 2 && twice <= 15, "{twice} twice, one {most} times");
    assert!(entities > 140, "all but those of the last segment: {entities}");
}

/// The position is written every ten seconds and at the end, not after each segment.
#[tokio::test(start_paused = true)]
async fn quick_sweep_segments_share_one_position_write() {
    let mut world = TestWorld::new();
    let moves = Arc::new(AtomicU64::new(0));
    let counted = moves.clone();
    world.break_table(move |call: &TableCall<'_>| {
        let moves_on = call.writes.iter().filter(|write| write.key == sweep_position_row()).count();
        counted.fetch_add(moves_on as u64, Relaxed);
        Fault::None
    });
    let sweeper = world.sweeper();
    let until = || world.env.monotonic() + Duration::from_secs(50);
    sweeper.go_on(minute(10), until()).await.1.expect("store and queue answer");
    let first = moves.load(Relaxed);
    let (swept, ended) = sweeper.go_on(minute(40), until()).await;
    assert_eq!((swept.segments, ended, moves.load(Relaxed) - first), (30, Ok(()), 1));
}

#[tokio::test(start_paused = true)]
async fn unanswered_sweep_position_write_is_recognised_as_landed() {
    let (mut world, woken) = forgotten(30, Duration::ZERO, |_| Ok(())).await;
    let loses = |call: &TableCall<'_>| {
        let moves_on = call.writes.iter().any(|write| write.key == sweep_position_row());
        if moves_on && call.write % 2 == 1 { Fault::ReplyLost } else { Fault::None }
    };
    world.break_table(loses);
    let until = |world: &TestWorld| world.env.monotonic() + Duration::from_secs(50);
    let sweeper = world.sweeper();
    for number in 10..70 {
        let (swept, ended) = sweeper.go_on(minute(number), until(&world)).await;
        assert_eq!((swept.segments, ended), (1, Ok(())));
        assert_eq!(position(&world).await.turn.number, number - 9);
    }
    assert_eq!(woken.count(), (30, 1));
}
