//! Jobs: a tick runs once, whichever schedulers, invocations and clocks there are.

mod due;
mod function;
mod night;

use tests::prelude::*;
use webhook_serializer::{
    jobs::{
        Context, Missed, OnCrash, Outcome, roster,
        schedule::InvalidSchedule,
        switch::Switch::{self, On},
    },
    protocol::{
        format::attribute,
        tick::{LONGEST_DEFINITION, LONGEST_NAME},
    },
};

use self::night::{FUNCTION, MINUTE, Night, Runs, minute, one};

/// Promise: a tick runs once; a run that died starts again, three times in all, or with `OnCrash::Skip` never.
#[tokio::test(start_paused = true)]
async fn eight_schedulers_with_skewed_clocks_run_a_tick_once() {
    let night = Night::new();
    // A run takes longer than its lease, and longer than a minute by the other clocks.
    let job = || one(night.runs.job("report", "every 2 minutes", Duration::from_secs(50)));
    let instances: Vec<Ticker> = (0..8)
        .map(|number| {
            let ahead = (MINUTE * number / 7).as_millis() as i64;
            night.ticker_by(job(), &On, ShiftedClock::ahead(night.clock, ahead).env(u64::from(number)))
        })
        .collect();
    let invoke = async |number: u32| {
        let twice = instances.iter().chain(&instances);
        join_all(twice.map(|instance| night.invoke(instance, number))).await;
    };
    invoke(0).await;
    assert_eq!(night.runs.ticks("report"), [0]);
    invoke(0).await;
    for number in [1, 2, 3] {
        night.until(number).await;
        invoke(number).await;
    }
    invoke(0).await;
    assert_eq!(night.runs.ticks("report"), [0, 2]);
    assert_eq!(night.ending("report").await, (2, TickOutcome::Done));
}

#[tokio::test]
async fn eight_schedulers_run_a_tick_once_on_dynamodb() {
    let testbed = TestBed::start().await;
    let runs = Runs::default();
    let instances: Vec<Ticker> = (0..8)
        .map(|_| {
            let jobs = one(runs.job("report", "every minute", Duration::from_millis(50)));
            Ticker::new(testbed.parts().store, &jobs, FUNCTION, &On, HolderInfo::new("one of eight"))
                .expect("it is right")
        })
        .collect();
    let now = testbed.env().now();
    let deadline = testbed.env().monotonic() + FUNCTION;
    for minutes in [0, 1] {
        let due = now + minutes * MINUTE;
        let twice = instances.iter().chain(&instances);
        let reports = join_all(twice.map(|instance| instance.tick(due, deadline))).await;
        let ran: usize = reports.into_iter().map(|report| report.expect("the store answers").ran.len()).sum();
        assert_eq!(ran, 1);
    }
    assert_eq!(runs.tokens().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn crashed_job_run_is_run_again() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("report", "every hour", Duration::from_secs(5))));
    night.killed(&ticker, 0, Duration::from_secs(2)).await;
    // In the first minute, the lease may only seem to have expired.
    night.minutes(&ticker, [1]).await;
    assert_eq!(night.runs.ticks("report"), [0]);
    night.minutes(&ticker, [2, 3, 4]).await;
    assert_eq!(night.runs.ticks("report"), [0, 0]);
    assert_eq!(night.ending("report").await, (0, TickOutcome::Done));
    assert!(night.runs.tokens().is_sorted_by(|a, b| a < b), "a token for each start");
}

#[tokio::test(start_paused = true)]
async fn crashed_job_run_is_skipped_if_configured() {
    let night = Night::new();
    let job = night.runs.job("mail", "every hour", Duration::from_secs(5)).on_crash(OnCrash::Skip);
    let ticker = night.ticker(one(job));
    night.killed(&ticker, 0, Duration::from_secs(2)).await;
    night.minutes(&ticker, 1..60).await;
    assert_eq!(night.runs.ticks("mail"), [0]);
    let result = night.state("mail").await.last_result.expect("it was recorded when it was started");
    assert_eq!(result.ending, TickOutcome::Crashed);
    night.minutes(&ticker, [60]).await;
    assert_eq!(night.runs.ticks("mail"), [0, 60]);
    assert_eq!(night.ending("mail").await, (60, TickOutcome::Done));
}

