//! Schedulers in memory, and jobs that record their own runs.

use tests::{clock::START, prelude::*};
use webhook_serializer::{
    engine::store::Store,
    jobs::{
        Context, TickReport,
        switch::Switch::{self, On},
    },
};

pub const MINUTE: Duration = Duration::from_secs(60);
pub const FUNCTION: Duration = Duration::from_secs(60);

pub fn minute(number: u32) -> Timestamp {
    START + number * MINUTE
}

#[derive(Debug, Clone, Default)]
pub struct Runs(Arc<Mutex<Vec<(String, Timestamp, u64)>>>);

impl Runs {
    pub fn note(&self, context: &Context) {
        let run = (context.job().to_owned(), context.tick(), context.token().0);
        self.0.lock().expect("no panic under the lock").push(run);
    }

    /// Returns the job's ticks, in minutes since the start.
    pub fn ticks(&self, job: &str) -> Vec<u64> {
        let runs = self.0.lock().expect("no panic under the lock");
        let runs = runs.iter().filter(|(name, ..)| name == job);
        runs.map(|(_, tick, _)| tick.since(START).as_secs() / 60).collect()
    }

    pub fn tokens(&self) -> Vec<u64> {
        self.0.lock().expect("no panic under the lock").iter().map(|(.., token)| *token).collect()
    }

    pub fn job(&self, name: &str, schedule: &str, takes: Duration) -> Job {
        let runs = self.clone();
        Job::new(name, schedule, move |context: Context| {
            let runs = runs.clone();
            async move {
                runs.note(&context);
                context.env().sleep(takes).await;
                Ok::<_, JobError>(())
            }
        })
    }
}

pub struct Night {
    pub memory: Arc<MemoryTable>,
    pub table: Arc<dyn Table>,
    pub clock: TokioClock,
    pub runs: Runs,
}

impl Night {
    pub fn new() -> Self {
        let memory = Arc::new(MemoryTable::new());
        Self { table: memory.clone(), memory, clock: TokioClock::start(), runs: Runs::default() }
    }

    pub fn env(&self) -> Env {
        Env::new(self.clock, SeededRandom::new(1))
    }

    pub fn store(&self) -> Store {
        Store::new(self.table.clone(), self.env())
    }

    pub fn ticker(&self, jobs: Jobs) -> Ticker {
        self.ticker_by(jobs, &On, self.env())
    }

    pub fn ticker_by(&self, jobs: Jobs, switch: &Switch, env: Env) -> Ticker {
        let store = Store::new(self.table.clone(), env);
        Ticker::new(store, &jobs, FUNCTION, switch, HolderInfo::new("a scheduler"))
            .expect("the jobs are right")
            .isolated(Isolation::Inline)
    }

    pub async fn invoke(&self, ticker: &Ticker, number: u32) -> TickReport {
        ticker.tick(minute(number), self.clock.monotonic() + FUNCTION).await.expect("memory answers")
    }

    pub async fn minutes(&self, ticker: &Ticker, numbers: impl IntoIterator<Item = u32>) {
        for number in numbers {
            self.until(number).await;
            self.invoke(ticker, number).await;
        }
    }

    pub async fn until(&self, number: u32) {
        self.clock.sleep(minute(number).since(self.clock.now())).await;
    }

    pub async fn killed(&self, ticker: &Ticker, number: u32, after: Duration) {
        self.until(number).await;
        let env = self.env();
        let ended = env.within(after, self.invoke(ticker, number)).await;
        assert!(ended.is_none(), "it was over before it could be killed");
    }

    pub async fn held(&self, job: &str, length: Duration) -> Lease {
        let request = Acquire {
            entity: key(&format!("cron/{job}")),
            kind: LeaseKind::Exclusive,
            holder: self.env().nonce(),
            info: HolderInfo::new("somebody else"),
            now: self.clock.now(),
            length,
        };
        match self.store().run(&request, MINUTE).await {
            Ok(Acquired::Granted(lease, _)) => lease,
            other => panic!("{other:?}"),
        }
    }

    pub async fn state(&self, job: &str) -> JobState {
        let key = key(&format!("cron/{job}"));
        let row = self.memory.get(&entity_row(&key)).await.expect("memory answers").expect("there is such a job");
        JobState::parse(&row).expect("its row is readable")
    }

    pub async fn ending(&self, job: &str) -> (u64, TickOutcome) {
        let state = self.state(job).await;
        assert_eq!(state.entity.held, None);
        let tick = state.last_tick.expect("a tick is recorded").since(START).as_secs() / 60;
        (tick, state.last_result.expect("with its result").ending)
    }
}

pub fn one(job: Job) -> Jobs {
    Jobs::new().add(job)
}
