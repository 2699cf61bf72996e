//! Lets an order that waits for a destination look whether the outage is over, without the order's lease.

use std::time::Duration;

use super::{Drainer, PATIENCE, ReceivedWakeUp};
use crate::{
    engine::{outages::OutageWait, queue::EndedWait, store::StoreError},
    protocol::{
        inbox::{RetryNow, Retrying},
        state::EntityState,
    },
};

impl Drainer {
    /// Returns the wake-up that names the outage besides `wake_up`, if the order still waits for that outage. `None`
    /// leaves `wake_up` as it is.
    pub(super) async fn chosen(&self, wake_up: &ReceivedWakeUp) -> Result<Option<ReceivedWakeUp>, StoreError> {
        let Some(wait) = &wake_up.outage_besides else { return Ok(None) };
        let seen = match self.store.entity(&wake_up.entity, PATIENCE).await {
            Ok(seen) => seen.filter(|seen| has_wait(seen, wait)),
            Err(error @ StoreError::Unavailable(_)) => return Err(error),
            // The acquire says what is wrong with the row.
            Err(StoreError::Corrupt(_) | StoreError::Invalid(_)) => None,
        };
        Ok(seen.map(|seen| ReceivedWakeUp {
            token: Some(seen.token),
            outage: Some(wait.clone()),
            ended_wait: None,
            ..wake_up.clone()
        }))
    }

    /// Looks at the outage that the order of `wake_up` waits for. Returns the time until the next look if the outage
    /// lasts.
    ///
    /// If the order goes on before its wait is over, its wait is ended, and the returned wake-up says so. `None`
    /// leaves the wake-up as it is.
    pub(super) async fn after_outage(&self, wake_up: &ReceivedWakeUp) -> Result<Option<ReceivedWakeUp>, Duration> {
        let Some(wait) = &wake_up.outage else { return Ok(None) };
        let OutageWait { destination, until, is_counted } = wait;
        if *until <= self.store.env().now() {
            return Ok(None);
        }
        // No start ends the outage of a destination that no source has any more.
        let is_used = self.sources.current().iter().any(|source| source.destination().id == *destination);
        if is_used && let Some(delay) = self.outages.look(destination, &wake_up.entity).await {
            return Err(delay);
        }
        let ended_wait = match self.end_wait(wake_up, wait).await {
            Ok(ended_wait) => ended_wait,
            Err(StoreError::Unavailable(_)) => return Err(self.outages.look_soon()),
            Err(StoreError::Corrupt(_) | StoreError::Invalid(_)) => None,
        };
        // After a wait that counts nothing, nothing is left of it to be taken off: the attempt is an ordinary one.
        let counted = ended_wait.filter(|_| *is_counted);
        Ok(counted.map(|ended| ReceivedWakeUp { ended_wait: Some(ended), ..wake_up.clone() }))
    }

    /// Ends the wait that `wake_up` belongs to. Returns `None` if the order has gone on, or somebody has its lease.
    async fn end_wait(&self, wake_up: &ReceivedWakeUp, wait: &OutageWait) -> Result<Option<EndedWait>, StoreError> {
        let seen = self.store.entity(&wake_up.entity, PATIENCE).await?;
        let Some(seen) = seen.filter(|seen| has_wait(seen, wait) && seen.held.is_none()) else { return Ok(None) };
        match self.store.run(&RetryNow { seen: &seen }, PATIENCE).await? {
            Retrying::Now(_) => Ok(Some(EndedWait { sequence: seen.next(), until: wait.until })),
            Retrying::Changed(_) => Ok(None),
        }
    }
}

/// Returns whether the delivery in front still waits for the outage's end. A hold, and other holders of the lease,
/// leave the wait as it is.
fn has_wait(seen: &EntityState, wait: &OutageWait) -> bool {
    seen.retry_at == Some(wait.until) && seen.last_error.is_some()
}
