//! Emulates Lambda's event source mappings of the sources' queues. Hands their messages to ingest in batches, and deletes
//! the messages that ingest does not report as failed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Result;
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};
use webhook_serializer::{
    functions::ingest::{BatchResponse, Ingest, MessageAttribute, QueueRecord},
    protocol::entity::SourceName,
    sources::{LiveSources, QueueArn},
    time::Env,
};

use super::{
    Invoker,
    queue::{QueueSettings, QueuedMessage, Queues, Receive},
    stopped,
};

/// The timeout of ingest, as in `template.yaml`.
pub const INGEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The visibility timeout of a source's queue, as in `templates/inlets/queue.yaml`: six times ingest's timeout, as
/// [AWS advises](https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html) (read on 2026-11-29). A message
/// that stays in its queue is received again after this time.
pub const SOURCE_VISIBILITY: Duration = Duration::from_secs(6 * INGEST_TIMEOUT.as_secs());

const BATCH: Receive = Receive { max_messages: 10, visibility_timeout: None, wait: Duration::from_secs(20) };

/// The time between two looks for sources that were added to the document.
const LOOK: Duration = Duration::from_millis(500);

/// Returns the URL of a source's queue, in the local run whose queues are served at `endpoint`.
pub fn local_queue_url(endpoint: &str, queue: &QueueArn) -> String {
    format!("{endpoint}/{}", local_name(queue))
}

/// Returns the name of a source's queue in the local run: its region, account and name.
fn local_name(queue: &QueueArn) -> String {
    queue.as_str().split(':').skip(3).collect::<Vec<_>>().join("/")
}

#[derive(Debug, Clone)]
pub(super) enum IngestFunction {
    Here(Arc<Ingest>),
    /// A function behind Lambda's Invoke API.
    Invoked(Invoker),
}

#[derive(Debug)]
pub(super) struct SourceQueues {
    queues: Arc<Queues>,
    sources: LiveSources,
    ingest: IngestFunction,
    fed: BTreeSet<String>,
    new: Vec<(SourceName, QueueArn)>,
}

impl SourceQueues {
    /// Creates the queues of the sources in use.
    pub(super) fn create(queues: Arc<Queues>, sources: LiveSources, ingest: IngestFunction) -> Result<Self> {
        let mut this = Self { queues, sources, ingest, fed: BTreeSet::new(), new: Vec::new() };
        this.create_new()?;
        Ok(this)
    }

    fn create_new(&mut self) -> Result<()> {
        for source in self.sources.current().iter() {
            let Some(queue) = &source.queue else { continue };
            if self.fed.insert(queue.as_str().to_owned()) {
                let name = QueueSettings::named(local_name(queue));
                self.queues.put(QueueSettings { visibility_timeout: SOURCE_VISIBILITY, ..name })?;
                self.new.push((source.name.clone(), queue.clone()));
            }
        }
        Ok(())
    }

    /// Runs until `stopping` is set, then finishes the running batches. The queue of a source that is added later is
    /// created, too, and given to `added`.
    pub(super) async fn run(
        mut self,
        added: impl Fn(&SourceName, &QueueArn),
        stopping: watch::Receiver<bool>,
    ) -> Result<()> {
        let mut feeding = JoinSet::new();
        while !*stopping.borrow() {
            for (_, queue) in std::mem::take(&mut self.new) {
                let mapping = QueueMapping { queues: self.queues.clone(), ingest: self.ingest.clone(), queue };
                feeding.spawn(mapping.run(stopping.clone()));
            }
            let _ = Env::system().within(LOOK, stopped(stopping.clone())).await;
            self.create_new()?;
            self.new.iter().for_each(|(source, queue)| added(source, queue));
        }
        while let Some(ended) = feeding.join_next().await {
            ended?;
        }
        Ok(())
    }
}

/// Feeds ingest from one queue, one batch at a time.
struct QueueMapping {
    queues: Arc<Queues>,
    ingest: IngestFunction,
    queue: QueueArn,
}

impl QueueMapping {
    async fn run(self, stopping: watch::Receiver<bool>) {
        let name = local_name(&self.queue);
        let mut is_out = false;
        loop {
            let received = tokio::select! {
                biased;
                () = stopped(stopping.clone()) => return,
                received = self.queues.receive(&name, BATCH) => received,
            };
            let was_out = std::mem::replace(&mut is_out, received.is_err());
            match received {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => self.process(&name, &messages).await,
                Err(error) => {
                    if !was_out {
                        tracing::warn!(queue = %self.queue, %error, "the queue does not answer");
                    }
                    Env::system().sleep(LOOK).await;
                }
            }
        }
    }

    async fn process(&self, name: &str, messages: &[QueuedMessage]) {
        let records: Vec<QueueRecord> = messages.iter().map(|message| self.record(message)).collect();
        let response = match self.append(&records).await {
            Ok(response) => response,
            // The whole batch failed and is received again.
            Err(error) => {
                tracing::warn!(queue = %self.queue, %error, "ingest failed");
                return;
            }
        };
        let failed = |id: &str| response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
        for message in messages.iter().filter(|message| !failed(&message.message_id)) {
            if let Err(error) = self.queues.delete(name, &message.receipt_handle) {
                tracing::warn!(queue = %self.queue, %error, "a message could not be deleted and will be received again");
            }
        }
    }

    async fn append(&self, records: &[QueueRecord]) -> Result<BatchResponse> {
        match &self.ingest {
            IngestFunction::Here(ingest) => Ok(ingest.append_messages(records).await),
            IngestFunction::Invoked(invoker) => {
                let answer = invoker.invoke("ingest", &json!({ "Records": records }), INGEST_TIMEOUT).await?;
                Ok(serde_json::from_str(&answer)?)
            }
        }
    }

    fn record(&self, message: &QueuedMessage) -> QueueRecord {
        let of_fifo = self.queue.is_fifo().then(|| format!("{:020}", message.sequence_number));
        let attributes = [
            ("ApproximateReceiveCount", Some(message.receive_count.to_string())),
            ("SentTimestamp", Some(message.sent_at.as_millis().to_string())),
            ("SequenceNumber", of_fifo),
            ("MessageGroupId", message.group.clone()),
            ("MessageDeduplicationId", message.deduplication_id.clone()),
        ];
        let by_sender = message.attributes.iter();
        QueueRecord {
            message_id: message.message_id.clone(),
            event_source_arn: self.queue.to_string(),
            body: message.body.clone(),
            attributes: attributes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
            message_attributes: by_sender
                .map(|(name, value)| (name.clone(), MessageAttribute { string_value: value.string_value.clone() }))
                .collect(),
        }
    }
}
