//! Implements SQS's rules for queues: sends, receives, receipt handles, and the wake-up of waiting receives.

use std::{
    collections::{BTreeSet, HashMap},
    fmt::{self, Debug, Formatter},
    num::NonZeroU32,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    clock::{QueueClock, WallClock},
    error::SqsError,
    message::{NewMessage, QueuedMessage, ReceiptHandle},
    store::{Counts, MessageStore},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueSettings {
    /// The name. The name of a FIFO queue ends with `.fifo`.
    pub name: String,
    /// How long a received message stays hidden, unless the receive sets another time.
    pub visibility_timeout: Duration,
    pub redrive: Option<RedrivePolicy>,
}

impl QueueSettings {
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), visibility_timeout: Duration::from_secs(30), redrive: None }
    }

    fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedrivePolicy {
    pub dead_letters: String,
    /// The largest number of receives of a message. The next receive moves the message to the dead-letter queue instead
    /// of returning it.
    pub max_receives: u32,
}

/// A group with fewer messages in flight is not noisy.
const NOISY_MESSAGES: u64 = 30;

/// A group is not noisy if it has at most one in this many of the messages in flight.
const NOISY_SHARE: u64 = 10;

/// Named queues in one store.
///
/// Each call is atomic, and its changes are stored when the call returns. If a waiting call of
/// [`receive`](Self::receive) is dropped, no message is taken.
pub struct Queues {
    state: Mutex<QueuesState>,
    clock: Arc<dyn QueueClock>,
    faults: QueueFaults,
}

struct QueuesState {
    store: MessageStore,
    queues: HashMap<String, LocalQueue>,
    deliveries: u32,
}

struct LocalQueue {
    settings: QueueSettings,
    /// The message groups whose messages come behind all others.
    noisy: BTreeSet<String>,
    /// Wakes the waiting receives when a message is visible, or will be visible earlier than the receives expect.
    arrivals: Arc<Notify>,
    /// Signals each change that may have changed the number of visible, delayed or in-flight messages.
    changes: Arc<Notify>,
}

#[derive(Debug, Clone, Copy)]
pub struct Receive {
    pub max_messages: usize,
    pub visibility_timeout: Option<Duration>,
    /// The longest time that a receive waits for a first message.
    pub wait: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct QueueFaults {
    /// Every n-th received message stays visible, so that it is delivered again at once.
    pub duplicate_every: Option<NonZeroU32>,
}

impl Queues {
    pub fn memory(settings: impl IntoIterator<Item = QueueSettings>) -> Result<Self, SqsError> {
        Self::on(MessageStore::memory()?, settings)
    }

    /// Opens the queues in a file, or creates the file. Messages of earlier runs are kept.
    ///
    /// A file that is open cannot be opened again.
    pub fn open(path: &Path, settings: impl IntoIterator<Item = QueueSettings>) -> Result<Self, SqsError> {
        Self::on(MessageStore::open(path)?, settings)
    }

    /// Replaces the machine's clock. Call this function before a receive waits.
    pub fn with_clock(mut self, clock: Arc<dyn QueueClock>) -> Self {
        self.clock = clock;
        self
    }

    pub fn with_faults(mut self, faults: QueueFaults) -> Self {
        self.faults = faults;
        self
    }

    fn on(store: MessageStore, settings: impl IntoIterator<Item = QueueSettings>) -> Result<Self, SqsError> {
        let state = QueuesState { store, queues: HashMap::new(), deliveries: 0 };
        let this = Self { state: Mutex::new(state), clock: Arc::new(WallClock), faults: QueueFaults::default() };
        for each in settings {
            this.put(each)?;
        }
        Ok(this)
    }

    /// Creates a queue, or replaces the settings of an existing queue and keeps its messages.
    ///
    /// # Errors
    ///
    /// The dead-letter queue does not exist. Create the dead-letter queue first.
    pub fn put(&self, settings: QueueSettings) -> Result<(), SqsError> {
        let mut state = self.lock();
        if let Some(RedrivePolicy { dead_letters, .. }) = &settings.redrive
            && !state.queues.contains_key(dead_letters)
        {
            let reason = "Dead letter target does not exist.";
            return Err(SqsError::invalid_parameter("RedrivePolicy", dead_letters, reason));
        }
        match state.queues.get_mut(&settings.name) {
            Some(queue) => queue.settings = settings,
            None => {
                let name = settings.name.clone();
                let queue =
                    LocalQueue { settings, noisy: BTreeSet::new(), arrivals: Arc::default(), changes: Arc::default() };
                state.queues.insert(name, queue);
            }
        }
        Ok(())
    }

