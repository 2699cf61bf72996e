//! The scheduler function: invoked once a minute, it sweeps one segment of the
//! entities.

use serde::{Deserialize, Serialize};
use shared::{
    aws::{Account, Parts},
    config::{Environment, StoreConfig},
    sweep::{SweepError, Sweeper, Swept, segment_of},
    telemetry::{self, Event, JsonLog, Observer},
    time::{Surroundings, Timestamp},
};

/// What EventBridge sends.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct ScheduledEvent {
    /// When it was due, as RFC 3339.
    #[serde(default)]
    pub time: String,
}

impl ScheduledEvent {
    /// When it was due; `None`: the event does not say.
    pub fn scheduled(&self) -> Option<Timestamp> {
        let time = humantime::parse_rfc3339(&self.time).ok()?;
        let since = time.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(Timestamp::from_millis(u64::try_from(since.as_millis()).ok()?))
    }
}

/// The function, ready for its schedule.
#[derive(Debug, Clone)]
pub struct Scheduler {
    sweeper: Sweeper,
    surroundings: Surroundings,
}

impl Scheduler {
    /// A scheduler that sweeps with `sweeper`.
    pub fn new(sweeper: Sweeper, surroundings: Surroundings) -> Self {
        Self { sweeper, surroundings }
    }

    /// Does what is due at the event's time.
    ///
    /// # Errors
    ///
    /// Store or queue were not to be had.
    pub async fn tick(&self, event: &ScheduledEvent) -> Result<Swept, SweepError> {
        let due = event.scheduled().unwrap_or_else(|| self.surroundings.now());
        self.sweeper.sweep(segment_of(due)).await
    }
}

/// Runs the function in Lambda, configured by its environment.
///
/// # Errors
///
/// The configuration is wrong, or Lambda's runtime API is not to be had.
pub fn run() -> Result<(), lambda_runtime::Error> {
    telemetry::init_log();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = StoreConfig::read(&Environment)?;
        let surroundings = Surroundings::system();
        let log = JsonLog::new(surroundings.clone());
        let account = Account::from_env()?;
        let http = account.http_client();
        account.warm(&http, &surroundings).await;
        let Parts { store, waker } = Parts::connect_over(&http, &account, &config, &surroundings, None);
        let scheduler = Scheduler::new(Sweeper::new(store, waker, config.retention), surroundings);
        lambda_runtime::run(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<ScheduledEvent>| {
            let (scheduler, log) = (&scheduler, &log);
            async move {
                log.begin(&event.context.request_id);
                let swept = scheduler.tick(&event.payload).await?;
                log.observe(&Event::Swept { swept: &swept });
                Ok::<_, lambda_runtime::Error>(())
            }
        }))
        .await
    })
}
