//! The status of one delivery: its state, facts and next commands. Also the JSON form of deliveries.

use serde_json::{Value, json};
use webhook_serializer::{
    operator::{Content, Single},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, Sequence},
        receipt::{Receipt, Settlement},
    },
    time::Timestamp,
};

use crate::{
    output::{counted, duration},
    view::{
        order_status::{Kind, NextCommand, OrderStatus, SourceDelay, uncounted},
        overview::ParkedDelivery,
        position::{ShortSequence, marked},
        tone::{Tone, Word},
    },
};

#[derive(Debug)]
pub struct DeliveryStatus {
    /// The delivery's state, such as `parked`. For the next delivery of an order, this is the order's state.
    pub word: Word,
    pub sentences: Vec<String>,
    pub next: Vec<NextCommand>,
    pub facts: Vec<(&'static str, Fact)>,
    outcome: Option<&'static str>,
}

#[derive(Debug)]
pub enum Fact {
    Text(String),
    Number(u64),
    At(Timestamp),
}

impl DeliveryStatus {
    pub fn of(sequence: Sequence, single: &Single, delay: Option<&SourceDelay>, now: Timestamp) -> Self {
        let Single { state, content, receipt, parked } = single;
        // A repeat whose own receipt has left the row shows the first delivery's receipt.
        let first = receipt.as_ref().filter(|receipt| receipt.sequence != sequence).map(|receipt| receipt.sequence);
        let own = receipt.as_ref().filter(|_| first.is_none());
        let waits = state.as_ref().filter(|state| state.head < sequence);
        let at = ShortSequence(sequence).to_string();
        let (word, mut sentences, next) = match (waits, parked) {
            (Some(state), _) if sequence == state.next() => {
                let topic = content.delivery().map(Delivery::topic);
                let mut status = OrderStatus::of(Some(state), topic, None, now).with_delay(delay, now);
                status.next.retain(|next| next.command != "show" || next.arguments != [at.clone()]);
                (status.kind.into(), status.causes, status.next)
            }
            (Some(state), _) => {
                let before = counted(sequence.0 - state.next().0, "delivery", "deliveries");
                (Kind::Waiting.into(), vec![format!("It waits behind {before} of the same order.")], Vec::new())
            }
            (None, Some(parked)) => {
                let ago = parked.parked_at.map(|at| format!(" {} ago", duration(now.since(at)))).unwrap_or_default();
                let mut sentences = vec![format!("It was parked{ago}: {}", parked.error)];
                sentences.extend(parked.kept_until.map(|until| format!("It is kept until {until}.")));
                let redrive = NextCommand::redrive(parked.delivery().entity(), sequence, 1);
                let discard = NextCommand::new("discard", &[&at, "--why", "TEXT"], "removes it for good");
                (Kind::Parked.into(), sentences, vec![redrive, discard])
            }
            (None, None) => {
                let (word, sentence) = match (own.map(|receipt| receipt.settlement), first) {
                    (_, Some(first)) => {
                        let sentence = "The same delivery was settled before, so no handler was started";
                        (Settlement::Repeat.into(), Some(format!("{sentence}: see {}.", marked(first))))
                    }
                    (Some(Settlement::Parked), _) => {
                        let sentence =
                            "The delivery was parked. Since then it was redriven or discarded, or it expired.";
                        (Word::new("parked before", Tone::Quiet), Some(sentence.to_owned()))
                    }
                    (Some(settlement), _) => (settlement.into(), None),
                    (None, None) => {
                        let sentence = "The delivery's receipt has expired.";
                        (Word::new("settled", Tone::Quiet), Some(sentence.to_owned()))
                    }
                };
                (word, sentence.into_iter().collect(), Vec::new())
            }
        };
        if let Some(before) = own.filter(|_| waits.is_some()) {
            sentences.push(match before.settlement {
                Settlement::Applied => {
                    format!("It was applied before, under token {}; a rewind runs it again.", before.token)
                }
                settlement => {
                    format!("It was settled as {settlement} before; the rewind settles it as {settlement} again.")
                }
            });
        }
        if waits.is_some() && parked.is_some() {
            sentences.push("A worker has parked it, but has not settled it yet.".to_owned());
        }
        let facts = facts(sequence, single, own.filter(|_| waits.is_none()));
        let outcome = outcome(own, first, waits.is_some(), parked.is_some());
        Self { word, sentences, next, facts, outcome }
    }

