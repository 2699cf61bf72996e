//! A settle in one transaction with the handler's own writes.

use super::{Settle, SettleAndRelease, Settled, SettledAndReleased};
use crate::{
    format::CorruptRow,
    hold::not_on_hold,
    lease::Lease,
    operation::{Operation, state_of},
    state::EntityState,
    table::{Condition, ConditionResult, Transacted, Write, Written},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settling<'a> {
    GoesOn(Settle<'a>),
    /// A settle that releases the lease. It is used when no later delivery is known to wait.
    Releases(SettleAndRelease<'a>),
}

#[derive(Debug, Clone)]
pub struct Commit<'a> {
    pub settling: Settling<'a>,
    pub writes: &'a [Write],
    /// Set if the entity is known to be on hold. Otherwise the transaction demands that there is no
    /// hold. The reply to a transaction contains no row, so the drain would not notice a new hold,
    /// and would start the next handler.
    pub is_on_hold: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    Landed(Lease),
    Released,
    /// Nothing was written, because a later delivery arrived or the entity was put on hold. The
    /// caller must commit again, based on this row.
    Grown(EntityState),
    /// A condition of the handler's own writes did not hold, and nothing was written.
    Refused,
    Lost,
}

impl Commit<'_> {
    pub fn all(&self) -> Vec<Write> {
        let settle = match &self.settling {
            Settling::GoesOn(settle) if self.is_on_hold => settle.write(),
            Settling::GoesOn(settle) => {
                let write = settle.write();
                Write { condition: Condition::All(vec![write.condition, not_on_hold()]), ..write }
            }
            Settling::Releases(settle) => settle.write(),
        };
        std::iter::once(settle).chain(self.writes.iter().cloned()).collect()
    }

    /// Interprets the store's reply to the transaction. For ten minutes, the client request token
    /// lets DynamoDB recognise an earlier try that landed. After that time, the judge of the settle
    /// recognises the earlier try.
    pub fn judge(&self, answer: Transacted) -> Result<Committed, CorruptRow> {
        let refused = match answer {
            Transacted::Landed => None,
            Transacted::Refused(results) => match results.into_iter().next() {
                Some(ConditionResult::Failed(seen)) => Some(seen),
                Some(ConditionResult::Held) | None => return Ok(Committed::Refused),
            },
        };
        // Judge the settle's own write first: an earlier try may have landed, or the lease may be
        // lost.
        Ok(match &self.settling {
            Settling::GoesOn(settle) => {
                let seen = match refused {
                    None => return Ok(Committed::Landed(settle.lease.settled())),
                    Some(seen) => seen,
                };
                match (settle.judge(Written::Refused(seen.clone()))?, state_of(seen)?) {
                    (Settled::Settled(..), _) => Committed::Landed(settle.lease.settled()),
                    (Settled::Lost, Some(state)) if settle.is_due(&state) && state.is_on_hold() => {
                        Committed::Grown(state)
                    }
                    (Settled::Lost, _) => Committed::Lost,
                }
            }
            Settling::Releases(last) => match refused.map(|seen| last.judge(Written::Refused(seen))).transpose()? {
                None | Some(SettledAndReleased::Released) => Committed::Released,
                Some(SettledAndReleased::Grown(state)) => Committed::Grown(state),
                Some(SettledAndReleased::Lost) => Committed::Lost,
            },
        })
    }
}
