//! Appends deliveries to inboxes.
//!
//! An append claims a sequence. It then stores the delivery under that sequence and sends a
//! wake-up, both concurrently.

use std::time::Duration;

use futures_util::future::try_join_all;

use crate::{
    engine::{
        deferred::{Deferred, LARGEST_MESSAGE},
        queue::{Message, QueueError, WakeUp},
        store::{Store, StoreError},
        wake::Waker,
    },
    protocol::{
        delivery::{Envelope, Incoming, LARGEST_BODY, StoredBody},
        entity::{EntityKey, FencingToken, Sequence},
        inbox::{Claim, Put, PutOutcome, owes_wake_up},
        keys::WatchReason,
        maintain::Watch,
        receipt::Recent,
        state::EntityState,
    },
    sources::{CopyOrder, OnOutage, SubscriberCopy, deliver::Linger},
    telemetry::{Event, LogMessage, Observer, RequeueReason},
    time::Timestamp,
    traces,
};

/// The time after which an append stops trying to store its delivery.
///
/// A worker waits longer than this before it writes a tombstone for a claimed sequence that holds
/// no delivery.
pub const DEADLINE: Duration = Duration::from_millis(2200);

/// The least time allowed for sending a wake-up, even if the append's deadline has passed.
const SHORTEST_WAKE_UP: Duration = Duration::from_millis(250);

pub(crate) const ANSWERED: Duration = DEADLINE.saturating_add(SHORTEST_WAKE_UP);

/// The part of an append's time that is reserved, after a quick claim, for noting a wake-up that could not be sent. It
/// comes to [`SHORTEST_WAKE_UP`].
const NOTING_OWED: Duration = Duration::from_millis(150);

/// The part of an append's time that is reserved for deferring the delivery to the queue.
///
/// This is enough for a request to the queue that times out, and for a second request.
const DEFERRING: Duration = Duration::from_millis(1000);

const PARTS_AT_ONCE: usize = 6;

const MOST_CLAIMS: u32 = 3;

/// Appends deliveries to the inboxes of their entities.
#[derive(Clone)]
pub struct Inbox {
    store: Store,
    waker: Waker,
    retention: Duration,
    observer: std::sync::Arc<dyn Observer>,
}

/// A delivery that is stored in its inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    pub sequence: Sequence,
    /// The reason why the delivery's wake-up could not be sent, if sending failed. A later tick of the sweep then
    /// sends it.
    pub wake_up_failed: Option<QueueError>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    Appended(Appended),
    /// The delivery waits in the queue for a worker to append it. The failed append may also have
    /// stored it in its inbox.
    Deferred,
}

/// The reason why an append failed.
///
/// The delivery may nevertheless have been stored. The caller may append it again, since a repeat
/// is settled without running the handler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The store could not be reached in time or refused the delivery, or a row is unreadable.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Several consecutive claims became tombstones, because this process was too slow to store the
    /// delivery.
    #[error("workers filled {MOST_CLAIMS} claimed sequences with tombstones before the delivery was written")]
    Overtaken,
    /// The body is larger than 6 MiB. Nothing was written.
    #[error("the body has {0} bytes; at most {LARGEST_BODY} are accepted")]
    TooLarge(usize),
    /// The entity is a job: the namespace `cron` takes no deliveries. Nothing was written.
    #[error("`cron/…` is a job, which takes no deliveries")]
    IsAJob,
}

