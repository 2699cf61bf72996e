//! One lease from its request to its end, as a machine. The host reports replies, times and commands, and then does
//! what the machine asks for.

use std::{
    sync::Arc,
    task::{Context, Poll, Waker as TaskWaker},
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};
use webhook_serializer::{
    CommitOutcome, EntityKey, Guard, LeaseError, Leases, NotCommitted, Terms,
    config::DEFAULT_RETENTION_DAYS,
    engine::{queue::check_url, store::Store, wake::Waker},
    leases::{KeyDisplay, UnansweredRequest},
    protocol::table::ConditionResult,
    telemetry::{Event, Observer},
    time::Env,
};

use crate::{
    commit::{host_writes, not_committed},
    effects::{Effects, Machine, noting_timers},
    failure::{self, failure},
    job,
    tables::{HostQueue, HostTable},
};

/// The limits of a lease's length, in milliseconds. The library would clamp other lengths.
const LENGTHS: std::ops::RangeInclusive<u64> = 1000..=900_000;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    table: String,
    inbox_table: Option<String>,
    queue_url: Option<String>,
    #[serde(default)]
    holder: String,
    #[serde(default = "default_retention")]
    retention_days: u64,
}

fn default_retention() -> u64 {
    DEFAULT_RETENTION_DAYS
}

/// Reads what the caller has given, as the host encoded it.
///
/// Such JSON is well-formed, unless JSON or UTF-8 has no form for a value, such as an infinite number or a half of a
/// surrogate pair.
fn given<T: DeserializeOwned>(json: &str) -> Result<T, String> {
    serde_json::from_str(json).map_err(|error| {
        if error.is_syntax() {
            return "a text is not Unicode, or a number is not finite".to_owned();
        }
        let message = error.to_string();
        // The place in JSON that the caller has not written.
        message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason).to_owned()
    })
}

/// A process's connection to a table of leases. Its sessions share what it learns of the store's time.
pub struct Client {
    machine: Machine,
    env: Env,
    pub(crate) table: Arc<str>,
    pub(crate) inbox: Option<Arc<str>>,
    queue_url: Option<Arc<str>>,
    pub(crate) holder: String,
    retention: Duration,
}

impl Client {
    /// Creates a client from settings in JSON.
    ///
    /// # Errors
    ///
    /// Returns a sentence that names an invalid setting.
    pub fn new(settings: &str) -> Result<Self, String> {
        let settings: Settings = given(settings)?;
        if settings.table.is_empty() {
            return Err("the name of the entities table is not given: set `table`, such as to ENTITIES_TABLE".into());
        }
        if settings.inbox_table.as_ref() == Some(&settings.table) {
            return Err(format!("`table` and `inboxTable` are both {}: the deployment has two tables", settings.table));
        }
        if !(1..=3650).contains(&settings.retention_days) {
            return Err(format!("the retention of {} days is not from 1 to 3650", settings.retention_days));
        }
        if let Some(url) = &settings.queue_url {
            check_url(url)?;
        }
        let machine = Machine::default();
        Ok(Self {
            env: Env::new(machine.clone(), machine.clone()),
            machine,
            table: settings.table.into(),
            inbox: settings.inbox_table.filter(|table| !table.is_empty()).map(Into::into),
            queue_url: settings.queue_url.map(Into::into),
            holder: settings.holder,
            retention: DAY * settings.retention_days as u32,
        })
    }

    pub(crate) fn store(&self, effects: &Effects) -> Store {
        let table = HostTable {
            effects: effects.clone(),
            env: self.env.clone(),
            entities: self.table.clone(),
            inbox: self.inbox.clone(),
        };
        Store::new(Arc::new(table), self.env.clone())
    }

    fn leases(&self, effects: &Effects) -> Leases {
        let warnings = Arc::new(Warnings(effects.clone()));
        let leases = Leases::observed(self.store(effects), &self.holder, warnings).kept_for(self.retention);
        match &self.queue_url {
            None => leases,
            Some(url) => {
                let queue = HostQueue { effects: effects.clone(), url: url.clone() };
                leases.waking(Waker::new(Arc::new(queue), self.env.clone()))
            }
        }
    }
}

/// Passes on failures that do not end the session.
#[derive(Debug)]
struct Warnings(Effects);

