//! The sweep: a scheduled scan of the entities that finds what no wake-up is
//! under way for, and keeps what waits from being deleted by retention.
//!
//! The table is scanned in [`SEGMENTS`] parts that take turns, one a minute, so
//! that a pass takes an hour. What a minute was too short for, the next one goes
//! on with, from the entity at which the last one stopped (`maintain::SweepTurn`); so
//! that every row is reached however many there are. Nothing depends on a row
//! being swept once.

mod keep;

use std::{sync::Arc, time::Duration};

use crate::{
    engine::{
        queue::{Depth, QueueError},
        store::{ATTEMPT, Store, StoreError},
        wake::Waker,
    },
    protocol::{
        format::attribute as a,
        keys::sweep_position_range,
        lease::yields_until,
        maintain::{AdvancePosition, Position, PositionAdvanced, SEGMENTS, SweepTurn},
        state::{EntityState, LONGEST_LEASE, LeaseKind},
        table::{Key, Row, Scanned, Segment, TableName, Value},
    },
    telemetry::Swept,
    time::Timestamp,
};

/// Entities claimed more recently have a wake-up on its way; a lease that ran
/// out more recently may be believed in by its holder.
const SETTLED_DUST: Duration = Duration::from_secs(300);

/// With more wake-ups than this waiting, the queue lags, and more would only
/// lengthen it.
const LAGGING: u64 = 10_000;

/// Where it came to is remembered so often while it goes on: that much is swept
/// again behind a crash.
const REMEMBERED_EVERY: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: u32 = 250;

/// Sweeps entities.
#[derive(Clone)]
pub struct Sweeper {
    store: Store,
    waker: Waker,
    depth: Arc<dyn Depth>,
    retention: Duration,
    most: u64,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").finish_non_exhaustive()
    }
}

/// Why a sweep ended early. The next one goes on where it stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// The store could not be reached.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The queue could not be reached.
    #[error(transparent)]
    Queue(#[from] QueueError),
}

/// Why a row or a page was not gone through to its end.
#[derive(Debug)]
enum Stop {
    /// The time is over, or as many rows were looked at as may be.
    Time,
    Error(SweepError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Error(error.into())
    }
}

impl From<QueueError> for Stop {
    fn from(error: QueueError) -> Self {
        Self::Error(error.into())
    }
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
    let waits = [state.retry_at, yields_until(state, now)].into_iter().flatten().any(|until| until > now);
    let claimed = state.last_claim.as_ref().and_then(crate::time::Nonce::drawn_at);
    let fresh = claimed.is_some_and(|at| now.since(at) < SETTLED_DUST && at <= now + SETTLED_DUST);
    !((state.is_empty() && !is_left(state, now)) || state.is_stopped() || held || waits || fresh)
}

/// Whether a lease that has run out stands there for nobody. A worker that is
/// woken takes it over and releases it. That of a job is the scheduler's, which
/// takes it over itself; an exclusive holder is given time, since it may be
/// slow, and has no worker behind it whose death would leave a wake-up.
fn is_left(state: &EntityState, now: Timestamp) -> bool {
    state.held.as_ref().is_some_and(|held| match held.kind {
        LeaseKind::Drain => true,
        LeaseKind::Exclusive => {
            let long_over = held.expires_at + SETTLED_DUST <= now;
            let from_nowhere = held.expires_at > now + LONGEST_LEASE + SETTLED_DUST;
            !state.entity.is_kept_forever() && (long_over || from_nowhere)
        }
    })
}

impl Sweeper {
    /// A sweeper of the entities in `store`, which holds back while the queue, by
    /// its `depth`, lags.
    pub fn new(store: Store, waker: Waker, depth: Arc<dyn Depth>, retention: Duration) -> Self {
        Self { store, waker, depth, retention, most: u64::MAX }
    }

    /// The same, which looks at about so many rows each time that it goes on, so
    /// that a large table costs no more to sweep than that, and takes longer.
    #[must_use]
    pub fn at_most(self, rows: u64) -> Self {
        Self { most: rows, ..self }
    }

    /// Sweeps on from where the last sweep stopped: the segments whose turn has
    /// come by `tick`, until `until` by the process's own clock, or as many rows as
    /// may be. Says what it did, also where it ended early.
    pub async fn go_on(&self, tick: Timestamp, until: Duration) -> (Swept, Result<(), SweepError>) {
        let mut sweep = Sweep { sweeper: self, until, waiting: 0, begun: false, swept: Swept::default() };
        let ended = sweep.take_turns(tick).await;
        (sweep.swept, ended)
    }

    /// Sweeps the whole table at once, and remembers nothing.
    pub async fn sweep_all(&self) -> Result<Swept, SweepError> {
        let mut sweep = Sweep { sweeper: self, until: Duration::MAX, waiting: 0, begun: true, swept: Swept::default() };
        sweep.look_at_the_queue().await?;
        let mut segment = Segment { number: 0, of: 1, after: None, limit: PAGE };
        loop {
            let mut reached = None;
            match sweep.page(&segment, &mut reached).await {
                Ok(after @ Some(_)) => segment.after = after,
                Ok(None) | Err(Stop::Time) => return Ok(sweep.swept),
                Err(Stop::Error(error)) => return Err(error),
            }
        }
    }

