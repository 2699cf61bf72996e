//! Appending to an inbox: claim, then put beside wake-up, then say so.
//!
//! The one path by which a delivery gets into an inbox: a webhook's, one that
//! an operator puts back, one that an application appends itself.

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
        receipt::Recent,
        state::EntityState,
    },
    sources::{OnOutage, deliver::Linger},
    telemetry::{Event, Observer, RequeueReason},
    time::Timestamp,
    traces,
};

/// The longest that an append may take from its claim to its put. A worker that
/// finds a claimed place empty waits longer than this before it gives it up.
pub const DEADLINE: Duration = Duration::from_millis(2200);

/// How long a wake-up is tried for at least, should the claim have used up the
/// time: the sender's answer must not be long in coming.
const SHORTEST_WAKE_UP: Duration = Duration::from_millis(250);

/// The longest that an append may take in all, its wake-up included.
pub(crate) const ANSWERED: Duration = DEADLINE.saturating_add(SHORTEST_WAKE_UP);

/// Time kept free for the queue, where what the store does not take is deferred:
/// for one try that is not answered, and another.
const DEFERRING: Duration = Duration::from_millis(1000);

/// How many parts of a large body are written side by side.
const PARTS_AT_ONCE: usize = 6;

/// How many claimed places in a row may turn out voided.
const PLACES: u32 = 3;

/// Inboxes, for whoever puts deliveries in.
#[derive(Clone)]
pub struct Inbox {
    store: Store,
    waker: Waker,
    retention: Duration,
    observer: std::sync::Arc<dyn Observer>,
}

/// A delivery that is durable in its inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Its place.
    pub sequence: Sequence,
    /// Why no wake-up could be sent, where one was owed. The delivery is safe
    /// all the same: the sweep finds it.
    pub wake_up_failed: Option<QueueError>,
}

/// What became of a delivery that is safe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// It is durable in its inbox.
    Appended(Appended),
    /// The store did not take it, and it may be there all the same. It waits in the
    /// queue: a worker appends it when the store is back.
    Deferred,
}

/// Why a delivery was not appended. It may be there all the same; appended
/// again it is recognised as the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The store could not be reached in time, or will not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// This instance was so slow that its places were given up, several times.
    #[error("{PLACES} claimed places were given up before they could be filled")]
    Overtaken,
    /// Its body is larger than 6 MiB, and might not be readable again.
    /// Nothing was written.
    #[error("a body of {0} bytes: at most {LARGEST_BODY} are taken")]
    TooLarge(usize),
    /// Its entity is a job: the namespace `cron` takes no deliveries. Nothing
    /// was written.
    #[error("`cron/…` is a job, which takes no deliveries")]
    IsAJob,
}

/// How a delivery comes to be appended.
#[derive(Debug, Clone, Copy)]
enum Coming {
    /// Just now.
    Now,
    /// Once more, after it was parked; it may have been applied before under this
    /// token.
    Again(Option<FencingToken>),
    /// From the queue, where it waited for the store.
    Deferred,
}

/// What an append has found out so far, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Appending {
    /// How many places turned out given up.
    pub places: u32,
    /// Whether somebody has to be woken for the next place.
    pub owed: bool,
}

impl Appending {
    /// A place was claimed, on a row that is `state` now; `doubtful`: by a try
    /// whose reply was lost, perhaps, so that others may have come since. The
    /// wake-up to send beside the put, where one is owed.
    pub fn claimed(&mut self, state: &EntityState, doubtful: bool, now: Timestamp) -> Option<WakeUp> {
        self.owed |= doubtful || owes_wake_up(state, now);
        self.owed.then(|| WakeUp::under(&state.entity, state.token))
    }

    /// Returns the delay of the wake-up for a place that was claimed on this row:
    /// the source's linger, unless a group is full or an attempt failed. A group is
    /// full with as many deliveries as the next drain would start at once.
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

    /// The place was given up before it was filled: whoever did that may be gone,
    /// and nobody else looks. Whether to claim another.
    pub fn overtaken(&mut self) -> bool {
        self.places += 1;
        self.owed = true;
        self.places < PLACES
    }
}

impl Inbox {
    /// Inboxes in `store`, whose rows are kept for `retention`.
    #[doc(hidden)]
    pub fn new(store: Store, waker: Waker, retention: Duration, observer: std::sync::Arc<dyn Observer>) -> Self {
        Self { store, waker, retention, observer }
    }

    /// Appends `incoming` to its entity's inbox. Afterwards it is durable, and
    /// somebody is sure to look at it.
    pub async fn append(&self, incoming: &Incoming) -> Result<Appended, AppendError> {
        self.append_within(incoming, None, ANSWERED).await
    }

    /// As [`Inbox::append`], for who must answer within `time`. `linger`: its source
    /// waits for more before a worker is woken.
    pub async fn append_within(
        &self,
        incoming: &Incoming,
        linger: Option<Linger>,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        if incoming.body.len() > LARGEST_BODY {
            return Err(AppendError::TooLarge(incoming.body.len()));
        }
        self.append_as(incoming, StoredBody::new(&incoming.body), Coming::Now, linger, time).await
    }

