//! A queue in memory.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::{BoxFuture, ready};
use tokio::sync::watch;
use webhook_serializer::{
    engine::{
        drain::Acknowledgement,
        queue::{self, Depth, Queue, QueueError, Visibility, WakeUp},
    },
    functions::worker::{Attributes, SqsRecord},
    time::{Env, Timestamp},
};

/// The visibility timeout of a wake-up that a worker kept.
pub const VISIBILITY: Duration = Duration::from_secs(90);

/// The visibility timeout of a wake-up that a worker is processing: longer than any function runs.
const LONGEST_VISIBILITY: Duration = Duration::from_secs(1350);

/// A run that sends more wake-ups is in a loop, and fails.
const MOST_WAKE_UPS: u64 = 100_000;

#[derive(Debug, Clone)]
pub struct MemoryMessage {
    pub content: queue::Message,
    pub times: u32,
    sent: Timestamp,
    due: Duration,
    number: u64,
}

impl MemoryMessage {
    pub fn receipt(&self) -> String {
        self.number.to_string()
    }

    pub fn record(&self) -> SqsRecord {
        SqsRecord {
            message_id: self.receipt(),
            receipt_handle: self.receipt(),
            body: self.content.text(),
            attributes: Attributes {
                approximate_receive_count: self.times.to_string(),
                sent_timestamp: self.sent.as_millis().to_string(),
            },
        }
    }
}

/// A queue in memory that loses nothing. A message arrives when it is due. It arrives again if it was kept,
/// or if it stays in flight for too long.
#[derive(Debug)]
pub struct MemoryQueue {
    state: Mutex<Messages>,
    hidden: AtomicU64,
    changed: watch::Sender<()>,
    sent: AtomicU64,
    env: Env,
}

#[derive(Debug, Default)]
struct Messages {
    /// By due time and number.
    waiting: BTreeMap<(Duration, u64), MemoryMessage>,
    in_flight: Vec<MemoryMessage>,
    /// The number of messages that a receiver is processing.
    at_work: usize,
}

impl Messages {
    fn next_due(&self) -> Option<Duration> {
        let waiting = self.waiting.first_key_value().map(|((due, _), _)| *due);
        self.in_flight.iter().map(|message| message.due).chain(waiting).min()
    }

    fn receive(&mut self, now: Duration) -> Option<MemoryMessage> {
        let waiting = self.waiting.first_key_value().map(|(key, _)| *key);
        let in_flight = self.in_flight.iter().map(|message| (message.due, message.number)).enumerate();
        let in_flight = in_flight.min_by_key(|(_, key)| *key);
        let mut message = match (waiting, in_flight) {
            (Some(key), other) if key.0 <= now && other.is_none_or(|(_, other)| key < other) => {
                self.waiting.remove(&key)?
            }
            (_, Some((index, (due, _)))) if due <= now => self.in_flight.swap_remove(index),
            _ => return None,
        };
        message.times += 1;
        message.due = now + LONGEST_VISIBILITY;
        self.in_flight.push(message.clone());
        self.at_work += 1;
        Some(message)
    }
}

impl MemoryQueue {
    pub(super) fn new(env: Env) -> Self {
        let sent = AtomicU64::new(0);
        let hidden = AtomicU64::new(0);
        Self { state: Mutex::default(), hidden, changed: watch::Sender::new(()), sent, env }
    }

    /// Returns the number of calls that extended visibility timeouts. A call may be for a whole batch.
    pub fn hidden(&self) -> u64 {
        self.hidden.load(Relaxed)
    }

    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, Messages> {
        self.state.lock().expect("no one panics while holding this")
    }

    /// Returns the number of messages that are not in flight.
    pub fn len(&self) -> usize {
        self.state().waiting.len()
    }

    /// Returns, for each message that is not in flight, the time until it is due, in the order of sending.
    pub fn delays(&self) -> Vec<Duration> {
        let now = self.env.monotonic();
        let mut waiting: Vec<_> = self.state().waiting.keys().copied().collect();
        waiting.sort_by_key(|(_, number)| *number);
        waiting.into_iter().map(|(due, _)| due.saturating_sub(now)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes and returns a wake-up that is not in flight, whether due or not.
    pub fn take(&self) -> Option<WakeUp> {
        self.take_any().map(|content| match content {
            queue::Message::WakeUp(wake_up) => wake_up,
            queue::Message::Deferred(deferred) => panic!("a delivery of {}", deferred.entity()),
        })
    }

    pub fn take_any(&self) -> Option<queue::Message> {
        let mut state = self.state();
        let newest = state.waiting.keys().max_by_key(|(_, number)| *number).copied()?;
        state.waiting.remove(&newest).map(|message| message.content)
    }

    pub fn clear(&self) {
        let mut state = self.state();
        state.waiting.clear();
        state.in_flight.clear();
    }

    /// Waits for the next message. Returns `None` once no message is left or in flight.
    pub async fn receive(&self) -> Option<MemoryMessage> {
        let mut changed = self.changed.subscribe();
        loop {
            let now = self.env.monotonic();
            let next_due = {
                let mut state = self.state();
                if let Some(message) = state.receive(now) {
                    return Some(message);
                }
                if state.next_due().is_none() && state.at_work == 0 {
                    return None;
                }
                state.next_due()
            };
            let due = async {
                match next_due {
                    Some(due) => self.env.sleep(due - now).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = due => {}
            }
        }
    }

    pub fn receive_due(&self) -> Option<MemoryMessage> {
        self.state().receive(self.env.monotonic())
    }

    /// Forgets all receivers, which have died. Their messages stay in flight until their visibility timeouts end.
    pub fn receivers_died(&self) {
        self.state().at_work = 0;
    }

    /// Deletes a received message, or keeps it in flight until its visibility timeout ends.
    pub fn acknowledge(&self, message: MemoryMessage, acknowledgement: Acknowledgement) {
        let mut state = self.state();
        state.at_work -= 1;
        let received = |other: &MemoryMessage| other.number == message.number;
        match acknowledgement {
            Acknowledgement::Delete => state.in_flight.retain(|other| !received(other)),
            Acknowledgement::Keep => {
                let kept = self.env.monotonic() + VISIBILITY;
                state.in_flight.iter_mut().filter(|other| received(other)).for_each(|it| it.due = it.due.min(kept));
            }
        }
        drop(state);
        self.changed.send_replace(());
    }
}

impl Queue for MemoryQueue {
    fn send<'a>(&'a self, message: &'a queue::Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        let number = self.sent.fetch_add(1, Relaxed);
        assert!(number < MOST_WAKE_UPS, "the run goes round in circles");
        let due = self.env.monotonic() + Duration::from_secs(queue::delay_seconds(delay));
        let message = MemoryMessage { content: message.clone(), times: 0, sent: self.env.now(), due, number };
        self.state().waiting.insert((due, number), message);
        self.changed.send_replace(());
        Box::pin(ready(Ok(())))
    }
}

impl Visibility for MemoryQueue {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        self.hidden.fetch_add(1, Relaxed);
        let due = self.env.monotonic() + Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
        let mut state = self.state();
        let named = |message: &&mut MemoryMessage| receipts.contains(&message.receipt());
        let hidden = state.in_flight.iter_mut().filter(named).map(|message| message.due = due).count();
        drop(state);
        self.changed.send_replace(());
        let gone = || QueueError::Unavailable("not in flight".into());
        Box::pin(ready((hidden == receipts.len()).then_some(()).ok_or_else(gone)))
    }
}

impl Depth for MemoryQueue {
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        Box::pin(ready(Ok(self.len() as u64)))
    }
}
