//! A sources document that a test controls. It counts its reads and records the events about it.

use std::{future::pending, sync::MutexGuard};

use tests::prelude::*;
use webhook_serializer::sources::SourcesDocument;

/// Returns a document with these sources and their secrets.
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
pub struct ScriptedDocument(Arc<Mutex<ScriptState>>);

#[derive(Debug, Default)]
struct ScriptState {
    /// `None` means that a read never ends.
    answer: Option<Result<String, String>>,
    reads: u32,
    events: Vec<String>,
}

impl ScriptedDocument {
    pub fn new(sources: &[(&str, &str)]) -> Self {
        let script = Self::default();
        script.set(sources);
        script
    }

    pub fn set(&self, sources: &[(&str, &str)]) {
        self.set_text(document(sources));
    }

    pub fn set_text(&self, text: String) {
        self.state().answer = Some(Ok(text));
    }

    pub fn fail(&self, reason: &str) {
        self.state().answer = Some(Err(reason.to_owned()));
    }

    pub fn hang(&self) {
        self.state().answer = None;
    }

    /// Returns the number of reads.
    pub fn reads(&self) -> u32 {
        self.state().reads
    }

    /// Returns the observed events as text.
    pub fn events(&self) -> Vec<String> {
        self.state().events.clone()
    }

    fn state(&self) -> MutexGuard<'_, ScriptState> {
        self.0.lock().expect("no one panics while holding this")
    }
}

impl SourcesDocument for ScriptedDocument {
    fn read(&self) -> BoxFuture<'_, Result<String, String>> {
        let mut state = self.state();
        state.reads += 1;
        match &state.answer {
            Some(answer) => Box::pin(ready(answer.clone())),
            None => Box::pin(pending()),
        }
    }
}

impl Observer for ScriptedDocument {
    fn observe(&self, event: &Event<'_>) {
        let line = match event {
            Event::SourcesChanged { count } => format!("changed to {count}"),
            Event::SourcesKept { reason, is_news: true } => format!("news: {reason}"),
            Event::SourcesKept { reason, .. } => format!("still: {reason}"),
            Event::Requeued { reason, .. } => format!("requeued: {reason:?}"),
            Event::Settled { settlement, .. } => format!("settled: {}", settlement.as_str()),
            _ => return,
        };
        self.state().events.push(line);
    }
}
