//! Sorts a batch of queue messages by kind and order, without I/O.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    engine::{
        deferred::Deferred,
        drain::{Acknowledgement, ReceivedWakeUp},
        queue::{self, Unreadable},
    },
    protocol::entity::EntityKey,
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedMessage {
    pub id: String,
    pub body: String,
    /// The number of times that SQS has delivered the message, including this one.
    pub times: u32,
    pub sent_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    wake_ups: BTreeMap<EntityKey, MergedWakeUps>,
    /// The time at which the wake-up that has waited longest was due.
    due: Option<Timestamp>,
    deferred: Vec<(String, Deferred)>,
    undeliverable: Vec<(String, String)>,
    unreadable: Vec<String>,
}

/// The wake-ups of one order, merged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct MergedWakeUps {
    plain: Option<ReceivedWakeUp>,
    /// Those that name an outage.
    waiting: Option<ReceivedWakeUp>,
    ids: Vec<String>,
}

impl MergedWakeUps {
    /// Merges a wake-up with the others of its kind. Plain ones keep a token only if all have the same. Those that name
    /// an outage keep the newest token and its wait, because the row cannot show an older wait.
    fn add(&mut self, received: ReceivedWakeUp) {
        let is_plain = received.outage.is_none();
        let merged = if is_plain { &mut self.plain } else { &mut self.waiting };
        let Some(merged) = merged else { return *merged = Some(received) };
        merged.times = merged.times.max(received.times);
        merged.gap = merged.gap.max(received.gap);
        merged.ended_wait = merged.ended_wait.max(received.ended_wait);
        if is_plain {
            merged.token = merged.token.filter(|token| Some(*token) == received.token);
        } else if received.token > merged.token {
            merged.token = received.token;
            merged.outage = received.outage;
        }
    }

    fn received(&self) -> Option<ReceivedWakeUp> {
        match (self.plain.clone(), self.waiting.clone()) {
            (Some(plain), Some(waiting)) => Some(ReceivedWakeUp {
                times: plain.times.max(waiting.times),
                gap: plain.gap.max(waiting.gap),
                outage_besides: waiting.outage,
                ..plain
            }),
            (plain, waiting) => plain.or(waiting),
        }
    }
}

impl Batch {
    /// Sorts messages by kind. The caller must keep the message of a deferred delivery that cannot be read,
    /// because that message is the only copy and a newer version may read it. The caller may delete a message that
    /// is neither a wake-up nor a deferred delivery.
    pub fn sort(messages: impl IntoIterator<Item = ReceivedMessage>) -> Self {
        let mut batch = Self::default();
        for message in messages {
            match queue::Message::parse(&message.body) {
                Ok(queue::Message::WakeUp(wake_up)) => {
                    let delay = Duration::from_secs(wake_up.delay.unwrap_or(0).into());
                    // A redelivered wake-up was hidden for a while.
                    let due = message.sent_at.filter(|_| message.times == 1).map(|sent| sent + delay);
                    batch.due = [batch.due, due].into_iter().flatten().min();
                    batch.add(ReceivedWakeUp::wake_up(wake_up, message.times), message.id);
                }
                Ok(queue::Message::Deferred(deferred)) => batch.deferred.push((message.id, *deferred)),
                Err(Unreadable::Delivery(reason)) => batch.undeliverable.push((message.id, reason)),
                Err(Unreadable::Nothing) => batch.unreadable.push(message.id),
            }
        }
        batch.deferred.sort_by_key(|(_, deferred)| deferred.received_at());
        batch
    }

    fn add(&mut self, received: ReceivedWakeUp, id: String) {
        let order = self.wake_ups.entry(received.entity.clone()).or_default();
        order.add(received);
        order.ids.push(id);
    }

    /// Returns the orders to drain at `now`.
    pub fn orders(&self, now: Timestamp) -> Vec<ReceivedWakeUp> {
        let lag = self.due.map_or(Duration::ZERO, |due| now.since(due));
        let received = self.wake_ups.values().filter_map(MergedWakeUps::received);
        received.map(|received| ReceivedWakeUp { lag, ..received }).collect()
    }

    pub fn ids(&self, entity: &EntityKey) -> impl Iterator<Item = &String> {
        self.wake_ups.get(entity).into_iter().flat_map(|order| &order.ids)
    }

    /// Returns the deferred deliveries with their messages' ids, grouped by order. Each order's deliveries are in order
    /// of arrival, and so are the orders' first ones.
    pub fn deferred(&self) -> Vec<Vec<&(String, Deferred)>> {
        let mut orders: Vec<Vec<&(String, Deferred)>> = Vec::new();
        for one in &self.deferred {
            match orders.iter_mut().find(|order| order[0].1.entity() == one.1.entity()) {
                Some(order) => order.push(one),
                None => orders.push(vec![one]),
            }
        }
        orders
    }

