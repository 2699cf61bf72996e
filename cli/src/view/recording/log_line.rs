//! Reads the JSON log lines of a worker in another process.

use std::time::Duration;

use serde_json::{Map, Value};
use webhook_serializer::{
    protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        receipt::Settlement,
        state::BlockReason,
    },
    telemetry::LogMessage,
};

use super::{EventKind, EventRecorder};
use crate::output::visible;

#[derive(Debug, PartialEq, Eq)]
pub enum ParsedLine {
    Recorded,
    Nothing,
    Words(String),
    Printed,
}

/// Fields of a log line that are not shown, because every line has them or because they are for CloudWatch.
const NOT_SHOWN: [&str; 6] = ["timestamp", "level", "message", "request", "outcome", "_aws"];

impl EventRecorder {
    pub fn record_line(&self, line: &str) -> ParsedLine {
        match serde_json::from_str::<Map<String, Value>>(line) {
            Ok(fields) if is_of_the_log(&fields) => self.record_fields(&fields),
            // The line is a handler's own output, in JSON or not.
            _ => ParsedLine::Printed,
        }
    }

    fn record_fields(&self, fields: &Map<String, Value>) -> ParsedLine {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| fields.get(name).and_then(Value::as_u64);
        // A handler may log the same message, but a line of the function's log names its order or holds
        // metrics.
        let is_event = ["entity", "_aws"].iter().any(|name| fields.contains_key(*name));
        let what = match LogMessage::parse(text("message")) {
            Some(LogMessage::Accepted | LogMessage::Requeued | LogMessage::Measured) if is_event => {
                return ParsedLine::Nothing;
            }
            Some(LogMessage::Settled) => {
                Settlement::ALL.into_iter().find(|one| one.as_str() == text("outcome")).map(EventKind::Settled)
            }
            Some(LogMessage::AttemptFailed) => Some(EventKind::Failed {
                attempt: number("attempt").and_then(|attempt| attempt.try_into().ok()).unwrap_or(1),
                wait: Duration::from_millis(number("retry_in_ms").unwrap_or(0)),
                error: String::new(),
            }),
            Some(LogMessage::Blocked) => BlockReason::parse(text("reason")).map(EventKind::Blocked),
            Some(LogMessage::LeaseTakenOver) => number("token").map(|token| EventKind::TakenOver(FencingToken(token))),
            Some(LogMessage::LeaseLost) => Some(EventKind::Lost),
            Some(LogMessage::WakeUpNotSent) => Some(EventKind::WakeUpFailed),
            _ => None,
        };
        match (what, EntityKey::parse(text("entity"))) {
            (Some(what), Ok(entity)) => {
                let sequence = number("sequence").map(Sequence);
                // A delivery that was stored although its sender got an error has no recorded acceptance.
                let given = self.name(text("delivery"), text("delivery"));
                let name = sequence.map(|sequence| self.name_at(&entity, sequence, &given));
                self.record(&entity, sequence, name.unwrap_or_default(), what);
                ParsedLine::Recorded
            }
            _ => ParsedLine::Words(in_words(fields)),
        }
    }
}

fn is_of_the_log(fields: &Map<String, Value>) -> bool {
    let level = fields.get("level").and_then(Value::as_str);
    let is_level = level.is_some_and(|level| ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level));
    is_level && fields.get("message").is_some_and(Value::is_string)
}

/// Formats the fields of a log line as one text, and escapes its control characters.
fn in_words(fields: &Map<String, Value>) -> String {
    let mut words = fields.get("message").and_then(Value::as_str).unwrap_or_default().to_owned();
    if let Some(level) = fields.get("level").and_then(Value::as_str).filter(|level| *level != "INFO") {
        words = format!("{level} {words}");
    }
    // Metrics are for CloudWatch; their names begin with a capital letter.
    let is_metric = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    for (name, value) in fields.iter().filter(|(name, _)| !NOT_SHOWN.contains(&name.as_str()) && !is_metric(name)) {
        match value {
            Value::String(text) => words.push_str(&format!("  {name}={text}")),
            other => words.push_str(&format!("  {name}={other}")),
        }
    }
    visible(&words).into_owned()
}

