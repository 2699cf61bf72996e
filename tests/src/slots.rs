//! An event source with slots, like Lambda's. A batch keeps its slot until its slowest drain ends.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use futures_util::{
    StreamExt,
    future::{join, join_all},
    stream::FuturesUnordered,
};
use serializer::local::{BATCH, GROWTH};
use webhook_serializer::{
    engine::drain::Acknowledgement,
    functions::worker::{SqsEvent, SqsRecord, Worker},
    handler::Handler,
};

use crate::world::{MemoryMessage, TestWorld};

/// The interval between deliveries of unaffected orders.
const EVERY: Duration = Duration::from_millis(100);

/// Times from the answer to an append until the handler starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimes {
    pub median: Duration,
    pub p95: Duration,
    pub longest: Duration,
}

impl WaitTimes {
    pub fn of(mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let share = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
        Self { median: share(50), p95: share(95), longest: share(100) }
    }

    /// Returns whether the times keep the promise of isolation.
    pub fn is_short(&self) -> bool {
        self.median < Duration::from_secs(1) && self.p95 < Duration::from_secs(3)
    }
}

impl TestWorld {
    pub fn worker(&self, handler: impl Handler) -> Worker {
        Worker::new(self.drainer(handler), self.visibility.clone(), self.env.clone())
    }

    /// Feeds the workers, each with `slots`, until the queue is empty and `is_over` is set.
    pub async fn feed(&self, workers: &[Worker], slots: usize, is_over: &AtomicBool) {
        join_all(workers.iter().map(async |worker| {
            let mut at_work = FuturesUnordered::new();
            loop {
                if at_work.len() == slots {
                    at_work.next().await;
                    continue;
                }
                if !at_work.is_empty() {
                    let _ = self.env.within(GROWTH, at_work.next()).await;
                }
                let received = tokio::select! {
                    biased;
                    Some(()) = at_work.next() => continue,
                    received = self.messages.receive() => received,
                };
                match received {
                    Some(first) => at_work.push(self.process_batch(worker, first)),
                    None if is_over.load(Relaxed) => break,
                    None => self.env.sleep(Duration::from_millis(10)).await,
                }
            }
        }))
        .await;
    }

    async fn process_batch(&self, worker: &Worker, first: MemoryMessage) {
        let mut batch = vec![first];
        while batch.len() < BATCH as usize
            && let Some(message) = self.messages.receive_due()
        {
            batch.push(message);
        }
        let record = |(number, message): (usize, &MemoryMessage)| SqsRecord {
            message_id: number.to_string(),
            ..message.record()
        };
        let event = SqsEvent { records: batch.iter().enumerate().map(record).collect() };
        let deadline = self.env.now() + self.function_time;
        let response = worker.process(event, deadline).await;
        let is_failed = |id: String| response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
        for (number, message) in batch.into_iter().enumerate() {
            let acknowledgement =
                if is_failed(number.to_string()) { Acknowledgement::Keep } else { Acknowledgement::Delete };
            self.messages.acknowledge(message, acknowledgement);
        }
    }

    /// Appends ten deliveries a second to the source `test`, each to another order, while `workers` are fed. The
    /// first one is appended after the time `after`. Returns how long these deliveries waited for their first start.
    pub async fn others_wait(&self, workers: &[Worker], slots: usize, after: Duration, seconds: u32) -> WaitTimes {
        let is_over = AtomicBool::new(false);
        let mut accepted = BTreeMap::new();
        let others = async {
            self.env.sleep(after).await;
            for number in 0..seconds * 10 {
                let id = format!("other-{number}");
                self.append(&format!("test/{id}"), &id).await;
                accepted.insert(id, self.env.monotonic());
                self.env.sleep(EVERY).await;
            }
            is_over.store(true, Relaxed);
        };
        join(self.feed(workers, slots, &is_over), others).await;
        let mut first_starts = BTreeMap::new();
        for run in self.journal.runs() {
            let first = first_starts.entry(run.delivery_id).or_insert(run.started);
            *first = run.started.min(*first);
        }
        WaitTimes::of(accepted.into_iter().map(|(id, at)| first_starts[&id].saturating_sub(at)).collect())
    }
}