    pub fn undeliverable(&self) -> &[(String, String)] {
        &self.undeliverable
    }

    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// Returns the ids of the wake-ups that SQS must deliver again. An order without an acknowledgement
    /// was not drained to the end, so its wake-ups are included.
    pub fn failures(&self, acknowledgements: &BTreeMap<EntityKey, Acknowledgement>) -> Vec<String> {
        self.wake_ups
            .iter()
            .filter(|(entity, _)| acknowledgements.get(entity) != Some(&Acknowledgement::Delete))
            .flat_map(|(_, order)| order.ids.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{outages::OutageWait, queue::WakeUp},
        protocol::{entity::FencingToken, outage::DestinationId},
    };

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);

    fn message(id: &str, body: &str, times: u32) -> ReceivedMessage {
        ReceivedMessage { id: id.into(), body: body.into(), times, sent_at: None }
    }

    #[test]
    fn wake_ups_of_one_entity_are_handled_together() {
        let a = EntityKey::parse("n/a").unwrap();
        let batch = Batch::sort([
            message("1", r#"{"entity":"n/a"}"#, 1),
            message("2", r#"{"entity":"n/b"}"#, 1),
            message("3", r#"{"entity":"n/a"}"#, 4),
        ]);
        assert_eq!(batch.orders(NOW)[0], ReceivedWakeUp::new(a.clone(), 4));
        assert_eq!(batch.orders(NOW).len(), 2);
        let acknowledgements = BTreeMap::from([(a, Acknowledgement::Keep)]);
        assert_eq!(batch.failures(&acknowledgements), ["1", "3", "2"]);
    }

    #[test]
    fn merged_wake_ups_with_differing_tokens_carry_no_token() {
        let a = EntityKey::parse("n/a").unwrap();
        let of = |bodies: &[&str]| {
            let batch = Batch::sort(bodies.iter().map(|body| message("1", body, 1)));
            assert_eq!(batch.ids(&a).count(), bodies.len());
            batch.orders(NOW)[0].token
        };
        let seven = r#"{"entity":"n/a","token":7}"#;
        let eight = r#"{"entity":"n/a","token":8}"#;
        let none = r#"{"entity":"n/a"}"#;
        assert_eq!(of(&[seven, seven]), Some(FencingToken(7)));
        for others in [[seven, eight, seven], [seven, none, seven], [none, seven, seven]] {
            assert_eq!(of(&others), None, "{others:?}");
        }
    }

    #[test]
    fn merged_wake_ups_name_the_newest_outage() {
        let a = EntityKey::parse("n/a").unwrap();
        let destination = DestinationId::of("handler", "shop");
        let waiting = |token, until| {
            let wait = OutageWait {
                destination: destination.clone(),
                until: Timestamp::from_millis(until),
                is_counted: false,
            };
            WakeUp { outage: Some(wait), ..WakeUp::under(&a, FencingToken(token)) }
        };
        let of = |wake_ups: &[&WakeUp]| {
            let bodies = wake_ups.iter().map(|wake_up| queue::Message::WakeUp((*wake_up).clone()).text());
            let merged = Batch::sort(bodies.map(|body| message("1", &body, 1))).orders(NOW).remove(0);
            let until = |wait: Option<OutageWait>| wait.map(|wait| wait.until.as_millis());
            (merged.token.map(|token| token.0), until(merged.outage), until(merged.outage_besides))
        };
        let old = waiting(7, 90);
        let new = waiting(8, 50);
        let plain = WakeUp::under(&a, FencingToken(9));
        for all in [[&old, &new, &new], [&new, &old, &old], [&old, &old, &new]] {
            assert_eq!(of(&all), (Some(8), Some(50), None));
        }
        for all in [[&old, &new, &plain], [&plain, &new, &old], [&new, &plain, &old]] {
            assert_eq!(of(&all), (Some(9), None, Some(50)));
        }
        assert_eq!(of(&[&plain, &plain]), (Some(9), None, None));
    }

    #[test]
    fn lag_counts_from_first_due_time_of_wake_ups() {
        let lag = |messages: &[(&str, u64, u32)]| {
            let message = |(body, ago, times): &(&str, u64, u32)| ReceivedMessage {
                sent_at: Some(Timestamp::from_millis(NOW.as_millis() - ago)),
                ..message("1", body, *times)
            };
            Batch::sort(messages.iter().map(message)).orders(NOW)[0].lag.as_millis()
        };
        let prompt = r#"{"entity":"n/a","token":7}"#;
        let delayed = r#"{"entity":"n/a","token":7,"delay":3}"#;
        assert_eq!(lag(&[(prompt, 200, 1), (prompt, 900, 1)]), 900);
        assert_eq!(lag(&[(delayed, 3_200, 1)]), 200);
        assert_eq!(lag(&[(prompt, 20_000, 2)]), 0, "it was hidden in between");
        assert_eq!(lag(&[(delayed, 100, 1)]), 0, "the queue's clock is ahead");
    }
}
