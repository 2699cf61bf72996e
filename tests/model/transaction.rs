//! Settle and the handler's writes in one transaction, as the production commit
//! makes and judges it.

use std::{cell::RefCell, collections::HashMap};

use webhook_serializer::{
    engine::drain::plan::Group,
    protocol::{
        inbox::{Commit, Committed, Settle, SettleAndRelease, Settling},
        memory,
        table::Transacted,
    },
};

use crate::{
    drain::{Knows, RETENTION, Sort, Todo, remembered},
    store::{Clock, Decided, Held, LEASE, Stored, View, intern_lease, intern_view, time},
};

type Judged = HashMap<(Transaction, u8, Option<Stored>), (bool, Committing)>;

thread_local! {
    static JUDGED: RefCell<Judged> = RefCell::default();
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Committing {
    /// The lease goes on as this, and the row is known as this.
    Landed(Held, View),
    Released,
    Grown(View),
    /// It did not land, and this follows.
    Follows(Todo),
    Lost,
}

/// A settle in one transaction with what a handler writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub lease: Held,
    pub decided: Decided,
    pub hands_over: bool,
    /// What its author knows.
    pub knows: Knows,
    /// Whether it landed before: then it is answered as it was.
    pub landed: bool,
    pub sort: Sort,
    /// What the handler was started for.
    pub group: Group,
    /// It does not ask whether it was put on hold.
    pub is_blind: bool,
}

impl Transaction {
    /// Whether it ends the lease, as nothing is known to wait.
    pub fn releases(&self) -> bool {
        self.knows.is_last(self.decided.last())
    }

    /// Whether it lands on this row, and what its author makes of the answer.
    pub fn judged(self, epoch: u8, row: Option<Stored>) -> (bool, Committing) {
        remembered(&JUDGED, (self, epoch, row), |_| self.evaluated(epoch, row))
    }

    fn evaluated(self, epoch: u8, row: Option<Stored>) -> (bool, Committing) {
        let (now, lease, decision) = (time(epoch, Clock::Early), &*self.lease, &*self.decided);
        let is_on_hold = self.knows.is_on_hold();
        let goes_on = Settle { lease, decision, now, length: LEASE, hands_over: self.hands_over };
        let settling = if self.releases() {
            Settling::Releases(SettleAndRelease { lease, decision, purge_at: (!is_on_hold).then_some(now + RETENTION) })
        } else {
            Settling::GoesOn(goes_on.clone())
        };
        let commit = Commit { settling, writes: &[], is_on_hold: is_on_hold || self.is_blind };
        let row = row.map(|row| (*row).clone());
        let refused = memory::evaluate(&commit.all()[0], row.as_ref()).is_err();
        let answer = if !refused || self.landed { Transacted::Landed } else { Transacted::Refused(vec![Some(row)]) };
        let committing = match commit.judge(answer).expect("the model's rows are sound") {
            Committed::Landed(lease) => {
                Committing::Landed(intern_lease(lease), intern_view(&goes_on.applied(self.knows.state())))
            }
            Committed::Released => Committing::Released,
            Committed::Grown(state) => Committing::Grown(intern_view(&state)),
            Committed::Lost => Committing::Lost,
            Committed::Refused => Committing::Follows(self.knows.commit_refused(self.group, self.sort)),
        };
        (!refused, committing)
    }
}
