//! A document that says what a test wants, counts how often it is read, and
//! keeps what is told of it.

use std::{
    future::{pending, ready},
    sync::{Arc, Mutex, MutexGuard},
};

use futures_util::future::BoxFuture;
use webhook_serializer::{
    sources::Document,
    telemetry::{Event, Observer},
};

/// The document of these sources, each with one secret.
pub fn document(sources: &[(&str, &str)]) -> String {
    let entry = |(name, secret): &(&str, &str)| {
        format!(
            "[sources.{name}]\nprovider = 'standard-webhooks'\nsecrets = ['whsec_{secret}']\nhandler = 'test'\n\
             entity = '{name}/order/{{/data/order_id}}'\n"
        )
    };
    sources.iter().map(entry).collect()
}

#[derive(Debug, Clone, Default)]
pub struct Script(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// `None`: it does not answer.
    answer: Option<Result<String, String>>,
    reads: u32,
    told: Vec<String>,
}

impl Script {
    pub fn of(sources: &[(&str, &str)]) -> Self {
        let script = Self::default();
        script.says(sources);
        script
    }

    pub fn says(&self, sources: &[(&str, &str)]) {
        self.says_text(document(sources));
    }

    pub fn says_text(&self, text: String) {
        self.state().answer = Some(Ok(text));
    }

    pub fn fails(&self, reason: &str) {
        self.state().answer = Some(Err(reason.to_owned()));
    }

    pub fn hangs(&self) {
        self.state().answer = None;
    }

    /// How often it was read.
    pub fn reads(&self) -> u32 {
        self.state().reads
    }

    /// What was told so far.
    pub fn told(&self) -> Vec<String> {
        self.state().told.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no one panics while holding this")
    }
}

impl Document for Script {
    fn read(&self) -> BoxFuture<'_, Result<String, String>> {
        let mut state = self.state();
        state.reads += 1;
        match &state.answer {
            Some(answer) => Box::pin(ready(answer.clone())),
            None => Box::pin(pending()),
        }
    }
}

impl Observer for Script {
    fn observe(&self, event: &Event<'_>) {
        let line = match event {
            Event::SourcesChanged { count } => format!("changed to {count}"),
            Event::SourcesKept { reason, is_news: true } => format!("news: {reason}"),
            Event::SourcesKept { reason, .. } => format!("still: {reason}"),
            Event::Requeued { reason, .. } => format!("put off: {reason:?}"),
            Event::Settled { settlement, .. } => format!("settled: {}", settlement.as_str()),
            _ => return,
        };
        self.state().told.push(line);
    }
}
