//! Settles the deliveries in front together with the handler's own writes, in one
//! transaction.

use std::time::Duration;

use futures_util::future::join;

use super::{CONTINUE, Driver, Flow, HandlerRun, PlannedStep};
use crate::{
    engine::{
        drain::{
            DrainError, PATIENCE,
            plan::{AnswerTiming, DeliveryGroup, Drain, HANDOVER_DELAY, Step},
        },
        store::StoreError,
    },
    protocol::{
        attempt::Retries,
        inbox::{Commit, Committed, Settling},
        receipt::Settlement,
        table::Write,
    },
    sources::{Source, SourceLookup},
    telemetry::RequeueReason,
};

/// The age of the drain's copy of the entity's row above which the drain reads the row again after
/// a commit.
///
/// A commit does not return the row, so the drain would otherwise miss a new request to yield.
const ROW_MAX_AGE: Duration = Duration::from_secs(1);

impl Driver<'_> {
    pub(super) async fn commit(&mut self, run: HandlerRun, writes: Vec<Write>) -> Result<Flow, DrainError> {
        let store = &self.drainer.store;
        let decision = self.decide(Settlement::Applied, &run, Retries::default()).await;
        let lease = self.renewer.lease().clone();
        // This loop repeats only if new deliveries have arrived or the entity was put on hold.
        loop {
            let sent = self.monotonic();
            let settling = if self.drain.is_last(decision.last()) {
                Settling::Releases(self.last_under(&lease, &decision))
            } else {
                Settling::GoesOn(self.settle_under(&lease, &decision))
            };
            let is_on_hold = self.drain.state().hold.since().is_some();
            let commit = Commit { settling, writes: &writes, is_on_hold };
            let token = store.env().nonce();
            let all = commit.all();
            let transact = store.transact(&all, token.as_str(), self.patience());
            let write = join(transact, self.spill_ahead(&decision));
            let (answer, spilled) = self.reading_ahead(decision.places(), write).await;
            spilled.iter().for_each(|written| self.drain.spilled(written));
            let committed = match answer {
                Ok(answer) => commit.judge(answer)?,
                // DynamoDB refuses the handler's own writes as invalid.
                Err(StoreError::Invalid(reason)) => {
                    let follows = |drain: &Drain, group, source: &Source, answered| {
                        drain.failed(&reason.message, group, source, answered)
                    };
                    return Ok(self.not_landed(run, follows));
                }
                Err(error) => return Err(error.into()),
            };
            match (committed, &commit.settling) {
                (Committed::Landed(lease), Settling::GoesOn(settle)) => {
                    let state = settle.applied(self.drain.state());
                    self.renewer.extended(lease, sent);
                    self.observe_settled(&decision, &run);
                    self.settled(state, &decision);
                    break;
                }
                (Committed::Landed(_) | Committed::Released, _) => {
                    self.observe_settled(&decision, &run);
                    return Ok(Flow::Break(()));
                }
                (Committed::Grown(state), _) => self.drain.seen(state),
                (Committed::Refused, _) => return Ok(self.not_landed(run, Drain::refused)),
                (Committed::Lost, _) => return Err(DrainError::Lost),
            }
        }
        if self.monotonic().saturating_sub(self.seen) > ROW_MAX_AGE {
            self.reread_row().await?;
        }
        Ok(CONTINUE)
    }

    fn not_landed(
        &self,
        run: HandlerRun,
        follows: impl FnOnce(&Drain, DeliveryGroup, &Source, AnswerTiming) -> Step,
    ) -> Flow {
        let answered = self.answered(run.took.unwrap_or_default());
        let step = match &self.source {
            Some(SourceLookup::Source(source)) => follows(&self.drain, run.group, source, answered),
            _ => Step::HandOver(HANDOVER_DELAY, RequeueReason::UnknownSource),
        };
        Flow::Continue(Some(PlannedStep { step, run }))
    }

    async fn reread_row(&mut self) -> Result<(), DrainError> {
        let read = self.drainer.store.entity(&self.drain.state().entity, PATIENCE);
        match self.renewer.hold(read).await?? {
            Some(state) if self.renewer.lease().is_mine(&state) => {
                self.drain.seen(state);
                self.seen = self.monotonic();
                Ok(())
            }
            _ => Err(DrainError::Lost),
        }
    }
}
