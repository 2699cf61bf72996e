//! Appends the messages of a source's queue, which Lambda hands over in batches.
//!
//! A message is deleted only once its delivery is durable in its inbox, or ignored. Any other message stays in the queue,
//! and so does what must not overtake it: later messages of the batch with the same entity or, in a FIFO queue, group.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::{ANSWER, BatchResponse, Ingest};
use crate::{
    protocol::trace::Trace,
    providers::{Headers, Request},
    sources::{NewestDocument, OnOutage, ReceivedWebhook, Source, Sources},
    telemetry::{Event, IngestRefusal},
    time::Timestamp,
    traces,
};

/// One message in the event that SQS sends to a function.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueRecord {
    pub message_id: String,
    #[serde(rename = "eventSourceARN")]
    pub event_source_arn: String,
    pub body: String,
    /// SQS's own attributes of the message, such as `MessageGroupId` and `SentTimestamp`.
    pub attributes: BTreeMap<String, String>,
    pub message_attributes: BTreeMap<String, MessageAttribute>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageAttribute {
    /// The value of a text or a number. `None` for bytes.
    pub string_value: Option<String>,
}

/// The time after which no append of a batch begins. The last one ends [`ANSWER`] later, before the function's timeout.
const LAST_APPEND: Duration = Duration::from_secs(5);

impl QueueRecord {
    /// Returns the message's attributes as headers: first those that SQS gives, then the sender's.
    fn headers(&self) -> Headers {
        let by_sender = self.message_attributes.iter();
        let by_sender = by_sender.filter_map(|(name, value)| Some((name, value.string_value.as_ref()?)));
        self.attributes.iter().chain(by_sender).map(|(name, value)| (name, value.as_str())).collect()
    }

    /// Describes the message as a delivery of the source whose queue it comes from.
    pub fn receive(&self, source: &Source, now: Timestamp) -> ReceivedWebhook {
        let headers = self.headers();
        let request = Request { headers: &headers, body: self.body.as_bytes() };
        source.receive_message(request, &self.message_id, now)
    }

    fn trace(&self) -> Trace {
        let parent = self.message_attributes.get("traceparent").and_then(|value| value.string_value.as_deref());
        Trace::parse(parent)
    }
}

/// A message of a known queue.
struct Message<'a> {
    position: usize,
    record: &'a QueueRecord,
    source: &'a Source,
    /// The group in a FIFO queue. A standard queue does not keep a group's order.
    group: Option<&'a str>,
    received: ReceivedWebhook,
}

impl Message<'_> {
    /// Returns whether a later message must not be appended before this one.
    fn goes_before(&self, later: &Self) -> bool {
        let is_same_group = self.group.is_some() && self.group == later.group;
        let is_same_queue = self.record.event_source_arn == later.record.event_source_arn;
        (is_same_group && is_same_queue) || self.received.incoming.entity == later.received.incoming.entity
    }
}

impl Ingest {
    /// Appends the messages of a batch in their order. Returns those that must stay in their queue.
    pub async fn append_messages(&self, records: &[QueueRecord]) -> BatchResponse {
        self.sources.beside(self.append_batch(records)).await
    }

    async fn append_batch(&self, records: &[QueueRecord]) -> BatchResponse {
        let began = self.env.monotonic();
        let is_known =
            |sources: &Sources| records.iter().all(|record| sources.of_queue(&record.event_source_arn).is_some());
        let newest = match is_known(&self.sources.current()) {
            true => NewestDocument::Known,
            false => self.sources.newest().await,
        };
        let sources = self.sources.current();
        let mut kept = Vec::new();
        let mut messages = Vec::new();
        for (position, record) in records.iter().enumerate() {
            match sources.of_queue(&record.event_source_arn) {
                Some(source) => messages.push(self.read(position, record, source)),
                None => {
                    self.refuse_message(record, &sources, newest);
                    kept.push(position);
                }
            }
        }
        let chains = chains(messages);
        kept.extend(join_all(chains.iter().map(|chain| self.append_chain(chain, began))).await.concat());
        kept.sort_unstable();
        BatchResponse::failed(kept.into_iter().map(|position| records[position].message_id.clone()))
    }

    fn read<'a>(&self, position: usize, record: &'a QueueRecord, source: &'a Source) -> Message<'a> {
        let received = record.receive(source, self.env.now());
        let is_fifo = source.queue.as_ref().is_some_and(|queue| queue.is_fifo());
        let group = record.attributes.get("MessageGroupId").map(String::as_str).filter(|_| is_fifo);
        Message { position, record, source, group, received }
    }

    fn refuse_message(&self, record: &QueueRecord, sources: &Sources, newest: NewestDocument) {
        let arn = &record.event_source_arn;
        let (refusal, reason) = match newest {
            NewestDocument::Known => (IngestRefusal::UnknownQueue, sources.no_such_queue(arn)),
            NewestDocument::Unknown => {
                (IngestRefusal::SourcesUnread, format!("the sources cannot be read now; the known ones lack `{arn}`"))
            }
        };
        self.inbox.observe(&Event::Refused { source: None, refusal, reason: &reason, limit: None });
    }

    /// Appends messages one after the other. Returns the positions of those that must stay in their queue.
    async fn append_chain(&self, chain: &[Message<'_>], began: Duration) -> Vec<usize> {
        let mut kept: Vec<&Message<'_>> = Vec::new();
        for message in chain {
            let is_late = self.env.monotonic().saturating_sub(began) > LAST_APPEND;
            let must_wait = is_late || kept.iter().any(|earlier| earlier.goes_before(message));
            if must_wait || !self.append_message(message).await {
                kept.push(message);
            }
        }
        kept.into_iter().map(|message| message.position).collect()
    }

    /// Appends a message, or ignores it as its source demands. Returns whether it may be deleted.
    async fn append_message(&self, message: &Message<'_>) -> bool {
        let ReceivedWebhook { incoming, unrouted, ignored } = &message.received;
        if let Some(ignored) = ignored {
            self.inbox.observe(&Event::Ignored { incoming, filter: ignored.place() });
            return true;
        }
        let linger = message.source.linger;
        let accepted = self.inbox.accept(incoming, unrouted.as_deref(), linger, OnOutage::Refuse, ANSWER);
        match traces::append_message(incoming, message.record.trace(), accepted).await {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(source = %incoming.identity.source, %error, "not stored; the message stays in its queue");
                false
            }
        }
    }
}

/// Splits a batch into lists that can be appended side by side. Within a list, the batch's order is kept.
fn chains(messages: Vec<Message<'_>>) -> Vec<Vec<Message<'_>>> {
    let mut chains: Vec<Vec<Message<'_>>> = Vec::new();
    for message in messages {
        let goes_before = |chain: &Vec<Message<'_>>| chain.iter().any(|earlier| earlier.goes_before(&message));
        let (before, others): (Vec<_>, Vec<_>) = chains.into_iter().partition(goes_before);
        let mut chain: Vec<_> = before.into_iter().flatten().collect();
        chain.sort_by_key(|earlier| earlier.position);
        chain.push(message);
        chains = others;
        chains.push(chain);
    }
    chains
}