#[cfg(test)]
mod tests {
    use webhook_serializer::time::Env;

    use super::*;

    #[test]
    fn worker_log_lines_are_recorded_as_events() {
        let story = EventRecorder::new(Env::system());
        let lines = [
            r#"{"timestamp":"2026-01-05T09:00:00Z","level":"WARN","message":"attempt failed","entity":"a/1","sequence":7,"delivery":"d","attempt":2,"retry_in_ms":400,"source":"a","outcome":"retry","Retries":1,"_aws":{}}"#,
            r#"{"level":"INFO","message":"settled","entity":"a/1","sequence":7,"delivery":"d","source":"a","outcome":"applied","Delivered":1}"#,
            r#"{"level":"WARN","message":"blocked","entity":"a/1","reason":"attempts"}"#,
        ];
        for line in lines {
            assert_eq!(story.record_line(line), ParsedLine::Recorded, "{line}");
        }
        let told: Vec<(String, EventKind)> = story.since(0).into_iter().map(|one| (one.name, one.what)).collect();
        let failed = EventKind::Failed { attempt: 2, wait: Duration::from_millis(400), error: String::new() };
        assert_eq!(
            told,
            [
                ("d".to_owned(), failed),
                ("d".to_owned(), EventKind::Settled(Settlement::Applied)),
                (String::new(), EventKind::Blocked(BlockReason::Attempts)),
            ]
        );
    }

    #[test]
    fn settled_event_without_accepted_event_has_delivery_name() {
        let story = EventRecorder::new(Env::system());
        story.call("d", "made");
        let line = |sequence, outcome| {
            let line = r#"{"level":"INFO","message":"settled","entity":"a/1","sequence":7,"delivery":"d","outcome":"superseded"}"#;
            line.replace("7", sequence).replace("superseded", outcome)
        };
        assert_eq!(story.record_line(&line("7", "superseded")), ParsedLine::Recorded);
        assert_eq!(story.record_line(&line("8", "repeat")), ParsedLine::Recorded);
        let told: Vec<(String, EventKind)> = story.since(0).into_iter().map(|one| (one.name, one.what)).collect();
        let of_it = |how| ("made".to_owned(), EventKind::Settled(how));
        assert_eq!(told, [of_it(Settlement::Superseded), of_it(Settlement::Repeat)]);
    }

    #[test]
    fn handler_json_is_printed_unchanged() {
        let story = EventRecorder::new(Env::system());
        for line in [
            r#"{"message":"accepted","order":"A-1"}"#,
            r#"{"message":"settled","entity":"a/1","sequence":1,"delivery":"d","outcome":"applied"}"#,
            r#"{"level":30,"message":"charged","outcome":"ok","Amount":5}"#,
            r#"{"level":"info","message":"charged","outcome":"ok","Amount":5}"#,
            r#"{"level":"INFO","message":5}"#,
        ] {
            assert_eq!(story.record_line(line), ParsedLine::Printed, "{line}");
        }
        assert!(story.since(0).is_empty());
    }

    #[test]
    fn handler_output_is_printed_and_metrics_are_hidden() {
        let story = EventRecorder::new(Env::system());
        assert_eq!(story.record_line("a/1 orders/paid under token 5"), ParsedLine::Printed);
        assert_eq!(
            story.record_line(r#"{"timestamp":"…","level":"ERROR","message":"cannot start","reason":"no table"}"#),
            ParsedLine::Words("ERROR cannot start  reason=no table".into())
        );
        assert_eq!(
            story.record_line(r#"{"level":"INFO","message":"measured","WaitMs":5,"_aws":{}}"#),
            ParsedLine::Nothing
        );
        assert_eq!(
            story.record_line(r#"{"level":"INFO","message":"accepted","order":"A-1"}"#),
            ParsedLine::Words("accepted  order=A-1".into())
        );
        let coloured = story.record_line(r#"{"level":"INFO","message":"one\ntwo \u001b[31mred"}"#);
        assert_eq!(coloured, ParsedLine::Words("one\ntwo \\u001b[31mred".into()));
        assert!(story.since(0).is_empty());
    }
}
