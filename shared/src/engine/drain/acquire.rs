//! Getting the lease for a drain, or the reason not to.

use std::time::Duration;

use super::{
    DrainSlot, Drainer, InFlight, MARGIN, PATIENCE, Stopped, UNREADABLE,
    begin::{Begin, begin, looked},
    plan::SHORT,
};
use crate::{
    engine::{lease_renewer::LeaseRenewer, store::StoreError},
    protocol::{
        entity::{EntityKey, FencingToken},
        lease::{Acquire, Acquired, TakeOver},
        state::{EntityState, LeaseKind},
    },
    telemetry::{Event, RequeueReason},
};

/// The first wait between two looks at a lease held exclusively; doubles up to
/// [`SHORT`].
const FIRST_LOOK: Duration = Duration::from_millis(50);

/// How a drain begins.
pub(super) enum Start {
    /// With the lease, and the row.
    Granted(LeaseRenewer, EntityState),
    /// Not at all: there is nothing to do.
    NothingToDo,
    /// Later.
    NotNow(Duration, RequeueReason),
    /// The same, and a wake-up sent under this token will see to it.
    Awaits(FencingToken, Duration),
}

impl Drainer {
    /// The lease and the row, or why not.
    pub(super) async fn acquire(
        &self,
        entity: &EntityKey,
        deadline: Duration,
        slot: &DrainSlot<'_>,
        in_flight: &InFlight,
    ) -> Result<Start, Stopped> {
        let began = self.store.env().monotonic();
        let mut polls = 0;
        let start = match self.ask(entity, deadline, slot, in_flight, &mut polls).await {
            // Nothing is held yet: a newer version is being deployed, or somebody has to look.
            Err(Stopped::Store(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_)))) => {
                tracing::error!(%entity, %error, "requeued");
                Ok(Start::NotNow(UNREADABLE, RequeueReason::Unreadable))
            }
            start => start,
        };
        if polls > 0 {
            let waited = self.store.env().monotonic().saturating_sub(began);
            self.observer.observe(&Event::Waited { entity, waited, polls });
        }
        start
    }

    /// As [`Drainer::acquire`]; counts its looks at a lease held exclusively.
    async fn ask(
        &self,
        entity: &EntityKey,
        deadline: Duration,
        slot: &DrainSlot<'_>,
        in_flight: &InFlight,
        polls: &mut u32,
    ) -> Result<Start, Stopped> {
        let env = self.store.env();
        let give_up = env.monotonic() + self.settings.wait;
        let mut look = FIRST_LOOK;
        if self.now_left(deadline) <= MARGIN {
            return Ok(Start::NotNow(Duration::ZERO, RequeueReason::OutOfTime));
        }
        let mut request = self.request(entity);
        let mut sent = env.monotonic();
        let mut answer = self.store.run(&request, PATIENCE).await?;
        loop {
            let patient = (env.monotonic() < give_up).then_some(look);
            let take_over = match begin(answer, env.now(), self.now_left(deadline), patient) {
                Begin::Granted(lease, state) => {
                    let renewer = LeaseRenewer::new(&self.store, lease, self.settings.lease, sent);
                    return Ok(Start::Granted(renewer, state));
                }
                Begin::NothingToDo => return Ok(Start::NothingToDo),
                Begin::NotNow(delay, reason) => return Ok(Start::NotNow(delay, reason)),
                Begin::Awaits(awaited, delay) => return Ok(Start::Awaits(awaited, delay)),
                Begin::AskAfter(wait) => {
                    env.sleep(wait).await;
                    None
                }
                Begin::TakeOver { seen, charged } => {
                    if let Some(charged) = charged {
                        // It is taken over when it can run, and not before: should another suspect
                        // end this process while it waits, it must not be charged with that.
                        let limit = self.now_left(deadline).saturating_sub(MARGIN);
                        if env.within(limit, slot.alone(charged)).await.is_none() {
                            return Ok(Start::NotNow(Duration::ZERO, RequeueReason::OutOfTime));
                        }
                    }
                    Some(seen)
                }
                Begin::LookWithin(wait) => {
                    env.sleep(env.jittered(wait)).await;
                    look = (look * 2).min(SHORT);
                    *polls += 1;
                    if let Some(seen) = looked(self.store.entity(entity, PATIENCE).await?) {
                        answer = seen;
                        continue;
                    }
                    None
                }
            };
            // Another worker may have let the wake-up go meanwhile.
            let patience = PATIENCE.min(in_flight.hidden_for());
            if patience.is_zero() {
                return Ok(Start::NotNow(Duration::ZERO, RequeueReason::MayBeBack));
            }
            sent = env.monotonic();
            if let Some(seen) = take_over {
                // The same call, so that its holder stays its own; a new time.
                request.now = env.now();
                answer = self.store.run(&TakeOver { request: request.clone(), seen }, patience).await?;
                if let Acquired::Granted(lease, _) = &answer {
                    self.observer.observe(&Event::TakenOver { entity, token: lease.token() });
                }
            } else {
                request = self.request(entity);
                answer = self.store.run(&request, patience).await?;
            }
        }
    }

    fn request(&self, entity: &EntityKey) -> Acquire {
        let env = self.store.env();
        Acquire {
            entity: entity.clone(),
            kind: LeaseKind::Drain,
            holder: env.nonce(),
            info: self.info.clone(),
            now: env.now(),
            length: self.settings.lease,
        }
    }
}
