//! One lease from its request to its end, as a machine. The host reports replies, times and commands, and then does
//! what the machine asks for.

use std::{
    sync::Arc,
    task::{Context, Waker as TaskWaker},
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use webhook_serializer::{
    CommitOutcome, EntityKey, Guard, LeaseError, Leases, NotCommitted, Terms,
    engine::{store::Store, wake::Waker},
    leases::KeyDisplay,
    protocol::table::InvalidKind,
    telemetry::Quiet,
    time::Env,
};

use crate::{
    effects::{Effects, Machine, noting_timers},
    tables::{HostQueue, HostTable, host_write},
};

/// DynamoDB's limit on the writes of a transaction, without the release.
const MOST_WRITES: usize = 99;

/// The limits of a lease's length, in milliseconds. The library would clamp other lengths.
const LENGTHS: std::ops::RangeInclusive<u64> = 1000..=900_000;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Settings {
    table: String,
    queue_url: Option<String>,
    #[serde(default)]
    holder: String,
    #[serde(default = "a_month")]
    retention_days: u64,
}

fn a_month() -> u64 {
    30
}

/// A process's connection to a table of leases. Its sessions share what it learns of the store's time.
pub struct Client {
    machine: Machine,
    env: Env,
    table: Arc<str>,
    queue_url: Option<Arc<str>>,
    holder: String,
    retention: Duration,
}

impl Client {
    /// Creates a client from settings in JSON.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names an invalid setting.
    pub fn new(settings: &str) -> Result<Self, String> {
        let settings: Settings = serde_json::from_str(settings).map_err(|error| error.to_string())?;
        if settings.table.is_empty() {
            return Err("the name of the entities table is empty".into());
        }
        if !(1..=3650).contains(&settings.retention_days) {
            return Err(format!("the retention of {} days is not from 1 to 3650", settings.retention_days));
        }
        let machine = Machine::default();
        Ok(Self {
            env: Env::new(machine.clone(), machine.clone()),
            machine,
            table: settings.table.into(),
            queue_url: settings.queue_url.map(Into::into),
            holder: settings.holder,
            retention: DAY * settings.retention_days as u32,
        })
    }

    fn leases(&self, effects: &Effects) -> Leases {
        let env = self.env.clone();
        let table = HostTable { effects: effects.clone(), env: env.clone(), entities: self.table.clone() };
        let store = Store::new(Arc::new(table), env.clone());
        let leases = Leases::observed(store, &self.holder, Arc::new(Quiet)).kept_for(self.retention);
        match &self.queue_url {
            None => leases,
            Some(url) => {
                let queue = HostQueue { effects: effects.clone(), url: url.clone() };
                leases.waking(Waker::new(Arc::new(queue), env))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Start {
    key: String,
    /// Only reads the lease.
    #[serde(default)]
    look: bool,
    lease_ms: Option<u64>,
    wait_ms: Option<u64>,
    within_ms: Option<u64>,
    /// Renews the lease while it is held.
    #[serde(default)]
    renew: bool,
}

impl Start {
    fn terms(&self) -> Result<Terms, String> {
        let mut terms = Terms::default();
        if let Some(length) = self.lease_ms {
            if !LENGTHS.contains(&length) {
                return Err(format!("a lease lasts from 1 s to 15 min, not {length} ms"));
            }
            terms = terms.lease(Duration::from_millis(length));
        }
        if let Some(wait) = self.wait_ms {
            terms = terms.wait(Duration::from_millis(wait));
        }
        if let Some(left) = self.within_ms {
            terms = terms.within(Duration::from_millis(left));
        }
        Ok(terms)
    }
}

/// One lease from its request to its end, or one look at a lease.
///
/// Dropping a session sends nothing: a lease that it holds lasts until it expires.
pub struct Session {
    machine: Machine,
    effects: Effects,
    task: Option<BoxFuture<'static, ()>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    now: u64,
    monotonic: f64,
    entropy: String,
    #[serde(default)]
    replies: Vec<(u64, Json)>,
    #[serde(default)]
    commands: Vec<Json>,
}

impl Input {
    fn words(&self) -> Result<Vec<u64>, String> {
        let digits = self.entropy.as_bytes().chunks(16);
        let word = |digits: &[u8]| u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let words: Option<Vec<u64>> = digits.map(word).collect();
        words.filter(|words| words.len() >= 2).ok_or_else(|| "`entropy` needs 16 random bytes in hexadecimal".into())
    }
}

impl Session {
    /// Starts a session of `client`, described in JSON. The session does nothing before its first step.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the key or the terms are invalid.
    pub fn new(client: &Client, start: &str) -> Result<Self, String> {
        let start: Start = serde_json::from_str(start).map_err(|error| error.to_string())?;
        let key = EntityKey::parse(&start.key).map_err(|error| error.to_string())?;
        let terms = start.terms()?;
        let effects = Effects::default();
        let leases = client.leases(&effects);
        let table = client.table.clone();
        let run = run(effects.clone(), leases, table, key, terms, start);
        Ok(Self { machine: client.machine.clone(), effects, task: Some(Box::pin(run)) })
    }

    /// Takes what has happened since the last step. Returns what the host must do, both in JSON.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the input is malformed. The session is unchanged then.
    pub fn step(&mut self, input: &str) -> Result<String, String> {
        let input: Input = serde_json::from_str(input).map_err(|error| error.to_string())?;
        let words = input.words()?;
        let instant = Duration::try_from_secs_f64(input.monotonic / 1000.0).map_err(|error| error.to_string())?;
        self.machine.read(input.now, instant, words);
        {
            let mut pending = self.effects.lock();
            pending.replies.extend(input.replies);
            pending.commands.extend(input.commands);
        }
        let mut wake = None;
        if let Some(task) = &mut self.task {
            let (polled, until) = noting_timers(|| task.as_mut().poll(&mut Context::from_waker(TaskWaker::noop())));
            wake = until;
            if polled.is_ready() {
                self.task = None;
                wake = None;
            }
        }
        let now = webhook_serializer::Clock::monotonic(&self.machine);
        let wake = wake.map(|at| at.saturating_sub(now).as_micros().div_ceil(1000) as u64);
        let mut pending = self.effects.lock();
        // No reply is awaited any more once its call was cancelled.
        pending.replies.clear();
        Ok(json!({
            "calls": std::mem::take(&mut pending.calls),
            "cancelled": std::mem::take(&mut pending.cancelled),
            "events": std::mem::take(&mut pending.events),
            "wake": wake,
            "over": self.task.is_none(),
        })
        .to_string())
    }
}

async fn run(effects: Effects, leases: Leases, table: Arc<str>, key: EntityKey, terms: Terms, start: Start) {
    if start.look {
        return effects.emit(look(&leases, &key).await);
    }
    let mut guard = match leases.acquire(&key, terms).await {
        Ok(guard) => guard,
        Err(error) => return effects.emit(failure(&error, &key, &table)),
    };
    let lease = guard.lease();
    effects.emit(json!({ "is": "granted", "token": lease.token().0, "id": lease.id().to_string() }));
    loop {
        let command = match next_command(&effects, &mut guard, start.renew).await {
            Ok(command) => command,
            Err(error) => {
                // The host stops the work now, before the release.
                effects.emit(failure(&error, &key, &table));
                if error == LeaseError::OutOfTime {
                    let _ = guard.release().await;
                }
                return;
            }
        };
        let failed = |error: &LeaseError| failure(error, &key, &table);
        match command["do"].as_str() {
            Some("extend") => match guard.extend().await {
                Ok(()) => effects.emit(json!({ "is": "extended" })),
                Err(error) => return effects.emit(failed(&error)),
            },
            Some("commit") => {
                let writes = match writes(&command, &table) {
                    Ok(count) => (0..count).map(host_write).collect(),
                    Err(reason) => {
                        effects.emit(json!({ "is": "invalid", "message": reason }));
                        continue;
                    }
                };
                match guard.commit(writes).await {
                    Ok(CommitOutcome::Committed) => return effects.emit(json!({ "is": "committed" })),
                    Ok(CommitOutcome::Refused(NotCommitted { guard: kept, refusals })) => {
                        guard = kept;
                        effects.emit(not_committed(&refusals));
                    }
                    Err(error) => return effects.emit(failed(&error)),
                }
            }
            Some("release") => {
                return effects.emit(match guard.release().await {
                    Ok(()) => json!({ "is": "released" }),
                    Err(error) => failed(&error),
                });
            }
            _ => effects.emit(json!({ "is": "invalid", "message": "no such command" })),
        }
    }
}

async fn next_command(effects: &Effects, guard: &mut Guard, renew: bool) -> Result<Json, LeaseError> {
    if renew { guard.hold(effects.command()).await } else { Ok(effects.command().await) }
}

async fn look(leases: &Leases, key: &EntityKey) -> Json {
    match leases.look(key).await {
        Err(error) => failure(&error, key, ""),
        Ok(None) => json!({ "is": "seen", "held": false, "waiting": 0 }),
        Ok(Some(view)) => json!({
            "is": "seen",
            "held": view.is_held(),
            "by": view.by(KeyDisplay::Raw),
            "kind": view.kind().map(|kind| kind.as_str()),
            "until": view.until().map(|time| time.as_millis()),
            "token": view.token().0,
            "waiting": view.waiting(),
        }),
    }
}

/// Returns the number of the host's writes, or why they cannot be committed.
fn writes(command: &Json, own_table: &str) -> Result<usize, String> {
    let tables = command["tables"].as_array().map(Vec::as_slice).unwrap_or_default();
    if tables.len() > MOST_WRITES {
        return Err(format!("a commit has at most {MOST_WRITES} writes, not {}", tables.len()));
    }
    let own = |table: &Json| table.as_str().is_some_and(|table| table.rsplit('/').next() == Some(own_table));
    match tables.iter().position(own) {
        Some(number) => Err(format!(
            "write {number} is to {own_table}, the serializer's own table, which only the serializer writes"
        )),
        None => Ok(tables.len()),
    }
}

fn not_committed<T>(refusals: &[Option<T>]) -> Json {
    let refused: Vec<usize> = (0..refusals.len()).filter(|number| refusals[*number].is_some()).collect();
    let numbers: Vec<String> = refused.iter().map(ToString::to_string).collect();
    json!({
        "is": "not_committed",
        "refused": refused,
        "message": format!("nothing was written: the condition of write {} did not hold", numbers.join(", ")),
    })
}

/// Describes an error: a kind for each reaction, and a sentence that says what to do.
fn failure(error: &LeaseError, key: &EntityKey, table: &str) -> Json {
    let event = |is: &str, message: String| json!({ "is": is, "message": message });
    match error {
        LeaseError::Contended { by, until } => json!({
            "is": "contended",
            "by": by,
            "until": until.as_millis(),
            "message": format!("{key} is held by {by} until {until}: try again later, or wait longer"),
        }),
        LeaseError::Lost => event(
            "lost",
            format!(
                "the lease of {key} was lost, and another holder may already work on it: stop the work and begin again \
                 under a new lease (a blocked or frozen process renews no lease)"
            ),
        ),
        LeaseError::OutOfTime => event(
            "out_of_time",
            format!("the caller's time ended before the work on {key} was done: allow more time, or do less work"),
        ),
        LeaseError::Throttled => event(
            "throttled",
            format!("DynamoDB throttles the table {table}: try again later, or raise the table's capacity"),
        ),
        LeaseError::Unreachable(reason) => event(
            "unreachable",
            format!("the lease of {key} was not granted, because DynamoDB did not answer ({reason}): try again later"),
        ),
        LeaseError::Unknown(reason) => event(
            "unknown",
            format!(
                "the work on {key} is done, but DynamoDB did not confirm its last write ({reason}): read what was \
                 written before you repeat it"
            ),
        ),
        LeaseError::Refused(request) => {
            let (is, advice) = match request.kind {
                InvalidKind::MissingTable => {
                    return event(
                        "missing_table",
                        format!(
                            "the table {table}, or one that a commit writes to, does not exist: check its name, the region \
                             and the account"
                        ),
                    );
                }
                InvalidKind::Permission => {
                    ("denied", "allow dynamodb:GetItem and UpdateItem on the entities table, and what a commit writes")
                }
                InvalidKind::Credentials => ("denied", "renew the AWS credentials"),
                InvalidKind::UnreadableRow => ("unreadable_row", "update this package to the deployment's version"),
                InvalidKind::Request => ("refused", "change the request; a repeat does not help"),
            };
            event(is, format!("{}: {advice}", request.message.trim_end_matches(['.', ':', ' '])))
        }
    }
}
