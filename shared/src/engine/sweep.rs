//! Scans the table on a schedule, and wakes entities whose wake-up was lost.
//!
//! The sweep also extends the retention of deliveries that have waited long, and mends rows of an older version. It
//! divides the table into [`SEGMENTS`] segments and scans one every one to three minutes, so that a pass takes one to
//! three hours, or longer if a sweep reaches its limit of time or rows. Then the sweep stores its position, and the next
//! sweep continues there. A row may be swept twice, for example after a crash.

mod keep;
mod mend;
mod watch;

pub use mend::mend_all;
use watch::LongWait;

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
        maintain::{AdvancePosition, Position, PositionAdvanced, Remove, Round, SEGMENTS, SweepTurn, TURN},
        state::{EntityState, LONGEST_LEASE, LeaseKind},
        table::{Key, Row, Scanned, Segment, TableName, Value},
    },
    telemetry::Swept,
    time::Timestamp,
};

/// The time for which the sweep ignores a new claim or an expired exclusive lease.
///
/// Until this time has passed, the claim's wake-up may still arrive, and the lease's holder may
/// only be slow.
const GRACE: Duration = Duration::from_secs(300);

/// The number of messages in the queue, including those that the sweep has sent, above which the
/// sweep sends no wake-up.
const LAGGING: u64 = 10_000;

/// The interval at which a sweep stores its position. After a crash, the next sweep repeats at most
/// the work of this interval.
const POSITION_EVERY: Duration = Duration::from_secs(10);

const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: u32 = 250;

#[derive(Clone)]
pub struct Sweeper {
    store: Store,
    waker: Waker,
    depth: Arc<dyn Depth>,
    retention: Duration,
    most: u64,
    in_one_part: bool,
}

impl std::fmt::Debug for Sweeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sweeper").finish_non_exhaustive()
    }
}

/// The reason why a sweep ended early. The next sweep continues from the stored position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Queue(#[from] QueueError),
}

#[derive(Debug)]
enum SweepStop {
    /// The sweep has used up its time or its number of rows.
    Time,
    Error(SweepError),
}

impl From<StoreError> for SweepStop {
    fn from(error: StoreError) -> Self {
        Self::Error(error.into())
    }
}

impl From<QueueError> for SweepStop {
    fn from(error: QueueError) -> Self {
        Self::Error(error.into())
    }
}

/// Returns whether deliveries may be waiting without a wake-up, or an orphaned lease keeps the row
/// from being purged.
///
/// Clock skew causes at most a superfluous wake-up or a pass's delay.
pub fn needs_wake_up(state: &EntityState, now: Timestamp) -> bool {
    let held = state.held.as_ref().is_some_and(|held| held.runs(now));
    let waits = [state.retry_at, yields_until(state, now)].into_iter().flatten().any(|until| until > now);
    let claimed = state.last_claim.as_ref().and_then(crate::time::Nonce::drawn_at);
    let fresh = claimed.is_some_and(|at| now.since(at) < GRACE && at <= now + GRACE);
    !((state.is_empty() && !is_orphaned(state, now)) || state.is_stopped() || held || waits || fresh)
}

/// Returns the age of the oldest delivery that waits for a worker. It is zero if none waits, or if all wait for an
/// operator.
fn waited(state: &EntityState, now: Timestamp) -> Duration {
    let waits = !state.is_empty() && !state.is_stopped();
    state.pending_since.filter(|_| waits).map(|since| now.since(since)).unwrap_or_default()
}

/// Returns whether an expired lease is orphaned, so that a worker must take it over and release it.
///
/// An exclusive lease that expired less than [`GRACE`] ago is not orphaned, since its holder may
/// only be slow. A job's lease is not orphaned either, since the scheduler takes it over.
fn is_orphaned(state: &EntityState, now: Timestamp) -> bool {
    state.held.as_ref().is_some_and(|held| match held.kind {
        LeaseKind::Drain => true,
        LeaseKind::Exclusive => {
            let long_over = held.expires_at + GRACE <= now;
            let is_far_ahead = held.expires_at > now + LONGEST_LEASE + GRACE;
            !state.entity.is_kept_forever() && (long_over || is_far_ahead)
        }
    })
}

impl Sweeper {
    pub fn new(store: Store, waker: Waker, depth: Arc<dyn Depth>, retention: Duration) -> Self {
        Self { store, waker, depth, retention, most: u64::MAX, in_one_part: false }
    }

    /// Limits the number of rows that one sweep visits. A pass over a large table then takes longer
    /// instead of costing more each minute.
    #[must_use]
    pub fn at_most(self, rows: u64) -> Self {
        Self { most: rows, ..self }
    }

