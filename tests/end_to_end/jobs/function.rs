//! A job's function and the scheduler's: the context that they get, and their time limits.

use std::path::PathBuf;

use serializer::local::Engines;
use tests::{chaos::roles::ROLE, prelude::*};
use webhook_serializer::{
    alerts::DeploymentNaming,
    config::SWEEP_ROWS,
    functions::scheduler::{SWEEP, ScheduledEvent, Scheduler, SchedulerSettings},
    jobs::{Context, TickRun, roster, switch::Switch::On},
};

use super::night::{FUNCTION, MINUTE, Night, Runs, one};

fn minutes_ago(now: Timestamp, minutes: u64) -> Timestamp {
    Timestamp::from_secs((now.as_millis() / 60_000 - minutes) * 60)
}

#[tokio::test(start_paused = true)]
async fn job_context_reports_cancellation_at_time_limit() {
    let night = Night::new();
    let kept: Arc<Mutex<Option<Context>>> = Arc::default();
    let keeps = kept.clone();
    let endless = move |context: Context| {
        *keeps.lock().expect("no panic under the lock") = Some(context);
        std::future::pending::<Result<(), JobError>>()
    };
    let ticker = night.ticker(one(Job::new("slow", "every hour", endless).time(Duration::from_secs(10))));
    let its_own = || kept.lock().expect("no panic under the lock").clone().expect("it was started");
    let env = night.env();
    let watched = async {
        env.sleep(Duration::from_secs(9)).await;
        assert!(!its_own().is_cancelled());
        let told = env.within(Duration::from_millis(500), its_own().cancelled()).await;
        assert!(told.is_none(), "it has half a second left");
    };
    tokio::join!(night.invoke(&ticker, 0), watched);
    assert_eq!(night.ending("slow").await, (0, TickOutcome::Failed));
    assert!(its_own().is_cancelled());
    env.within(MINUTE, its_own().cancelled()).await.expect("its waiter is notified");
}

#[tokio::test(start_paused = true)]
async fn tick_runs_a_minute_later_if_too_little_function_time_is_left() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("report", "every hour", Duration::ZERO)));
    let deadline = night.clock.monotonic() + 2 * MARGIN;
    let report = ticker.tick(night.clock.now(), deadline).await.expect("memory answers");
    assert_eq!(report.ran, []);
    assert_eq!(night.runs.ticks("report"), [0_u64; 0], "it could not have been recorded");
    night.minutes(&ticker, [1]).await;
    assert_eq!(night.runs.ticks("report"), [0]);
}

/// The store gives no answer for `outage` after the job's function has returned.
#[tokio::test(start_paused = true)]
async fn end_of_a_job_is_recorded_after_a_short_outage() {
    for (outage, is_recorded) in [(0, true), (20, true), (40, false)] {
        let mut night = Night::new();
        let env = night.env();
        let until: Arc<Mutex<Timestamp>> = Arc::new(Mutex::new(env.now()));
        let down = until.clone();
        let now = env.clone();
        night.table = Arc::new(FaultyTable::new(night.memory.clone(), &env, move |_| {
            match now.now() < *down.lock().expect("no panic under the lock") {
                true => Fault::Before(TableError::Unknown("no connection".into())),
                false => Fault::None,
            }
        }));
        let report = move |_: Context| {
            *until.lock().expect("no panic under the lock") = env.now() + Duration::from_secs(outage);
            std::future::ready(Ok::<_, JobError>(()))
        };
        let ticker = night.ticker(one(Job::new("report", "every hour", report)));
        let report = night.invoke(&ticker, 0).await;
        assert_eq!(
            (report.ran.len() == 1, report.errors.is_empty()),
            (is_recorded, is_recorded),
            "{outage}: {report:?}"
        );
    }
}

#[tokio::test]
async fn late_scheduler_event_runs_ticks_of_its_scheduled_time() {
    let world = TestWorld::by(Env::system());
    let jobs = one(Runs::default().job("report", "every minute", Duration::ZERO));
    let settings = SchedulerSettings {
        function_time: FUNCTION,
        sweep_rows: SWEEP_ROWS,
        switch: On,
        info: HolderInfo::new("a scheduler"),
        deployment: DeploymentNaming { name: "shop".into(), option: String::new() },
    };
    let scheduler = Scheduler::new(world.store(), world.sweeper(), jobs, settings, Arc::new(TracingLog), None)
        .expect("it is right");
    let now = world.env.now();
    let due = minutes_ago(now, 3);
    let event = ScheduledEvent { time: (due + Duration::from_secs(7)).to_string() };
    let report = scheduler.tick(&event, now + FUNCTION).await.expect("memory answers");
    let ran = |job: &str| TickRun { job: job.into(), tick: due, ending: TickOutcome::Done, failure: None };
    assert_eq!(report.ran, [ran("report"), ran(SWEEP)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduler_process_sweeps_at_each_event() {
    let engines = Engines::start(None).await.expect("they start");
    let config = engines.config();
    let environment = [
        (ROLE, "scheduler".to_owned()),
        ("AWS_ACCESS_KEY_ID", "local".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL_DYNAMODB", engines.dynamodb_url()),
        ("AWS_ENDPOINT_URL_SQS", engines.queue_endpoint()),
        ("ENTITIES_TABLE", config.entities_table),
        ("INBOX_TABLE", config.inbox_table),
        ("QUEUE_URL", config.queue_url),
    ];
    let mut process = FunctionProcess::new(FunctionSettings {
        name: "scheduler".to_owned(),
        program: PathBuf::from(env!("CARGO_BIN_EXE_chaos")),
        timeout: FUNCTION,
        memory_mb: 128,
        environment: environment.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        logs: ProcessLogs::Discarded,
    });
    let env = Env::system();
    let store = engines.connect(&env, None).store;
    for ago in [4, 3] {
        let due = minutes_ago(env.now(), ago);
        let event = ScheduledEvent { time: due.to_string() };
        process.invoke(serde_json::to_vec(&event).expect("it is JSON")).await.expect("it answers");
        let listed = roster::listed(&store).await.expect("it answers");
        let [sweep] = &listed[..] else { panic!("{listed:?}") };
        assert_eq!((sweep.name.as_str(), sweep.state.last_tick), (SWEEP, Some(due)));
        assert_eq!(sweep.state.last_result.as_ref().map(|result| result.ending), Some(TickOutcome::Done));
    }
}
