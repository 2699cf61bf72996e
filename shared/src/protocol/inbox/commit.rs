//! A settle that lands with the handler's own writes, or not at all.

use super::{Settle, Settled, WriteReceipt};
use crate::protocol::{
    format::CorruptRow,
    lease::Lease,
    operation::Operation,
    table::{Transacted, Write, Written},
};

/// Settle, receipt and the handler's writes in one transaction.
#[derive(Debug, Clone)]
pub struct Commit<'a> {
    /// The settle.
    pub settle: Settle<'a>,
    /// Its receipt, which must be absent.
    pub receipt: WriteReceipt<'a>,
    /// What the handler wants written.
    pub writes: &'a [Write],
}

/// What became of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// All of it stands. The lease goes on under its next token.
    Landed(Lease),
    /// The delivery has a receipt from another place: nothing was written;
    /// settle it as a repeat.
    SettledBefore,
    /// A condition of the handler's own writes did not hold: nothing was written.
    Refused,
    /// The lease was not this holder's any more; nothing was decided by it.
    Lost,
}

impl Commit<'_> {
    /// The writes of the transaction.
    pub fn all(&self) -> Vec<Write> {
        let mut all = vec![self.settle.write(), self.receipt.deciding()];
        all.extend_from_slice(self.writes);
        all
    }

    /// What the answer means. A first try that landed is recognised by its
    /// transaction's token for ten minutes, afterwards as the settle's own.
    ///
    /// # Errors
    ///
    /// The entity's row cannot be read.
    pub fn judge(&self, answer: Transacted) -> Result<Committed, CorruptRow> {
        let landed = Committed::Landed(self.settle.lease.settled());
        let Transacted::Refused(refusals) = answer else { return Ok(landed) };
        let mut refusals = refusals.into_iter();
        // The settle's own judgement comes first: was it we, or is the lease lost?
        if let Some(Some(seen)) = refusals.next() {
            return Ok(match self.settle.judge(Written::Refused(seen))? {
                Settled::Settled(..) => landed,
                Settled::Lost => Committed::Lost,
            });
        }
        Ok(if matches!(refusals.next(), Some(Some(_))) { Committed::SettledBefore } else { Committed::Refused })
    }
}