    /// Scans the whole table in the turn of the first segment, and nothing in the others.
    ///
    /// It is for an engine that has to read the whole table for each segment.
    #[must_use]
    pub fn in_one_part(self) -> Self {
        Self { in_one_part: true, ..self }
    }

    fn segment(&self, turn: &SweepTurn) -> Option<Segment> {
        let after = turn.continues_after();
        match self.in_one_part {
            false => Some(Segment { number: turn.segment(), of: SEGMENTS, after, limit: PAGE }),
            true => (turn.segment() == 0).then_some(Segment { number: 0, of: 1, after, limit: PAGE }),
        }
    }

    /// Sweeps the segments that are due at `tick`, from the stored position on.
    ///
    /// The sweep ends at the latest at `until`, by the monotonic clock, or at the limit of rows.
    /// The returned counts are valid even if the sweep failed.
    pub async fn go_on(&self, tick: Timestamp, until: Duration) -> (Swept, Result<(), SweepError>) {
        let mut sweep = Sweep { until, begun: false, ..Sweep::of(self) };
        let looked = sweep.look_at_watched().await;
        let swept = sweep.take_turns(tick).await;
        let watched = sweep.watch_longest().await;
        (sweep.swept, looked.and(swept).and(watched))
    }

    pub async fn sweep_all(&self) -> Result<Swept, SweepError> {
        let mut sweep = Sweep::of(self);
        sweep.look_at_the_queue().await?;
        let mut segment = Segment { number: 0, of: 1, after: None, limit: PAGE };
        loop {
            let mut reached = None;
            match sweep.page(&segment, &mut reached).await {
                Ok(after @ Some(_)) => segment.after = after,
                Ok(None) | Err(SweepStop::Time) => return Ok(sweep.swept),
                Err(SweepStop::Error(error)) => return Err(error),
            }
        }
    }
}

/// Returns the stored position. `None` if no sweep has stored one yet.
pub(crate) async fn position(store: &Store) -> Result<Option<Position>, StoreError> {
    let page = store.query(&sweep_position_range(), PATIENCE).await?;
    Ok(page.rows.first().map(Position::parse).transpose()?)
}

struct Sweep<'a> {
    sweeper: &'a Sweeper,
    until: Duration,
    /// The number of messages that waited in the queue when the sweep began.
    waiting: u64,
    /// Set once the first row is done. An error in the first row does not stop the sweep: the same
    /// error may have stopped the previous sweep at this row, and would stop every later one.
    begun: bool,
    /// The segments whose rows are mended.
    round: Option<Round>,
    /// The number of rows of the segment that this tick has visited.
    rows: u64,
    /// The orders that have waited long: watched ones, and the longest waits of those that this sweep visited.
    long: Vec<LongWait>,
    /// Ends the watches of orders that are no longer among the longest waits.
    too_many: Vec<Remove>,
    swept: Swept,
}

impl<'a> Sweep<'a> {
    fn of(sweeper: &'a Sweeper) -> Self {
        Self {
            sweeper,
            until: Duration::MAX,
            waiting: 0,
            begun: true,
            round: None,
            rows: 0,
            long: Vec::new(),
            too_many: Vec::new(),
            swept: Swept::default(),
        }
    }

