//! Events of orders, read from the functions' logs or from changes of the orders' rows.

use std::time::Duration;

use serde_json::{Map, Value, json};
use webhook_serializer::{
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
        receipt::{Receipt, Settlement},
        state::EntityState,
    },
    sources::Pattern,
    telemetry::{IngestRefusal, LogMessage},
    time::Timestamp,
};

use super::{order_status::Kind, tone::Word};
use crate::output::duration;

pub const ACCEPTED: &str = LogMessage::Accepted.as_str();
pub const BLOCKED: &str = LogMessage::Blocked.as_str();
pub const FAILED: &str = "failed";

/// Returns all words that the field `what` of an event may have.
pub fn outcomes() -> impl Iterator<Item = &'static str> {
    use LogMessage::{AttemptFailed, JobCrashed, JobFailed, Measured, Settled, SourcesKept};
    let settlements = Settlement::ALL.into_iter().map(Settlement::as_str);
    // The others name no order and no source, or have another word here.
    let others = [AttemptFailed, JobCrashed, JobFailed, Measured, Settled, SourcesKept];
    let messages = LogMessage::ALL.iter().filter(move |message| !others.contains(message));
    let refusals = IngestRefusal::ALL.iter().map(|refusal| refusal.as_str());
    settlements.chain([FAILED]).chain(messages.map(|message| message.as_str())).chain(refusals)
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityEvent {
    pub at: Option<Timestamp>,
    pub what: Word,
    pub entity: Option<String>,
    pub sequence: Option<u64>,
    pub source: Option<String>,
    pub topic: Option<String>,
    pub delivery: Option<String>,
    pub words: String,
}

impl ActivityEvent {
    /// Parses a line of a function's log. Returns `None` if the line names neither an order nor a source, or holds only
    /// metrics.
    pub fn of_line(line: &str, at: Timestamp) -> Option<Self> {
        let fields: Map<String, Value> = serde_json::from_str(line).ok()?;
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| fields.get(name).and_then(Value::as_u64);
        let message = text("message")?;
        // Handlers print their own lines, which lack these fields.
        let is_of_the_log = text("level").is_some() && (fields.contains_key("entity") || fields.contains_key("source"));
        let known = LogMessage::parse(&message);
        if !is_of_the_log || known == Some(LogMessage::Measured) {
            return None;
        }
        let word = known.map_or_else(|| Word { text: message, tone: None }, Word::from);
        let took = |name: &str| number(name).map(|millis| duration(Duration::from_millis(millis)));
        let (what, words) = match known {
            Some(LogMessage::Settled) => (
                settlement(text("outcome")?),
                [
                    took("HandlerMs").map(|took| format!("took {took}")),
                    took("LagMs").map(|lag| format!("settled {lag} after arrival")),
                ]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(", "),
            ),
            Some(LogMessage::AttemptFailed) => (
                Word::new(FAILED, Kind::Failing),
                format!(
                    "attempt {}, again in {}",
                    number("attempt").unwrap_or(1),
                    took("retry_in_ms").unwrap_or_else(|| "a while".to_owned())
                ),
            ),
            Some(LogMessage::Requeued) => {
                (word, format!("for {}: {}", took("delay_ms").unwrap_or_default(), text("reason").unwrap_or_default()))
            }
            Some(LogMessage::Accepted) if text("wake_up").is_some() => {
                (word, "its wake-up could not be sent".to_owned())
            }
            // This includes blocks, and refused webhooks.
            _ => (word, text("reason").unwrap_or_default()),
        };
        Some(Self {
            at: Some(at),
            what,
            entity: text("entity"),
            sequence: number("sequence"),
            source: text("source"),
            topic: text("topic"),
            delivery: text("delivery"),
            words,
        })
    }

    fn of_order(state: &EntityState, sequence: Sequence, what: impl Into<Word>, at: Timestamp) -> Self {
        Self {
            at: Some(at),
            what: what.into(),
            entity: Some(state.entity.to_string()),
            sequence: Some(sequence.0),
            ..Self::default()
        }
    }

    fn settled(state: &EntityState, receipt: &Receipt) -> Self {
        let took = receipt.took.map(|took| format!("took {}", duration(took))).unwrap_or_default();
        Self { words: took, ..Self::of_order(state, receipt.sequence, receipt.settlement, receipt.settled_at) }
    }

    #[must_use]
    pub fn about(mut self, delivery: &Delivery) -> Self {
        self.source = Some(delivery.source().to_string());
        self.topic = Some(delivery.topic().to_owned());
        self.delivery = Some(delivery.delivery_id().to_string());
        if self.what.text == ACCEPTED {
            self.at = Some(delivery.received_at());
        }
        self
    }

    pub fn place(&self) -> Option<(EntityKey, Sequence)> {
        Some((EntityKey::parse(self.entity.as_deref()?).ok()?, Sequence(self.sequence?)))
    }

