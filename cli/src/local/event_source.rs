//! Emulates Lambda's event source mapping. Receives batches, invokes a worker with each batch, and deletes the messages
//! that the worker does not report as failed.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use aws_sdk_sqs::{
    config::{Config, timeout::TimeoutConfig},
    types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName},
};
use tokio::{sync::watch, task::JoinSet};
use webhook_serializer::{
    engine::queue,
    functions::worker::{Attributes, BatchResponse, SqsEvent, SqsRecord, Worker},
    time::{Env, Timestamp},
};

use super::{Engines, function_pool::FunctionPool, invoker::Invoker};

/// The largest number of messages in a batch, as in the template.
pub const BATCH: i32 = 10;

/// The delay before one more slot is used while other slots are busy. The delay lowers the load on the store and the
/// queue and lets batches fill up.
pub const GROWTH: Duration = Duration::from_millis(50);

/// The time that a receive waits for a message, in seconds. An idle worker asks once in this time.
const POLL_SECONDS: i32 = 5;

/// The time limit of a receive, which is longer than that of other requests.
const RECEIVE_LIMIT: Duration = Duration::from_secs(POLL_SECONDS as u64 + 5);

#[derive(Debug)]
pub enum LocalFunction {
    Here(Box<Worker>),
    Processes(Arc<FunctionPool>),
    /// A function behind Lambda's Invoke API.
    Invoked(Invoker),
}

