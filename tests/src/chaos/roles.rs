//! What the processes of the ring do. One program has all of its parts, so that
//! whoever builds the ring has built them: the functions are `ingest::run`,
//! `worker::run` and `scheduler::run`, which is all that the deployed binaries' `main` calls.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use serializer::local::{Engines, Served, TOTALS_TABLE, queue::Faults};
use webhook_serializer::{
    handler::{Context, Handler, HandlerError, Outcome},
    jobs::Jobs,
    protocol::{
        delivery::Delivery,
        table::{Change, Key, Write},
    },
};

use super::unwell::Window;

/// Names the role that a process has.
pub const ROLE: &str = "CHAOS_ROLE";

/// Does what [`ROLE`] says; `false` where it says nothing.
pub fn play() -> Result<bool> {
    let Some(role) = std::env::var_os(ROLE) else { return Ok(false) };
    let done = match role.to_str() {
        Some("ingest") => webhook_serializer::ingest::run(),
        Some("worker") => webhook_serializer::worker::run(Journaling::start()?),
        Some("scheduler") => webhook_serializer::scheduler::run(Jobs::new()),
        Some("careless worker") => super::careless::run(Journaling::start()?),
        Some("engines") => return serve(),
        other => bail!("{ROLE}: {other:?}"),
    };
    done.map_err(|error| anyhow::anyhow!(error))?;
    Ok(true)
}

/// Serves store and queue where the environment says, until it is killed.
fn serve() -> Result<bool> {
    let variable = |name: &str| std::env::var(name).with_context(|| name.to_owned());
    let served = Served {
        dynamodb: variable("DYNAMODB_PORT")?.parse()?,
        queue: variable("QUEUE_PORT")?.parse()?,
        visibility_timeout: Duration::from_secs(variable("VISIBILITY_TIMEOUT_SECONDS")?.parse()?),
    };
    let data = PathBuf::from(variable("DATA")?);
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?.block_on(async {
        let _engines = Engines::start_at(Some(&data), Faults::default(), served).await?;
        println!("ready");
        std::future::pending().await
    })
}

/// What a line of the journal tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A handler was started.
    Start,
    /// It sent its effect to somebody else's system.
    Effect,
    /// It answered.
    End,
}

/// One line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// What happened.
    pub what: What,
    /// Whose delivery.
    pub entity: String,
    /// Which one: what its sender calls it.
    pub id: String,
    /// Its place.
    pub sequence: u64,
    /// The token of this start.
    pub token: u64,
    /// Which attempt.
    pub attempt: u32,
    /// In which process.
    pub process: u32,
    /// When, by the wall clock, in milliseconds.
    pub at: u64,
}

/// Appends to a file that other processes append to.
fn append_to(path: &Path) -> std::io::Result<File> {
    File::options().create(true).append(true).open(path)
}

/// Writes down what it does as it does it, outside of our store.
struct Journaling {
    journal: File,
    unwell: Option<Window>,
}

impl Journaling {
    fn start() -> Result<Self> {
        let journal = std::env::var_os("JOURNAL").context("JOURNAL is not set")?;
        Ok(Self { journal: append_to(Path::new(&journal))?, unwell: Window::of_environment()? })
    }

    fn note(&self, what: What, delivery: &Delivery, context: &Context) -> Result<(), HandlerError> {
        let line = Line {
            what,
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
        // One write: a line is there or it is not, whoever is killed.
        Ok((&self.journal).write_all(text.as_bytes())?)
    }
}

/// Freezes this process for longer than its lease is: what comes next comes
/// late, and does so in every run, where freezing at any moment hits a handler
/// now and then.
fn freeze() -> std::io::Result<()> {
    let process = std::process::id();
    let script = format!("kill -STOP {process}; sleep 3; kill -CONT {process}");
    // Its end is heard of only by one who goes on.
    Command::new("sh").args(["-c", &script]).status().map(|_| ())
}

/// The key of the row in which a delivery's committed effect is counted.
pub fn effect_row(id: &str) -> Key {
    Key::named(TOTALS_TABLE, "order", id)
}

impl Handler for Journaling {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        self.note(What::Start, delivery, context)?;
        let chance = context.env().fraction();
        // Blocks its thread, so that nothing cancels it half-way: the worst that a handler may do.
        std::thread::sleep(Duration::from_millis(5).mul_f64(1.0 + 16.0 * chance));
        if chance > 0.99 {
            freeze()?;
        }
        if let Some(ending) = self.unwell.as_ref().and_then(|window| window.ending(context)) {
            return Ok(ending);
        }
        self.note(What::Effect, delivery, context)?;
        if chance < 0.03 {
            return Ok(Outcome::retry("by chance"));
        }
        self.note(What::End, delivery, context)?;
        let count = Change::Add { attribute: "times".into(), base: 0, by: 1 };
        let changes = vec![count, Change::set("token", context.token().0)];
        Ok(Outcome::Commit(vec![Write::update(effect_row(delivery.delivery_id().as_str()), changes)]))
    }
}
