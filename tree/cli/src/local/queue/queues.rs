//! SQS's rules for standard queues: what a send, a receive and a receipt handle mean, and when a waiting receive wakes.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug, Formatter};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::{Clock, WallClock};
use super::error::{Code, QueueError};
use super::limits;
use super::message::{Message, NewMessage, Receipt, Sent, md5_of, md5_of_attributes};
use super::settings::{QueueSettings, Redrive, invalid_redrive};
use super::store::{SavedQueue, Store};

pub use super::store::Counts;

/// Named queues in one store.
///
/// Every call is one step under one lock: it has happened, and is stored, when it returns. Dropping a waiting receive
/// takes nothing.
pub struct Queues {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    faults: Faults,
}

struct State {
    store: Store,
    queues: HashMap<String, Queue>,
    deliveries: u32,
}

struct Queue {
    settings: QueueSettings,
    created_at: Duration,
    modified_at: Duration,
    purged_at: Option<Duration>,
    /// Something may have become visible, or visible sooner: for waiting receives.
    arrivals: Arc<Notify>,
    /// Any count may have changed: for who watches them.
    changes: Arc<Notify>,
}

/// How to receive.
#[derive(Debug, Clone, Copy)]
pub struct Receive {
    /// The most messages to return, 1 to 10.
    pub max_messages: usize,
    /// How long they stay hidden; the queue's own visibility timeout where absent.
    pub visibility_timeout: Option<Duration>,
    /// How long to wait for the first; the queue's own wait where absent.
    pub wait: Option<Duration>,
}

/// What SQS may do and seldom does, to be had on purpose.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// Every so many deliveries the message stays visible, so that it is delivered again at once.
    pub duplicate_every: Option<NonZeroU32>,
}

/// A queue as `GetQueueAttributes` describes it.
#[derive(Debug, Clone)]
pub(super) struct Description {
    pub(super) settings: QueueSettings,
    pub(super) created_at: Duration,
    pub(super) modified_at: Duration,
}

impl Queues {
    /// Queues that end with the process.
    pub fn memory(settings: impl IntoIterator<Item = QueueSettings>) -> Result<Self, QueueError> {
        Self::on(Store::memory()?, settings)
    }

    /// Queues in a file, which is created or goes on from where it was. For queues it already holds, the settings given
    /// here replace theirs; queues not named here stay.
    ///
    /// A second opener is refused for as long as the first lives.
    pub fn open(path: &Path, settings: impl IntoIterator<Item = QueueSettings>) -> Result<Self, QueueError> {
        Self::on(Store::open(path)?, settings)
    }

    /// Takes the time from this clock instead of the machine's. To be called before anything waits.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Misbehaves as SQS may.
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    fn on(store: Store, settings: impl IntoIterator<Item = QueueSettings>) -> Result<Self, QueueError> {
        let mut queues = HashMap::new();
        for saved in store.queues()? {
            let attributes: BTreeMap<String, String> = serde_json::from_str(&saved.attributes).map_err(|error| {
                QueueError::new(Code::InternalFailure, format!("attributes of {}: {error}", saved.name))
            })?;
            let mut settings = QueueSettings::named(&saved.name);
            settings.set(&attributes)?;
            queues.insert(saved.name, Queue::new(settings, saved.created_at, saved.modified_at));
        }
        let this = Self {
            state: Mutex::new(State { store, queues, deliveries: 0 }),
            clock: Arc::new(WallClock),
            faults: Faults::default(),
        };
        // In whichever order they are named: a dead-letter queue may follow the queue that uses it.
        let settings: Vec<_> = settings.into_iter().collect();
        for each in &settings {
            this.put(QueueSettings { redrive: None, ..each.clone() })?;
        }
        for each in settings {
            this.put(each)?;
        }
        Ok(this)
    }

