//! One call of a job that runs once for each tick, whatever host calls it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value as Json, json};
use webhook_serializer::{
    EntityKey, LeaseError, StoreError,
    jobs::{
        Context, Job, JobError, OnCrash, Outcome, TickFailure, TickReport,
        once::{Once, OnceError},
    },
    protocol::{
        table::{InvalidKind, InvalidRequest, TableError},
        tick::{TickOutcome, job_entity},
    },
};

use crate::{
    commit::{host_writes, not_committed},
    effects::Effects,
    failure::{self, failure},
    session::Client,
    zones,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Start {
    job: String,
    #[serde(default)]
    schedule: String,
    zone: Option<String>,
    on_crash: Option<AfterCrash>,
    lease_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum AfterCrash {
    Again,
    Skip,
}

/// Checks `start`, and returns the session's task.
pub(crate) fn session(
    client: &Client,
    effects: &Effects,
    start: Json,
) -> Result<impl Future<Output = ()> + Send + use<>, String> {
    let start: Start = serde_json::from_value(start).map_err(|error| error.to_string())?;
    if start.schedule.is_empty() {
        return Err(format!("job {}: the schedule is not given, such as `0 3 * * *` or `every 6 hours`", start.job));
    }
    let inbox =
        client.inbox.clone().ok_or("the inbox table is not given, in which jobs are listed: set INBOX_TABLE")?;
    let own = [client.table.clone(), inbox];
    let is_answered = Arc::new(AtomicBool::new(true));
    let function = function(effects.clone(), own, is_answered.clone());
    let mut job = Job::new(&start.job, &start.schedule, function);
    job = job.on_crash(match start.on_crash {
        None | Some(AfterCrash::Again) => OnCrash::Again,
        Some(AfterCrash::Skip) => OnCrash::Skip,
    });
    if let Some(name) = &start.zone {
        // Without a zone of this name, the job is refused with the reason.
        job = zones::find(name).map_or_else(|| job.clone().in_zone(name), |zone| job.clone().by_zone(zone));
    }
    if let Some(length) = start.lease_ms {
        job = job.lease(Duration::from_millis(length));
    }
    let once = Once::new(client.store(effects), job, &client.holder).map_err(|error| error.to_string())?;
    let key = job_entity(&start.job).map_err(|error| error.to_string())?;
    let (effects, table) = (effects.clone(), client.table.clone());
    Ok(async move {
        let ended = once.run().await;
        effects.emit(last_event(&ended, is_answered.load(Relaxed), &start.job, &key, &table));
    })
}

/// Returns the job's function: the host runs the tick, and says by a command how that went.
fn function(
    effects: Effects,
    own: [Arc<str>; 2],
    is_answered: Arc<AtomicBool>,
) -> impl Fn(Context) -> futures_util::future::BoxFuture<'static, Result<Outcome, JobError>> + Send + Sync + 'static {
    move |context| {
        let (effects, own, is_answered) = (effects.clone(), own.clone(), is_answered.clone());
        Box::pin(async move {
            is_answered.store(false, Relaxed);
            let (tick, token) = (context.tick().as_millis(), context.token().0);
            effects.emit(json!({ "is": "due", "tick": tick, "token": token }));
            loop {
                let command = effects.command().await;
                let answer = match command["do"].as_str() {
                    Some("done") => match host_writes(&command, [Some(&own[0]), Some(&own[1])]) {
                        Ok(writes) if writes.is_empty() => Ok(Outcome::Done),
                        Ok(writes) => Ok(Outcome::Commit(writes)),
                        Err(reason) => {
                            effects.emit(failure::event("invalid", reason));
                            continue;
                        }
                    },
                    Some("failed") => Err(command["error"].as_str().unwrap_or_default().into()),
                    _ => {
                        effects.emit(failure::event("invalid", "no such command"));
                        continue;
                    }
                };
                is_answered.store(true, Relaxed);
                return answer;
            }
        })
    }
}

/// Returns the session's last event. `is_answered` says whether the host has ended the run that was started last.
fn last_event(
    ended: &Result<TickReport, OnceError>,
    is_answered: bool,
    job: &str,
    key: &EntityKey,
    table: &str,
) -> Json {
    let report = match ended {
        Ok(report) => report,
        Err(OnceError::InUse { .. }) => {
            let message = ended.as_ref().map_or_else(ToString::to_string, |_| String::new());
            return failure::event("other_schedule", message);
        }
        Err(OnceError::Unrecorded(StoreError::Unavailable(error))) => {
            return failure::event(
                "unknown",
                format!(
                    "the run of `{job}` has ended, but DynamoDB did not confirm that its tick was recorded ({error}): unless \
                     it was, the tick counts as crashed"
                ),
            );
        }
        Err(OnceError::Store(error) | OnceError::Unrecorded(error)) => return stopped(error, job, key, table),
    };
    if report.ran.iter().any(|run| run.ending == TickOutcome::Crashed) {
        return failure(&LeaseError::Lost, key, table);
    }
    match report.ran.iter().find_map(|run| run.failure.as_ref()) {
        Some(TickFailure::Conditions(refused)) => not_committed(refused.clone()),
        Some(TickFailure::Writes(request)) => failure::refused(request),
        Some(TickFailure::Function(_)) if !is_answered => failure(&LeaseError::OutOfTime, key, table),
        // The host knows its own error.
        _ => json!({ "is": "finished" }),
    }
}

fn stopped(error: &StoreError, job: &str, key: &EntityKey, table: &str) -> Json {
    match error {
        StoreError::Unavailable(TableError::Throttled | TableError::Conflict) => {
            failure(&LeaseError::Throttled, key, table)
        }
        StoreError::Unavailable(error) => failure::event(
            "unreachable",
            format!("no tick of `{job}` was started, because DynamoDB did not answer ({error}): try again later"),
        ),
        StoreError::Invalid(request) => failure::refused(request),
        StoreError::Corrupt(error) => {
            let request = InvalidRequest { kind: InvalidKind::UnreadableRow, message: error.to_string() };
            failure::refused(&request)
        }
    }
}
