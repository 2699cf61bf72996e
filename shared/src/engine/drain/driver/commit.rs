//! A decision becomes the entity's with the handler's own writes, in one
//! transaction.

use std::time::Duration;

use super::{Driver, GO_ON, Turn};
use crate::{
    engine::{
        drain::{
            PATIENCE, Stopped,
            plan::{Answered, Drain, Group, HANDED_OVER, Ran, Step},
        },
        store::StoreError,
    },
    protocol::{
        attempt::Retries,
        inbox::{Commit, Committed, Settling},
        receipt::Settlement,
        table::Write,
    },
    sources::{Found, Source},
    telemetry::RequeueReason,
};

/// How long a worker goes by a row that it has not seen since. A commit does not
/// bring it, and somebody may have asked to be let in.
const SIGHT: Duration = Duration::from_secs(1);

impl Driver<'_> {
    /// Settle and the handler's writes, together or not at all.
    pub(super) async fn commit(&mut self, ran: &Ran, writes: Vec<Write>) -> Result<Turn, Stopped> {
        let store = &self.drainer.store;
        let decision = self.decide(Settlement::Applied, Some(ran), Retries::default()).await;
        let lease = self.renewer.lease().clone();
        // A second time only where deliveries have come meanwhile, a third where it was put on hold.
        loop {
            let settling = if self.drain.is_last(decision.last()) {
                Settling::Releases(self.last_under(&lease, &decision))
            } else {
                Settling::GoesOn(self.settle_under(&lease, &decision))
            };
            let is_on_hold = self.drain.state().hold.since().is_some();
            let commit = Commit { settling, writes: &writes, is_on_hold };
            let token = store.env().nonce();
            let sent = self.monotonic();
            let all = commit.all();
            let transact = store.transact(&all, token.as_str(), self.patience());
            let (answer, spilled) = tokio::join!(transact, self.spill_ahead(&decision));
            self.drain.spilled(spilled);
            let committed = match answer {
                Ok(answer) => commit.judge(answer)?,
                // What the handler wants to write can never be written: its own failure.
                Err(StoreError::Invalid(reason)) => {
                    let follows = |drain: &Drain, group, source: &Source, answered| {
                        drain.failed(&reason, group, source, answered)
                    };
                    return Ok(self.not_landed(ran, follows));
                }
                Err(error) => return Err(error.into()),
            };
            match (committed, &commit.settling) {
                (Committed::Landed(lease), Settling::GoesOn(settle)) => {
                    let state = settle.applied(self.drain.state());
                    self.renewer.prolonged(lease, sent);
                    self.told_settled(&decision, Some(ran));
                    self.settled(state, &decision);
                    break;
                }
                (Committed::Landed(_) | Committed::Released, _) => {
                    self.told_settled(&decision, Some(ran));
                    return Ok(Turn::Break(()));
                }
                (Committed::Grown(state), _) => self.drain.seen(state),
                (Committed::Refused, _) => return Ok(self.not_landed(ran, Drain::refused)),
                (Committed::Lost, _) => return Err(Stopped::Lost),
            }
        }
        if self.monotonic().saturating_sub(self.seen) > SIGHT {
            self.look_again().await?;
        }
        Ok(GO_ON)
    }

    /// What follows, as the plan says for this source.
    fn not_landed(&self, ran: &Ran, follows: impl FnOnce(&Drain, Group, &Source, Answered) -> Step) -> Turn {
        let answered = self.answered(ran.took.unwrap_or_default());
        Turn::Continue(Some(match &self.source {
            Some(Found::Source(source)) => follows(&self.drain, ran.group, source, answered),
            _ => Step::HandOver(HANDED_OVER, RequeueReason::UnknownSource),
        }))
    }

    /// Reads the row, which a commit does not bring.
    async fn look_again(&mut self) -> Result<(), Stopped> {
        let read = self.drainer.store.entity(&self.drain.state().entity, PATIENCE);
        match self.renewer.hold(read).await?? {
            Some(state) if self.renewer.lease().is_mine(&state) => {
                self.drain.seen(state);
                self.seen = self.monotonic();
                Ok(())
            }
            _ => Err(Stopped::Lost),
        }
    }
}