    pub(super) fn visibility_timeout(&self, queue: &str) -> Result<Duration, SqsError> {
        Ok(self.lock().queue(queue)?.settings.visibility_timeout)
    }

    pub fn send(&self, queue: &str, message: &NewMessage) -> Result<String, SqsError> {
        let now = self.clock.now();
        let state = self.lock();
        let found = state.queue(queue)?;
        let is_fifo = found.settings.is_fifo();
        message.check(is_fifo)?;
        let id = match is_fifo {
            true => state.store.insert_once(queue, message, now)?,
            false => state.store.insert(queue, message, now)?,
        };
        found.wake();
        Ok(id)
    }

    /// Receives visible messages. If no message is visible, waits for one; at the end of the wait, returns an empty
    /// list.
    ///
    /// A message that was received as often as the redrive policy allows moves to the dead-letter queue instead. As in
    /// SQS, this happens only during a receive.
    pub async fn receive(&self, queue: &str, receive: Receive) -> Result<Vec<QueuedMessage>, SqsError> {
        let arrivals = self.lock().queue(queue)?.arrivals.clone();
        let deadline = self.clock.now() + receive.wait;
        loop {
            // The wait is registered before the queue is read, so that a later arrival wakes this receive.
            let mut arrived = std::pin::pin!(arrivals.notified());
            arrived.as_mut().enable();
            let (messages, next_at) = self.take(queue, receive)?;
            if !messages.is_empty() || self.clock.now() >= deadline {
                return Ok(messages);
            }
            let wake_at = next_at.map_or(deadline, |next_at| next_at.min(deadline));
            tokio::select! {
                () = arrived => {}
                () = self.clock.reached(wake_at) => {}
            }
        }
    }

    /// Receives the visible messages. If no message is visible, also returns the time at which the next hidden message
    /// becomes visible.
    fn take(&self, name: &str, receive: Receive) -> Result<(Vec<QueuedMessage>, Option<Duration>), SqsError> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        state.find_noisy_groups(name, now)?;
        let queue = state.queue(name)?;
        let timeout = receive.visibility_timeout.unwrap_or(queue.settings.visibility_timeout);
        let transaction = state.store.begin()?;
        let mut messages = Vec::new();
        let mut deliveries = state.deliveries;
        let mut gave_up = false;
        let mut left_visible = false;
        loop {
            let visible = match queue.settings.is_fifo() {
                true => state.store.visible_in_order(name, now, receive.max_messages)?,
                false => state.store.visible(name, now, receive.max_messages, &queue.noisy)?,
            };
            if visible.is_empty() {
                break;
            }
            for it in visible {
                match &queue.settings.redrive {
                    Some(redrive) if it.receives_here >= redrive.max_receives => {
                        state.store.give_up(it.row, &redrive.dead_letters, now)?;
                        gave_up = true;
                    }
                    _ => {
                        deliveries = deliveries.wrapping_add(1);
                        let is_duplicated = self.faults.duplicate_every.is_some_and(|every| deliveries % every == 0);
                        let hidden_for = if is_duplicated { Duration::ZERO } else { timeout };
                        state.store.deliver(it.row, now + hidden_for)?;
                        left_visible |= hidden_for.is_zero();
                        messages.push(it.message);
                    }
                }
            }
            // A round that only moved dead letters is followed by another one. The loop ends, because each round leaves
            // fewer messages.
            if !messages.is_empty() {
                break;
            }
        }
        transaction.commit()?;
        let next_at = if messages.is_empty() { state.store.next_visible_at(name, now)? } else { None };
        if gave_up || !messages.is_empty() {
            queue.changes.notify_waiters();
        }
        if left_visible {
            queue.arrivals.notify_waiters();
        }
        if let Some(redrive) = queue.settings.redrive.as_ref().filter(|_| gave_up) {
            state.queue(&redrive.dead_letters)?.wake();
        }
        state.deliveries = deliveries;
        Ok((messages, next_at))
    }

