//! Lets an order that waits for a destination look whether the outage is over, without the order's lease.

use std::time::Duration;

use super::{Drainer, PATIENCE, ReceivedWakeUp};
use crate::{
    engine::{outages::OutageWait, queue::EndedWait, store::StoreError},
    protocol::inbox::{RetryNow, Retrying},
};

impl Drainer {
    /// Looks at the outage that the order of `wake_up` waits for. Returns the time until the next look if the outage
    /// lasts.
    ///
    /// If the order goes on before its wait is over, its wait is ended, and the returned wake-up says so. `None`
    /// leaves the wake-up as it is.
    pub(super) async fn after_outage(&self, wake_up: &ReceivedWakeUp) -> Result<Option<ReceivedWakeUp>, Duration> {
        let Some(OutageWait { destination, until, is_counted }) = &wake_up.outage else { return Ok(None) };
        if *until <= self.store.env().now() {
            return Ok(None);
        }
        // No start ends the outage of a destination that no source has any more.
        let is_used = self.sources.current().iter().any(|source| source.destination().id == *destination);
        if is_used && let Some(delay) = self.outages.look(destination, &wake_up.entity).await {
            return Err(delay);
        }
        let ended_wait = self.end_wait(wake_up).await.unwrap_or_default();
        // After a wait that counts nothing, nothing is left of it to be taken off: the attempt is an ordinary one.
        let counted = ended_wait.filter(|_| *is_counted);
        Ok(counted.map(|ended| ReceivedWakeUp { ended_wait: Some(ended), ..wake_up.clone() }))
    }

    /// Ends the wait that `wake_up` belongs to. Returns `None` if the order has gone on.
    async fn end_wait(&self, wake_up: &ReceivedWakeUp) -> Result<Option<EndedWait>, StoreError> {
        let Some(seen) = self.store.entity(&wake_up.entity, PATIENCE).await? else { return Ok(None) };
        let waits = Some(seen.token) == wake_up.token && seen.last_error.is_some() && seen.held.is_none();
        let Some(until) = seen.retry_at.filter(|_| waits && !seen.is_stopped()) else { return Ok(None) };
        let ended = EndedWait { sequence: seen.next(), until };
        match self.store.run(&RetryNow { seen: &seen }, PATIENCE).await? {
            Retrying::Now(_) => Ok(Some(ended)),
            Retrying::Changed(_) => Ok(None),
        }
    }
}
