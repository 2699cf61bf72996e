//! Looks at the watched orders in each tick: sends owed wake-ups, and measures how long orders have waited.

use std::{cmp::Reverse, time::Duration};

use futures_util::future::join_all;

use super::{GRACE, PAGE, PATIENCE, Sweep, SweepError, waited};
use crate::{
    engine::{queue::QueueError, store::StoreError},
    protocol::{
        entity::EntityKey,
        keys::{WatchReason, entity_row, watched_range},
        maintain::{Remove, Watch, Watched},
        state::EntityState,
    },
};

/// The time after which a tick looks at no further watched orders, so that it also sweeps.
const WATCHING: Duration = Duration::from_secs(30);

/// The number of orders that are looked at concurrently.
const AT_ONCE: usize = 16;

/// The most orders that are watched because they have waited long. They bound the reads of a tick.
const MOST_LONG: usize = 20;

enum Looked {
    Woken,
    /// The queue refuses the entity's wake-up.
    Refused,
    Waits(Duration),
    /// The order waits no longer, or its row cannot be read.
    Over,
    /// The wake-up could not be sent. The order waits for it.
    Unsent(QueueError, Duration),
}

/// An order that has waited long.
#[derive(Debug)]
pub(super) struct LongWait {
    waited: Duration,
    entity: EntityKey,
    /// Ends the watch, if the order is watched already.
    watched: Option<Remove>,
}

impl Sweep<'_> {
    /// Looks at each watched order. Returns an error after it has tried others: if a whole group fails, the rest is left
    /// to the next tick.
    pub(super) async fn look_at_watched(&mut self) -> Result<(), SweepError> {
        let store = &self.sweeper.store;
        let until = self.until.min(store.env().monotonic() + WATCHING);
        let mut ended = Ok(());
        let mut pages = store.pages(watched_range(PAGE), PATIENCE);
        while let Some(rows) = pages.next().await? {
            let mut watched = Vec::new();
            for row in &rows {
                match Watched::parse(row) {
                    Ok(one) => watched.push(one),
                    Err(error) => {
                        tracing::error!(%error, "a watched order's row cannot be read");
                        self.swept.unreadable += 1;
                    }
                }
            }
            for some in watched.chunks(AT_ONCE) {
                let looked = join_all(some.iter().map(|one| self.look_at(one))).await;
                let mut failed = 0;
                for (one, looked) in some.iter().zip(looked) {
                    match looked {
                        Ok(Looked::Woken) => self.swept.owed += 1,
                        Ok(Looked::Refused) => self.swept.unserved += 1,
                        Ok(Looked::Waits(waited)) => {
                            self.swept.oldest = self.swept.oldest.max(waited);
                            let watched = Some(one.end.clone());
                            self.long.push(LongWait { waited, entity: one.entity.clone(), watched });
                        }
                        Ok(Looked::Over) => {}
                        Ok(Looked::Unsent(error, waited)) => {
                            self.swept.oldest = self.swept.oldest.max(waited);
                            failed += 1;
                            ended = ended.and(Err(error.into()));
                        }
                        Err(error) => {
                            failed += 1;
                            ended = ended.and(Err(error.into()));
                        }
                    }
                }
                if failed == AT_ONCE || store.env().monotonic() >= until {
                    return ended;
                }
            }
        }
        ended
    }

    /// Ends the watch only once its purpose is reached, so that a failure delays it to the next tick.
    async fn look_at(&self, one: &Watched) -> Result<Looked, StoreError> {
        let looked = match one.reason {
            WatchReason::Owed => self.send_owed(&one.entity).await?,
            WatchReason::Long => match self.measure(&one.entity).await? {
                waited if waited >= GRACE => Looked::Waits(waited),
                _ => Looked::Over,
            },
        };
        if !matches!(looked, Looked::Waits(_) | Looked::Unsent(..)) {
            self.sweeper.store.run(&one.end, PATIENCE).await?;
        }
        Ok(looked)
    }

    async fn send_owed(&self, entity: &EntityKey) -> Result<Looked, StoreError> {
        Ok(match self.sweeper.waker.wake(entity, Duration::ZERO, PATIENCE).await {
            Ok(()) => {
                tracing::info!(%entity, "an owed wake-up was sent");
                Looked::Woken
            }
            Err(error @ QueueError::Refused(_)) => {
                tracing::error!(%error, %entity, "an entity cannot be woken");
                Looked::Refused
            }
            Err(error @ (QueueError::Unavailable(_) | QueueError::Denied(_))) => {
                Looked::Unsent(error, self.measure(entity).await?)
            }
        })
    }

    async fn measure(&self, entity: &EntityKey) -> Result<Duration, StoreError> {
        let store = &self.sweeper.store;
        let row = store.get(&entity_row(entity), PATIENCE).await?;
        // The sweep logs a row that cannot be read.
        let state = row.as_ref().and_then(|row| EntityState::parse(row).ok());
        Ok(state.map(|state| waited(&state, store.env().now())).unwrap_or_default())
    }

    pub(super) fn note_long_wait(&mut self, entity: &EntityKey, waited: Duration) {
        if waited < GRACE || self.long.iter().any(|one| one.entity == *entity) {
            return;
        }
        self.long.push(LongWait { waited, entity: entity.clone(), watched: None });
        if self.long.len() >= 8 * MOST_LONG {
            self.keep_longest_waits();
        }
    }

    /// Drops the shorter waits, as far as there are too many, and notes which watches then have to end.
    fn keep_longest_waits(&mut self) {
        self.long.sort_by_key(|one| Reverse(one.waited));
        let shorter = self.long.split_off(MOST_LONG.min(self.long.len()));
        self.too_many.extend(shorter.into_iter().filter_map(|one| one.watched));
    }

    /// Watches the orders that have waited longest of those that this sweep looked at. So the metric of the oldest
    /// waiting delivery is right each minute, not only when the order's segment is due.
    pub(super) async fn watch_longest(&mut self) -> Result<(), SweepError> {
        self.keep_longest_waits();
        let store = &self.sweeper.store;
        for LongWait { entity, .. } in self.long.iter().filter(|one| one.watched.is_none()) {
            if self.is_out_of_time() {
                return Ok(());
            }
            let purge_at = store.env().now() + self.sweeper.retention;
            let long = Watch { reason: WatchReason::Long, entity, nonce: &store.env().nonce(), purge_at };
            store.run(&long, PATIENCE).await?;
        }
        for end in &self.too_many {
            if self.is_out_of_time() {
                return Ok(());
            }
            store.run(end, PATIENCE).await?;
        }
        Ok(())
    }
}