    async fn position(&self) -> Result<Option<Position>, StoreError> {
        let page = self.store.query(&sweep_position_range(), PATIENCE).await?;
        Ok(page.rows.first().map(Position::parse).transpose()?)
    }
}

/// One sweep under way.
struct Sweep<'a> {
    sweeper: &'a Sweeper,
    /// When its time is over.
    until: Duration,
    /// How many wake-ups waited when it began.
    waiting: u64,
    /// Whether it is past the row at which it began: no row is its end twice.
    begun: bool,
    swept: Swept,
}

impl Sweep<'_> {
    async fn take_turns(&mut self, tick: Timestamp) -> Result<(), SweepError> {
        let mut seen = self.sweeper.position().await?;
        let mut turn = seen.as_ref().map_or_else(|| SweepTurn::first(tick), |seen| seen.turn.clone());
        if !turn.is_due(tick) {
            return Ok(());
        }
        self.look_at_the_queue().await?;
        let env = self.sweeper.store.env();
        let mut remembered = env.monotonic();
        let ended = loop {
            if !turn.is_due(tick) {
                break Ok(());
            }
            let segment = Segment { number: turn.segment(), of: SEGMENTS, after: turn.continues_after(), limit: PAGE };
            let mut reached = None;
            let swept = self.page(&segment, &mut reached).await;
            if reached.is_some() {
                turn.after = reached;
            }
            match swept {
                Ok(Some(after)) => turn.after = text_of(&after.partition.1),
                Ok(None) => {
                    turn = turn.finished(tick);
                    self.swept.segments += 1;
                }
                Err(Stop::Time) => break Ok(()),
                Err(Stop::Error(error @ SweepError::Store(StoreError::Invalid(_)))) if !self.begun => {
                    // From here on it cannot be scanned at all: the others have their turns all the same.
                    tracing::error!(%error, segment = segment.number, "a segment cannot be swept on");
                    turn = turn.finished(tick);
                    break Err(error);
                }
                Err(Stop::Error(error)) => break Err(error),
            }
            if env.monotonic().saturating_sub(remembered) >= REMEMBERED_EVERY {
                remembered = env.monotonic();
                match self.remember(&mut seen, &turn).await {
                    Ok(PositionAdvanced::Advanced) => {}
                    Ok(PositionAdvanced::Elsewhere) => return Ok(()),
                    Err(error) => break Err(error.into()),
                }
            }
        };
        let remembered = self.remember(&mut seen, &turn).await;
        ended.and(remembered.map(|_| ()).map_err(SweepError::from))
    }

    async fn remember(&self, seen: &mut Option<Position>, turn: &SweepTurn) -> Result<PositionAdvanced, StoreError> {
        let store = &self.sweeper.store;
        if seen.as_ref().is_some_and(|seen| seen.turn == *turn) {
            return Ok(PositionAdvanced::Advanced);
        }
        let to = Position { turn: turn.clone(), nonce: store.env().nonce() };
        let moved = store.run(&AdvancePosition { seen: seen.as_ref(), to: &to }, PATIENCE).await?;
        match moved {
            PositionAdvanced::Advanced => *seen = Some(to),
            PositionAdvanced::Elsewhere => tracing::warn!(turn = turn.number, "another sweep is at it, and goes on"),
        }
        Ok(moved)
    }

    /// Looks at a page of rows; where the next begins. `reached` is the last
    /// entity that is done with.
    async fn page(&mut self, segment: &Segment, reached: &mut Option<String>) -> Result<Option<Key>, Stop> {
        let store = &self.sweeper.store;
        if self.is_over() {
            return Err(Stop::Time);
        }
        let Scanned { rows, after } = store.scan(&TableName::Entities, segment, PATIENCE).await?;
        for row in &rows {
            if self.begun && self.is_over() {
                return Err(Stop::Time);
            }
            let looked = self.look(row).await;
            // At the row at which a sweep begins another may have stopped: it is passed over, lest all
            // that are behind it wait for it for ever.
            match looked {
                Err(stop) if self.begun => return Err(stop),
                Err(stop) => {
                    self.swept.unserved += 1;
                    let entity = row.text(a::ENTITY);
                    match &stop {
                        Stop::Error(error) => tracing::error!(%error, entity, "passed over"),
                        Stop::Time => tracing::error!(entity, "passed over: it takes longer than a sweep"),
                    }
                }
                Ok(()) => {}
            }
            self.begun = true;
            *reached = row.get(a::ENTITY).and_then(text_of);
        }
        Ok(after)
    }

    async fn look_at_the_queue(&mut self) -> Result<(), QueueError> {
        let env = self.sweeper.store.env();
        let told = env.within(ATTEMPT, self.sweeper.depth.waiting()).await;
        self.waiting = told.unwrap_or_else(|| Err(QueueError::Unavailable("no answer in time".into())))?;
        self.swept.lagging = self.waiting > LAGGING;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.swept.seen >= self.sweeper.most || self.sweeper.store.env().monotonic() >= self.until
    }

    async fn look(&mut self, row: &Row) -> Result<(), Stop> {
        let store = &self.sweeper.store;
        let swept = &mut self.swept;
        swept.seen += 1;
        let state = match EntityState::parse(row) {
            Ok(state) => state,
            Err(error) => {
                tracing::error!(%error, entity = row.text(a::ENTITY), "an entity's row cannot be read");
                swept.unreadable += 1;
                return Ok(());
            }
        };
        let now = store.env().now();
        if !state.is_empty() && !state.is_stopped() {
            let waited = state.pending_since.map(|since| now.since(since)).unwrap_or_default();
            swept.oldest = swept.oldest.max(waited);
        }
        if needs_wake_up(&state, now) {
            swept.lagging |= self.waiting + swept.woken > LAGGING;
            if !swept.lagging {
                match self.sweeper.waker.wake(&state.entity, Duration::ZERO, PATIENCE).await {
                    Ok(()) => {
                        tracing::info!(entity = %state.entity, waiting = state.waiting(), "swept");
                        swept.woken += 1;
                    }
                    Err(error @ QueueError::Refused(_)) => {
                        tracing::error!(%error, entity = %state.entity, "an entity cannot be woken");
                        swept.unserved += 1;
                    }
                    Err(error @ QueueError::Unavailable(_)) => return Err(error.into()),
                }
            }
        }
        let retention = self.sweeper.retention;
        if state.pending_since.is_some_and(|since| now.since(since) > retention / 2) && !state.is_empty() {
            self.keep(&state).await?;
        }
        Ok(())
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::S(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::{
            entity::{EntityKey, FencingToken, Sequence},
            state::Held,
        },
        time::Nonce,
    };

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

    /// An entity at which something waits, and nobody is under way to it.
    fn forgotten() -> EntityState {
        EntityState {
            entity: EntityKey::parse("test/a").unwrap(),
            tail: Sequence(2),
            head: Sequence(1),
            token: FencingToken(1),
            held: None,
            holder_info: None,
            last_claim: None,
            recent: Default::default(),
            spilled: false,
            attempts: 0,
            suspect: 0,
            started: None,
            one_by_one: None,
            retry_at: None,
            last_error: None,
            retries: Default::default(),
            pending_since: None,
            blocked: None,
            hold: crate::protocol::hold::Hold::default(),
            yield_until: None,
            turn_until: None,
            handover: None,
            newest_event_time: Default::default(),
        }
    }

    fn held(kind: LeaseKind, expires_at: Timestamp) -> Option<Held> {
        Some(Held { holder: Nonce::from_parts(NOW, 1), kind, expires_at })
    }

    #[test]
    fn what_is_held_or_waits_is_left_alone() {
        let second = Duration::from_secs(1);
        let forgotten = forgotten();
        assert!(needs_wake_up(&forgotten, NOW));
        for kind in [LeaseKind::Drain, LeaseKind::Exclusive] {
            assert!(!needs_wake_up(&EntityState { held: held(kind, NOW + second), ..forgotten.clone() }, NOW));
            assert!(needs_wake_up(&EntityState { held: held(kind, NOW), ..forgotten.clone() }, NOW));
        }
        assert!(!needs_wake_up(&EntityState { retry_at: Some(NOW + second), ..forgotten.clone() }, NOW));
        assert!(!needs_wake_up(&EntityState { yield_until: Some(NOW + second), ..forgotten.clone() }, NOW));
        let hour = Duration::from_secs(3600);
        assert!(needs_wake_up(&EntityState { yield_until: Some(NOW + hour), ..forgotten.clone() }, NOW));
        let over = EntityState { retry_at: Some(NOW), yield_until: Some(NOW), ..forgotten };
        assert!(needs_wake_up(&over, NOW));
    }

    #[test]
    fn a_claim_dated_far_ahead_has_no_wake_up_on_its_way() {
        let claimed = |at| EntityState { last_claim: Some(Nonce::from_parts(at, 1)), ..forgotten() };
        assert!(!needs_wake_up(&claimed(NOW), NOW));
        assert!(!needs_wake_up(&claimed(NOW + SETTLED_DUST), NOW), "a clock may be ahead");
        assert!(needs_wake_up(&claimed(NOW + SETTLED_DUST + Duration::from_millis(1)), NOW), "but not for ever");
    }

    #[test]
    fn a_lease_that_was_written_by_a_clock_far_ahead_is_ended_on_an_empty_entity_too() {
        let empty = EntityState { tail: Sequence(1), ..forgotten() };
        let until = |ahead| EntityState { held: held(LeaseKind::Exclusive, NOW + ahead), ..empty.clone() };
        assert!(!needs_wake_up(&empty, NOW));
        assert!(!needs_wake_up(&until(LONGEST_LEASE + SETTLED_DUST), NOW));
        assert!(needs_wake_up(&until(LONGEST_LEASE + SETTLED_DUST + Duration::from_secs(1)), NOW));
    }
}
