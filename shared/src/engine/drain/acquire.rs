//! Acquires the lease of an entity for a drain, or decides what happens to the wake-up instead.

use std::time::Duration;

use super::{
    DrainError, DrainSlot, Drainer, InFlight, MARGIN, PATIENCE, ReceivedWakeUp, UNREADABLE,
    begin::{AcquireStep, acquire_step, refusal},
    pace::Pace,
    plan::SHORT_WAIT,
    suspects::Turn,
};
use crate::{
    engine::{
        lease_renewer::{LeaseRenewer, judged_at},
        store::StoreError,
    },
    protocol::{
        entity::{EntityKey, FencingToken},
        lease::{Acquire, Acquired, TakeOver},
        state::{EntityState, LeaseKind},
        table::TableError,
    },
    telemetry::{Event, RequeueReason},
    time::Timestamp,
};

const FIRST_LOOK: Duration = Duration::from_millis(50);

/// The delay, before jitter, of a wake-up whose entity's row the store throttles.
const THROTTLED: Duration = Duration::from_secs(10);

pub(super) enum Acquisition {
    Granted(LeaseRenewer, EntityState),
    NothingToDo,
    Requeue(Duration, RequeueReason),
    /// The wake-up that carries this token will continue the work. See [`AcquireStep::Awaits`].
    Awaits(FencingToken, Duration),
    /// See [`AcquireStep::Follow`].
    Follows {
        token: FencingToken,
        delay: Duration,
        is_followed: bool,
        retry_at: Option<Timestamp>,
    },
}

struct LeaseRequest<'a> {
    drainer: &'a Drainer,
    deadline: Duration,
    slot: &'a DrainSlot<'a>,
    in_flight: &'a InFlight,
    request: Acquire,
    sent: Duration,
    patience: Duration,
    give_up: Duration,
    look: Duration,
    polls: u32,
}

impl Drainer {
    pub(super) async fn acquire(
        &self,
        wake_up: &ReceivedWakeUp,
        deadline: Duration,
        slot: &DrainSlot<'_>,
        in_flight: &InFlight,
    ) -> Result<Acquisition, DrainError> {
        if self.now_left(deadline) <= MARGIN {
            return Ok(Acquisition::Requeue(Duration::ZERO, RequeueReason::OutOfTime));
        }
        let entity = &wake_up.entity;
        let began = self.store.env().monotonic();
        let patience = Pace::after(wake_up.lag, self.settings.slice).patience;
        let request = self.request(entity);
        let give_up = began + patience;
        let sent = began;
        let look = FIRST_LOOK;
        let polls = 0;
        let mut request =
            LeaseRequest { drainer: self, deadline, slot, in_flight, request, sent, patience, give_up, look, polls };
        let acquisition = match request.run().await {
            // A newer version of the program is being deployed, or the row needs a repair.
            Err(DrainError::Store(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_)))) => {
                tracing::error!(%entity, %error, "requeued");
                Ok(Acquisition::Requeue(UNREADABLE, RequeueReason::Unreadable))
            }
            acquisition => acquisition,
        };
        if request.polls > 0 {
            let waited = self.store.env().monotonic().saturating_sub(began);
            self.observer.observe(&Event::Waited { entity, waited, polls: request.polls });
        }
        acquisition
    }

    fn request(&self, entity: &EntityKey) -> Acquire {
        let env = self.store.env();
        let now = env.now();
        let holder = env.nonce();
        let info = self.info.clone();
        let length = env.lease_from(now, self.settings.lease);
        Acquire { entity: entity.clone(), kind: LeaseKind::Drain, holder, info, now, length }
    }
}

