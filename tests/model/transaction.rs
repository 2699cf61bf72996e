//! Settle, receipt and the handler's writes in one transaction, as the
//! production commit makes and judges it.

use std::{cell::RefCell, collections::HashMap, time::Duration};

use webhook_serializer::protocol::{
    inbox::{Commit, Committed, Settle, WriteReceipt},
    memory,
    operation::Operation,
    table::{Row, Transacted, Write},
};

use crate::{
    drain::{Knows, Sort, Todo, remembered},
    store::{Clock, Decided, Held, LEASE, Stored, Told, View, entity, intern_lease, intern_view, receipt, time},
    without::{Changes, Rule},
};

type Judged = HashMap<(Transaction, Changes, u8, [Option<Stored>; 2]), (bool, Committing)>;

thread_local! {
    static JUDGED: RefCell<Judged> = RefCell::default();
}

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Committing {
    /// The lease goes on as this, and the row is known as this.
    Landed(Held, View),
    /// It did not land, and this follows.
    Follows(Todo),
    Lost,
}

/// A settle with its receipt, in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Transaction {
    pub lease: Held,
    pub decided: Decided,
    pub told: Told,
    pub hands_over: bool,
    /// What its author knows.
    pub knows: Knows,
    /// Whether it landed before: then it is answered as it was.
    pub landed: bool,
    pub sort: Sort,
}

impl Transaction {
    /// Whether it lands on these rows, and what its author makes of the answer.
    pub fn judged(self, changes: Changes, epoch: u8, rows: [Option<Stored>; 2]) -> (bool, Committing) {
        remembered(&JUDGED, (self, changes, epoch, rows), |_| self.evaluated(changes, epoch, rows))
    }

    fn evaluated(self, changes: Changes, epoch: u8, rows: [Option<Stored>; 2]) -> (bool, Committing) {
        let now = time(epoch, Clock::Early);
        let receipt = receipt(epoch, self.told);
        let commit = Commit {
            settle: Settle {
                lease: &self.lease,
                decision: &self.decided,
                now,
                length: LEASE,
                hands_over: self.hands_over,
            },
            receipt: WriteReceipt { entity: entity(), receipt: &receipt, purge_at: now + Duration::from_secs(1000) },
            writes: &[],
        };
        let mut writes = commit.all();
        if changes.has(Rule::CommitYieldsToReceipts) {
            writes[1] = commit.receipt.write();
        }
        let rows = rows.map(|row| row.map(|row| (*row).clone()));
        let met =
            |(write, row): (&Write, &Option<Row>)| memory::evaluate(write, row.as_ref()).err().map(|()| row.clone());
        let refusals: Vec<_> = writes.iter().zip(&rows).map(met).collect();
        let lands = refusals.iter().all(Option::is_none);
        let answer = if lands || self.landed { Transacted::Landed } else { Transacted::Refused(refusals) };
        let committing = match commit.judge(answer).expect("the model's rows are sound") {
            Committed::Landed(lease) => {
                Committing::Landed(intern_lease(lease), intern_view(&commit.settle.applied(self.knows.state())))
            }
            Committed::Lost => Committing::Lost,
            refused => Committing::Follows(self.knows.not_landed(&refused, self.sort)),
        };
        (lands, committing)
    }
}
