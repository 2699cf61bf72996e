//! Mends the attribute `waits` of rows that an older version wrote, and counts the segments in which that is done.

use super::{PAGE, PATIENCE, Sweep, position};
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        maintain::{AdvancePosition, MendWaits, Position, Round, SweepTurn, TURN, pace},
        state::EntityState,
        table::{Scanned, Segment, TableName},
    },
    time::Timestamp,
};

pub(super) async fn mend(store: &Store, state: &EntityState) -> Result<(), StoreError> {
    if MendWaits::is_needed(state) {
        let mended = store.run(&MendWaits { seen: state }, PATIENCE).await?;
        tracing::debug!(entity = %state.entity, ?mended, "the attribute `waits` was missing or wrong");
    }
    Ok(())
}

/// Mends all rows, and records that this is done, so that the index is complete at once. Only for a process that alone
/// writes the tables. After the first time, it reads one row.
pub async fn mend_all(store: &Store) -> Result<(), StoreError> {
    let seen = position(store).await?;
    if seen.as_ref().and_then(|seen| seen.round).is_some_and(|round| round.is_complete()) {
        return Ok(());
    }
    let mut segment = Segment { number: 0, of: 1, after: None, limit: PAGE };
    loop {
        let Scanned { rows, after } = store.scan(&TableName::Entities, &segment, PATIENCE).await?;
        for row in &rows {
            // Nobody can use a row that cannot be read, and the sweep logs it.
            if let Ok(state) = EntityState::parse(row) {
                mend(store, &state).await?;
            }
        }
        match after {
            Some(_) => segment.after = after,
            None => break,
        }
    }
    let now = store.env().now();
    let turn = seen.as_ref().map_or_else(|| SweepTurn::first(now), |seen| seen.turn.clone());
    let in_one_part = seen.as_ref().is_some_and(|seen| seen.in_one_part);
    let to = Position { turn, nonce: store.env().nonce(), round: Some(Round::complete(now)), in_one_part };
    // If a sweep has advanced the position since, the next start mends again.
    store.run(&AdvancePosition { seen: seen.as_ref(), to: &to }, PATIENCE).await?;
    Ok(())
}

impl Sweep<'_> {
    /// Ends a segment's scan. Returns the next one. Until all rows are mended, it is due in a turn, then at the pace of
    /// the rows that this tick has visited.
    pub(super) fn finish_segment(&mut self, turn: &SweepTurn, tick: Timestamp) -> SweepTurn {
        let round = self.round.map_or_else(|| Round::begun(tick), |round| round.finished(tick));
        let rows = std::mem::take(&mut self.rows);
        self.round = Some(round);
        turn.finished(tick, if round.is_complete() { pace(rows) } else { TURN })
    }

    /// Begins the round again after a row that could not be mended. A complete round stays, because since then this
    /// version has written all rows.
    pub(super) fn break_round(&mut self) {
        self.round = self.round.filter(Round::is_complete);
    }
}