    /// Deletes the message of a receipt handle.
    ///
    /// If the message is gone or was received again with another handle, the call succeeds and deletes nothing. SQS
    /// leaves the second case open. The latest handle deletes the message even after the visibility timeout.
    pub fn delete(&self, queue: &str, receipt_handle: &str) -> Result<(), SqsError> {
        let state = self.lock();
        let found = state.queue(queue)?;
        state.store.delete(queue, ReceiptHandle::parse(receipt_handle, queue)?)?;
        match found.settings.is_fifo() {
            // The next message of the group may have become visible.
            true => found.wake(),
            false => found.changes.notify_waiters(),
        }
        Ok(())
    }

    /// Hides a message for `timeout` from now. A zero timeout makes the message visible at once.
    ///
    /// A message that is already visible stays visible. As in SQS, an older handle works too, and changes the
    /// visibility for the consumer that has the message now.
    pub fn change_visibility(&self, queue: &str, receipt_handle: &str, timeout: Duration) -> Result<(), SqsError> {
        let now = self.clock.now();
        let state = self.lock();
        let found = state.queue(queue)?;
        let receipt = ReceiptHandle::parse(receipt_handle, queue)?;
        match state.store.visible_at(queue, receipt)? {
            Some(visible_at) if visible_at > now => {
                state.store.set_visible_at(receipt.row, now + timeout)?;
                found.wake();
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(SqsError::invalid_parameter(
                "ReceiptHandle",
                receipt_handle,
                "Message does not exist or is not available for visibility timeout change.",
            )),
        }
    }

    pub fn counts(&self, queue: &str) -> Result<Counts, SqsError> {
        let state = self.lock();
        state.queue(queue)?;
        Ok(state.store.counts(queue, self.clock.now())?)
    }

    pub async fn until(&self, queue: &str, wanted: impl Fn(&Counts) -> bool) -> Result<Counts, SqsError> {
        let changes = self.lock().queue(queue)?.changes.clone();
        loop {
            let mut changed = std::pin::pin!(changes.notified());
            changed.as_mut().enable();
            let counts = self.counts(queue)?;
            if wanted(&counts) {
                return Ok(counts);
            }
            let next_at = self.lock().store.next_visible_at(queue, self.clock.now())?;
            match next_at {
                None => changed.await,
                Some(next_at) => tokio::select! {
                    () = changed => {}
                    () = self.clock.reached(next_at) => {}
                },
            }
        }
    }

    /// Locks the state. Poisoning is ignored, because a panic under the lock leaves the state of the last commit.
    fn lock(&self) -> MutexGuard<'_, QueuesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueuesState {
    fn queue(&self, name: &str) -> Result<&LocalQueue, SqsError> {
        self.queues.get(name).ok_or_else(SqsError::no_such_queue)
    }

    /// Finds the noisy groups of a standard queue, as a [fair queue](https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues-detailed.html)
    /// does (read on 2026-11-29): those with more than a tenth of the messages in flight, and at least 30. A group stays
    /// noisy until a receive finds none of its messages visible. Unlike SQS, the stand-in measures no processing times,
    /// and prefers no noisy group to another.
    fn find_noisy_groups(&mut self, name: &str, now: Duration) -> Result<(), SqsError> {
        let queue = self.queues.get_mut(name).ok_or_else(SqsError::no_such_queue)?;
        if queue.settings.is_fifo() {
            return Ok(());
        }
        let counts = self.store.in_flight_by_group(name, now)?;
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        let is_noisy = |count: u64| count >= NOISY_MESSAGES && count * NOISY_SHARE > total;
        let found = counts.into_iter().filter(|(_, count)| is_noisy(*count)).filter_map(|(group, _)| group);
        let mut noisy = BTreeSet::new();
        for group in std::mem::take(&mut queue.noisy).into_iter().chain(found) {
            if self.store.has_visible_of(name, now, &group)? {
                noisy.insert(group);
            }
        }
        queue.noisy = noisy;
        Ok(())
    }
}

impl LocalQueue {
    fn wake(&self) {
        self.arrivals.notify_waiters();
        self.changes.notify_waiters();
    }
}

impl Debug for Queues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("faults", &self.faults).finish_non_exhaustive()
    }
}