    async fn take_turns(&mut self, tick: Timestamp) -> Result<(), SweepError> {
        let mut seen = position(&self.sweeper.store).await?;
        let mut turn = seen.as_ref().map_or_else(|| SweepTurn::first(tick), |seen| seen.turn.clone());
        self.round = seen.as_ref().and_then(|seen| seen.round);
        if seen.as_ref().is_some_and(|seen| seen.in_one_part != self.sweeper.in_one_part) {
            // The position is of another division of the table, so it does not say which rows are left.
            turn = if self.sweeper.in_one_part { SweepTurn::first(tick) } else { SweepTurn::first_of_pass(tick) };
            self.break_round();
        }
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
            let Some(segment) = self.sweeper.segment(&turn) else {
                turn = self.finish_segment(&turn, tick);
                continue;
            };
            let mut reached = None;
            let swept = self.page(&segment, &mut reached).await;
            if reached.is_some() {
                turn.after = reached;
            }
            match swept {
                Ok(Some(after)) => turn.after = text_of(&after.partition.1),
                Ok(None) => {
                    turn = self.finish_segment(&turn, tick);
                    self.swept.segments += 1;
                }
                Err(SweepStop::Time) => break Ok(()),
                Err(SweepStop::Error(error @ SweepError::Store(StoreError::Invalid(_)))) if !self.begun => {
                    // The rest of this segment cannot be scanned, so the next sweep begins at the next
                    // segment.
                    tracing::error!(%error, segment = segment.number, "the rest of this segment cannot be swept");
                    turn = turn.finished(tick, TURN);
                    self.break_round();
                    break Err(error);
                }
                Err(SweepStop::Error(error)) => break Err(error),
            }
            if env.monotonic().saturating_sub(remembered) >= POSITION_EVERY {
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
        let in_one_part = self.sweeper.in_one_part;
        let to = Position { turn: turn.clone(), nonce: store.env().nonce(), round: self.round, in_one_part };
        let moved = store.run(&AdvancePosition { seen: seen.as_ref(), to: &to }, PATIENCE).await?;
        match moved {
            PositionAdvanced::Advanced => *seen = Some(to),
            PositionAdvanced::Elsewhere => {
                tracing::warn!(turn = turn.number, "another sweep is running, and continues")
            }
        }
        Ok(moved)
    }

    /// Sweeps a page of rows, and sets `reached` to the last visited entity. Returns where the next
    /// page begins, or `None` at the segment's end.
    async fn page(&mut self, segment: &Segment, reached: &mut Option<String>) -> Result<Option<Key>, SweepStop> {
        let store = &self.sweeper.store;
        if self.is_over() {
            return Err(SweepStop::Time);
        }
        let Scanned { rows, after } = store.scan(&TableName::Entities, segment, PATIENCE).await?;
        for row in &rows {
            if self.begun && self.is_over() {
                return Err(SweepStop::Time);
            }
            let looked = self.look(row).await;
            // The previous sweep may have stopped at this first row. Skip it, so that the rows behind
            // it get their turn.
            match looked {
                Err(stop) if self.begun => return Err(stop),
                Err(stop) => {
                    self.swept.unserved += 1;
                    let entity = row.text(a::ENTITY);
                    match &stop {
                        SweepStop::Error(error) => tracing::error!(%error, entity, "skipped"),
                        SweepStop::Time => tracing::error!(entity, "skipped: the row takes longer than a sweep"),
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
        let answer = env.within(ATTEMPT, self.sweeper.depth.waiting()).await;
        self.waiting = answer.unwrap_or_else(|| Err(QueueError::Unavailable("no answer in time".into())))?;
        self.swept.lagging = self.waiting > LAGGING;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.swept.seen >= self.sweeper.most || self.is_out_of_time()
    }

    fn is_out_of_time(&self) -> bool {
        self.sweeper.store.env().monotonic() >= self.until
    }

    async fn look(&mut self, row: &Row) -> Result<(), SweepStop> {
        let store = &self.sweeper.store;
        let swept = &mut self.swept;
        swept.seen += 1;
        self.rows += 1;
        let state = match EntityState::parse(row) {
            Ok(state) => state,
            Err(error) => {
                tracing::error!(%error, entity = row.text(a::ENTITY), "an entity's row cannot be read");
                swept.unreadable += 1;
                return Ok(());
            }
        };
        if let Err(error) = mend::mend(store, &state).await {
            self.break_round();
            return Err(error.into());
        }
        let swept = &mut self.swept;
        let now = store.env().now();
        let waited = waited(&state, now);
        swept.oldest = swept.oldest.max(waited);
        self.note_long_wait(&state.entity, waited);
        let swept = &mut self.swept;
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
                    Err(error @ (QueueError::Unavailable(_) | QueueError::Denied(_))) => return Err(error.into()),
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
            spilled: Default::default(),
            attempts: 0,
            suspect: 0,
            started: None,
            one_by_one: None,
            retry_at: None,
            last_error: None,
            retries: Default::default(),
            pending_since: None,
            blocked: None,
            waits: None,
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
    fn sweep_wakes_no_entity_that_is_leased_or_waits_for_retry_or_yield() {
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
    fn entity_with_claim_dated_far_ahead_is_woken() {
        let claimed = |at| EntityState { last_claim: Some(Nonce::from_parts(at, 1)), ..forgotten() };
        assert!(!needs_wake_up(&claimed(NOW), NOW));
        assert!(!needs_wake_up(&claimed(NOW + GRACE), NOW), "a clock may be ahead");
        assert!(needs_wake_up(&claimed(NOW + GRACE + Duration::from_millis(1)), NOW), "but not for long");
    }

    #[test]
    fn entity_with_lease_dated_far_ahead_is_woken() {
        let empty = EntityState { tail: Sequence(1), ..forgotten() };
        let until = |ahead| EntityState { held: held(LeaseKind::Exclusive, NOW + ahead), ..empty.clone() };
        assert!(!needs_wake_up(&empty, NOW));
        assert!(!needs_wake_up(&until(LONGEST_LEASE + GRACE), NOW));
        assert!(needs_wake_up(&until(LONGEST_LEASE + GRACE + Duration::from_secs(1)), NOW));
    }
}
