//! Handlers that block their thread for a while or for good, or abort their process. They run in a worker
//! process with a short lease, by the machine's clock.

use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use serializer::local::{
    LOOPBACK, LocalFunction, LocalOptions, LocalRun, QUEUE, function_pool::FunctionPool, queue::QueueSettings,
};
use tests::{prelude::*, source, testbed::incoming};
use tokio::sync::mpsc;
use webhook_serializer::{engine::drain::DrainSettings, functions::worker::Attributes, protocol::format::attribute};

pub(super) fn record(id: &str, entity: &str) -> SqsRecord {
    SqsRecord {
        message_id: id.into(),
        receipt_handle: String::new(),
        body: format!("{{\"entity\":\"{entity}\"}}"),
        attributes: Attributes { approximate_receive_count: "1".into(), ..Attributes::default() },
    }
}

/// A handler that blocks its thread at every delivery of `slow/blocking`.
#[derive(Clone, Copy)]
struct Blocks(Duration);

impl Handler for Blocks {
    async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        if delivery.entity().as_str() == "slow/blocking" {
            std::thread::sleep(self.0);
        }
        Ok(Outcome::Done)
    }
}

/// Runs as a function does: one thread, the machine's clock, and a separate thread that the handler blocks.
#[tokio::test]
async fn lease_is_renewed_while_handler_blocks_thread() {
    let mut world = TestWorld::by(Env::system());
    world.isolation = Isolation::Thread;
    world.settings.lease = Duration::from_secs(1);
    for (entity, ids) in [("slow/blocking", ["b1", "b2"]), ("slow/other", ["o1", "o2"])] {
        for id in ids {
            world.inbox().append(&world.incoming_from("slow", entity, id)).await.unwrap();
        }
    }
    let worker = world.worker(Blocks(3 * world.settings.lease));
    // The first delivery that blocks outlasts the slice, so the second one runs in the next batch.
    for (entities, applied) in [
        (&["slow/blocking", "slow/other"][..], &["o1", "o2", "b1"][..]),
        (&["slow/blocking"], &["o1", "o2", "b1", "b2"]),
    ] {
        let batch = SqsEvent { records: entities.iter().map(|entity| record("1", entity)).collect() };
        let response = worker.process(batch, world.env.now() + Duration::from_secs(900)).await;
        assert!(response.batch_item_failures.is_empty());
        assert_eq!(world.applied(), applied, "the other one's ended while the first blocked");
    }
    assert_eq!((world.events.taken_over(), world.events.lost()), (0, 0));
    assert_eq!(world.started().len(), 4);
}

/// A deployment whose worker is a real process. Lease and visibility timeout are short.
pub(super) struct Processes {
    pub(super) local: LocalRun,
    directory: PathBuf,
    pub(super) env: Env,
}

const SOURCES: &str = concat!(
    source!("test", "handler_timeout = '20s'", "retry = { attempts = 2, first = '10ms', longest = '50ms' }"),
    source!(
        "brief",
        "handler_timeout = '200ms'",
        "retry = { attempts = 2, first = '10ms', longest = '50ms', unanswered_for = '5ms' }"
    ),
);

impl Processes {
    pub(super) async fn start(name: &str) -> Self {
        Self::start_with(name, SOURCES).await
    }

    pub(super) async fn start_with(name: &str, sources: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        std::fs::write(directory.join("sources.toml"), sources).expect("a file");
        let options = LocalOptions {
            data: None,
            listen: (LOOPBACK, 0).into(),
            queue_port: 0,
            queue_added: |_, _| {},
            workers: NonZeroUsize::MIN,
            sources: Arc::new(Sources::parse(sources).expect("the sources are right")).into(),
            sources_file: None,
            drain: DrainSettings { lease: Duration::from_secs(1), ..DrainSettings::default() },
            scheduler: None,
            fair_queue: false,
            samples: false,
        };
        let local = LocalRun::start(options, Arc::new(TracingLog)).await.expect("it starts");
        let settings = QueueSettings { visibility_timeout: Duration::from_secs(2), ..QueueSettings::named(QUEUE) };
        local.engines.queues().put(settings).expect("the queue takes it");
        Self { local, directory, env: Env::system() }
    }

    pub(super) fn parts(&self) -> Parts {
        self.local.engines.connect(&self.env, None)
    }

    fn operator(&self) -> Operator {
        let Parts { store, waker, .. } = self.parts();
        let inbox = Inbox::new(store.clone(), waker.clone(), Duration::from_secs(86_400), Arc::new(TracingLog));
        Operator::new(store, waker, inbox, Duration::from_secs(86_400))
    }

    pub(super) async fn append(&self, entity: &str, id: &str) {
        self.append_from("test", entity, id).await;
    }