    pub fn as_json(&self) -> Value {
        json!({
            "at": self.at.map(|at| at.to_string()), "what": self.what.text, "entity": self.entity,
            "sequence": self.sequence, "source": self.source, "topic": self.topic, "delivery": self.delivery,
            "words": self.words,
        })
    }
}

fn settlement(outcome: String) -> Word {
    let known = Settlement::ALL.into_iter().find(|settlement| settlement.as_str() == outcome);
    known.map_or(Word { text: outcome, tone: None }, Word::from)
}

/// Returns the events of an order between two reads of its row. Acceptances and settlements come first, sorted by
/// sequence; then a failure or a block of the next delivery. `before` is `None` if the first read found no row.
pub fn changes(before: Option<&EntityState>, after: &EntityState, now: Timestamp) -> Vec<ActivityEvent> {
    let mut changes = Vec::new();
    let first_known = after.recent.iter().next().map_or(after.next(), |receipt| receipt.sequence);
    let (head, tail) = match before {
        Some(before) => (before.head, before.tail),
        None => (Sequence(first_known.0.saturating_sub(1)), Sequence(first_known.0.saturating_sub(1))),
    };
    // The tail went back: the order was erased and has begun again.
    let (head, tail) = if tail > after.tail { (after.head, after.tail) } else { (head, tail) };
    let settled = |place: Sequence| after.recent.at(place).filter(|_| place > head);
    for place in (head.0.min(tail.0) + 1..=after.tail.0).map(Sequence) {
        let receipt = settled(place);
        let is_void = receipt.is_some_and(|receipt| receipt.settlement == Settlement::Void);
        if place > tail && !is_void {
            changes.push(ActivityEvent::of_order(after, place, LogMessage::Accepted, now));
        }
        changes.extend(receipt.map(|receipt| ActivityEvent::settled(after, receipt)));
    }
    let attempts = before.filter(|before| before.head == after.head).map_or(0, |before| before.attempts);
    if after.attempts > attempts && after.blocked.is_none() {
        let error = after.last_error.as_deref().unwrap_or("no error was recorded");
        let again = after.retry_at.map(|at| format!(", again in {}", duration(at.since(now)))).unwrap_or_default();
        let words = format!("attempt {}{again}: {error}", after.attempts);
        let failed = Word::new(FAILED, Kind::Failing);
        changes.push(ActivityEvent { words, ..ActivityEvent::of_order(after, after.next(), failed, now) });
    }
    if let Some(reason) = after.blocked.filter(|_| before.is_none_or(|before| before.blocked.is_none())) {
        let error = after.last_error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
        let words = format!("{reason}{error}");
        changes.push(ActivityEvent { words, ..ActivityEvent::of_order(after, after.next(), LogMessage::Blocked, now) });
    }
    changes
}

#[derive(Debug, Clone, Default)]
pub struct ActivityFilter {
    pub source: Option<String>,
    pub entity: Option<String>,
    pub topic: Option<Pattern>,
    pub outcome: Option<String>,
    pub text: Option<String>,
}

impl ActivityFilter {
    pub fn takes(&self, one: &ActivityEvent) -> bool {
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        let has_topic = |wanted: &Pattern| one.topic.as_ref().is_some_and(|topic| wanted.fits(topic));
        let topic = self.topic.as_ref().is_none_or(has_topic);
        let text = self.text.as_ref().is_none_or(|wanted| {
            let all = [&one.entity, &one.source, &one.topic, &one.delivery].into_iter().flatten();
            all.chain([&one.what.text, &one.words]).any(|text| text.contains(wanted))
        });
        let outcome = self.outcome.as_ref().is_none_or(|wanted| *wanted == one.what.text);
        is(&self.source, &one.source) && is(&self.entity, &one.entity) && topic && outcome && text
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        entity::FencingToken,
        format::{FORMAT, attribute as a},
        table::Row,
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn state(head: u32, tail: u32, more: impl FnOnce(Row) -> Row) -> EntityState {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TOKEN, 9_u32);
        EntityState::parse(&more(row.with(a::TAIL, tail).with(a::HEAD, head))).unwrap()
    }

    fn settled(mut state: EntityState, places: &[(u64, Settlement)]) -> EntityState {
        for (place, settlement) in places {
            let receipt = Receipt {
                sequence: Sequence(*place),
                identity: None,
                settlement: *settlement,
                token: FencingToken(1),
                attempts: 1,
                settled_at: NOW,
                took: None,
            };
            state.recent = std::mem::take(&mut state.recent).with(receipt, Duration::from_secs(1));
        }
        state
    }

    fn told(before: Option<&EntityState>, after: &EntityState) -> Vec<String> {
        let told = changes(before, after, NOW);
        told.iter()
            .map(|one| format!("{} {} {}", one.what.text, one.sequence.unwrap(), one.words).trim().to_owned())
            .collect()
    }