impl Observer for Warnings {
    fn observe(&self, event: &Event<'_>) {
        if let Event::WakeUpFailed { entity } = event {
            let message = format!(
                "the lease of {entity} was released, but no wake-up could be sent to the queue: waiting deliveries start \
                 only with the next wake-up or the sweep (check QUEUE_URL and the permission sqs:SendMessage)"
            );
            self.0.emit(failure::event("warning", message));
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

/// One lease from its request to its end, one look at a lease, or one call of a job.
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
    /// Returns a sentence if the terms or the job are invalid. An invalid key is the session's only event instead.
    pub fn new(client: &Client, start: &str) -> Result<Self, String> {
        let start: Json = given(start)?;
        let effects = Effects::default();
        if !["job", "key"].iter().any(|name| start[name].is_string()) {
            return Err("the key, or the job's name, is not a text".into());
        }
        let task: BoxFuture<'static, ()> = if start.get("job").is_some() {
            Box::pin(job::session(client, &effects, start)?)
        } else {
            let start: Start = serde_json::from_value(start).map_err(|error| error.to_string())?;
            let terms = start.terms()?;
            match EntityKey::parse(&start.key) {
                Ok(key) => {
                    let tables = (client.table.clone(), client.inbox.clone());
                    Box::pin(run(effects.clone(), client.leases(&effects), tables, key, terms, start))
                }
                Err(error) => {
                    effects.emit(failure::event("invalid_key", error.to_string()));
                    Box::pin(std::future::ready(()))
                }
            }
        };
        Ok(Self { machine: client.machine.clone(), effects, task: Some(task) })
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

/// `table` is the entities table, and `inbox` the inbox table if it is known.
async fn run(
    effects: Effects,
    leases: Leases,
    (table, inbox): (Arc<str>, Option<Arc<str>>),
    key: EntityKey,
    terms: Terms,
    start: Start,
) {
    if start.look {
        return effects.emit(look(&leases, &key, &table).await);
    }
    let Some(mut guard) = acquire(&effects, &leases, &table, &key, terms).await else { return };
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
                let writes = match host_writes(&command, [Some(&*table), inbox.as_deref()]) {
                    Ok(writes) => writes,
                    Err(reason) => {
                        effects.emit(failure::event("invalid", reason));
                        continue;
                    }
                };
                match guard.commit(writes).await {
                    Ok(CommitOutcome::Committed) => return effects.emit(json!({ "is": "committed" })),
                    Ok(CommitOutcome::Refused(NotCommitted { guard: kept, results })) => {
                        guard = kept;
                        let failed = |number: &usize| results[*number] != ConditionResult::Held;
                        let refused = (0..results.len()).filter(failed).collect();
                        effects.emit(not_committed(refused));
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
            Some("abandon") => {
                let _ = guard.release().await;
                return;
            }
            _ => effects.emit(failure::event("invalid", "no such command")),
        }
    }
}

/// Acquires the lease. Returns `None` if it is not granted, or if the host abandons the session.
///
/// A request without a known reply may still be granted. Then the lease is released, after the host got its error.
async fn acquire(effects: &Effects, leases: &Leases, table: &str, key: &EntityKey, terms: Terms) -> Option<Guard> {
    let unanswered = UnansweredRequest::default();
    let mut is_abandoned = false;
    let granted = {
        let mut acquired = std::pin::pin!(leases.acquire_noting(key, terms, &unanswered));
        std::future::poll_fn(|context| {
            if let Poll::Ready(granted) = acquired.as_mut().poll(context) {
                return Poll::Ready(Some(granted));
            }
            is_abandoned |= effects.is_abandoned();
            // The reply to a request on its way shows whether a lease must be released.
            if is_abandoned && !unanswered.is_some() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    };
    match granted? {
        Ok(guard) if is_abandoned => {
            let _ = guard.release().await;
        }
        Ok(guard) => return Some(guard),
        Err(error) => {
            if !is_abandoned {
                effects.emit(failure(&error, key, table));
            }
            leases.withdraw(&unanswered).await;
        }
    }
    None
}

async fn next_command(effects: &Effects, guard: &mut Guard, renew: bool) -> Result<Json, LeaseError> {
    if renew { guard.hold(effects.command()).await } else { Ok(effects.command().await) }
}

async fn look(leases: &Leases, key: &EntityKey, table: &str) -> Json {
    match leases.look(key).await {
        Err(error) => failure(&error, key, table),
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