    pub(super) async fn append_from(&self, source: &str, entity: &str, id: &str) {
        self.append_incoming(&incoming(source, entity, id, self.env.now())).await;
    }

    pub(super) async fn append_body(&self, entity: &str, id: &str, body: Vec<u8>) {
        let incoming = incoming("test", entity, id, self.env.now());
        self.append_incoming(&Incoming { body: body.into(), ..incoming }).await;
    }

    async fn append_incoming(&self, incoming: &Incoming) {
        let Parts { store, waker, .. } = self.parts();
        let inbox = Inbox::new(store, waker, Duration::from_secs(86_400), Arc::new(TracingLog));
        inbox.append_within(incoming, None, Duration::from_secs(30)).await.expect("it is appended");
    }

    /// Returns the helper binary as a function with these variables, and a channel with its log lines.
    pub(super) fn function(&self, more: &[(&str, &str)]) -> (FunctionSettings, mpsc::UnboundedReceiver<String>) {
        let journal = self.directory.join("journal");
        let mut environment = self.local.environment(self.directory.join("sources.toml").to_str().expect("a text"));
        environment.push(("JOURNAL".into(), journal.to_str().expect("a text").into()));
        environment.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let (lines, logged) = mpsc::unbounded_channel();
        let settings = FunctionSettings {
            name: "aborting-worker".into(),
            program: env!("CARGO_BIN_EXE_aborting_worker").into(),
            timeout: Duration::from_secs(60),
            memory_mb: 128,
            environment,
            logs: ProcessLogs::Lines(lines),
        };
        (settings, logged)
    }

    /// Feeds the helper binary until no wake-up is left, and returns its log.
    async fn work(&mut self) -> Vec<String> {
        let (settings, mut logged) = self.function(&[]);
        let pool = Arc::new(FunctionPool::new(settings, NonZeroUsize::MIN));
        self.local.feed(LocalFunction::Processes(pool));
        let counts = self.local.engines.queues().until(QUEUE, |counts| counts.total() == 0).await;
        counts.expect("there is that queue");
        std::iter::from_fn(|| logged.try_recv().ok()).collect()
    }

    pub(super) async fn row(&self, entity: &EntityKey) -> Row {
        let row = self.parts().store.get(&entity_row(entity), Duration::from_secs(5)).await;
        row.expect("it answers").expect("there is such an entity")
    }

    /// Returns the rest of the journal's lines that begin with `what`. Before the first start, there is no journal.
    pub(super) fn journal(&self, what: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.directory.join("journal")).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix(what)).map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_that_aborts_the_process_is_parked() {
    let mut processes = Processes::start("aborting").await;
    // All wake-ups are sent before the worker starts, so they form one batch.
    for (entity, id) in [("test/a", "abort"), ("test/a", "after"), ("test/b", "b1"), ("test/b", "b2"), ("test/c", "c1")]
    {
        processes.append(entity, id).await;
    }
    processes.work().await;
    let starts = processes.journal("started ");
    assert_eq!(
        starts.iter().filter(|id| *id == "abort").count(),
        3,
        "as often as its source says, behind one that was not written: {starts:?}"
    );
    let done = processes.journal("done ");
    for id in ["after", "b1", "b2", "c1"] {
        // A delivery runs twice if the process ended between its answer and its settle.
        assert!((1..=2).contains(&done.iter().filter(|done| *done == id).count()), "{id}: {done:?}");
    }
    let operator = processes.operator();
    for (entity, parked) in [("test/a", 1), ("test/b", 0), ("test/c", 0)] {
        let inspected = operator.inspect(&EntityKey::parse(entity).unwrap()).await.expect("it is answered");
        assert_eq!(inspected.parked.len(), parked, "{entity}");
        let state = inspected.state.expect("there is such an entity");
        assert_eq!((state.waiting(), state.held), (0, None), "{entity}");
    }
    processes.local.stop().await.expect("nothing had failed");
}