    #[test]
    fn row_change_becomes_events_in_sequence_order() {
        let before = state(2, 3, |row| row);
        let after = settled(state(4, 5, |row| row), &[(3, Settlement::Applied), (4, Settlement::Parked)]);
        assert_eq!(told(Some(&before), &after), ["applied 3", "accepted 4", "parked 4", "accepted 5"]);
        assert!(told(Some(&after), &after).is_empty());
        let void = settled(state(4, 4, |row| row), &[(4, Settlement::Void)]);
        assert_eq!(told(Some(&state(3, 3, |row| row)), &void), ["void 4"]);
    }

    #[test]
    fn events_of_new_order_begin_at_oldest_receipt() {
        let new = settled(state(8, 9, |row| row), &[(7, Settlement::Applied), (8, Settlement::Repeat)]);
        assert_eq!(told(None, &new), ["accepted 7", "applied 7", "accepted 8", "repeat 8", "accepted 9"]);
        // An order that was erased and has begun again lost no deliveries.
        assert!(told(Some(&state(90, 90, |row| row)), &state(8, 8, |row| row)).is_empty());
    }

    #[test]
    fn failure_and_block_are_reported_once() {
        let error = |row: Row| row.with(a::LAST_ERROR, "no").with(a::ATTEMPTS, 2_u32);
        let failed = state(2, 3, |row| error(row).with(a::RETRY_AT, 1_003_000_u32));
        let before = state(2, 3, |row| row.with(a::ATTEMPTS, 1_u32));
        assert_eq!(told(Some(&before), &failed), ["failed 3 attempt 2, again in 3.0 s: no"]);
        assert!(told(Some(&failed), &failed).is_empty());
        let blocked = state(2, 3, |row| error(row).with(a::BLOCKED, "attempts"));
        assert_eq!(told(Some(&failed), &blocked), ["blocked 3 attempts: no"]);
        assert!(told(Some(&blocked), &blocked).is_empty());
    }

    #[test]
    fn only_delivery_and_refusal_log_lines_become_events() {
        let told = |line: &str| ActivityEvent::of_line(line, NOW);
        let line = r#"{"level":"INFO","message":"settled","entity":"shop/order/1","sequence":9,"delivery":"7","source":"shop","outcome":"applied","HandlerMs":1000,"LagMs":42,"_aws":{}}"#;
        let one = told(line).unwrap();
        assert_eq!(one.what, Settlement::Applied.into());
        assert_eq!(one.words, "took 1.0 s, settled 42 ms after arrival");
        assert_eq!(one.place(), Some((EntityKey::parse("shop/order/1").unwrap(), Sequence(9))));
        let line = r#"{"level":"WARN","message":"attempt failed","entity":"a/1","sequence":7,"attempt":2,"retry_in_ms":400,"source":"a"}"#;
        assert_eq!(told(line).unwrap().words, "attempt 2, again in 400 ms");
        let line = r#"{"level":"WARN","message":"not verified","reason":"no configured secret fits","source":"shop","outcome":"not verified","Refused":3,"Accepted":0,"_aws":{}}"#;
        let one = told(line).unwrap();
        assert_eq!((one.what.text.as_str(), one.words.as_str()), ("not verified", "no configured secret fits"));
        for other in [
            r#"{"level":"INFO","message":"measured","source":"a","_aws":{}}"#,
            r#"{"message":"settled","entity":"a/1"}"#,
            r#"{"level":"INFO","message":"swept","seen":5}"#,
            "START RequestId: 1",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    #[test]
    fn listen_filter_accepts_every_logged_outcome() {
        let lines = include_str!("../../../shared/src/telemetry/lines.txt").lines();
        let words: Vec<String> = lines.filter_map(|line| Some(ActivityEvent::of_line(line, NOW)?.what.text)).collect();
        assert!(words.len() > 20, "{words:?}");
        for word in words {
            assert!(outcomes().any(|outcome| outcome == word), "{word}");
        }
    }

    #[test]
    fn event_must_match_every_given_filter() {
        let some = |text: &str| Some(text.to_owned());
        let one = ActivityEvent {
            what: Settlement::Parked.into(),
            entity: some("shop/order/1"),
            source: some("shop"),
            topic: some("orders/paid"),
            words: "no such order".into(),
            ..ActivityEvent::default()
        };
        let takes = |filter: ActivityFilter| filter.takes(&one);
        let none = ActivityFilter::default;
        let topic = |text: &str| ActivityFilter { topic: Some(Pattern::new(text)), ..none() };
        assert!(
            takes(none())
                && takes(ActivityFilter { source: some("shop"), ..topic("orders/*") })
                && takes(topic("*/paid"))
        );
        assert!(!takes(ActivityFilter { source: some("sho"), ..none() }) && !takes(topic("orders")));
        assert!(takes(ActivityFilter { outcome: some("parked"), text: some("such"), ..none() }));
        assert!(!takes(ActivityFilter { outcome: some("applied"), text: some("such"), ..none() }));
        assert!(
            !takes(ActivityFilter { text: some("other"), ..none() })
                && !takes(ActivityFilter { entity: some("shop/order/2"), ..none() })
        );
    }
}