#[tokio::test(start_paused = true)]
async fn tick_that_kills_the_process_starts_three_times() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("killer", "every hour", Duration::from_secs(5))));
    for number in [0, 2, 4] {
        night.killed(&ticker, number, Duration::from_secs(1)).await;
    }
    night.minutes(&ticker, 5..60).await;
    assert_eq!(night.runs.ticks("killer"), [0, 0, 0]);
    assert_eq!(night.ending("killer").await, (0, TickOutcome::Crashed));
    night.minutes(&ticker, [60]).await;
    assert_eq!(night.runs.ticks("killer"), [0, 0, 0, 60]);
}

#[tokio::test(start_paused = true)]
async fn crashed_tick_runs_before_later_ticks() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("report", "every minute", Duration::from_secs(1))));
    night.killed(&ticker, 0, Duration::from_millis(500)).await;
    night.minutes(&ticker, [1, 2]).await;
    assert_eq!(night.runs.ticks("report"), [0, 0, 2], "one run makes up for the first minute's");
}

#[tokio::test(start_paused = true)]
async fn job_run_that_loses_its_lease_records_no_result() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("report", "every hour", Duration::from_secs(40))));
    let taken = async {
        night.clock.sleep(Duration::from_secs(3)).await;
        let state = night.state("report").await.entity;
        let record = HolderInfo::new("an operator");
        let force = webhook_serializer::protocol::lease::ForceRelease { seen: &state, record };
        night.store().run(&force, MINUTE).await.expect("memory answers");
    };
    let (report, ()) = tokio::join!(night.invoke(&ticker, 0), taken);
    assert_eq!(report.ran.iter().map(|ran| ran.ending).collect::<Vec<_>>(), [TickOutcome::Crashed]);
    let state = night.state("report").await;
    assert!(!state.is_recorded(minute(0)));
    night.minutes(&ticker, [1]).await;
    assert_eq!(night.runs.ticks("report"), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn no_job_runs_while_store_is_unreachable() {
    let unknown = || TableError::Unknown("no connection".into());
    let outages = [Fault::Before(TableError::Throttled), Fault::Before(unknown()), Fault::Silent, Fault::SilentAfter];
    for fault in outages {
        for reads_too in [true, false] {
            let mut night = Night::new();
            let down = fault.clone();
            let plan = move |call: &TableCall<'_>| if reads_too || call.write > 0 { down.clone() } else { Fault::None };
            night.table = Arc::new(FaultyTable::new(night.memory.clone(), &night.env(), plan));
            let jobs = Jobs::new().add(night.runs.job("a", "every minute", Duration::ZERO)).add(night.runs.job(
                "b",
                "every minute",
                Duration::ZERO,
            ));
            let ticker = night.ticker(jobs);
            let answer = ticker.tick(minute(0), night.clock.monotonic() + FUNCTION).await;
            assert!(answer.is_err() || answer.is_ok_and(|report| report.errors.len() == 2), "{fault:?}");
            assert_eq!(night.runs.tokens(), [0_u64; 0], "{fault:?}");
        }
    }
}

#[derive(Debug, PartialEq)]
struct Came {
    runs: usize,
    ending: TickOutcome,
    committed: u64,
}

const COUNTER: &str = "counter";

fn counted(runs: &Runs) -> Job {
    let runs = runs.clone();
    Job::new("commit", "every minute", move |context: Context| {
        let runs = runs.clone();
        async move {
            runs.note(&context);
            let add = Change::add("n", 1);
            let write = Write::update(Key::named(COUNTER, "id", "1"), vec![add]);
            Ok::<_, JobError>(Outcome::Commit(vec![write]))
        }
    })
}

async fn one_tick(
    make: impl Fn(&Runs) -> Job,
    plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static,
) -> (Came, u64, u64) {
    let mut night = Night::new();
    let job = make(&night.runs);
    let name = if format!("{job:?}").contains("commit") { "commit" } else { "report" };
    let table = Arc::new(FaultyTable::new(night.memory.clone(), &night.env(), plan));
    night.table = table.clone();
    let ticker = night.ticker(one(job));
    night.invoke(&ticker, 0).await;
    night.invoke(&ticker, 0).await;
    let requests = table.requests();
    let writes = table.writes();
    let (tick, ending) = night.ending(name).await;
    assert_eq!(tick, 0);
    let committed = night.memory.rows(&TableName::Named(COUNTER.into()));
    let committed = committed.first().and_then(|row| row.number("n")).unwrap_or_default();
    (Came { runs: night.runs.ticks(name).len(), ending, committed }, requests, writes)
}

#[tokio::test(start_paused = true)]
async fn unanswered_job_write_runs_no_job_twice() {
    let skipped = |runs: &Runs| runs.job("report", "every minute", Duration::ZERO).on_crash(OnCrash::Skip);
    let again = |runs: &Runs| runs.job("report", "every minute", Duration::ZERO);
    let failing = |runs: &Runs| {
        let runs = runs.clone();
        Job::new("report", "every minute", move |context: Context| {
            runs.note(&context);
            ready(Err::<(), JobError>("it is no use".into()))
        })
    };
    let all: [&dyn Fn(&Runs) -> Job; 4] = [&again, &skipped, &failing, &counted];
    for make in all {
        let (clean, requests, writes) = one_tick(make, |_| Fault::None).await;
        assert_eq!(clean.runs, 1);
        assert!(writes >= 4, "list, define, start, complete: {writes}");
        let lost = Fault::Before(TableError::Unknown("the request was lost".into()));
        let conflict = Fault::Before(TableError::Conflict);
        for fault in [Fault::ReplyLost, Fault::SilentAfter, lost, conflict] {
            for n in 1..=writes {
                let what = format!("write {n} of {writes}: {fault:?}");
                let fault = fault.clone();
                let plan = move |call: &TableCall<'_>| if call.write == n { fault.clone() } else { Fault::None };
                let (came, took, _) = one_tick(make, plan).await;
                assert_eq!(came, clean, "{what}");
                assert!(took <= requests + 1, "{what}: {took} requests, {requests} without it");
            }
        }
    }
}

/// Promise: a job's commit lands with its tick; lease and run end with the function.
#[tokio::test(start_paused = true)]
async fn commit_of_job_lands_with_tick_record() {
    let night = Night::new();
    let ticker = night.ticker(one(counted(&night.runs)));
    night.minutes(&ticker, [0, 0, 1, 1, 2]).await;
    let row = &night.memory.rows(&TableName::Named(COUNTER.into()))[0];
    assert_eq!(row.get("n"), Some(&Value::N(3)));
    assert_eq!(night.ending("commit").await, (2, TickOutcome::Done));
}

#[tokio::test(start_paused = true)]
async fn each_missed_tick_of_committing_job_runs() {
    let night = Night::new();
    let ticker = night.ticker(one(counted(&night.runs).missed(Missed::Each)));
    night.minutes(&ticker, [0, 4]).await;
    assert_eq!(night.runs.ticks("commit"), [0, 1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn job_run_fails_if_commits_condition_fails() {
    let night = Night::new();
    let refused = |_: Context| async {
        let write = Write::update(Key::named(COUNTER, "id", "1"), vec![Change::set("n", 1_u32)]);
        let write = write.when(Condition::exists("n"));
        Ok::<_, JobError>(Outcome::Commit(vec![write]))
    };
    let ticker = night.ticker(one(Job::new("commit", "every minute", refused)));
    night.invoke(&ticker, 0).await;
    assert_eq!(night.ending("commit").await, (0, TickOutcome::Failed));
}

/// Promise: a failure is recorded and not repeated; no job waits for another.
#[tokio::test(start_paused = true)]
async fn failing_or_slow_job_stops_no_other_job() {
    let night = Night::new();
    let panics = async |_: Context| -> Result<(), JobError> { panic!("as it must") };
    let fails = async |_: Context| -> Result<(), JobError> { Err("no such host".into()) };
    let jobs = Jobs::new()
        .add(Job::new("panics", "every minute", move |context| Box::pin(panics(context)) as BoxFuture<'static, _>))
        .add(night.runs.job("slow", "every minute", 10 * MINUTE))
        .add(Job::new("fails", "every minute", move |context| Box::pin(fails(context)) as BoxFuture<'static, _>))
        .add(night.runs.job("quick", "every minute", Duration::ZERO));
    let ticker = night.ticker(jobs);
    night.invoke(&ticker, 0).await;
    assert!(night.clock.monotonic() < FUNCTION, "the slow one was cut off in time");
    let mut errors = Vec::new();
    for job in ["panics", "slow", "fails"] {
        assert_eq!(night.ending(job).await, (0, TickOutcome::Failed), "{job}");
        errors.push(night.state(job).await.last_result.expect("its result").error);
    }
    assert_eq!(errors, ["panicked", "the job's time was up", "no such host"]);
    assert_eq!(night.ending("quick").await, (0, TickOutcome::Done));
}

#[tokio::test]
async fn job_blocking_a_thread_delays_no_other_job() {
    let testbed = TestBed::start().await;
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = Arc::new(Mutex::new(wait));
    let blocks = move |_: Context| {
        // Blocks until the other job is done. If both shared a thread, this would block for good.
        let done = wait.lock().expect("no panic under the lock").recv();
        ready(done.map_err(JobError::from))
    };
    let tells = move |_: Context| ready(go.send(()).map_err(JobError::from));
    let jobs =
        Jobs::new().add(Job::new("blocks", "every minute", blocks)).add(Job::new("tells", "every minute", tells));
    let ticker = Ticker::new(testbed.parts().store, &jobs, FUNCTION, &On, HolderInfo::new("one")).expect("it is right");
    let deadline = testbed.env().monotonic() + FUNCTION;
    let report = ticker.tick(testbed.env().now(), deadline).await.expect("the store answers");
    let endings: Vec<_> = report.ran.iter().map(|ran| ran.ending).collect();
    assert_eq!(endings, [TickOutcome::Done, TickOutcome::Done]);
}

#[tokio::test(start_paused = true)]
async fn job_lease_ends_with_the_function_timeout() {
    let mut night = Night::new();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = seen.clone();
    let plan = move |call: &TableCall<'_>| {
        for write in call.writes {
            let Action::Update(changes) = &write.action else { continue };
            for change in changes {
                if let Change::Set(name, Value::N(time)) = change
                    && name == attribute::EXPIRES_AT
                {
                    noted.lock().expect("no panic under the lock").insert(*time as u64);
                }
            }
        }
        Fault::None
    };
    night.table = Arc::new(FaultyTable::new(night.memory.clone(), &night.env(), plan));
    let ticker = night.ticker(one(night.runs.job("slow", "every hour", 10 * MINUTE)));
    let deadline = night.clock.now() + FUNCTION;
    night.invoke(&ticker, 0).await;
    let seen = seen.lock().expect("no panic under the lock");
    assert!(seen.len() > 3, "it was renewed: {seen:?}");
    assert_eq!(seen.last(), Some(&deadline.as_millis()));
}

/// Promise: `jobs` shows each run; `audit` checks receipts; every command parses, with closed standard error too.
#[tokio::test(start_paused = true)]
async fn job_list_shows_next_run_of_each_job() {
    let night = Night::new();
    let jobs = Jobs::new()
        .add(night.runs.job("report", "0 3 * * *", Duration::ZERO).in_zone("Europe/Berlin"))
        .add(night.runs.job("beat", "every minute", Duration::ZERO));
    let ticker = night.ticker(jobs);
    night.minutes(&ticker, [0]).await;
    let listed = roster::listed(&night.store()).await.expect("memory answers");
    let names: Vec<_> = listed.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["beat", "report"]);
    let now = night.clock.now();
    assert_eq!(listed[0].next(now), Some(minute(1)));
    assert_eq!(listed[1].next(now), Some(minute(120)));
    assert_eq!(listed[1].plan.as_ref().expect("a plan").schedule.to_string(), "0 3 * * * Europe/Berlin");
}

#[tokio::test(start_paused = true)]
async fn job_list_continues_beyond_the_first_page() {
    let night = Night::new();
    let names: Vec<String> = (0..250).map(|number| format!("job-{number:03}")).collect();
    let jobs = names.iter().fold(Jobs::new(), |jobs, name| jobs.add(night.runs.job(name, "every day", Duration::ZERO)));
    night.invoke(&night.ticker(jobs), 0).await;
    let listed = roster::listed(&night.store()).await.expect("memory answers");
    assert_eq!(listed.into_iter().map(|job| job.name).collect::<Vec<_>>(), names);
}

#[test]
fn invalid_job_is_refused_at_start() {
    let night = Night::new();
    let runs = &night.runs;
    let refused = |jobs: Jobs, switch: &Switch| {
        Ticker::new(night.store(), &jobs, FUNCTION, switch, HolderInfo::new("")).expect_err("it is wrong").to_string()
    };
    let job = |name: &str| runs.job(name, "every minute", Duration::ZERO);
    for name in ["A b", "", &"x".repeat(LONGEST_NAME + 1)] {
        let said = format!("job `{name}`: a job's name is 1 to 64 of a-z, 0-9, '-' and '_'");
        assert_eq!(refused(one(job(name)), &On), said);
    }
    let twice = Jobs::new().add(job("a")).add(job("a"));
    assert_eq!(refused(twice, &On), "job `a`: two jobs have this name; rename one");
    let zone = job("a").in_zone("Europe/Berlin");
    assert_eq!(refused(one(zone), &On), "job `a`: schedule: a rate has no time zone");
    let lease = job("a").lease(Duration::from_secs(601));
    assert_eq!(refused(one(lease), &On), "job `a`: lease: must be from 1 to 600 s");
    let most = FUNCTION - MARGIN;
    let time = refused(one(job("a").time(most + Duration::from_millis(1))), &On);
    assert!(time.starts_with("job `a`: time: must be more than 0 and at most 58 s"), "{time}");
    let only = Switch::Only(["b".to_owned()].into());
    assert_eq!(refused(one(job("a")), &only), "job `b`: JOBS names it, but no job has this name; the jobs are a");
    let only = Switch::Only(["reprot".to_owned()].into());
    let hint = "job `reprot`: JOBS names it, but no job has this name (did you mean `report`?); the jobs are report";
    assert_eq!(refused(one(job("report")), &only), hint);
    let minutes = (0..48).map(|minute| format!("{minute:02}")).collect::<Vec<_>>().join(",");
    let [longest, longer] = ["8-9", "8-10"].map(|hours| format!("{minutes} {hours} * * *"));
    assert_eq!(format!("on {longest} UTC").len(), LONGEST_DEFINITION);
    let long = refused(one(runs.job("a", &longer, Duration::ZERO)), &On);
    assert_eq!(long, format!("job `a`: schedule: {}", InvalidSchedule::Form(longer)));
    let fine = Jobs::new()
        .add(job("nightly-report_2").time(most).lease(Duration::from_secs(600)))
        .add(job(&"x".repeat(LONGEST_NAME)))
        .add(runs.job("b", &longest, Duration::ZERO));
    Ticker::new(night.store(), &fine, FUNCTION, &On, HolderInfo::new("")).expect("all of them are right");
}

#[tokio::test]
async fn run_of_a_job_costs_two_write_units() {
    let testbed = TestBed::start().await;
    let runs = Runs::default();
    let jobs = Jobs::new().add(runs.job("beat", "every minute", Duration::ZERO)).add(runs.job(
        "report",
        "0 0 29 2 *",
        Duration::ZERO,
    ));
    let ticker = Ticker::new(testbed.parts().store, &jobs, FUNCTION, &On, HolderInfo::new("one")).expect("it is right");
    let now = testbed.env().now();
    let deadline = testbed.env().monotonic() + FUNCTION;
    let cost = async |minutes: u32| {
        let before = testbed.meter.reading();
        ticker.tick(now + minutes * MINUTE, deadline).await.expect("the store answers");
        let Reading { write_units, read_units, writes, reads, refusals, .. } = testbed.meter.reading() - before;
        assert_eq!((refusals, reads), (0, 1));
        (write_units, read_units, writes)
    };
    // The first tick also lists and defines each job; reading a missing row costs a read too.
    let (write_units, _, writes) = cost(0).await;
    assert_eq!((write_units, writes), (6.0, 6));
    assert_eq!(cost(1).await, (2.0, 2.0, 2));
    assert_eq!(cost(1).await, (0.0, 2.0, 0), "delivered again");
    assert_eq!(runs.tokens().len(), 2);
}
