//! A settle that lands with the handler's own writes, or not at all.

use super::{Settle, SettleAndRelease, Settled, SettledAndReleased};
use crate::protocol::{
    format::CorruptRow,
    hold::not_on_hold,
    lease::Lease,
    operation::{Operation, state_of},
    state::EntityState,
    table::{Condition, Transacted, Write, Written},
};

/// The settle that a commit is made with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settling<'a> {
    /// One that goes on holding the lease.
    GoesOn(Settle<'a>),
    /// One that ends it, where nothing is known to wait behind this place.
    Releases(SettleAndRelease<'a>),
}

/// A settle and the handler's writes in one transaction.
#[derive(Debug, Clone)]
pub struct Commit<'a> {
    /// The settle.
    pub settling: Settling<'a>,
    /// What the handler wants written.
    pub writes: &'a [Write],
    /// Whether its entity is known to be on hold. Until it is, the transaction asks
    /// that it is not: its answer does not bring the row, and another handler
    /// would start.
    pub is_on_hold: bool,
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// All of it stands. The lease goes on under its next token.
    Landed(Lease),
    /// All of it stands, the inbox is empty, the lease has ended.
    Released,
    /// The place is not the last one any more, or its entity was put on hold:
    /// nothing was written. Commit it once more, as this row asks.
    Grown(EntityState),
    /// A condition of the handler's own writes did not hold: nothing was written.
    Refused,
    /// The lease was not this holder's any more; nothing was decided by it.
    Lost,
}

impl Commit<'_> {
    /// The writes of the transaction.
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

    /// What the answer means. A first try that landed is recognised by its
    /// transaction's token for ten minutes, afterwards as the settle's own.
    ///
    /// # Errors
    ///
    /// The entity's row cannot be read.
    pub fn judge(&self, answer: Transacted) -> Result<Committed, CorruptRow> {
        let refused = match answer {
            Transacted::Landed => None,
            Transacted::Refused(refusals) => match refusals.into_iter().next().flatten() {
                None => return Ok(Committed::Refused),
                refused => refused,
            },
        };
        // The settle's own judgement comes first: was it we, or is the lease lost?
        Ok(match &self.settling {
            Settling::GoesOn(settle) => {
                let seen = match refused {
                    None => return Ok(Committed::Landed(settle.lease.settled())),
                    Some(seen) => seen,
                };
                match (settle.judge(Written::Refused(seen.clone()))?, state_of(seen)?) {
                    (Settled::Settled(..), _) => Committed::Landed(settle.lease.settled()),
                    (Settled::Lost, Some(state)) if settle.is_due(&state) && state.hold.since().is_some() => {
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
