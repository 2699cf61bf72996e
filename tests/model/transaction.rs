//! Commits. The production operation makes and judges them.

use std::{cell::RefCell, collections::HashMap};

use webhook_serializer::{
    engine::drain::plan::DeliveryGroup,
    protocol::{
        inbox::{Commit, Committed, Settle, SettleAndRelease, Settling},
        memory,
        table::{ConditionResult, Transacted},
    },
};

use crate::{
    drain::{DrainRef, PlanStep, RETENTION, SourceKind, memoized},
    store::{ClockReading, DecisionRef, LEASE, LeaseRef, RowRef, View, intern_lease, intern_view, time},
};

type Judged = HashMap<(Transaction, u8, Option<RowRef>), (bool, Committing)>;

thread_local! {
    static JUDGED: RefCell<Judged> = RefCell::default();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Committing {
    /// The commit landed and the lease continues; the view is the row as its holder knows it.
    Landed(LeaseRef, View),
    Released,
    Grown(View),
    /// The commit did not land; the drain continues with this step.
    Follows(PlanStep),
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub lease: LeaseRef,
    pub decision: DecisionRef,
    pub hands_over: bool,
    pub known: DrainRef,
    /// An earlier try landed, so the store answers the client token with that try's reply.
    pub landed: bool,
    pub kind: SourceKind,
    pub group: DeliveryGroup,
    /// The commit does not check for a hold.
    pub is_blind: bool,
}

impl Transaction {
    /// Returns whether the commit releases the lease, because nothing more is known to wait.
    pub fn releases(&self) -> bool {
        self.known.is_last(self.decision.last())
    }

    /// Returns whether the commit lands on this row, and what its author does next.
    pub fn judged(self, epoch: u8, row: Option<RowRef>) -> (bool, Committing) {
        memoized(&JUDGED, (self, epoch, row), |_| self.evaluated(epoch, row))
    }

    fn evaluated(self, epoch: u8, row: Option<RowRef>) -> (bool, Committing) {
        let now = time(epoch, ClockReading::Early);
        let lease = &*self.lease;
        let decision = &*self.decision;
        let is_on_hold = self.known.is_on_hold();
        let goes_on = Settle { lease, decision, now, length: LEASE, hands_over: self.hands_over };
        let settling = if self.releases() {
            Settling::Releases(SettleAndRelease { lease, decision, purge_at: (!is_on_hold).then_some(now + RETENTION) })
        } else {
            Settling::GoesOn(goes_on.clone())
        };
        let commit = Commit { settling, writes: &[], is_on_hold: is_on_hold || self.is_blind };
        let row = row.map(|row| (*row).clone());
        let refused = memory::evaluate(&commit.all()[0], row.as_ref()).is_err();
        let answer = if !refused || self.landed {
            Transacted::Landed
        } else {
            Transacted::Refused(vec![ConditionResult::Failed(row)])
        };
        let committing = match commit.judge(answer).expect("the model's rows are sound") {
            Committed::Landed(lease) => {
                Committing::Landed(intern_lease(lease), intern_view(&goes_on.applied(self.known.state())))
            }
            Committed::Released => Committing::Released,
            Committed::Grown(state) => Committing::Grown(intern_view(&state)),
            Committed::Lost => Committing::Lost,
            Committed::Refused => Committing::Follows(self.known.commit_refused(self.group, self.kind)),
        };
        (!refused, committing)
    }
}
