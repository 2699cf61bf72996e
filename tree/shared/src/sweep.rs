//! The sweep: a scheduled scan of the entities that finds what no wake-up is
//! under way for, and keeps what waits from being deleted by retention.
//!
//! A pass over the whole table takes an hour: the table is scanned in
//! [`SEGMENTS`] parts, one a minute, so that no position has to be remembered.
//! Nothing depends on a segment being swept once.

use std::time::Duration;

use crate::{
    entity::EntityKey,
    queue::QueueError,
    rows::{EntityState, LeaseKind, attribute as a, delivery_range},
    store::{Store, StoreError},
    table::{Action, Change, Condition, Row, Scanned, Segment, TableName, Write},
    time::Timestamp,
    wake::Waker,
};

/// One part for each minute of an hour.
pub const SEGMENTS: u32 = 60;

/// Entities claimed more recently have a wake-up on its way.
const SETTLED_DUST: Duration = Duration::from_secs(300);

/// With more wake-ups than this waiting, the queue lags, and more would only
/// lengthen it.
const LAGGING: u64 = 10_000;

const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: u32 = 250;

/// Sweeps entities.
#[derive(Debug, Clone)]
pub struct Sweeper {
    store: Store,
    waker: Waker,
    retention: Duration,
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Entities looked at.
    pub seen: u64,
    /// Wake-ups sent.
    pub woken: u64,
    /// Pending rows kept from being deleted.
    pub kept: u64,
    /// Rows that could not be read. They are left as they are.
    pub unreadable: u64,
    /// Whether wake-ups were held back since the queue lags.
    pub lagging: bool,
    /// How long the oldest delivery has waited that waits for us, and not for
    /// an operator.
    pub oldest: Duration,
}

/// Why a sweep ended early. The next pass goes over the same segment again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The store was not to be had.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue was not to be had.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// The segment for the minute of `scheduled`.
pub fn segment_of(scheduled: Timestamp) -> u32 {
    u32::try_from(scheduled.as_millis() / 60_000 % u64::from(SEGMENTS)).unwrap_or(0)
}

/// Whether nobody is sure to look at an entity with deliveries waiting, or to
/// end a drain's lease that its holder left behind: a row that is held is never
/// purged.
///
/// `now` is compared with other instances' times only to leave entities alone
/// for a while: a wake-up too many does no harm, one too few comes an hour
/// later.
pub fn needs_wake_up(state: &EntityState, now: Timestamp) -> bool {
    let held = state.held.as_ref().is_some_and(|held| held.runs(now));
    let left = state.held.as_ref().is_some_and(|held| held.kind == LeaseKind::Drain);
    let waits = [state.retry_at, state.yield_until].into_iter().flatten().any(|until| until > now);
    let claimed = state.last_claim.as_ref().and_then(crate::entity::Nonce::drawn_at);
    let fresh = claimed.is_some_and(|at| now.since(at) < SETTLED_DUST && at <= now + SETTLED_DUST);
    !((state.is_empty() && !left) || state.blocked.is_some() || held || waits || fresh)
}

impl Sweeper {
    /// A sweeper of the entities in `store`.
    pub fn new(store: Store, waker: Waker, retention: Duration) -> Self {
        Self { store, waker, retention }
    }

    /// Sweeps one segment of [`SEGMENTS`].
    pub async fn sweep(&self, number: u32) -> Result<Swept, SweepError> {
        self.sweep_part(number, SEGMENTS).await
    }

    /// Sweeps the whole table at once.
    pub async fn sweep_all(&self) -> Result<Swept, SweepError> {
        self.sweep_part(0, 1).await
    }

    async fn sweep_part(&self, number: u32, of: u32) -> Result<Swept, SweepError> {
        let lagging = self.waker.waiting().await? > LAGGING;
        let mut swept = Swept { lagging, ..Swept::default() };
        let mut segment = Segment { number, of, after: None, limit: PAGE };
        loop {
            let Scanned { rows, after } = self.store.scan(&TableName::Entities, &segment, PATIENCE).await?;
            for row in &rows {
                self.look(row, &mut swept).await?;
            }
            match after {
                Some(after) => segment.after = Some(after),
                None => return Ok(swept),
            }
        }
    }

    async fn look(&self, row: &Row, swept: &mut Swept) -> Result<(), SweepError> {
        swept.seen += 1;
        let state = match EntityState::parse(row) {
            Ok(state) => state,
            Err(error) => {
                tracing::error!(%error, entity = row.text(a::ENTITY), "an entity's row cannot be read");
                swept.unreadable += 1;
                return Ok(());
            }
        };
        let now = self.store.surroundings().now();
        if !state.is_empty() && state.blocked.is_none() {
            let waited = state.pending_since.map(|since| now.since(since)).unwrap_or_default();
            swept.oldest = swept.oldest.max(waited);
        }
        if state.pending_since.is_some_and(|since| now.since(since) > self.retention / 2) && !state.is_empty() {
            swept.kept += self.keep(&state, now).await?;
        }
        if !swept.lagging && needs_wake_up(&state, now) {
            self.waker.wake(&state.entity, Duration::ZERO, PATIENCE).await?;
            tracing::info!(entity = %state.entity, waiting = state.waiting(), "swept");
            swept.woken += 1;
        }
        Ok(())
    }

    /// Gives the pending rows of an entity their whole retention again.
    async fn keep(&self, state: &EntityState, now: Timestamp) -> Result<u64, SweepError> {
        let mut kept = 0;
        let mut from = state.next();
        while from <= state.tail {
            let range = delivery_range(&state.entity, from, state.tail, 100);
            let page = self.store.query(&range, PATIENCE).await?;
            for row in &page.rows {
                let due = row.number(a::PURGE_AT).unwrap_or(u64::MAX);
                if due < (now + self.retention / 2).as_secs_rounded_up() {
                    kept += self.restamp(&state.entity, row, now).await?;
                }
            }
            match page.rows.last().and_then(crate::rows::sequence_of) {
                Some(last) if page.more => from = last.next(),
                _ => break,
            }
        }
        Ok(kept)
    }

    /// A row that is gone already is not made anew.
    async fn restamp(&self, entity: &EntityKey, row: &Row, now: Timestamp) -> Result<u64, SweepError> {
        let purge_at = (now + self.retention).as_secs_rounded_up();
        let mut keys: Vec<_> = crate::rows::key_of(&TableName::Inbox, row).into_iter().collect();
        if let Ok(crate::delivery::Item::Delivery(unpacked)) = crate::delivery::Item::parse(entity, row) {
            keys.extend(unpacked.head().part_keys());
        }
        for key in keys {
            let write = Write {
                key,
                condition: Condition::exists(a::ITEM),
                action: Action::Update(vec![Change::set(a::PURGE_AT, purge_at)]),
            };
            self.store.write(&write, PATIENCE).await?;
        }
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_minute_of_an_hour_has_its_segment() {
        let minute = |n: u64| segment_of(Timestamp::from_secs(n * 60 + 7));
        let hour: std::collections::BTreeSet<u32> = (0..60).map(minute).collect();
        assert_eq!(hour.len(), 60);
        assert_eq!(minute(0), minute(60));
    }
}
