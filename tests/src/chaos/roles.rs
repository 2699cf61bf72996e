//! The roles of the processes, all of the same program. In the roles of Lambda functions, a process calls
//! `ingest::run`, `worker::run` or `scheduler::run`, as the `main` of each deployed binary does.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use serializer::local::{EnginePorts, Engines, TOTALS_TABLE, queue::QueueFaults};
use webhook_serializer::{
    handler::{Context, Handler, HandlerError, Outcome},
    handlers::commit,
    jobs::Jobs,
    protocol::{
        delivery::Delivery,
        table::{Change, Key, Write},
    },
};

pub const ROLE: &str = "CHAOS_ROLE";

/// Runs the role that [`ROLE`] names. Returns `false` if it names none.
pub fn run_role() -> Result<bool> {
    let Some(role) = std::env::var_os(ROLE) else { return Ok(false) };
    let done = match role.to_str() {
        Some("ingest") => webhook_serializer::ingest::run(),
        Some("worker") => webhook_serializer::worker::run(Journaling::start()?),
        Some("scheduler") => webhook_serializer::scheduler::run(Jobs::new()),
        Some("engines") => return serve(),
        other => bail!("{ROLE}: {other:?}"),
    };
    done.map_err(|error| anyhow::anyhow!(error))?;
    Ok(true)
}

fn serve() -> Result<bool> {
    let variable = |name: &str| std::env::var(name).with_context(|| name.to_owned());
    let served = EnginePorts {
        dynamodb: variable("DYNAMODB_PORT")?.parse()?,
        queue: variable("QUEUE_PORT")?.parse()?,
        visibility_timeout: Duration::from_secs(variable("VISIBILITY_TIMEOUT_SECONDS")?.parse()?),
    };
    let data = PathBuf::from(variable("DATA")?);
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let _engines = Engines::start_at(Some(&data), QueueFaults::default(), served).await?;
        println!("ready");
        std::future::pending().await
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandlerStage {
    Start,
    Effect,
    End,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HandlerLine {
    pub step: HandlerStage,
    pub entity: String,
    pub id: String,
    pub sequence: u64,
    pub token: u64,
    pub attempt: u32,
    pub process: u32,
    /// The time by the wall clock, in milliseconds.
    pub at: u64,
}

fn append_to(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

struct Journaling {
    journal: File,
}

impl Journaling {
    fn start() -> Result<Self> {
        let journal = std::env::var_os("JOURNAL").context("JOURNAL is not set")?;
        Ok(Self { journal: append_to(Path::new(&journal))? })
    }

    fn note(&self, step: HandlerStage, delivery: &Delivery, context: &Context) -> Result<(), HandlerError> {
        let line = HandlerLine {
            step,
            entity: delivery.entity().to_string(),
            id: delivery.delivery_id().to_string(),
            sequence: delivery.sequence().0,
            token: context.token().0,
            attempt: delivery.attempt(),
            process: std::process::id(),
            at: context.env().now().as_millis(),
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        // A single write: if the process is killed, the line is there completely or not at all.
        Ok((&self.journal).write_all(text.as_bytes())?)
    }
}

/// Freezes this process for longer than its lease, so that every run has late effects. The schedule's random
/// freezes seldom hit a running handler.
fn freeze() -> std::io::Result<()> {
    let process = std::process::id();
    let script = format!("kill -STOP {process}; sleep 3; kill -CONT {process}");
    Command::new("sh").args(["-c", &script]).status().map(|_| ())
}

pub fn effect_row(id: &str) -> Key {
    Key::named(TOTALS_TABLE, "order", id)
}

impl Handler for Journaling {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        self.note(HandlerStage::Start, delivery, context)?;
        let random = context.env().fraction();
        // Blocks the thread, so that nothing can cancel the wait.
        std::thread::sleep(Duration::from_millis(5).mul_f64(1.0 + 16.0 * random));
        if random > 0.99 {
            freeze()?;
        }
        self.note(HandlerStage::Effect, delivery, context)?;
        if random < 0.03 {
            return Ok(Outcome::retry("simulated"));
        }
        self.note(HandlerStage::End, delivery, context)?;
        let id = delivery.delivery_id().as_str();
        let token = context.token().0;
        let writes = match delivery.sequence().0 % 2 {
            0 => commit::writes(&answered(id, token))?,
            _ => vec![Write::update(effect_row(id), vec![Change::add("times", 1), Change::set("token", token)])],
        };
        Ok(Outcome::Commit(writes))
    }
}

/// Returns the writes as the answer of a function has them.
fn answered(id: &str, token: u64) -> Json {
    json!([{ "Update": {
        "TableName": TOTALS_TABLE,
        "Key": { "order": { "S": id } },
        "UpdateExpression": "ADD #times :one SET #token = :token",
        "ExpressionAttributeNames": { "#times": "times", "#token": "token" },
        "ExpressionAttributeValues": { ":one": { "N": "1" }, ":token": { "N": token.to_string() } },
    } }])
}
