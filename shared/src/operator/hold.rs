//! Holds and resumes an entity, and ends the wait for its next attempt.

use std::time::Duration;

use super::{Operator, OperatorError, PATIENCE, TRIES};
use crate::engine::queue::{EndedWait, WakeUp};
use crate::protocol::{
    entity::EntityKey,
    inbox::{RetryNow, Retrying},
    lease::idle_purge_at,
    maintain::{BeginHold, EndHold, HoldChanged},
    state::EntityState,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateChange {
    Done(EntityState),
    Unchanged(Option<EntityState>),
}

impl StateChange {
    fn describe(&self) -> String {
        match self {
            Self::Done(_) => "done".into(),
            Self::Unchanged(_) => "nothing to do".into(),
        }
    }
}

impl Operator {
    /// Keeps workers off an entity until it is resumed. New deliveries are accepted, but wait.
    ///
    /// A handler that already runs may finish, and its delivery is settled. If the entity has no
    /// row, the hold creates one.
    pub async fn hold(&self, entity: &EntityKey) -> Result<StateChange, OperatorError> {
        if entity.is_kept_forever() {
            return Err(OperatorError::IsAJob);
        }
        self.act(entity, "hold", None, self.begin_hold(entity), StateChange::describe).await
    }

    async fn begin_hold(&self, entity: &EntityKey) -> Result<StateChange, OperatorError> {
        let mut seen = self.store.entity(entity, PATIENCE).await?;
        for _ in 0..TRIES {
            if seen.as_ref().is_some_and(|state| state.hold.since().is_some()) {
                break;
            }
            let hold = seen.as_ref().map(|state| state.hold).unwrap_or_default();
            let begin = BeginHold { entity, seen: hold, now: self.store.env().now() };
            match self.store.run(&begin, PATIENCE).await? {
                HoldChanged::Done(state) => return Ok(StateChange::Done(state)),
                HoldChanged::Changed(state) => seen = state,
            }
        }
        Ok(StateChange::Unchanged(seen))
    }

    /// Ends a hold, and wakes a worker. A blocked entity stays blocked.
    ///
    /// If the call fails with [`OperatorError::Queue`], the entity was resumed but no worker was
    /// woken.
    pub async fn resume(&self, entity: &EntityKey) -> Result<StateChange, OperatorError> {
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Ok(StateChange::Unchanged(None));
        }
        let outcome = |change: &StateChange| match change {
            StateChange::Done(state) if state.blocked.is_some() => "no longer on hold, stays blocked".into(),
            change => change.describe(),
        };
        self.act(entity, "resume", None, self.end_hold(entity), outcome).await
    }

    async fn end_hold(&self, entity: &EntityKey) -> Result<StateChange, OperatorError> {
        let mut seen = self.store.entity(entity, PATIENCE).await?;
        for _ in 0..TRIES {
            let Some(state) = seen.as_ref().filter(|state| state.hold.since().is_some()) else { break };
            self.wake_later(entity).await?;
            let now = self.store.env().now();
            let purge_at = idle_purge_at(entity, &state.recent, now, self.retention);
            match self.store.run(&EndHold { seen: state, purge_at }, PATIENCE).await? {
                HoldChanged::Done(state) => {
                    self.waker.wake(entity, Duration::ZERO, PATIENCE).await?;
                    return Ok(StateChange::Done(state));
                }
                HoldChanged::Changed(state) => seen = state,
            }
        }
        // Another caller may have resumed the entity and died before it sent the wake-up.
        self.waker.wake(entity, Duration::ZERO, PATIENCE).await?;
        Ok(StateChange::Unchanged(seen))
    }

    /// Makes an extra attempt at the delivery in front due now, and wakes a worker.
    ///
    /// The delivery's attempts stay counted. If the attempt fails, or a breaker refuses it, the delivery waits no
    /// longer than it would have waited without it. Only a wait that follows an error ends. A wait for a
    /// rate limit, a block and a hold stay. If the call fails with [`OperatorError::Queue`], the
    /// wait was ended but no worker was woken.
    pub async fn retry(&self, entity: &EntityKey) -> Result<StateChange, OperatorError> {
        let Some(state) = self.store.entity(entity, PATIENCE).await? else { return Ok(StateChange::Unchanged(None)) };
        self.act(entity, "retry", Some(state.next()), self.end_wait(entity), StateChange::describe).await
    }

    async fn end_wait(&self, entity: &EntityKey) -> Result<StateChange, OperatorError> {
        let mut seen = self.store.entity(entity, PATIENCE).await?;
        for _ in 0..TRIES {
            let waits = |state: &&EntityState| {
                let failed = state.retry_at.is_some() && state.last_error.is_some();
                failed && state.held.is_none() && !state.is_stopped()
            };
            let Some(state) = seen.as_ref().filter(waits) else { break };
            let ended_wait = state.retry_at.map(|until| EndedWait { sequence: state.next(), until });
            let wake_up = WakeUp { ended_wait, ..WakeUp::of(entity) };
            self.wake_up_later(&wake_up).await?;
            match self.store.run(&RetryNow { seen: state }, PATIENCE).await? {
                Retrying::Now(state) => {
                    self.waker.send(&wake_up, Duration::ZERO, PATIENCE).await?;
                    return Ok(StateChange::Done(state));
                }
                Retrying::Changed(state) => seen = state,
            }
        }
        Ok(StateChange::Unchanged(seen))
    }
}
