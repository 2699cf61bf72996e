//! Reads the JSON log lines of a worker in another process.

use std::time::Duration;

use serde_json::{Map, Value};
use webhook_serializer::protocol::{
    entity::{EntityKey, FencingToken, Sequence},
    receipt::Settlement,
    state::BlockReason,
};

use super::{Story, What};
use crate::output::visible;

#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// The line was recorded.
    Told,
    /// The line was skipped, because the output shows it elsewhere.
    Nothing,
    /// A line of the function's log, to be shown like this.
    Words(String),
    /// A handler's own output, shown as it is.
    Printed,
}

const SETTLEMENTS: [Settlement; 5] =
    [Settlement::Applied, Settlement::Repeat, Settlement::Void, Settlement::Parked, Settlement::Superseded];

/// Fields that every line has, and those for CloudWatch.
const NOT_SHOWN: [&str; 6] = ["timestamp", "level", "message", "request", "outcome", "_aws"];

impl Story {
    pub fn hear(&self, line: &str) -> Heard {
        match serde_json::from_str::<Map<String, Value>>(line) {
            Ok(fields) if is_of_the_log(&fields) => self.hear_of(&fields),
            // A handler's own output, JSON or not.
            _ => Heard::Printed,
        }
    }

    fn hear_of(&self, fields: &Map<String, Value>) -> Heard {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let number = |name: &str| fields.get(name).and_then(Value::as_u64);
        // A handler may log the same words; an event names its order.
        let is_event = ["entity", "_aws"].iter().any(|name| fields.contains_key(*name));
        let what = match text("message") {
            "accepted" | "requeued" | "measured" if is_event => return Heard::Nothing,
            "settled" => SETTLEMENTS.into_iter().find(|one| one.as_str() == text("outcome")).map(What::Settled),
            "attempt failed" => Some(What::Failed {
                attempt: number("attempt").and_then(|attempt| attempt.try_into().ok()).unwrap_or(1),
                wait: Duration::from_millis(number("retry_in_ms").unwrap_or(0)),
                error: String::new(),
            }),
            "blocked" => {
                let all = [BlockReason::Attempts, BlockReason::Expired, BlockReason::Vanished];
                all.into_iter().find(|one| one.as_str() == text("reason")).map(What::Blocked)
            }
            "lease taken over" => number("token").map(|token| What::TakenOver(FencingToken(token))),
            "lease lost" => Some(What::Lost),
            "wake-up not sent" => Some(What::WakeUpFailed),
            _ => None,
        };
        match (what, EntityKey::parse(text("entity"))) {
            (Some(what), Ok(entity)) => {
                let sequence = number("sequence").map(Sequence);
                // A delivery that was stored although its sender got an error was not recorded as accepted.
                let given = self.name(text("delivery"), text("delivery"));
                let name = sequence.map(|sequence| self.name_at(&entity, sequence, &given));
                self.tell(&entity, sequence, name.unwrap_or_default(), what);
                Heard::Told
            }
            _ => Heard::Words(in_words(fields)),
        }
    }
}

/// Returns whether it has the fields of every log line: a program's own JSON is shown unchanged.
fn is_of_the_log(fields: &Map<String, Value>) -> bool {
    let level = fields.get("level").and_then(Value::as_str);
    let is_level = level.is_some_and(|level| ["TRACE", "DEBUG", "INFO", "WARN", "ERROR"].contains(&level));
    is_level && fields.get("message").is_some_and(Value::is_string)
}

/// Formats a log line for people, control characters escaped.
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
        let story = Story::new(Env::system());
        let lines = [
            r#"{"timestamp":"2026-01-05T09:00:00Z","level":"WARN","message":"attempt failed","entity":"a/1","sequence":7,"delivery":"d","attempt":2,"retry_in_ms":400,"source":"a","outcome":"retry","Retries":1,"_aws":{}}"#,
            r#"{"level":"INFO","message":"settled","entity":"a/1","sequence":7,"delivery":"d","source":"a","outcome":"applied","Delivered":1}"#,
            r#"{"level":"WARN","message":"blocked","entity":"a/1","reason":"attempts"}"#,
        ];
        for line in lines {
            assert_eq!(story.hear(line), Heard::Told, "{line}");
        }
        let told: Vec<(String, What)> = story.since(0).into_iter().map(|one| (one.name, one.what)).collect();
        let failed = What::Failed { attempt: 2, wait: Duration::from_millis(400), error: String::new() };
        assert_eq!(
            told,
            [
                ("d".to_owned(), failed),
                ("d".to_owned(), What::Settled(Settlement::Applied)),
                (String::new(), What::Blocked(BlockReason::Attempts)),
            ]
        );
    }

    #[test]
    fn delivery_without_recorded_acceptance_keeps_its_name() {
        let story = Story::new(Env::system());
        story.call("d", "made");
        let line = |sequence, outcome| {
            let line = r#"{"level":"INFO","message":"settled","entity":"a/1","sequence":7,"delivery":"d","outcome":"superseded"}"#;
            line.replace("7", sequence).replace("superseded", outcome)
        };
        assert_eq!(story.hear(&line("7", "superseded")), Heard::Told);
        assert_eq!(story.hear(&line("8", "repeat")), Heard::Told);
        let told: Vec<(String, What)> = story.since(0).into_iter().map(|one| (one.name, one.what)).collect();
        let of_it = |how| ("made".to_owned(), What::Settled(how));
        assert_eq!(told, [of_it(Settlement::Superseded), of_it(Settlement::Repeat)]);
    }

    #[test]
    fn handler_json_is_printed_unchanged() {
        let story = Story::new(Env::system());
        for line in [
            r#"{"message":"accepted","order":"A-1"}"#,
            r#"{"message":"settled","entity":"a/1","sequence":1,"delivery":"d","outcome":"applied"}"#,
            r#"{"level":30,"message":"charged","outcome":"ok","Amount":5}"#,
            r#"{"level":"info","message":"charged","outcome":"ok","Amount":5}"#,
            r#"{"level":"INFO","message":5}"#,
        ] {
            assert_eq!(story.hear(line), Heard::Printed, "{line}");
        }
        assert!(story.since(0).is_empty());
    }

    #[test]
    fn handler_output_is_shown_and_metrics_are_not() {
        let story = Story::new(Env::system());
        assert_eq!(story.hear("a/1 orders/paid under token 5"), Heard::Printed);
        assert_eq!(
            story.hear(r#"{"timestamp":"…","level":"ERROR","message":"cannot start","reason":"no table"}"#),
            Heard::Words("ERROR cannot start  reason=no table".into())
        );
        assert_eq!(story.hear(r#"{"level":"INFO","message":"measured","WaitMs":5,"_aws":{}}"#), Heard::Nothing);
        assert_eq!(
            story.hear(r#"{"level":"INFO","message":"accepted","order":"A-1"}"#),
            Heard::Words("accepted  order=A-1".into())
        );
        let coloured = story.hear(r#"{"level":"INFO","message":"one\ntwo \u001b[31mred"}"#);
        assert_eq!(coloured, Heard::Words("one\ntwo \\u001b[31mred".into()));
        assert!(story.since(0).is_empty());
    }
}
