//! The model's state: rows, the queue, and each actor's step.

use webhook_serializer::{
    engine::{append::Appending, drain::plan::DeliveryGroup},
    protocol::{attempt::Retries, entity::Sequence, hold::Hold, receipt::Receipt, state::BlockReason},
};

use crate::{
    drain::{DrainRef, paged},
    operations::Op,
    store::{
        AcquiredRef, DecisionRef, LeaseRef, ModelId, ModelItem, NonceId, ReceiptRef, RowRef, View, arrival, identity,
        view_of,
    },
};

/// How many times each event may still occur. The limits end the exploration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct EventBudget {
    /// Crashes of ingest instances and operators.
    pub ingest_crashes: u8,
    pub worker_crashes: u8,
    /// Tombstones written while the sequence's ingest lives.
    pub voids: u8,
    /// Messages that are delivered to a second worker while the first worker has them.
    pub copies: u8,
    pub lost_replies: u8,
    pub take_overs: u8,
    /// Drains that end because the time of their function ends.
    pub overruns: u8,
    pub failures: u8,
    /// Handlers that time out and have a late effect.
    pub timeouts: u8,
    pub rejections: u8,
    /// Renewals that find the lease lost.
    pub renewals: u8,
    /// Gaps that may be left by expired rows.
    pub expiries: u8,
    pub exclusive_crashes: u8,
    pub exclusive_leases: u8,
    pub redrives: u8,
    pub unblocks: u8,
    pub forced_releases: u8,
    /// Idle rows deleted by TTL.
    pub purges: u8,
    /// Drains that stop because the store does not answer.
    pub outages: u8,
    /// Drains that hand over because their slice ends.
    pub slices: u8,
    pub holds: u8,
    pub skips: u8,
    pub rewinds: u8,
    pub rewind_ends: u8,
    /// Writes of an operator that land at any later time, or never.
    pub late_writes: u8,
}

/// An append of a webhook or a redrive, as by `Inbox::append`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    pub id: ModelId,
    /// The author that its nonces name.
    pub author: u8,
    pub known: Appending,
    pub doubt: bool,
    /// The appends that were answered before this one claimed, as a bit set.
    pub after: u8,
    pub step: AppendStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AppendStep {
    Claim,
    /// Writes the delivery and sends the owed wake-up, in any order.
    Write {
        sequence: u64,
        stored: Option<bool>,
        /// The token in the owed wake-up.
        owed: Option<u64>,
    },
    /// The append was answered with 2xx.
    Answered(u64),
    /// The append was answered with 503, or crashed.
    Ended,
}

impl Append {
    pub fn new(id: ModelId, author: u8) -> Self {
        Self { id, author, known: Appending::default(), doubt: false, after: 0, step: AppendStep::Claim }
    }

    pub fn drawn(&self) -> NonceId {
        NonceId(self.author, self.known.places as u8)
    }

    pub fn has_begun(&self) -> bool {
        self.step != AppendStep::Claim || self.doubt || self.known.places > 0
    }

