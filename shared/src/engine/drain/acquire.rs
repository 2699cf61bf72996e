//! Getting the lease for a drain, or the reason not to.

use std::time::Duration;

use super::{Drainer, Guest, MARGIN, PATIENCE, Start, Stopped, UNREADABLE};
use crate::{
    engine::{keeper::Keeper, store::StoreError},
    protocol::{
        entity::EntityKey,
        lease::{Acquire, Acquired, TakeOver},
        state::{EntityState, Held, LeaseKind},
    },
    telemetry::{Event, PutOffReason},
};

/// A wait this short is waited out, rather than by a message's round trip.
pub(super) const SHORT: Duration = Duration::from_secs(1);

/// The first wait between two looks at a lease held exclusively; doubles up to
/// [`SHORT`].
const FIRST_LOOK: Duration = Duration::from_millis(50);

impl Drainer {
    /// The lease and the row, or why not.
    pub(super) async fn acquire(
        &self,
        entity: &EntityKey,
        deadline: Duration,
        guest: &Guest<'_>,
    ) -> Result<Start, Stopped> {
        let began = self.store.surroundings().monotonic();
        let mut polls = 0;
        let start = match self.ask(entity, deadline, guest, &mut polls).await {
            // Nothing is held yet: a newer version is being deployed, or somebody has to look.
            Err(Stopped::Store(error @ (StoreError::Corrupt(_) | StoreError::Invalid(_)))) => {
                tracing::error!(%entity, %error, "put off");
                Ok(Start::NotNow(UNREADABLE, PutOffReason::Unreadable))
            }
            start => start,
        };
        if polls > 0 {
            let waited = self.store.surroundings().monotonic().saturating_sub(began);
            self.observer.observe(&Event::Waited { entity, waited, polls });
        }
        start
    }

    /// As [`Drainer::acquire`]; counts its looks at a lease held exclusively.
    async fn ask(
        &self,
        entity: &EntityKey,
        deadline: Duration,
        guest: &Guest<'_>,
        polls: &mut u32,
    ) -> Result<Start, Stopped> {
        let surroundings = self.store.surroundings();
        let give_up = surroundings.monotonic() + self.settings.wait;
        let mut look = FIRST_LOOK;
        let mut request = self.request(entity);
        let mut sent = surroundings.monotonic();
        let mut answer = if self.now_left(deadline) > MARGIN {
            self.store.run(&request, PATIENCE).await?
        } else {
            return Ok(Start::NotNow(Duration::ZERO, PutOffReason::OutOfTime));
        };
        loop {
            match answer {
                Acquired::Granted(lease, state) => {
                    let keeper = Keeper::new(&self.store, lease, self.settings.lease, sent);
                    return Ok(Start::Granted(keeper, state));
                }
                Acquired::Empty | Acquired::Blocked => return Ok(Start::NothingToDo),
                Acquired::Waiting { until, awaited } => {
                    let wait = until.since(surroundings.now());
                    if wait > SHORT || self.now_left(deadline) < wait + MARGIN {
                        return Ok(match awaited {
                            Some(awaited) => Start::Awaits(awaited, wait),
                            None => Start::NotNow(wait, PutOffReason::Retry),
                        });
                    }
                    surroundings.sleep(wait).await;
                    request = self.request(entity);
                    sent = surroundings.monotonic();
                    answer = self.store.run(&request, PATIENCE).await?;
                }
                Acquired::Held(seen) => {
                    let Some(held) = seen.held.clone() else { return Ok(Start::NothingToDo) };
                    let mut now = surroundings.now();
                    if !held.runs(now) {
                        if held.kind == LeaseKind::Drain && !seen.is_empty() {
                            // What waits there may have killed its holder. It is taken over when it
                            // can run, and not before: should another suspect end this process while
                            // it waits, it must not be charged with that.
                            let limit = self.now_left(deadline).saturating_sub(MARGIN);
                            if surroundings.within(limit, guest.alone(seen.attempts + seen.suspect)).await.is_none() {
                                return Ok(Start::NotNow(Duration::ZERO, PutOffReason::OutOfTime));
                            }
                            now = surroundings.now();
                        }
                        // The same call, so that its holder stays its own; a new time.
                        request.now = now;
                        sent = surroundings.monotonic();
                        answer = self.store.run(&TakeOver { request: request.clone(), seen }, PATIENCE).await?;
                        if let Acquired::Granted(lease, _) = &answer {
                            self.observer.observe(&Event::TakenOver { entity, token: lease.token() });
                        }
                        continue;
                    }
                    let out_of_time = surroundings.monotonic() >= give_up || self.now_left(deadline) < MARGIN + look;
                    if is_at_work(&seen, &held) || out_of_time {
                        return Ok(self.after(&held));
                    }
                    surroundings.sleep(surroundings.jittered(look.min(held.expires_at.since(now)))).await;
                    look = (look * 2).min(SHORT);
                    *polls += 1;
                    answer = match self.store.entity(entity, PATIENCE).await? {
                        None => Acquired::Empty,
                        Some(state) if state.held.is_some() => Acquired::Held(state),
                        // It looks free: ask for it.
                        Some(_) => {
                            request = self.request(entity);
                            sent = surroundings.monotonic();
                            self.store.run(&request, PATIENCE).await?
                        }
                    };
                }
            }
        }
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
    fn after(&self, held: &Held) -> Start {
        let reason = match held.kind {
            LeaseKind::Drain => PutOffReason::Drained,
            LeaseKind::Exclusive => PutOffReason::Held,
        };
        let left = held.expires_at.since(self.store.surroundings().now());
        Start::NotNow(left.max(SHORT), reason)
    }
}

/// Whether a worker drains the entity and is not about to hand it over.
fn is_at_work(state: &EntityState, held: &Held) -> bool {
    held.kind == LeaseKind::Drain && !state.handover
}