/// Six deliveries block their threads forever, more than a process may lose. The others run in the next
/// process, and the replacement counts no attempt for them.
///
/// Promise: a process that has lost five threads is replaced, attempts uncounted.
#[tokio::test(flavor = "multi_thread")]
async fn process_with_blocked_threads_is_replaced() {
    let mut processes = Processes::start("blocking").await;
    for number in 0..6 {
        processes.append_from("brief", &format!("brief/{number}"), &format!("block{number}")).await;
        processes.append_from("test", &format!("brief/{number}"), &format!("after{number}")).await;
        processes.append(&format!("test/{number}"), &format!("good{number}")).await;
    }
    let worked = tokio::time::timeout(Duration::from_secs(120), processes.work()).await;
    let logged = worked.expect("it does not go round in circles: a process without threads is replaced");
    assert!(!logged.iter().any(|line| line.contains("cannot start")), "its end is no failure: {logged:?}");
    let starts = processes.journal("started ");
    let done = processes.journal("done ");
    let times = |of: &[String], id: &str| of.iter().filter(|one| *one == id).count();
    for number in 0..6 {
        assert_eq!(times(&starts, &format!("block{number}")), 2, "as often as its source says: {starts:?}");
        assert_eq!(times(&done, &format!("good{number}")), 1, "{done:?}");
        assert_eq!(times(&done, &format!("after{number}")), 1, "{done:?}");
        for (entity, parked) in [(format!("brief/{number}"), 1), (format!("test/{number}"), 0)] {
            let inspected = processes.operator().inspect(&EntityKey::parse(&entity).unwrap()).await.expect("answered");
            assert_eq!(inspected.parked.len(), parked, "{entity}");
        }
    }
    let ran = processes.journal("process ");
    let ids: BTreeSet<_> = ran.iter().filter_map(|line| line.split_once(' ')).map(|(id, _)| id).collect();
    assert!(ids.len() >= 2, "twelve threads were blocked: {ran:?}");
    processes.local.stop().await.expect("nothing had failed");
}

/// The rows after the process's death show the lease's length and the retention.
#[tokio::test(flavor = "multi_thread")]
async fn process_reads_lease_and_retention_from_environment() {
    const DAY: Duration = Duration::from_secs(86_400);
    let processes = Processes::start("configured").await;
    let (settings, mut logged) = processes.function(&[
        ("AWS_LAMBDA_LOG_LEVEL", "DEBUG"),
        ("DETAILED_METRICS", "on"),
        ("LEASE_SECONDS", "40"),
        ("WAIT_SECONDS", "0"),
        ("RETENTION_DAYS", "3"),
        ("PARKED_RETENTION_DAYS", "5"),
    ]);
    let mut process = FunctionProcess::new(settings);
    let [held, done, parked, dies] =
        ["test/held", "test/done", "test/parked", "test/dies"].map(|entity| EntityKey::parse(entity).expect("a key"));
    for (entity, id) in [(&held, "held"), (&done, "done"), (&parked, "reject"), (&dies, "abort")] {
        processes.append(entity.as_str(), id).await;
    }
    let leases = Leases::new(processes.parts().store, "somebody at a desk");
    let guard = leases.acquire(&held, Terms::default()).await.expect("it is free");
    let event = |entities: &[&EntityKey]| {
        let records = entities.iter().map(|entity| record(entity.as_str(), entity.as_str())).collect();
        serde_json::to_vec(&SqsEvent { records }).expect("it is JSON")
    };
    let began = processes.env.now();
    process.invoke(event(&[&held, &done, &parked])).await.expect("it answers");
    assert!(process.invoke(event(&[&dies])).await.is_err(), "it aborts");
    let ended = processes.env.now();
    guard.release().await.expect("it is ours");

    let lease = EntityState::parse(&processes.row(&dies).await).expect("it can be read").held.expect("it left it");
    // The store's replies say the time to the second, and a lease counts from the latest time that fits.
    let expected = began + Duration::from_secs(40)..=ended + Duration::from_secs(42);
    assert!(expected.contains(&lease.expires_at), "{lease:?}, {began} to {ended}");
    // The time is rounded up to a second. The order's row lives a tenth longer than its inbox.
    let purged = |row: &Row| Timestamp::from_secs(row.number(attribute::PURGE_AT).expect("it is to be purged"));
    let idle = purged(&processes.row(&done).await);
    assert!((began + 3 * DAY..=ended + 4 * DAY).contains(&idle), "{idle}");
    let inspected = processes.operator().inspect(&parked).await.expect("it is answered");
    let place = parked_row(&parked, inspected.parked[0].delivery().sequence());
    let aside = processes.parts().store.get(&place, Duration::from_secs(5)).await.expect("it answers");
    let aside = purged(&aside.expect("it is parked"));
    assert!((began + 5 * DAY..=ended + 5 * DAY + Duration::from_secs(1)).contains(&aside), "{aside}");
    let logged: Vec<String> = std::iter::from_fn(|| logged.try_recv().ok()).collect();
    let requeued: Vec<_> =
        logged.iter().filter(|line| line.contains("\"requeued\"") && line.contains("test/held")).collect();
    assert_eq!(requeued.len(), 1, "{logged:?}");
    assert!(!requeued[0].contains("\"Polls\""), "it was not waited for: {requeued:?}");
    processes.local.stop().await.expect("nothing had failed");
}
