//! What the handlers of one source need is out of reach for a while: its breakers
//! open, and close again. Beside it the control: a source whose handlers fail at
//! the same time, and do not say why. The others' go on.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value as Json;
use serializer::local::function_process::{FunctionSettings, Logs};
use tokio::{sync::mpsc, task::JoinHandle};
use webhook_serializer::{
    handler::{Context, Outcome},
    time::Timestamp,
};

/// The source whose handlers say that what they need is out of reach.
pub const UNWELL: &str = "unwell";

/// The source whose handlers fail meanwhile: the negative control. It is tried as
/// often, and after the same waits.
pub const FAILING: &str = "failing";

/// Both sources. They are tried again at once, since the queue makes whole seconds of any
/// wait: so their attempts last for a few seconds only.
pub(super) const SOURCES: &str = r#"
[sources.unwell]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "unwell"
handler_timeout = "2s"
retry = { attempts = 10, first = "0ms", longest = "0ms" }

[sources.failing]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "failing"
handler_timeout = "2s"
retry = { attempts = 10, first = "0ms", longest = "0ms" }
"#;

/// How many orders of each. Each process has a breaker of its own, and each of these
/// costs three starts at least: with so many orders, none is charged for all of them.
pub(super) const ORDERS: [(&str, usize); 2] = [(UNWELL, 10), (FAILING, 6)];

/// When it begins, since the run began.
pub(super) const AFTER: Duration = Duration::from_secs(3);

/// Tells a worker from when to when.
const VARIABLE: &str = "UNWELL";

/// From when to when, by everybody's clock, in milliseconds.
#[derive(Debug, Clone)]
pub(super) struct Window(Range<u64>);

impl Window {
    /// As long as this, soon.
    pub(super) fn of(lasts: Duration, now: Timestamp) -> Self {
        let from = now + AFTER;
        Self(from.as_millis()..(from + lasts).as_millis())
    }

    #[cfg(test)]
    pub(super) fn between(from: u64, until: u64) -> Self {
        Self(from..until)
    }

    /// What this worker was told, if anything.
    pub(super) fn of_environment() -> Result<Option<Self>> {
        let Ok(told) = std::env::var(VARIABLE) else { return Ok(None) };
        let (from, until) = told.split_once(' ').with_context(|| format!("{VARIABLE}: {told:?}"))?;
        Ok(Some(Self(from.parse()?..until.parse()?)))
    }

    /// Whether there is one, which began before.
    pub(super) fn has_begun(&self, now: Timestamp) -> bool {
        !self.0.is_empty() && self.0.start <= now.as_millis()
    }

    /// Whether it is that time, in milliseconds.
    pub(super) fn contains(&self, at: u64) -> bool {
        self.0.contains(&at)
    }

    /// What is left of it when half of it is over.
    pub(super) fn second_half(&self) -> Self {
        let Range { start, end } = self.0;
        Self(start.midpoint(end)..end)
    }

    /// How a handler ends now that cannot do its work.
    pub(super) fn ending(&self, context: &Context) -> Option<Outcome> {
        let is_open = self.contains(context.env().now().as_millis());
        match context.handler() {
            UNWELL if is_open => Some(Outcome::unavailable("out of reach")),
            FAILING if is_open => Some(Outcome::retry("it fails")),
            _ => None,
        }
    }
}

/// How often the breakers of a source opened and closed, in all workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Breakers {
    /// Opened, or opened again by a probe that failed.
    pub opened: u64,
    /// Closed.
    pub closed: u64,
}

/// What workers told of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// Of [`UNWELL`].
    pub(super) breakers: Breakers,
    /// Of each order, the tokens whose holders vanished, so that the lease was taken over.
    pub(super) vanished: BTreeMap<String, BTreeSet<u64>>,
}

/// What the workers log.
pub(super) struct Log(JoinHandle<Told>);

impl Log {
    /// That of `worker`, which is told of `window`.
    pub(super) fn of(worker: &mut FunctionSettings, window: &Window) -> Self {
        let given =
            [(VARIABLE, format!("{} {}", window.0.start, window.0.end)), ("AWS_LAMBDA_LOG_LEVEL", "INFO".into())];
        worker.environment.retain(|(name, _)| given.iter().all(|(other, _)| other != name));
        worker.environment.extend(given.map(|(name, value)| (name.to_owned(), value)));
        let (sender, mut lines) = mpsc::unbounded_channel::<String>();
        worker.logs = Logs::Lines(sender);
        Self(tokio::spawn(async move {
            let mut told = Told::default();
            while let Some(line) = lines.recv().await {
                let line: Json = serde_json::from_str(&line).unwrap_or_default();
                match line["message"].as_str() {
                    Some("source held back: its handler is unwell") if line["source"] == UNWELL => {
                        told.breakers.opened += 1;
                    }
                    Some("source goes on") if line["source"] == UNWELL => told.breakers.closed += 1,
                    Some("taken over from a holder that vanished") => {
                        let order = line["entity"].as_str().unwrap_or_default();
                        // A take-over is refused unless the token is still its holder's, and grants the next.
                        let vanished = line["token"].as_u64().and_then(|token| token.checked_sub(1));
                        told.vanished.entry(order.to_owned()).or_default().extend(vanished);
                    }
                    _ => {}
                }
            }
            told
        }))
    }

    /// What it told, once no worker is left.
    pub(super) async fn end(self) -> Result<Told> {
        Ok(self.0.await?)
    }
}
