//! Leases of the Rust library for `tests/clients`. Reads commands from standard input, one JSON object a line, and
//! prints the result of each.

use std::{
    collections::HashMap,
    convert::Infallible,
    io::BufRead,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};
use webhook_serializer::{
    CommitOutcome, EntityKey, Env, Guard, LeaseError, Leases, NotCommitted, RunError, Terms,
    aws::{Account, Parts},
    config::{Environment, StoreConfig},
    engine::store::Store,
    handlers::commit::writes as commit_writes,
    jobs::{
        Context, Job, JobError, OnCrash, Outcome, TickFailure,
        once::{Once, OnceError},
    },
    protocol::table::InvalidKind,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClientCommand {
    op: String,
    #[serde(default)]
    key: String,
    length: Option<u64>,
    wait: Option<u64>,
    #[serde(default)]
    work: u64,
    #[serde(default)]
    block: u64,
    #[serde(default)]
    writes: Value,
    #[serde(default)]
    schedule: String,
    zone: Option<String>,
    #[serde(default)]
    on_crash: String,
    error: Option<String>,
    #[serde(default)]
    keys: Vec<String>,
    #[serde(default)]
    times: usize,
    #[serde(default)]
    folder: PathBuf,
}

impl ClientCommand {
    fn terms(&self) -> Terms {
        let mut terms = Terms::default();
        if let Some(length) = self.length {
            terms = terms.lease(Duration::from_millis(length));
        }
        if let Some(wait) = self.wait {
            terms = terms.wait(Duration::from_millis(wait));
        }
        terms
    }
}

fn failure(error: &LeaseError) -> Value {
    let kind = match error {
        LeaseError::Contended { .. } => "contended",
        LeaseError::Lost => "lost",
        LeaseError::OutOfTime => "out_of_time",
        LeaseError::Throttled => "throttled",
        LeaseError::Unreachable(_) => "unreachable",
        LeaseError::Unknown(_) => "unknown",
        LeaseError::Refused(request) => match request.kind {
            InvalidKind::Permission | InvalidKind::Credentials => "denied",
            InvalidKind::MissingTable => "missing_table",
            InvalidKind::UnreadableRow => "unreadable_row",
            InvalidKind::Request => "refused",
        },
    };
    json!({ "error": kind, "message": error.to_string() })
}

fn answer<T>(result: Result<T, LeaseError>, value: impl FnOnce(T) -> Value) -> Value {
    result.map_or_else(|error| failure(&error), value)
}

/// Holds the leases of `keys` in turn. Files in `folder` name the present holders and the last token.
async fn crowd(leases: &Leases, command: &ClientCommand) -> Value {
    let mut overlaps = 0;
    let mut inversions = 0;
    for _ in 0..command.times {
        let number = fastrand::usize(..command.keys.len());
        let key = EntityKey::parse(&command.keys[number]).expect("a key");
        let (overlapped, inverted) = leases
            .run(&key, Terms::default().wait(Duration::from_secs(120)), |lease| {
                enter(&command.folder, number, lease.token().0)
            })
            .await
            .expect("the lease is granted");
        overlaps += u64::from(overlapped);
        inversions += u64::from(inverted);
    }
    json!({ "holds": command.times, "overlaps": overlaps, "inversions": inversions })
}

async fn enter(folder: &Path, number: usize, token: u64) -> Result<(bool, bool), Infallible> {
    let inside = folder.join(format!("inside-{number}"));
    let last = folder.join(format!("token-{number}"));
    let overlapped = std::fs::File::create_new(&inside).is_err();
    let before = std::fs::read_to_string(&last).ok().and_then(|token| token.parse::<u64>().ok());
    std::fs::write(&last, token.to_string()).expect("it can be written");
    Env::system().sleep(Duration::from_millis(1)).await;
    std::fs::remove_file(&inside).expect("it was created");
    Ok((overlapped, before.is_some_and(|before| before >= token)))
}

/// Calls a job, as `serializer jobs once` does.
async fn once(store: &Store, command: &ClientCommand) -> Value {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let writes = command.writes.clone();
    let error = command.error.clone();
    let time = command.work;
    let work = {
        let ran = ran.clone();
        move |context: Context| {
            let writes = writes.clone();
            let error = error.clone();
            let ran = ran.clone();
            async move {
                if let Some(error) = error {
                    return Err(JobError::from(error));
                }
                if time > 0 {
                    println!("{}", json!({ "begun": context.token().0 }));
                }
                Env::system().sleep(Duration::from_millis(time)).await;
                let run = json!({ "tick": context.tick().as_millis(), "token": context.token().0 });
                ran.lock().expect("no one panics").push(run);
                Ok(if writes.is_null() { Outcome::Done } else { Outcome::commit(commit_writes(&writes)?) })
            }
        }
    };
    let mut job = Job::new(&command.key, &command.schedule, work);
    if command.on_crash == "skip" {
        job = job.on_crash(OnCrash::Skip);
    }
    if let Some(zone) = &command.zone {
        job = job.in_zone(zone);
    }
    let once = match Once::new(store.clone(), job, "a test") {
        Ok(once) => once,
        Err(error) => return json!({ "error": "invalid", "message": error.to_string() }),
    };
    match once.run().await {
        Ok(report) => match report.ran.into_iter().find_map(|run| run.failure) {
            Some(TickFailure::Conditions(_)) => json!({ "error": "not_committed", "message": "" }),
            Some(failure) => json!({ "error": failure.to_string() }),
            None => json!({ "ran": *ran.lock().expect("no one panics") }),
        },
        Err(error @ OnceError::InUse { .. }) => json!({ "error": "other_schedule", "message": error.to_string() }),
        Err(error) => json!({ "error": error.to_string() }),
    }
}

async fn run(leases: &Leases, held: &mut HashMap<String, Guard>, command: &ClientCommand) -> Value {
    let key = match EntityKey::parse(&command.key) {
        Ok(key) => key,
        Err(_) if command.op == "crowd" => return crowd(leases, command).await,
        Err(error) => return json!({ "error": "key_invalid", "message": error.to_string() }),
    };
    let mut guard = || held.remove(&command.key).expect("acquired before");
    match command.op.as_str() {
        "acquire" => answer(leases.acquire(&key, command.terms()).await, |guard| {
            let token = guard.lease().token().0;
            held.insert(command.key.clone(), guard);
            json!({ "token": token })
        }),
        "extend" => {
            let mut guard = guard();
            let extended = guard.extend().await;
            held.insert(command.key.clone(), guard);
            answer(extended, |()| json!({}))
        }
        "release" => answer(guard().release().await, |()| json!({})),
        "commit" => match guard().commit(commit_writes(&command.writes).expect("valid writes")).await {
            Ok(CommitOutcome::Refused(NotCommitted { guard, .. })) => {
                held.insert(command.key.clone(), guard);
                json!({ "error": "not_committed", "message": "a condition did not hold" })
            }
            other => answer(other.map(|_| ()), |()| json!({})),
        },
        "run" => {
            let work = async |lease: webhook_serializer::Lease| {
                std::thread::sleep(Duration::from_millis(command.block));
                Env::system().sleep(Duration::from_millis(command.work)).await;
                Ok::<_, Infallible>(lease.token().0)
            };
            match leases.run(&key, command.terms(), work).await {
                Ok(token) => json!({ "token": token }),
                Err(RunError::Lease(error)) => failure(&error),
                Err(other) => json!({ "error": other.to_string() }),
            }
        }
        "lookup" => answer(leases.look(&key).await, |view| json!({ "held": view.is_some_and(|view| view.is_held()) })),
        other => json!({ "error": format!("no such command: {other}") }),
    }
}

// A second thread runs what the library spawns while this one reads.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leases = Leases::from_env().await?;
    let mut held = HashMap::new();
    let config = StoreConfig::read(&Environment)?;
    let store = Parts::connect(&Account::from_env()?, &config, &Env::system(), None).store;
    for line in std::io::stdin().lock().lines() {
        let command: ClientCommand = serde_json::from_str(&line?)?;
        let answer =
            if command.op == "once" { once(&store, &command).await } else { run(&leases, &mut held, &command).await };
        println!("{answer}");
    }
    Ok(())
}