    pub fn add_to(&self, value: &mut Value, option: &str, order: &EntityKey) {
        for (name, fact) in &self.facts {
            // `delivery_json` has added these fields already.
            if ["source", "topic", "delivery", "redrive", "arrived", "event time"].contains(name) {
                continue;
            }
            value[name.replace(' ', "_")] = match fact {
                Fact::Text(text) => json!(text),
                Fact::Number(number) => json!(number),
                Fact::At(at) => json!(at),
            };
        }
        value["outcome"] = json!(self.outcome);
        value["state"] = json!(self.word.text);
        value["says"] = json!(self.sentences);
        value["next"] = self.next.iter().map(|next| next.line(option, order)).collect();
    }
}

/// Returns whether the order is blocked at `sequence`, even if the delivery at this sequence has expired.
pub fn is_blocked_at(sequence: Sequence, single: &Single) -> bool {
    single.state.as_ref().is_some_and(|state| state.blocked.is_some() && state.next() == sequence)
}

fn facts(sequence: Sequence, single: &Single, settled: Option<&Receipt>) -> Vec<(&'static str, Fact)> {
    let Single { state, content, .. } = single;
    let mut facts = Vec::new();
    if let Some(delivery) = content.delivery() {
        let source = match delivery.provider() {
            Some(provider) => format!("{} ({provider})", delivery.source()),
            None => delivery.source().to_string(),
        };
        facts.push(("source", Fact::Text(source)));
        facts.push(("topic", Fact::Text(delivery.topic().to_owned())));
        facts.push(("delivery", Fact::Text(delivery.delivery_id().to_string())));
        if delivery.redrive() > 0 {
            facts.push(("redrive", Fact::Number(delivery.redrive().into())));
        }
        facts.push(("arrived", Fact::At(delivery.received_at())));
        facts.extend(delivery.event_time().map(|at| ("event time", Fact::At(at))));
        facts.extend(delivery.content_type().map(|of| ("content type", Fact::Text(of.to_owned()))));
        if matches!(content, Content::Delivery(_)) {
            facts.push(("body bytes", Fact::Number(delivery.body().len() as u64)));
        }
    }
    if let Some(receipt) = settled {
        facts.extend(receipt.started_at().map(|at| ("started", Fact::At(at))));
        facts.push(("settled", Fact::At(receipt.settled_at)));
        facts.extend(receipt.took.map(|took| ("took", Fact::Text(duration(took)))));
        facts.push(("attempts", Fact::Number(receipt.attempts.into())));
        facts.push(("token", Fact::Number(receipt.token.0)));
    } else if let Some(state) = state.as_ref().filter(|state| sequence == state.next()) {
        facts.push(("attempts", Fact::Number(state.attempts.into())));
        facts.extend(uncounted(state).map(|starts| ("not counted", Fact::Text(starts.to_owned()))));
    }
    facts
}

fn outcome(own: Option<&Receipt>, first: Option<Sequence>, waits: bool, parked: bool) -> Option<&'static str> {
    match (own, first) {
        _ if waits => None,
        (_, Some(_)) => Some(Settlement::Repeat.as_str()),
        (Some(receipt), _) => Some(receipt.settlement.as_str()),
        _ => parked.then_some(Settlement::Parked.as_str()),
    }
}

pub fn first_end(kept_until: impl Iterator<Item = Timestamp>) -> Option<String> {
    Some(format!("Parked deliveries expire; the first is deleted at {}.", kept_until.min()?))
}

pub fn delivery_json(delivery: &Delivery) -> Value {
    json!({
        "entity": delivery.entity(), "sequence": delivery.sequence(), "source": delivery.source(),
        "topic": delivery.topic(), "delivery_id": delivery.delivery_id(), "redrive": delivery.redrive(),
        "received_at": delivery.received_at(), "event_time": delivery.event_time(),
    })
}

pub fn parked_json(parked: &ParkedDelivery) -> Value {
    json!({
        "entity": parked.entity, "sequence": parked.sequence, "source": parked.source, "topic": parked.topic,
        "delivery_id": parked.delivery_id, "redrive": parked.redrive, "received_at": parked.received_at,
        "event_time": parked.event_time, "error": parked.error, "parked_at": parked.since,
        "kept_until": parked.kept_until,
    })
}