    pub fn is_over(&self) -> bool {
        matches!(self.step, AppendStep::Answered(_) | AppendStep::Ended)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeldMessage {
    /// Only this worker has the message; it comes again unless this worker deletes it.
    Own,
    /// The other worker has the message too.
    Copy,
    /// The other worker has deleted the message.
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelWorker {
    pub message: HeldMessage,
    /// The token in the message.
    pub token: Option<u64>,
    /// The message had been received before, and a new one was sent in its place.
    pub is_replaced: bool,
    pub step: WorkerStep,
    pub drain: Option<Draining>,
}

impl ModelWorker {
    pub fn draining(&self) -> &Draining {
        self.drain.as_ref().expect("a drain")
    }

    pub fn draining_mut(&mut self) -> &mut Draining {
        self.drain.as_mut().expect("a drain")
    }
}

/// A lease, and the state of its drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draining {
    pub lease: LeaseRef,
    pub known: DrainRef,
    /// The row's retry or yield was over when the lease was granted. It stays over, because a worker's clock
    /// does not go back.
    pub waited: bool,
    /// The store does not answer, so the drain stops.
    pub is_stopped: bool,
    /// The group of the running handler.
    pub group: DeliveryGroup,
}

impl Draining {
    pub fn has_to_wait(&self) -> bool {
        let state = self.known.state();
        !self.waited && (state.yield_until.is_some() || state.retry_at.is_some())
    }
}

/// A worker's next step: one store write, one queue send or one step of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerStep {
    /// Replaces a message that had been received before.
    SendFresh,
    Acquire(NonceId),
    /// Somebody holds the lease; the clock decides whether it has expired.
    Look(NonceId, AcquiredRef),
    TakeOver(NonceId, View),
    Requeue(Option<u64>),
    /// Sends the wake-up that follows the exclusive lease with this token, then records it.
    SendFollower(u64),
    Follow(u64),
    /// Consults the plan, whose answer depends on the clock.
    Ask,
    ReadPage,
    Gap,
    /// Records the start, because an earlier holder vanished.
    RecordStart,
    Start,
    Run,
    /// Spills the receipts that the decision drops from the row.
    Spill {
        decision: DecisionRef,
        commits: bool,
    },
    Commit {
        decision: DecisionRef,
        landed: bool,
    },
    Park {
        ran: bool,
    },
    Settle {
        decision: DecisionRef,
        row: RowStep,
        /// The receipts that leave the row next may be spilled at the same time.
        ahead: bool,
        hands_over: bool,
    },
    RetryWakeUp(u32, Retries, Option<Sequence>),
    Fail {
        attempts: u32,
        retries: Retries,
        one_by_one: Option<Sequence>,
        retry: bool,
    },
    Block(BlockReason),
    MarkHandOver,
    HandOver,
    ReleaseHandedOver,
    /// Releases like `ReleaseHandedOver`, but ignores the reply.
    ReleaseUnheard,
    Release,
    ReleaseEmpty,
    Finish {
        delete: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowStep {
    Last,
    Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Exclusive {
    #[default]
    Away,
    Acquire(NonceId),
    Look(NonceId, AcquiredRef),
    TakeOver(NonceId, View),
    Ask(NonceId),
    /// Waits until a drain yields, or gives up.
    Poll,
    Hold(LeaseRef),
    /// Releases the lease although deliveries wait.
    Leave(LeaseRef),
    Wake,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum ModelOperator {
    #[default]
    Away,
    Check(u64, ModelId),
    Redrive(u64, Append),
    Forget(u64, Option<Append>),
    VoidExpired(u64),
    Unblock,
    Wake,
    Force(View),
    Hold(Hold),
    Resume(View),
    SkipAcquire(u64, NonceId),
    SkipLook(u64, LeaseRef),
    SkipPark(LeaseRef, DrainRef),
    SkipSettle(LeaseRef, View, DecisionRef),
    SkipRelease(LeaseRef),
    RewindAcquire(u64, NonceId),
    RewindLook(u64, LeaseRef),
    RewindSpill(LeaseRef, View, u64),
    RewindWrite(LeaseRef, View, u64),
    RewindRelease(LeaseRef),
    /// Tries to acquire the lease, to end a rewind.
    EndAcquire(NonceId),
    EndLook(LeaseRef),
    EndSettle(LeaseRef, View, DecisionRef),
}

impl ModelOperator {
    /// Returns a redrive's append, if one is under way.
    pub fn append(&self) -> Option<&Append> {
        match self {
            ModelOperator::Redrive(_, append) => Some(append),
            _ => None,
        }
    }
}

/// A violated property. Once violated, it stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Violation {
    /// G1: order.
    Order,
    /// G2: a grant did not increase the token.
    Token,
    /// G2: an effect was accepted after the effect of a later delivery.
    LateEffect,
    /// G3: no loss.
    Loss,
    /// G4: once.
    Once,
    /// A sequence was decided twice.
    DecidedTwice,
    /// A failure counted for another delivery.
    Charge,
    /// A handler started while the entity was on hold.
    Hold,
    /// An operator skipped a delivery other than the one seen.
    Skip,
    /// A sequence was settled again with another outcome, or without a rewind.
    Rewind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ModelState {
    pub left: EventBudget,
    pub epoch: u8,
    pub row: Option<RowRef>,
    pub inbox: Vec<(ModelItem, RowRef)>,
    /// The wake-ups in the queue, sorted: each one's token, and whether it was received before. An outdated
    /// token is 0.
    pub queue: Vec<(Option<u64>, bool)>,
    pub appends: Vec<Append>,
    pub workers: Vec<Option<ModelWorker>>,
    pub exclusive: Exclusive,
    pub operator: ModelOperator,
    /// The newest token that the receiver remembers, and the sequence of its effect.
    pub receiver: (u64, u64),
    /// Effects still to come from handlers that timed out: the token and sequence of each.
    pub late: Vec<(u64, u64)>,
    /// All receipts in order, until retention ends.
    pub settled: Vec<ReceiptRef>,
    /// The deliveries whose rows TTL has deleted.
    pub forgotten: Vec<ModelId>,
    pub committed: Vec<ModelId>,
    pub newest_token: u64,
    /// The number of starts of the front, made or recorded.
    pub starts: u8,
    /// The sequence of the first claim since the inbox was last empty.
    pub waiting_since: u64,
    pub violations: u16,
    /// The hold as it was last reported to its operator. `None` while it changes, or if the operator died.
    pub reported_hold: Option<bool>,
    /// The newest token when the hold began.
    pub held_at: u64,
    /// The rewound sequences; each appears once for each of its rewinds.
    pub rewound: Vec<u64>,
    pub rewinds: u8,
    pub rewinds_wanted: u8,
    /// An operator's writes that are delayed.
    pub late_writes: Vec<Op>,
}

impl ModelState {
    pub fn item(&self, item: ModelItem) -> Option<RowRef> {
        self.inbox.binary_search_by_key(&item, |(item, _)| *item).ok().map(|at| self.inbox[at].1)
    }

    /// Returns the rows that are pages of receipts.
    pub fn receipt_pages(&self) -> impl Iterator<Item = RowRef> {
        self.inbox.iter().filter(|(item, _)| matches!(item, ModelItem::ReceiptPage(..))).map(|(_, row)| *row)
    }

    /// Returns the receipt that has left the entity's row. Of several, the one under the latest token counts.
    pub fn stored_receipt(&self, id: ModelId) -> Option<Receipt> {
        let own = self.item(ModelItem::Receipt(id)).map(|row| Receipt::parse(&row).expect("a sound row"));
        let paged = paged(self.receipt_pages()).get(identity(id).hash()).cloned();
        own.into_iter().chain(paged).max_by_key(|receipt| receipt.token)
    }

    pub fn store(&mut self, item: ModelItem, row: Option<RowRef>) {
        match (self.inbox.binary_search_by_key(&item, |(item, _)| *item), row) {
            (Ok(at), Some(row)) => self.inbox[at].1 = row,
            (Err(at), Some(row)) => self.inbox.insert(at, (item, row)),
            (Ok(at), None) => {
                self.inbox.remove(at);
            }
            (Err(_), None) => {}
        }
    }

    /// Returns whether `pending_since` is right. It lies between the first claim of the empty inbox and the
    /// arrival of the front. It is absent if nothing waits and nobody holds the entity.
    pub fn is_pending_since_correct(&self) -> bool {
        let Some(view) = self.row.map(|row| view_of(&row)) else { return true };
        let is_in_range = || {
            let since = view.pending_since?;
            Some((arrival(self.waiting_since)..=arrival(view.next().0)).contains(&since))
        };
        if view.is_empty() {
            return view.held.is_some() || view.pending_since.is_none();
        }
        is_in_range() == Some(true)
    }

    /// Returns whether the hold is as it was reported to the operator.
    pub fn is_hold_as_reported(&self) -> bool {
        let under_way = matches!(self.operator, ModelOperator::Hold(_) | ModelOperator::Resume(_));
        let on_hold = self.view().is_some_and(|view| view.is_on_hold());
        under_way || self.reported_hold.is_none_or(|reported| reported == on_hold)
    }

    pub fn view(&self) -> Option<View> {
        self.row.map(|row| view_of(&row))
    }

    /// Returns whether a living ingest or operator will still fill this sequence.
    pub fn is_awaited(&self, sequence: u64) -> bool {
        let awaits = |append: &Append| matches!(append.step, AppendStep::Write { sequence: at, stored: None, .. } if at == sequence);
        self.appends.iter().chain(self.operator.append()).any(awaits)
    }

    /// Merges states that differ only in outdated tokens.
    pub fn forget_old_tokens(&mut self) {
        let newest = self.newest_token;
        let forget = |token: &mut Option<u64>| *token = token.map(|token| if token < newest { 0 } else { token });
        self.queue.iter_mut().for_each(|(token, _)| forget(token));
        self.queue.sort_unstable();
        for worker in self.workers.iter_mut().flatten() {
            forget(&mut worker.token);
            if let WorkerStep::Requeue(token) = &mut worker.step {
                forget(token);
            }
        }
        let operator = match &mut self.operator {
            ModelOperator::Redrive(_, append) => Some(append),
            _ => None,
        };
        for append in self.appends.iter_mut().chain(operator) {
            if let AppendStep::Write { owed, .. } = &mut append.step {
                forget(owed);
            }
        }
    }

    pub fn violates(&mut self, violations: Violation) {
        self.violations |= 1 << violations as u16;
    }

    pub fn is_violated(&self, violations: Violation) -> bool {
        self.violations & 1 << violations as u16 != 0
    }
}
