//! A decision becomes the entity's with the handler's own writes, in one
//! transaction.

use std::time::Duration;

use super::{Driver, GO_ON, Turn};
use crate::{
    engine::{
        drain::{
            PATIENCE, Stopped,
            plan::{Drain, HANDED_OVER, Ran, Step},
        },
        store::StoreError,
    },
    protocol::{
        inbox::{Commit, Committed, WriteReceipt},
        state::Settlement,
        table::Write,
    },
    sources::{Found, Source},
    telemetry::PutOffReason,
};

/// How long a worker goes by a row that it has not seen since. A commit does not
/// bring it, and somebody may have asked to be let in.
const SIGHT: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// Settle, receipt and the handler's writes, together or not at all.
    pub(super) async fn commit(&mut self, ran: &Ran, writes: Vec<Write>) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let entity = self.drain.state().entity.clone();
        let lease = self.keeper.lease().clone();
        let decision = self.decision(Settlement::Applied);
        let receipt = self.receipt(Settlement::Applied, ran);
        let settle = self.settle_under(&lease, &decision);
        let commit = Commit {
            receipt: WriteReceipt { entity: &entity, receipt: &receipt, purge_at: self.purge_at() },
            settle,
            writes: &writes,
        };
        let token = store.surroundings().nonce();
        let sent = self.monotonic();
        let committed = match store.transact(&commit.all(), token.as_str(), self.patience()).await {
            Ok(answer) => commit.judge(answer)?,
            // What the handler wants to write can never be written: its own failure.
            Err(StoreError::Invalid(reason)) => {
                return Ok(self.not_landed(|drain, source, fraction| drain.failed(None, reason, source, fraction)));
            }
            Err(error) => return Err(error.into()),
        };
        match committed {
            Committed::Landed(lease) => {
                let state = commit.settle.applied(self.drain.state());
                self.keeper.prolonged(lease, sent);
                self.told_settled(decision.sequence, Settlement::Applied, Some(ran));
                self.settled(state, Some(receipt));
            }
            Committed::Lost => return Err(Stopped::Lost),
            refused => {
                return Ok(self.not_landed(|drain, source, fraction| {
                    drain.not_committed(&refused, source, fraction).expect("it did not land")
                }));
            }
        }
        if self.monotonic().saturating_sub(self.seen) > SIGHT {
            self.look_again().await?;
        }
        Ok(GO_ON)
    }

    /// What follows, as the plan says for this source.
    fn not_landed(&self, follows: impl FnOnce(&Drain, &Source, f64) -> Step) -> Turn {
        let fraction = self.drainer.store.surroundings().fraction();
        Turn::Continue(Some(match &self.source {
            Some(Found::Source(source)) => follows(&self.drain, source, fraction),
            _ => Step::HandOver(HANDED_OVER, PutOffReason::UnknownSource),
        }))
    }

    /// Reads the row, which a commit does not bring.
    async fn look_again(&mut self) -> Result<(), Stopped> {
        let read = self.drainer.store.entity(&self.drain.state().entity, PATIENCE);
        match self.keeper.hold(read).await?? {
            Some(state) if self.keeper.lease().is_mine(&state) => {
                self.drain.seen(state);
                self.seen = self.monotonic();
                Ok(())
            }
            _ => Err(Stopped::Lost),
        }
    }
}