#[derive(Debug, Clone, Copy)]
enum AppendOrigin<'a> {
    /// A new delivery, with the reason why it belongs to no entity, if it belongs to none.
    New(Option<&'a str>),
    /// A redriven delivery. `Some` if the delivery was rewound before it was parked: the token that
    /// its handler gets again as [`Delivery::run_before`](crate::Delivery::run_before).
    Redriven(Option<FencingToken>),
    /// A delivery that was deferred, with the same reason.
    Deferred(Option<&'a str>),
    /// A subscriber's copy, with the same reason.
    Copied(Option<&'a str>, CopyOrder),
}

/// The state of an append across its claims. If a claim's sequence became a tombstone, the append
/// claims another sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Appending {
    /// The number of claimed sequences that became tombstones.
    pub places: u32,
    /// Set if the next claim must send a wake-up, whatever its row shows.
    pub owed: bool,
}

impl Appending {
    /// Returns the wake-up that the claim must send, if any.
    ///
    /// `state` is the entity's row after the claim. If `doubtful` is set, an earlier request for
    /// the same claim may have landed. Other claims may then rely on this claim's wake-up, so the
    /// claim must send it.
    pub fn claimed(&mut self, state: &EntityState, doubtful: bool, now: Timestamp) -> Option<WakeUp> {
        self.owed |= doubtful || owes_wake_up(state, now);
        self.owed.then(|| WakeUp::under(&state.entity, state.token))
    }

    /// Returns the delay of a claim's wake-up: the source's linger, or zero.
    ///
    /// `state` is the entity's row after the claim. The delay is zero if the delivery in front has
    /// attempts, or if enough deliveries wait for a full group.
    pub fn delay(linger: Option<Linger>, state: &EntityState) -> Duration {
        let most = |linger: Linger| match state.is_one_by_one() {
            true => 1,
            false => linger.most.min(Recent::capacity(&state.entity) as u64),
        };
        match linger {
            Some(linger) if state.waiting() < most(linger) && state.attempts == 0 => linger.wait,
            _ => Duration::ZERO,
        }
    }

    /// Records that the claimed sequence became a tombstone. Returns whether to claim another
    /// sequence.
    ///
    /// The next claim must send a wake-up, because the drain that wrote the tombstone may have
    /// ended.
    pub fn overtaken(&mut self) -> bool {
        self.places += 1;
        self.owed = true;
        self.places < MOST_CLAIMS
    }
}

impl Inbox {
    #[doc(hidden)]
    pub fn new(store: Store, waker: Waker, retention: Duration, observer: std::sync::Arc<dyn Observer>) -> Self {
        Self { store, waker, retention, observer }
    }

    /// Appends `incoming` to its entity's inbox.
    ///
    /// On success the delivery is durable, and a worker will settle it.
    pub async fn append(&self, incoming: &Incoming) -> Result<Appended, AppendError> {
        self.append_within(incoming, None, ANSWERED).await
    }

    /// Appends `incoming`, and fails after `time` at the latest.
    ///
    /// `linger` delays the wake-up, so that one handler start gets more deliveries.
    pub async fn append_within(
        &self,
        incoming: &Incoming,
        linger: Option<Linger>,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        self.append_new(incoming, None, linger, time).await
    }

    async fn append_new(
        &self,
        incoming: &Incoming,
        unrouted: Option<&str>,
        linger: Option<Linger>,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        if incoming.body.len() > LARGEST_BODY {
            return Err(AppendError::TooLarge(incoming.body.len()));
        }
        self.append_as(incoming, StoredBody::new(&incoming.body), AppendOrigin::New(unrouted), linger, time).await
    }

    pub(crate) async fn append_redriven(
        &self,
        incoming: &Incoming,
        run_before: Option<FencingToken>,
    ) -> Result<Appended, AppendError> {
        self.append_as(incoming, StoredBody::new(&incoming.body), AppendOrigin::Redriven(run_before), None, ANSWERED)
            .await
    }

    /// Appends `incoming`. If that fails and `on_outage` allows it, defers the delivery to the
    /// queue. Takes at most `time`.
    ///
    /// `unrouted` is the reason why the delivery belongs to no entity, if it belongs to none.
    ///
    /// # Errors
    ///
    /// Returns the append's error unless the delivery was deferred.
    pub async fn accept(
        &self,
        incoming: &Incoming,
        unrouted: Option<&str>,
        linger: Option<Linger>,
        on_outage: OnOutage,
        time: Duration,
    ) -> Result<Accepted, AppendError> {
        // A body of at most half a message's length always fits, even uncompressed.
        let deferred = || Deferred::of(incoming, unrouted, traces::current());
        let fits = || incoming.body.len() <= LARGEST_MESSAGE / 2 || deferred().is_some();
        if on_outage == OnOutage::Refuse || !fits() {
            return self.append_new(incoming, unrouted, linger, time).await.map(Accepted::Appended);
        }
        let env = self.store.env();
        let give_up = env.monotonic() + time;
        let error = match self.append_new(incoming, unrouted, linger, time.saturating_sub(DEFERRING)).await {
            Ok(appended) => return Ok(Accepted::Appended(appended)),
            Err(error @ (AppendError::TooLarge(_) | AppendError::IsAJob)) => return Err(error),
            Err(error) => error,
        };
        let Some(deferred) = deferred() else { return Err(error) };
        let left = give_up.saturating_sub(env.monotonic());
        match self.waker.post(&Message::Deferred(Box::new(deferred)), Duration::ZERO, left).await {
            Ok(()) => {
                self.observer.observe(&Event::Deferred { incoming, reason: &error.to_string() });
                Ok(Accepted::Deferred)
            }
            Err(_) => Err(error),
        }
    }

    /// Appends a deferred delivery. The body is stored as ingest encoded it, so a worker needs no
    /// compressor.
    pub(crate) async fn append_deferred(
        &self,
        incoming: &Incoming,
        unrouted: Option<&str>,
        stored: StoredBody,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        self.append_as(incoming, stored, AppendOrigin::Deferred(unrouted), None, time).await
    }

    /// Appends a subscriber's copy of a delivery. The body is stored as the original is, so a worker needs no compressor.
    ///
    /// After an error, append the copy again: if the first one landed, the second is a repeat.
    pub(crate) async fn append_copy(&self, copy: &SubscriberCopy, time: Duration) -> Result<Appended, AppendError> {
        let origin = AppendOrigin::Copied(copy.unrouted.as_deref(), copy.order);
        self.append_as(&copy.incoming, copy.stored.clone(), origin, copy.linger, time).await
    }

    pub(crate) async fn defer_again(
        &self,
        deferred: &Deferred,
        pause: Duration,
        patience: Duration,
    ) -> Result<(), QueueError> {
        let delay = self.store.env().jittered(pause);
        let again = Message::Deferred(Box::new(deferred.clone()));
        let sent = self.waker.post(&again, delay, patience).await;
        let entity = deferred.entity();
        self.observer.observe(&match sent {
            Ok(()) => Event::Requeued { entity, delay, reason: RequeueReason::StoreOut },
            Err(_) => Event::WakeUpFailed { entity },
        });
        sent
    }

    async fn append_as(
        &self,
        incoming: &Incoming,
        stored: StoredBody,
        origin: AppendOrigin<'_>,
        linger: Option<Linger>,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        if incoming.entity.is_kept_forever() {
            return Err(AppendError::IsAJob);
        }
        let env = self.store.env();
        let answer_by = env.monotonic() + time.min(ANSWERED);
        let give_up = answer_by.saturating_sub(SHORTEST_WAKE_UP);
        let patience = || give_up.saturating_sub(env.monotonic());
        let nonce = env.nonce();
        let envelope = Envelope::with_body(incoming, stored, &nonce, env.now() + self.retention);
        let envelope = envelope.traced(traces::current());
        let envelope = match origin {
            AppendOrigin::New(unrouted) => envelope.unrouted(unrouted),
            AppendOrigin::Redriven(run_before) => envelope.run_before(run_before),
            AppendOrigin::Copied(unrouted, CopyOrder::AsArrived) => envelope.unrouted(unrouted),
            AppendOrigin::Deferred(unrouted) | AppendOrigin::Copied(unrouted, CopyOrder::Late) => {
                envelope.unrouted(unrouted).deferred_until(env.now())
            }
        };
        for some in envelope.parts().chunks(PARTS_AT_ONCE) {
            try_join_all(some.iter().map(|part| self.store.run(part, patience()))).await?;
        }
        let mut appending = Appending::default();
        loop {
            // Each claim has its own nonce. The nonce above names the delivery and its parts.
            let nonce = env.nonce();
            let claim = Claim { entity: &incoming.entity, nonce: &nonce, now: env.now() };
            let claimed = self.store.run_noting_doubt(&claim, patience()).await?;
            let place = claimed.outcome;
            let wake_up = appending.claimed(&place.state, claimed.doubtful, env.now());
            let delay = Appending::delay(linger, &place.state);
            let put = Put { envelope: &envelope, sequence: place.sequence };
            let waking = patience().saturating_sub(NOTING_OWED);
            let (stored, woken) = tokio::join!(self.store.run(&put, patience()), self.wake(wake_up, delay, waking));
            match stored? {
                PutOutcome::Stored => {
                    if let Err(error) = &woken {
                        tracing::warn!(%error, entity = %incoming.entity, "{}", LogMessage::WakeUpOwed.as_str());
                        self.watch_owed(&incoming.entity, answer_by.saturating_sub(env.monotonic())).await;
                    }
                    let appended = Appended { sequence: place.sequence, wake_up_failed: woken.err() };
                    let is_wake_up_lost = appended.wake_up_failed.is_some();
                    let sequence = place.sequence;
                    self.observer.observe(&match origin {
                        AppendOrigin::New(_) | AppendOrigin::Redriven(_) | AppendOrigin::Copied(..) => {
                            Event::Accepted { incoming, sequence, is_wake_up_lost }
                        }
                        AppendOrigin::Deferred(_) => {
                            let after = env.now().since(incoming.received_at);
                            Event::TakenUp { incoming, sequence, after, is_wake_up_lost }
                        }
                    });
                    return Ok(appended);
                }
                PutOutcome::Voided if appending.overtaken() => {}
                PutOutcome::Voided => return Err(AppendError::Overtaken),
            }
        }
    }

    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// Returns the newest event time among the deliveries of the topic family `family` that were
    /// applied to `entity`. `None` if the entity's row has no such time.
    pub async fn newest_event_time(&self, entity: &EntityKey, family: &str) -> Result<Option<Timestamp>, StoreError> {
        let state = self.store.entity(entity, DEADLINE).await?;
        Ok(state.and_then(|state| state.newest_event_time.of(family)))
    }

    /// Lets the next tick of the sweep send a wake-up that could not be sent. If that fails, too, only a
    /// pass of the sweep is sure to find the entity.
    async fn watch_owed(&self, entity: &EntityKey, patience: Duration) {
        let env = self.store.env();
        let purge_at = env.now() + self.retention;
        let owed = Watch { reason: WatchReason::Owed, entity, nonce: &env.nonce(), purge_at };
        if let Err(error) = self.store.run(&owed, patience).await {
            tracing::warn!(%error, %entity, "an owed wake-up could not be noted");
        }
    }

    async fn wake(&self, wake_up: Option<WakeUp>, delay: Duration, patience: Duration) -> Result<(), QueueError> {
        match wake_up {
            Some(wake_up) => self.waker.send(&wake_up, delay, patience.max(SHORTEST_WAKE_UP)).await,
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for Inbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}