impl LocalFunction {
    /// Stops further handler starts in this process. Functions in other processes finish their batch.
    pub(super) fn finish(&self) {
        match self {
            Self::Here(worker) => worker.close(),
            Self::Processes(_) | Self::Invoked(_) => {}
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct AtWork(Arc<Mutex<BTreeMap<String, usize>>>);

struct BatchGuard<'a>(&'a AtWork, Vec<String>);

impl AtWork {
    pub fn orders(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn add(&self, event: &SqsEvent) -> BatchGuard<'_> {
        let messages = event.records.iter().map(|record| queue::Message::parse(&record.body));
        let orders: Vec<String> = messages.flatten().map(|message| message.entity().to_string()).collect();
        orders.iter().for_each(|order| *self.lock().entry(order.clone()).or_default() += 1);
        BatchGuard(self, orders)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        let mut at_work = self.0.lock();
        for order in &self.1 {
            if let Some(batches) = at_work.get_mut(order) {
                *batches -= 1;
            }
        }
        at_work.retain(|_, batches| *batches > 0);
    }
}

/// Feeds a function from the queue. Each slot runs one batch at a time, until the batch's slowest drain ends.
#[derive(Debug, Clone)]
pub struct EventSource {
    slots: usize,
    sqs: aws_sdk_sqs::Client,
    queue_url: String,
    function: Arc<LocalFunction>,
    timeout: Duration,
    env: Env,
    at_work: AtWork,
}

impl EventSource {
    pub fn new(engines: &Engines, function: LocalFunction, timeout: Duration) -> Self {
        let account = engines.account();
        Self::of(account.sqs(&account.http_client()), engines.config().queue_url, function, timeout)
    }

    pub fn of(sqs: aws_sdk_sqs::Client, queue_url: String, function: LocalFunction, timeout: Duration) -> Self {
        Self {
            sqs,
            queue_url,
            function: Arc::new(function),
            timeout,
            env: Env::system(),
            slots: 1,
            at_work: AtWork::default(),
        }
    }

    #[must_use]
    pub fn side_by_side(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    #[must_use]
    pub fn noting(mut self, at_work: AtWork) -> Self {
        self.at_work = at_work;
        self
    }

    pub(super) fn function(&self) -> Arc<LocalFunction> {
        self.function.clone()
    }

    /// Runs until `stopping` is set, then finishes the running batches. An abort of this task aborts the batches.
    pub async fn run(self, mut stopping: watch::Receiver<bool>) -> Result<()> {
        let mut at_work = JoinSet::new();
        let mut is_out = false;
        while !*stopping.borrow() {
            while at_work.try_join_next().is_some() {}
            if at_work.len() == self.slots {
                tokio::select! {
                    biased;
                    _ = stopping.wait_for(|stop| *stop) => break,
                    _ = at_work.join_next() => continue,
                }
            }
            if !at_work.is_empty() {
                // Waits for the delay, or until a batch ends.
                let _ = self.env.within(GROWTH, at_work.join_next()).await;
            }
            let received = tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop) => break,
                received = self.receive() => received,
            };
            let was_out = std::mem::replace(&mut is_out, received.is_err());
            match received {
                Ok(messages) if messages.is_empty() => {}
                Ok(messages) => {
                    let source = self.clone();
                    at_work.spawn(async move { source.process(messages).await });
                }
                Err(error) => {
                    if !was_out {
                        tracing::warn!(error = format!("{error:#}"), "the queue does not answer");
                    }
                    self.env.sleep(Duration::from_millis(500)).await;
                }
            }
        }
        while at_work.join_next().await.is_some() {}
        Ok(())
    }

    pub async fn connect(&self) -> Result<()> {
        self.sqs
            .get_queue_attributes()
            .queue_url(&self.queue_url)
            .attribute_names(aws_sdk_sqs::types::QueueAttributeName::ApproximateNumberOfMessages)
            .send()
            .await?;
        Ok(())
    }

    async fn receive(&self) -> Result<Vec<Message>> {
        let limit = TimeoutConfig::builder().operation_timeout(RECEIVE_LIMIT);
        let received = self
            .sqs
            .receive_message()
            .queue_url(&self.queue_url)
            .max_number_of_messages(BATCH)
            .wait_time_seconds(POLL_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .customize()
            .config_override(Config::builder().timeout_config(limit.build()))
            .send()
            .await?;
        Ok(received.messages.unwrap_or_default())
    }

    async fn invoke(&self, event: SqsEvent) -> Result<BatchResponse> {
        match &*self.function {
            LocalFunction::Here(worker) => {
                let deadline: Timestamp = self.env.machine_now() + self.timeout;
                Ok(worker.process(event, deadline).await)
            }
            LocalFunction::Processes(pool) => {
                let answer = pool.invoke(serde_json::to_vec(&event)?).await?;
                Ok(serde_json::from_slice(&answer)?)
            }
            LocalFunction::Invoked(invoker) => {
                let answer = invoker.invoke("worker", &event, self.timeout).await?;
                Ok(serde_json::from_str(&answer)?)
            }
        }
    }

    async fn process(&self, messages: Vec<Message>) {
        let event = SqsEvent { records: messages.iter().map(record).collect() };
        let _batch = self.at_work.add(&event);
        let response = match self.invoke(event).await {
            Ok(response) => response,
            // The whole batch failed and is received again.
            Err(error) => {
                tracing::warn!(%error, "the worker failed");
                return;
            }
        };
        let failed = |id: &str| response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
        let done: Vec<DeleteMessageBatchRequestEntry> = messages
            .iter()
            .filter(|message| !failed(message.message_id().unwrap_or_default()))
            .enumerate()
            .filter_map(|(number, message)| {
                DeleteMessageBatchRequestEntry::builder()
                    .id(number.to_string())
                    .receipt_handle(message.receipt_handle()?)
                    .build()
                    .ok()
            })
            .collect();
        if done.is_empty() {
            return;
        }
        let deleted = self.sqs.delete_message_batch().queue_url(&self.queue_url).set_entries(Some(done)).send().await;
        if deleted.map_or(true, |deleted| !deleted.failed().is_empty()) {
            tracing::warn!("wake-ups could not be deleted and will be received again");
        }
    }
}

fn record(message: &Message) -> SqsRecord {
    let attribute = |name| message.attributes().and_then(|all| all.get(&name)).cloned().unwrap_or_default();
    SqsRecord {
        message_id: message.message_id().unwrap_or_default().to_owned(),
        receipt_handle: message.receipt_handle().unwrap_or_default().to_owned(),
        body: message.body().unwrap_or_default().to_owned(),
        attributes: Attributes {
            approximate_receive_count: attribute(MessageSystemAttributeName::ApproximateReceiveCount),
            sent_timestamp: attribute(MessageSystemAttributeName::SentTimestamp),
        },
    }
}
