//! Prints the events of a local run, one line each. The workers may run in this process or in other processes.

use std::time::Duration;

use console::style;
use serde_json::{Value, json};
use serializer::{
    local::demo,
    output::{command_line, local_option},
    say,
    view::{
        order_status::NextCommand,
        recording::{EventKind, EventRecorder, ParsedLine, RecordedEvent},
    },
};
use tokio::sync::mpsc::UnboundedReceiver;
use webhook_serializer::{
    engine::store::Store,
    operator::Operator,
    protocol::receipt::Settlement,
    telemetry::{Event, IngestRefusal, Observer},
};

use crate::commands::print_json;

#[derive(Debug)]
pub(super) struct SourcesPrinter {
    pub(super) json: bool,
}

impl Observer for SourcesPrinter {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::SourcesChanged { count } if self.json => {
                print_json(&json!({ "what": "sources changed", "sources": count }));
            }
            Event::SourcesChanged { count } => say!("{:11}sources changed: there are {count} now", ""),
            Event::SourcesKept { is_news: false, .. } => {}
            Event::SourcesKept { reason, .. } if self.json => {
                print_json(&json!({ "what": "sources kept", "reason": reason }));
            }
            Event::SourcesKept { reason, .. } => {
                say!("{:11}the changed sources document is invalid, and the earlier one stays in use: {reason}", "")
            }
            _ => {}
        }
    }
}

pub(super) fn print_queue(source: &str, url: &str) {
    say!("{:11}{url} is the queue of {source}", "");
}

pub(super) fn print_queue_as_json(source: &str, url: &str) {
    print_json(&json!({ "what": "queue added", "source": source, "url": url }));
}

/// Prints refused webhooks and messages, which no row records.
#[derive(Debug)]
pub(super) struct RefusalsPrinter {
    pub(super) json: bool,
}

impl Observer for RefusalsPrinter {
    fn observe(&self, event: &Event<'_>) {
        let Event::Refused { source, refusal, reason, .. } = event else { return };
        let source = source.map(ToString::to_string);
        if self.json {
            print_json(&json!({ "what": "refused", "source": source, "why": refusal.as_str(), "reason": reason }));
            return;
        }
        let source = source.map(|source| format!(" of {source}")).unwrap_or_default();
        match refusal {
            IngestRefusal::UnknownQueue => say!("{:11}a message stays in its queue: {reason}", ""),
            _ => say!("{:11}a webhook{source} was refused ({}): {reason}", "", refusal.as_str()),
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct EventPrinter {
    pub(super) story: EventRecorder,
    pub(super) store: Store,
    pub(super) operator: Operator,
    pub(super) url: String,
    pub(super) json: bool,
}

impl EventPrinter {
    pub(super) async fn print(self, over: impl Future) {
        let mut length = self.story.length();
        let mut next = 0;
        let mut is_over = false;
        let mut over = std::pin::pin!(over);
        loop {
            for happening in self.story.since(next) {
                next += 1;
                let error = self.error(&happening).await;
                if self.json {
                    print_json(&as_json(&happening, error.as_deref()));
                } else if let Some(line) = demo::line(&happening) {
                    say!("{line}{}", self.besides(&happening, error.as_deref()));
                }
            }
            if is_over {
                return;
            }
            tokio::select! {
                _ = &mut over => is_over = true,
                _ = length.changed() => {}
            }
        }
    }

    /// Returns the error of a failed attempt, a block or a parked delivery. An error that the event does not contain is
    /// read from the rows. Events that come from logs contain none, because an error may quote a body.
    async fn error(&self, happening: &RecordedEvent) -> Option<String> {
        match &happening.what {
            EventKind::Failed { error, .. } if !error.is_empty() => Some(error.clone()),
            EventKind::Failed { .. } | EventKind::Blocked(_) => {
                self.store.entity(&happening.entity, PATIENCE).await.ok()??.last_error
            }
            EventKind::Settled(Settlement::Parked) => {
                let parked = self.operator.parked(&happening.entity).await.ok()?;
                let one = parked.into_iter().find(|one| Some(one.sequence) == happening.sequence)?;
                Some(one.error).filter(|error| !error.is_empty())
            }
            _ => None,
        }
    }

    fn besides(&self, happening: &RecordedEvent, error: Option<&str>) -> String {
        let is_told = matches!(&happening.what, EventKind::Failed { error, .. } if !error.is_empty());
        let error = error.filter(|_| !is_told).map(|error| format!(": {error}")).unwrap_or_default();
        let option = local_option(&self.url);
        let key = happening.entity.as_str();
        let next = match (&happening.what, happening.sequence) {
            (EventKind::Blocked(_), _) => command_line("resume", &option, &[key]),
            (EventKind::Settled(Settlement::Parked), Some(at)) => {
                NextCommand::redrive(&happening.entity, at, 1).line(&option, &happening.entity)
            }
            _ => return error,
        };
        format!("{error}\n{:11}{}", "", style(next).dim())
    }
}

fn as_json(happening: &RecordedEvent, error: Option<&str>) -> Value {
    let RecordedEvent { at, entity, sequence, name, what } = happening;
    let mut value = json!({
        "at_ms": at.as_millis() as u64, "entity": entity, "sequence": sequence, "delivery": name,
    });
    let (what, more) = match what {
        EventKind::Accepted => ("accepted", json!({})),
        EventKind::Ignored => ("ignored", json!({})),
        EventKind::Started(attempt, token) => ("started", json!({ "attempt": attempt, "token": token })),
        EventKind::Failed { attempt, wait, .. } => {
            ("failed", json!({ "attempt": attempt, "retry_in_ms": wait.as_millis() as u64 }))
        }
        EventKind::Settled(settlement) => ("settled", json!({ "outcome": settlement.as_str() })),
        EventKind::Blocked(reason) => ("blocked", json!({ "reason": reason.as_str() })),
        EventKind::Requeued(reason, delay) => {
            ("requeued", json!({ "reason": reason.as_str(), "delay_ms": delay.as_millis() as u64 }))
        }
        EventKind::TakenOver(token) => ("taken over", json!({ "token": token })),
        EventKind::Lost => ("lease lost", json!({})),
        EventKind::WakeUpFailed => ("wake-up not sent", json!({})),
    };
    value["what"] = what.into();
    if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
        value.extend(more);
        value.extend(error.map(|error| ("error".to_owned(), error.into())));
    }
    value
}

pub(super) async fn listen(mut lines: UnboundedReceiver<String>, story: EventRecorder, json: bool) {
    while let Some(line) = lines.recv().await {
        match story.record_line(&line) {
            ParsedLine::Words(_) | ParsedLine::Printed if json => {
                print_json(&json!({ "what": "printed", "line": line }))
            }
            ParsedLine::Words(words) => say!("{:11}{words}", ""),
            ParsedLine::Printed => say!("{line}"),
            ParsedLine::Recorded | ParsedLine::Nothing => {}
        }
    }
}
