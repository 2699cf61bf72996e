//! Sorts a batch of queue messages by kind and order, without I/O.

use std::collections::BTreeMap;

use crate::{
    engine::{
        deferred::Deferred,
        drain::{Acknowledgement, Received},
        queue::{self, Unreadable, WakeUp},
    },
    protocol::entity::{EntityKey, FencingToken},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub id: String,
    pub body: String,
    /// The number of times that SQS has delivered the message, including this one.
    pub times: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    wake_ups: BTreeMap<EntityKey, Vec<(String, u32)>>,
    tokens: BTreeMap<EntityKey, Option<FencingToken>>,
    deferred: Vec<(String, Deferred)>,
    undeliverable: Vec<(String, String)>,
    unreadable: Vec<String>,
}

impl Batch {
    /// Sorts messages by kind. The caller must keep the message of a deferred delivery that cannot be read,
    /// because that message is the only copy and a newer version may read it. The caller may delete a message that
    /// is neither a wake-up nor a deferred delivery.
    pub fn sort(messages: impl IntoIterator<Item = Message>) -> Self {
        let mut batch = Self::default();
        for message in messages {
            match queue::Message::parse(&message.body) {
                Ok(queue::Message::WakeUp(WakeUp { entity, token })) => {
                    let token = token.map(FencingToken);
                    let all = batch.tokens.entry(entity.clone()).or_insert(token);
                    *all = all.filter(|all| Some(*all) == token);
                    batch.wake_ups.entry(entity).or_default().push((message.id, message.times));
                }
                Ok(queue::Message::Deferred(deferred)) => batch.deferred.push((message.id, *deferred)),
                Err(Unreadable::Delivery(reason)) => batch.undeliverable.push((message.id, reason)),
                Err(Unreadable::Nothing) => batch.unreadable.push(message.id),
            }
        }
        batch.deferred.sort_by_key(|(_, deferred)| deferred.received_at());
        batch
    }

    /// Returns the orders to drain.
    pub fn orders(&self) -> Vec<Received> {
        let received = |(entity, messages): (&EntityKey, &Vec<(String, u32)>)| Received {
            entity: entity.clone(),
            times: messages.iter().map(|(_, times)| *times).max().unwrap_or(1),
        };
        self.wake_ups.iter().map(received).collect()
    }

    /// Returns the fencing token that all wake-ups of `entity` carry. Returns `None` if their tokens differ or a
    /// wake-up has none.
    pub fn token(&self, entity: &EntityKey) -> Option<FencingToken> {
        self.tokens.get(entity).copied().flatten()
    }

    pub fn ids(&self, entity: &EntityKey) -> impl Iterator<Item = &String> {
        self.wake_ups.get(entity).into_iter().flatten().map(|(id, _)| id)
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
            .flat_map(|(_, messages)| messages.iter().map(|(id, _)| id.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, body: &str, times: u32) -> Message {
        Message { id: id.into(), body: body.into(), times }
    }

    #[test]
    fn wake_ups_of_one_entity_are_handled_together() {
        let a = EntityKey::parse("n/a").unwrap();
        let batch = Batch::sort([
            message("1", r#"{"entity":"n/a"}"#, 1),
            message("2", r#"{"entity":"n/b"}"#, 1),
            message("3", r#"{"entity":"n/a"}"#, 4),
        ]);
        assert_eq!(batch.orders()[0], Received { entity: a.clone(), times: 4 });
        assert_eq!(batch.orders().len(), 2);
        let acknowledgements = BTreeMap::from([(a, Acknowledgement::Keep)]);
        assert_eq!(batch.failures(&acknowledgements), ["1", "3", "2"]);
    }

    #[test]
    fn merged_wake_ups_with_differing_tokens_carry_no_token() {
        let a = EntityKey::parse("n/a").unwrap();
        let of = |bodies: &[&str]| Batch::sort(bodies.iter().map(|body| message("1", body, 1))).token(&a);
        let (seven, eight, none) =
            (r#"{"entity":"n/a","token":7}"#, r#"{"entity":"n/a","token":8}"#, r#"{"entity":"n/a"}"#);
        assert_eq!(of(&[seven, seven]), Some(FencingToken(7)));
        for others in [[seven, eight, seven], [seven, none, seven], [none, seven, seven]] {
            assert_eq!(of(&others), None, "{others:?}");
        }
    }
}