    /// Appends what was parked once more. `run_before`: it was applied before, under
    /// this token, and parked when a person had it run again.
    pub(crate) async fn append_again(
        &self,
        incoming: &Incoming,
        run_before: Option<FencingToken>,
    ) -> Result<Appended, AppendError> {
        self.append_as(incoming, StoredBody::new(&incoming.body), Coming::Again(run_before), None, ANSWERED).await
    }

    /// As [`Inbox::append_within`]; what the store does not take is deferred, where
    /// `on_outage` says so and the queue takes it.
    ///
    /// # Errors
    ///
    /// It is in neither, as far as is known: why the store did not take it.
    pub async fn accept(
        &self,
        incoming: &Incoming,
        linger: Option<Linger>,
        on_outage: OnOutage,
        time: Duration,
    ) -> Result<Accepted, AppendError> {
        // What is half as long as a message fits whatever it holds.
        let fits = || incoming.body.len() <= LARGEST_MESSAGE / 2 || Deferred::of(incoming, traces::current()).is_some();
        if on_outage == OnOutage::Refuse || !fits() {
            return self.append_within(incoming, linger, time).await.map(Accepted::Appended);
        }
        let env = self.store.env();
        let give_up = env.monotonic() + time;
        let error = match self.append_within(incoming, linger, time.saturating_sub(DEFERRING)).await {
            Ok(appended) => return Ok(Accepted::Appended(appended)),
            Err(error @ (AppendError::TooLarge(_) | AppendError::IsAJob)) => return Err(error),
            Err(error) => error,
        };
        let Some(deferred) = Deferred::of(incoming, traces::current()) else { return Err(error) };
        let left = give_up.saturating_sub(env.monotonic());
        match self.waker.post(&Message::Deferred(Box::new(deferred)), Duration::ZERO, left).await {
            Ok(()) => {
                self.observer.observe(&Event::Deferred { incoming, reason: &error.to_string() });
                Ok(Accepted::Deferred)
            }
            Err(_) => Err(error),
        }
    }

    /// Appends what was deferred, within `time`: as the repeat that it may be. Its body
    /// is stored as it was deferred, so that a worker needs nothing to compress with.
    pub(crate) async fn take_up(
        &self,
        incoming: &Incoming,
        stored: StoredBody,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        self.append_as(incoming, stored, Coming::Deferred, None, time).await
    }

    /// Defers once more what the store does not take yet, for about `pause`.
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
        coming: Coming,
        linger: Option<Linger>,
        time: Duration,
    ) -> Result<Appended, AppendError> {
        if incoming.entity.is_kept_forever() {
            return Err(AppendError::IsAJob);
        }
        let env = self.store.env();
        let give_up = env.monotonic() + time.saturating_sub(SHORTEST_WAKE_UP).min(DEADLINE);
        let patience = || give_up.saturating_sub(env.monotonic());
        let nonce = env.nonce();
        let envelope = Envelope::with_body(incoming, stored, &nonce, env.now() + self.retention);
        let envelope = envelope.traced(traces::current());
        let envelope = match coming {
            Coming::Now => envelope,
            Coming::Again(run_before) => envelope.run_before(run_before),
            Coming::Deferred => envelope.deferred_until(env.now()),
        };
        for some in envelope.parts().chunks(PARTS_AT_ONCE) {
            try_join_all(some.iter().map(|part| self.store.run(part, patience()))).await?;
        }
        let mut appending = Appending::default();
        loop {
            // The parts, if any, stand under the first nonce; a claim has its own.
            let nonce = env.nonce();
            let claim = Claim { entity: &incoming.entity, nonce: &nonce, now: env.now() };
            let claimed = self.store.run_noting_doubt(&claim, patience()).await?;
            let place = claimed.outcome;
            let wake_up = appending.claimed(&place.state, claimed.doubtful, env.now());
            let delay = Appending::delay(linger, &place.state);
            let put = Put { envelope: &envelope, sequence: place.sequence };
            let (stored, woken) = tokio::join!(self.store.run(&put, patience()), self.wake(wake_up, delay, patience()));
            match stored? {
                PutOutcome::Stored => {
                    let appended = Appended { sequence: place.sequence, wake_up_failed: woken.err() };
                    let is_wake_up_lost = appended.wake_up_failed.is_some();
                    let sequence = place.sequence;
                    self.observer.observe(&match coming {
                        Coming::Now | Coming::Again(_) => Event::Accepted { incoming, sequence, is_wake_up_lost },
                        Coming::Deferred => {
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

    /// Tells of what is not to be appended, such as a delivery of a topic that its
    /// source does not take.
    pub(crate) fn tell(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// When the newest thing happened of those that were handled, of one family
    /// of topics: what is not newer is known there.
    pub async fn newest_event_time(&self, entity: &EntityKey, family: &str) -> Result<Option<Timestamp>, StoreError> {
        let state = self.store.entity(entity, DEADLINE).await?;
        Ok(state.and_then(|state| state.newest_event_time.of(family)))
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
