//! Getting the lease for a drain, or the reason not to.

use std::time::Duration;

use super::{Drainer, MARGIN, PATIENCE, Stopped};
use crate::{
    entity::EntityKey,
    keeper::Keeper,
    lease::{Acquire, Acquired, TakeOver},
    operation::Operation,
    rows::{EntityState, Held, LeaseKind},
    telemetry::{Event, PutOffReason},
};

/// A wait this short is waited out, rather than by a message's round trip.
const SHORT: Duration = Duration::from_secs(1);

/// The first wait between two looks at a lease held exclusively; doubles up to
/// [`SHORT`].
const FIRST_LOOK: Duration = Duration::from_millis(50);

impl Drainer {
    /// The lease and the row; `None` where the wake-up has served its purpose.
    pub(super) async fn acquire(
        &self,
        entity: &EntityKey,
        deadline: Duration,
    ) -> Result<Option<(Keeper<'_>, EntityState)>, Stopped> {
        let surroundings = self.store.surroundings();
        let give_up = surroundings.monotonic() + self.settings.wait;
        let mut look = FIRST_LOOK;
        let mut request = self.request(entity);
        let mut sent = surroundings.monotonic();
        let mut answer = if self.now_left(deadline) > MARGIN {
            self.ask(entity, &request).await?
        } else {
            return self.put_off(entity, Duration::ZERO, PutOffReason::OutOfTime).await.map(|()| None);
        };
        loop {
            match answer {
                Acquired::Granted(lease, state) => {
                    return Ok(Some((Keeper::new(&self.store, lease, self.settings.lease, sent), state)));
                }
                Acquired::Empty | Acquired::Blocked => return Ok(None),
                Acquired::Waiting { until } => {
                    let wait = until.since(surroundings.now());
                    if wait > SHORT || self.now_left(deadline) < wait + MARGIN {
                        return self.put_off(entity, wait, PutOffReason::Retry).await.map(|()| None);
                    }
                    surroundings.sleep(wait).await;
                    request = self.request(entity);
                    sent = surroundings.monotonic();
                    answer = self.ask(entity, &request).await?;
                }
                Acquired::Held(seen) => {
                    let Some(held) = seen.held.clone() else { return Ok(None) };
                    let now = surroundings.now();
                    if !held.runs(now) {
                        // The same call, so that its holder stays its own; a new time.
                        request.now = now;
                        sent = surroundings.monotonic();
                        answer = self.ask(entity, &TakeOver { request: request.clone(), seen }).await?;
                        if let Acquired::Granted(lease, _) = &answer {
                            self.observer.observe(&Event::TakenOver { entity, token: lease.token() });
                        }
                        continue;
                    }
                    let out_of_time = surroundings.monotonic() >= give_up || self.now_left(deadline) < MARGIN + look;
                    if held.kind == LeaseKind::Drain || out_of_time {
                        return self.put_off_held(entity, &held).await.map(|()| None);
                    }
                    surroundings.sleep(surroundings.jittered(look.min(held.expires_at.since(now)))).await;
                    look = (look * 2).min(SHORT);
                    answer = match self.store.entity(entity, PATIENCE).await? {
                        None => Acquired::Empty,
                        Some(state) if state.held.is_some() => Acquired::Held(state),
                        // It looks free: ask for it.
                        Some(_) => {
                            request = self.request(entity);
                            sent = surroundings.monotonic();
                            self.ask(entity, &request).await?
                        }
                    };
                }
            }
        }
    }

    /// Asks for the lease. A try that was left without an answer may still be
    /// under way, and land when this drain is long over: a lease that nobody
    /// has, under which claims would skip their wake-ups. The fresh one arrives
    /// when such a lease has run out.
    async fn ask<O: Operation<Outcome = Acquired>>(
        &self,
        entity: &EntityKey,
        request: &O,
    ) -> Result<Acquired, Stopped> {
        let answered = self.store.run_noting_doubt(request, PATIENCE).await?;
        if answered.doubtful {
            self.wake(entity, self.settings.lease).await?;
        }
        Ok(answered.outcome)
    }

    fn request(&self, entity: &EntityKey) -> Acquire {
        let surroundings = self.store.surroundings();
        Acquire {
            entity: entity.clone(),
            kind: LeaseKind::Drain,
            holder: surroundings.nonce(),
            info: self.info.clone(),
            now: surroundings.now(),
            length: self.settings.lease,
        }
    }

    /// Somebody else has it: look again when its lease would have run out.
    async fn put_off_held(&self, entity: &EntityKey, held: &Held) -> Result<(), Stopped> {
        let reason = match held.kind {
            LeaseKind::Drain => PutOffReason::Drained,
            LeaseKind::Exclusive => PutOffReason::Held,
        };
        let left = held.expires_at.since(self.store.surroundings().now());
        self.put_off(entity, left.max(SHORT), reason).await
    }
}
