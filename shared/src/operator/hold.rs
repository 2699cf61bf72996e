//! An order stopped by a person, and let go on: on hold, or waiting for its next
//! attempt.

use std::time::Duration;

use super::{LOOKS, Operator, OperatorError, PATIENCE};
use crate::protocol::{
    entity::EntityKey,
    inbox::{RetryNow, Retrying},
    lease::idle_purge_at,
    maintain::{BeginHold, EndHold, HoldChanged, Verb},
    state::EntityState,
};

/// What became of what was to be changed of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// It is as it was asked for. The row as it is.
    Done(EntityState),
    /// It was so already, or there was nothing to change; `None`: there is no
    /// such entity.
    Unchanged(Option<EntityState>),
}

impl Turned {
    fn told(&self) -> String {
        match self {
            Self::Done(_) => "done".into(),
            Self::Unchanged(_) => "nothing to do".into(),
        }
    }
}

impl Operator {
    /// Keeps workers off an entity until it is resumed: what arrives waits. The
    /// handler that is at work ends, and is settled; no other starts. An entity
    /// without a row is given one. Asked twice, the second finds it on hold.
    ///
    /// # Errors
    ///
    /// The store could not be reached; [`OperatorError::IsAJob`].
    pub async fn hold(&self, entity: &EntityKey) -> Result<Turned, OperatorError> {
        if entity.is_kept_forever() {
            return Err(OperatorError::IsAJob);
        }
        self.act(entity, Verb::Hold, None, self.begin_hold(entity), Turned::told).await
    }

    async fn begin_hold(&self, entity: &EntityKey) -> Result<Turned, OperatorError> {
        let mut seen = self.store.entity(entity, PATIENCE).await?;
        for _ in 0..LOOKS {
            if seen.as_ref().is_some_and(|state| state.hold.since().is_some()) {
                break;
            }
            let hold = seen.as_ref().map(|state| state.hold).unwrap_or_default();
            let begin = BeginHold { entity, seen: hold, now: self.store.env().now() };
            match self.store.run(&begin, PATIENCE).await? {
                HoldChanged::Done(state) => return Ok(Turned::Done(state)),
                HoldChanged::Changed(state) => seen = state,
            }
        }
        Ok(Turned::Unchanged(seen))
    }

    /// Ends a hold, and wakes a worker. What blocks the entity besides goes on
    /// blocking it. Asked twice, the second finds nothing on hold.
    ///
    /// # Errors
    ///
    /// The store could not be reached; [`OperatorError::Queue`]: it is resumed, and
    /// no worker could be woken.
    pub async fn resume(&self, entity: &EntityKey) -> Result<Turned, OperatorError> {
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Ok(Turned::Unchanged(None));
        }
        self.act(entity, Verb::Resume, None, self.end_hold(entity), Turned::told).await
    }

    async fn end_hold(&self, entity: &EntityKey) -> Result<Turned, OperatorError> {
        let mut seen = self.store.entity(entity, PATIENCE).await?;
        for _ in 0..LOOKS {
            let Some(state) = seen.as_ref().filter(|state| state.hold.since().is_some()) else { break };
            self.wakes_later(entity).await?;
            let now = self.store.env().now();
            let purge_at = idle_purge_at(entity, &state.recent, now, self.retention);
            match self.store.run(&EndHold { seen: state, purge_at }, PATIENCE).await? {
                HoldChanged::Done(state) => {
                    self.waker.wake(entity, Duration::ZERO, PATIENCE).await?;
                    return Ok(Turned::Done(state));
                }
                HoldChanged::Changed(state) => seen = state,
            }
        }
        // Whoever resumed it may have died before waking anybody.
        self.waker.wake(entity, Duration::ZERO, PATIENCE).await?;
        Ok(Turned::Unchanged(seen))
    }

    /// Has the delivery in front tried now instead of when its next attempt is due,
    /// and wakes a worker. Its attempts stay counted. A wait for a rate is left
    /// as it is, and so is what is blocked or on hold.
    ///
    /// # Errors
    ///
    /// The store could not be reached; [`OperatorError::Queue`]: it does not wait
    /// any longer, and no worker could be woken.
    pub async fn retry(&self, entity: &EntityKey) -> Result<Turned, OperatorError> {
        let Some(state) = self.store.entity(entity, PATIENCE).await? else { return Ok(Turned::Unchanged(None)) };
        self.act(entity, Verb::Retry, Some(state.next()), self.end_wait(entity), Turned::told).await
    }

    async fn end_wait(&self, entity: &EntityKey) -> Result<Turned, OperatorError> {
        let mut seen = self.store.entity(entity, PATIENCE).await?;
        for _ in 0..LOOKS {
            let waits = |state: &&EntityState| {
                let failed = state.retry_at.is_some() && state.last_error.is_some();
                failed && state.held.is_none() && !state.is_stopped()
            };
            let Some(state) = seen.as_ref().filter(waits) else { break };
            self.wakes_later(entity).await?;
            match self.store.run(&RetryNow { seen: state }, PATIENCE).await? {
                Retrying::Now(state) => {
                    self.waker.wake(entity, Duration::ZERO, PATIENCE).await?;
                    return Ok(Turned::Done(state));
                }
                Retrying::Changed(state) => seen = state,
            }
        }
        Ok(Turned::Unchanged(seen))
    }
}