    /// Creates the queue or replaces its settings; the messages stay.
    pub fn put(&self, settings: QueueSettings) -> Result<(), QueueError> {
        settings.check()?;
        let now = self.clock.now();
        let mut state = self.lock();
        if let Some(Redrive { dead_letters, .. }) = &settings.redrive
            && !state.queues.contains_key(dead_letters)
        {
            return Err(invalid_redrive(dead_letters, "Dead letter target does not exist."));
        }
        let created_at = state.queues.get(&settings.name).map_or(now, |queue| queue.created_at);
        state.store.save_queue(&SavedQueue {
            name: settings.name.clone(),
            attributes: serde_json::to_string(&settings.attributes()).expect("texts have a JSON form"),
            created_at,
            modified_at: now,
        })?;
        match state.queues.get_mut(&settings.name) {
            Some(queue) => (queue.settings, queue.modified_at) = (settings, now),
            None => {
                let name = settings.name.clone();
                state.queues.insert(name, Queue::new(settings, created_at, now));
            }
        }
        Ok(())
    }

    /// The queues' names, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.lock().queues.keys().cloned().collect();
        names.sort();
        names
    }

    pub(super) fn describe(&self, queue: &str) -> Result<Description, QueueError> {
        let state = self.lock();
        let Queue { settings, created_at, modified_at, .. } = state.queue(queue)?;
        Ok(Description { settings: settings.clone(), created_at: *created_at, modified_at: *modified_at })
    }

    /// Sends one message.
    pub fn send(&self, queue: &str, message: NewMessage) -> Result<Sent, QueueError> {
        self.send_all(queue, [message])?.remove(0)
    }

    /// Sends messages, each for itself: one may be refused and the next taken.
    pub fn send_all(
        &self,
        queue: &str,
        messages: impl IntoIterator<Item = NewMessage>,
    ) -> Result<Vec<Result<Sent, QueueError>>, QueueError> {
        let now = self.clock.now();
        let state = self.lock();
        let Queue { settings, arrivals, changes, .. } = state.queue(queue)?;
        let transaction = state.store.begin()?;
        let mut outcomes = Vec::new();
        for message in messages {
            if let Err(refusal) = message.check(settings) {
                outcomes.push(Err(refusal));
                continue;
            }
            let visible_at = now + message.delay.unwrap_or(settings.delay);
            outcomes.push(Ok(Sent {
                message_id: state.store.insert(queue, &message, now, visible_at)?,
                md5_of_body: md5_of(&message.body),
                md5_of_attributes: md5_of_attributes(&message.attributes),
            }));
        }
        transaction.commit()?;
        arrivals.notify_waiters();
        changes.notify_waiters();
        Ok(outcomes)
    }

    /// Receives what is visible, or waits for it. Empty once the wait is over.
    ///
    /// A message that was received as often as the redrive policy allows moves to the dead-letter queue instead. As in
    /// SQS that happens when it would be received again, so not while nobody receives.
    pub async fn receive(&self, queue: &str, receive: Receive) -> Result<Vec<Message>, QueueError> {
        limits::check_receive_count(receive.max_messages as i64)?;
        receive.visibility_timeout.map_or(Ok(()), |timeout| limits::VISIBILITY.check(timeout))?;
        let (arrivals, wait) = {
            let state = self.lock();
            let queue = state.queue(queue)?;
            (queue.arrivals.clone(), receive.wait.unwrap_or(queue.settings.wait))
        };
        limits::WAIT.check(wait)?;
        let deadline = self.clock.now() + wait;
        loop {
            // Before the look: what arrives after it wakes this.
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

    /// One look at the queue: the messages, and if there are none the time when the next one becomes visible.
    fn take(&self, name: &str, receive: Receive) -> Result<(Vec<Message>, Option<Duration>), QueueError> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        let queue = state.queue(name)?;
        let timeout = receive.visibility_timeout.unwrap_or(queue.settings.visibility_timeout);
        let transaction = state.store.begin()?;
        state.store.drop_expired(name, now.saturating_sub(queue.settings.retention))?;
        let (mut messages, mut deliveries) = (Vec::new(), state.deliveries);
        let (mut gave_up, mut left_visible) = (false, false);
        loop {
            let visible = state.store.visible(name, now, receive.max_messages)?;
            if visible.is_empty() {
                break;
            }
            for it in visible {
                match &queue.settings.redrive {
                    Some(redrive) if it.receives_here >= redrive.max_receives => {
                        state.store.give_up(it.row, &redrive.dead_letters, &queue.settings.arn(), now)?;
                        gave_up = true;
                    }
                    _ => {
                        deliveries = deliveries.wrapping_add(1);
                        let twice = self.faults.duplicate_every.is_some_and(|every| deliveries % every == 0);
                        let hidden_for = if twice { Duration::ZERO } else { timeout };
                        state.store.deliver(it.row, now, now + hidden_for)?;
                        left_visible |= hidden_for.is_zero();
                        messages.push(it.message);
                    }
                }
            }
            // A look that only gave up messages is no answer yet; each one leaves fewer.
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
        if let Some(dead_letters) = queue.settings.redrive.as_ref().filter(|_| gave_up).map(|it| &it.dead_letters) {
            state.queue(dead_letters)?.arrived();
        }
        state.deliveries = deliveries;
        Ok((messages, next_at))
    }

    /// Deletes the message of this receipt handle.
    ///
    /// Succeeds without deleting if the message is gone, or was received again since. SQS leaves the second case open
    /// ("the message might not be deleted"), so a consumer must not count on it. The latest handle deletes even after
    /// the visibility timeout.
    pub fn delete(&self, queue: &str, receipt_handle: &str) -> Result<(), QueueError> {
        let receipt = Receipt::parse(receipt_handle, queue);
        let state = self.lock();
        let Queue { changes, .. } = state.queue(queue)?;
        state.store.delete(queue, receipt?)?;
        changes.notify_waiters();
        Ok(())
    }

    /// Hides the message for so long from now, or shows it at once.
    ///
    /// Nothing happens if it is visible again already. An older handle works too, as in SQS: it changes the visibility
    /// of the message under the consumer that has it now.
    pub fn change_visibility(&self, queue: &str, receipt_handle: &str, timeout: Duration) -> Result<(), QueueError> {
        limits::VISIBILITY.check(timeout)?;
        let receipt = Receipt::parse(receipt_handle, queue);
        let now = self.clock.now();
        let state = self.lock();
        let found = state.queue(queue)?;
        let receipt = receipt?;
        match state.store.visible_at(queue, receipt)? {
            Some(visible_at) if visible_at > now => {
                state.store.set_visible_at(receipt.row, now + timeout)?;
                found.arrived();
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(QueueError::invalid_parameter(
                "ReceiptHandle",
                receipt_handle,
                "Message does not exist or is not available for visibility timeout change.",
            )),
        }
    }

    /// Deletes all messages, in flight and delayed ones too. Once a minute, as in SQS.
    pub fn purge(&self, queue: &str) -> Result<(), QueueError> {
        let now = self.clock.now();
        let mut guard = self.lock();
        let State { store, queues, .. } = &mut *guard;
        let found = queues.get_mut(queue).ok_or_else(QueueError::no_such_queue)?;
        if found.purged_at.is_some_and(|purged_at| now < purged_at + limits::PURGE_INTERVAL) {
            let message = format!("Only one PurgeQueue operation on {queue} is allowed every 60 seconds.");
            return Err(QueueError::new(Code::PurgeQueueInProgress, message));
        }
        store.purge(queue)?;
        found.purged_at = Some(now);
        found.changes.notify_waiters();
        Ok(())
    }

    /// How many messages are in which state now.
    pub fn counts(&self, queue: &str) -> Result<Counts, QueueError> {
        let now = self.clock.now();
        let state = self.lock();
        let Queue { settings, .. } = state.queue(queue)?;
        state.store.drop_expired(queue, now.saturating_sub(settings.retention))?;
        Ok(state.store.counts(queue, now)?)
    }

    /// Completes when the counts are as wanted, with the counts that were: looks after each change, and whenever a
    /// hidden message becomes visible.
    pub async fn until(&self, queue: &str, wanted: impl Fn(&Counts) -> bool) -> Result<Counts, QueueError> {
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

    /// A panic under the lock leaves the state as the last commit left it, so it is not passed on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn queue(&self, name: &str) -> Result<&Queue, QueueError> {
        self.queues.get(name).ok_or_else(QueueError::no_such_queue)
    }
}

impl Queue {
    fn new(settings: QueueSettings, created_at: Duration, modified_at: Duration) -> Self {
        Self { settings, created_at, modified_at, purged_at: None, arrivals: Arc::default(), changes: Arc::default() }
    }

    fn arrived(&self) {
        self.arrivals.notify_waiters();
        self.changes.notify_waiters();
    }
}

impl Debug for Queues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").field("names", &self.names()).field("faults", &self.faults).finish_non_exhaustive()
    }
}
