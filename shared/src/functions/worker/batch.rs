//! A batch of queue messages: which entities to look at, and which messages to
//! keep. Pure.

use std::collections::BTreeMap;

use crate::{
    engine::{
        deferred::Deferred,
        drain::{Acknowledgement, Received},
        queue::{self, Unreadable, WakeUp},
    },
    protocol::entity::{EntityKey, FencingToken},
};

/// One message of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The queue's id for it.
    pub id: String,
    /// Its body.
    pub body: String,
    /// How often it was received, this time included.
    pub times: u32,
}

/// A batch, sorted by entity: several wake-ups of one entity are one job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    jobs: BTreeMap<EntityKey, Vec<(String, u32)>>,
    tokens: BTreeMap<EntityKey, Option<FencingToken>>,
    deferred: Vec<(String, Deferred)>,
    undeliverable: Vec<(String, String)>,
    unreadable: Vec<String>,
}

impl Batch {
    /// Sorts messages. One that is nothing of ours is counted and let go: received
    /// again, it would be none either. A delivery that cannot be read is kept.
    pub fn sort(messages: impl IntoIterator<Item = Message>) -> Self {
        let mut batch = Self::default();
        for message in messages {
            match queue::Message::parse(&message.body) {
                Ok(queue::Message::WakeUp(WakeUp { entity, token })) => {
                    let token = token.map(FencingToken);
                    let all = batch.tokens.entry(entity.clone()).or_insert(token);
                    *all = all.filter(|all| Some(*all) == token);
                    batch.jobs.entry(entity).or_default().push((message.id, message.times));
                }
                Ok(queue::Message::Deferred(deferred)) => batch.deferred.push((message.id, *deferred)),
                Err(Unreadable::Delivery(reason)) => batch.undeliverable.push((message.id, reason)),
                Err(Unreadable::Nothing) => batch.unreadable.push(message.id),
            }
        }
        batch.deferred.sort_by_key(|(_, deferred)| deferred.received_at());
        batch
    }

    /// What is to be attended to.
    pub fn jobs(&self) -> Vec<Received> {
        let job = |(entity, messages): (&EntityKey, &Vec<(String, u32)>)| Received {
            entity: entity.clone(),
            times: messages.iter().map(|(_, times)| *times).max().unwrap_or(1),
        };
        self.jobs.iter().map(job).collect()
    }

    /// The token that all messages of `entity` say.
    pub fn token(&self, entity: &EntityKey) -> Option<FencingToken> {
        self.tokens.get(entity).copied().flatten()
    }

    /// The ids of the messages of `entity`.
    pub fn ids(&self, entity: &EntityKey) -> impl Iterator<Item = &String> {
        self.jobs.get(entity).into_iter().flatten().map(|(id, _)| id)
    }

    /// The deliveries that are to be appended, in the order in which they arrived,
    /// with their messages' ids.
    pub fn deferred(&self) -> &[(String, Deferred)] {
        &self.deferred
    }

    /// The ids of messages that must be deliveries and cannot be read, and why.
    pub fn undeliverable(&self) -> &[(String, String)] {
        &self.undeliverable
    }

    /// The ids of messages that were nothing of ours.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    /// The ids of the wake-ups to report as failed, given what became of each
    /// job. A job that nothing is known of is kept.
    pub fn failures(&self, attended: &BTreeMap<EntityKey, Acknowledgement>) -> Vec<String> {
        self.jobs
            .iter()
            .filter(|(entity, _)| attended.get(entity) != Some(&Acknowledgement::Delete))
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
    fn wake_ups_of_one_entity_are_one_job_and_share_its_fate() {
        let a = EntityKey::parse("n/a").unwrap();
        let batch = Batch::sort([
            message("1", r#"{"entity":"n/a"}"#, 1),
            message("2", r#"{"entity":"n/b"}"#, 1),
            message("3", r#"{"entity":"n/a"}"#, 4),
        ]);
        assert_eq!(batch.jobs()[0], Received { entity: a.clone(), times: 4 });
        assert_eq!(batch.jobs().len(), 2);
        let attended = BTreeMap::from([(a, Acknowledgement::Keep)]);
        assert_eq!(batch.failures(&attended), ["1", "3", "2"]);
    }

    #[test]
    fn messages_that_say_different_tokens_or_none_say_none_together() {
        let a = EntityKey::parse("n/a").unwrap();
        let of = |bodies: &[&str]| Batch::sort(bodies.iter().map(|body| message("1", body, 1))).token(&a);
        let (seven, eight, none) =
            (r#"{"entity":"n/a","token":7}"#, r#"{"entity":"n/a","token":8}"#, r#"{"entity":"n/a"}"#);
        assert_eq!(of(&[seven, seven]), Some(FencingToken(7)));
        for others in [[seven, eight, seven], [seven, none, seven], [none, seven, seven]] {
            assert_eq!(of(&others), None, "{others:?}");
        }
    }

    #[test]
    fn what_is_no_wake_up_is_let_go() {
        let batch = Batch::sort([message("1", "not json", 1), message("2", r#"{"entity":"no-namespace"}"#, 1)]);
        assert_eq!(batch.unreadable(), ["1", "2"]);
        assert!(batch.failures(&BTreeMap::new()).is_empty());
    }
}
