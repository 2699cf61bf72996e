//! A decision becomes the entity's with the handler's own writes, in one
//! transaction.

use std::time::Duration;

use super::{Driver, GO_ON, Turn};
use crate::{
    engine::{
        drain::{
            PATIENCE, Stopped,
            plan::{HANDED_OVER, Ran, Step},
        },
        store::StoreError,
    },
    protocol::{
        inbox::{Commit, Committed, WriteReceipt},
        state::Settlement,
        table::Write,
    },
    sources::Found,
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
            Err(StoreError::Invalid(reason)) => return Ok(self.own_failure(reason)),
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
            // At another place, and not seen when the page was read.
            Committed::SettledBefore => return Ok(Turn::Continue(Some(Step::Settle(Settlement::Repeat)))),
            Committed::Refused => {
                return Ok(self.own_failure("a condition of the handler's own writes did not hold".into()));
            }
        }
        if self.monotonic().saturating_sub(self.seen) > SIGHT {
            self.look_again().await?;
        }
        Ok(GO_ON)
    }

    /// What the handler wants written is not to be: its own failure.
    fn own_failure(&self, error: String) -> Turn {
        let fraction = self.drainer.store.surroundings().fraction();
        Turn::Continue(Some(match &self.source {
            Some(Found::Source(source)) => self.drain.failed(None, error, source, fraction),
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