impl LeaseRequest<'_> {
    async fn run(&mut self) -> Result<Acquisition, DrainError> {
        let drainer = self.drainer;
        let env = drainer.store.env();
        let mut answer = match self.ask(SHORT_WAIT).await {
            // The store throttles this entity's row, and other entities may need the worker.
            Err(StoreError::Unavailable(TableError::Throttled)) => {
                return Ok(Acquisition::Requeue(env.jittered(THROTTLED), RequeueReason::Throttled));
            }
            // The first try may have landed, so `sent` keeps its time.
            Err(StoreError::Unavailable(_)) => drainer.store.run(&self.request, PATIENCE).await?,
            answer => answer?,
        };
        loop {
            let look = (env.monotonic() < self.give_up).then_some(self.look);
            let now = judged_at(&answer, env);
            let left = drainer.now_left(self.deadline);
            let expired = match acquire_step(answer, now, left, look, self.patience) {
                AcquireStep::Granted(lease, state) => {
                    let store = &drainer.store;
                    let length = drainer.settings.lease;
                    let sent = self.sent;
                    let renewer = LeaseRenewer::start(store, lease, &state, length, sent, Duration::MAX).await?;
                    return Ok(Acquisition::Granted(renewer, state));
                }
                AcquireStep::NothingToDo => return Ok(Acquisition::NothingToDo),
                AcquireStep::Requeue(delay, reason) => return Ok(Acquisition::Requeue(delay, reason)),
                AcquireStep::Awaits(awaited, delay) => return Ok(Acquisition::Awaits(awaited, delay)),
                AcquireStep::Follow { token, delay, is_followed, retry_at } => {
                    return Ok(Acquisition::Follows { token, delay, is_followed, retry_at });
                }
                AcquireStep::AskAfter(wait) => {
                    env.sleep(wait).await;
                    None
                }
                AcquireStep::TakeOver { seen, attempts } => {
                    if let Some(attempts) = attempts {
                        // Take the lease over only once the delivery can run. If another suspect kills this
                        // process during the wait, the crash must not count against this delivery.
                        let limit = drainer.now_left(self.deadline).saturating_sub(MARGIN);
                        match env.within(limit, self.slot.isolate(attempts)).await {
                            Some(Turn::Now) => {}
                            Some(Turn::Later) => {
                                return Ok(Acquisition::Requeue(Duration::ZERO, RequeueReason::Suspect));
                            }
                            None => return Ok(Acquisition::Requeue(Duration::ZERO, RequeueReason::OutOfTime)),
                        }
                    }
                    Some(seen)
                }
                AcquireStep::LookWithin(wait) => match self.look(wait.max(FIRST_LOOK)).await? {
                    Some(refusal) => {
                        answer = refusal;
                        continue;
                    }
                    None => None,
                },
            };
            // After the waits above, another worker may have received the same wake-up and deleted it.
            let patience = PATIENCE.min(self.in_flight.invisible_for());
            if patience.is_zero() {
                return Ok(Acquisition::Requeue(Duration::ZERO, RequeueReason::MayBeBack));
            }
            answer = match expired {
                Some(seen) => self.take_over(seen, patience).await?,
                None => {
                    self.request = drainer.request(&self.request.entity);
                    self.ask(patience).await?
                }
            };
        }
    }

    async fn ask(&mut self, patience: Duration) -> Result<Acquired, StoreError> {
        self.sent = self.drainer.store.env().monotonic();
        self.drainer.store.run(&self.request, patience).await
    }

    async fn take_over(&mut self, seen: EntityState, patience: Duration) -> Result<Acquired, StoreError> {
        let Drainer { store, observer, .. } = self.drainer;
        self.sent = store.env().monotonic();
        // The request keeps its holder nonce, so that `judge` recognises an earlier request that landed.
        self.request.now = store.env().reached();
        self.request.length = store.env().lease_from(self.request.now, self.drainer.settings.lease);
        let answer = store.run(&TakeOver { request: self.request.clone(), seen }, patience).await?;
        if let Acquired::Granted(lease, _) = &answer {
            observer.observe(&Event::TakenOver { entity: &self.request.entity, token: lease.token() });
        }
        Ok(answer)
    }

    async fn look(&mut self, wait: Duration) -> Result<Option<Acquired>, StoreError> {
        let store = &self.drainer.store;
        store.env().sleep(store.env().jittered(wait)).await;
        self.look = (self.look * 2).min(SHORT_WAIT);
        self.polls += 1;
        Ok(refusal(store.entity(&self.request.entity, PATIENCE).await?))
    }
}
