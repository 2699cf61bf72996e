//! Runs production operations on a row, and applies the controls' changes to them.

mod changes;

use std::{cell::RefCell, collections::HashMap, time::Duration};

use webhook_serializer::protocol::{
    attempt::Retries,
    delivery::{Envelope, Incoming},
    entity::{FencingToken, Sequence},
    format::attribute as a,
    hold::Hold,
    inbox::{
        AfterFailure, Block, Claim, Fail, Failed, MarkStart, Marked, Park, Put, PutOutcome, Rewind, Rewound, Settle,
        SettleAndRelease, Settled, SettledAndReleased, Skip, Skipped, Spill, SpillPage, Unblock, Unblocked, Void,
        Voided,
    },
    lease::{
        Acquire, Ended, Follow, ForceRelease, Forced, HandOver, Lease, MarkHandOver, Release, ReleaseEmpty, Released,
        Renew, Renewed, RequestYield, TakeOver, YieldToDeliveries, idle_purge_at,
    },
    maintain::{BeginHold, EndHold, HoldChanged},
    memory,
    operation::Operation,
    receipt::Recent,
    state::{BlockReason, EntityState, HolderInfo, LeaseKind},
    table::{Action, Row, Write, Written},
    waits::SourceTag,
};

use crate::{
    drain::RETENTION,
    store::{
        AcquiredRef, ClockReading, CopiedReceipts, DecisionRef, LEASE, LeaseRef, ModelId, NonceId, ReceiptPageRef,
        ReceiptRef, RowRef, View, arrival, entity, identity, intern_lease, intern_view, retry_at, time, view_of,
    },
    without::{Changes, ViolatedRule},
};

impl From<CopiedReceipts> for Op {
    fn from(receipts: CopiedReceipts) -> Self {
        match receipts {
            CopiedReceipts::Page(receipts) => Self::SpillPage(receipts),
            CopiedReceipts::One(receipt) => Self::Spill(receipt),
        }
    }
}

/// An operation of the protocol with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Op {
    Claim(NonceId),
    Put(ModelId, NonceId, u64),
    Void(u64),
    Acquire(LeaseKind, NonceId, ClockReading),
    TakeOver(LeaseKind, NonceId, View),
    Renew(LeaseRef),
    /// The last field is `hands_over`.
    Settle(LeaseRef, DecisionRef, bool),
    /// The last field says whether the row must stay, because the entity is on hold.
    SettleAndRelease(LeaseRef, DecisionRef, bool),
    Spill(ReceiptRef),
    SpillPage(ReceiptPageRef),
    Park(ModelId, u64),
    Fail {
        lease: LeaseRef,
        sequence: u64,
        attempts: u32,
        retries: Retries,
        suspected: bool,
        one_by_one: Option<Sequence>,
        retry: bool,
    },
    Block(LeaseRef, u64, BlockReason),
    MarkHandOver(LeaseRef),
    YieldToDeliveries(LeaseRef),
    MarkStart(LeaseRef, u64),
    HandOver(LeaseRef, bool),
    Unblock,
    /// The fields say whether the holder is exclusive, with a short retention, and whether the row must stay.
    ReleaseEmpty(LeaseRef, bool, bool),
    Release(LeaseRef),
    RequestYield,
    Follow(u64),
    ForceRelease(View),
    Hold(Hold),
    Resume(View),
    Skip(LeaseRef, View, DecisionRef),
    Rewind(LeaseRef, View, u64),
}

/// The outcome of an operation, as its author learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OperationReply {
    Claimed(u64, View),
    Stored,
    /// The sequence has a tombstone.
    Voided,
    Filled,
    Answered(AcquiredRef),
    /// The operation landed; the lease continues.
    Goes(LeaseRef, View),
    /// The operation landed; the lease has ended.
    Ended(Option<View>),
    Grown(View),
    Lost,
    Done,
    Refused,
}

/// The row after an operation, whether the write landed, and the outcome that its author learns from the
/// reply.
#[derive(Clone, Copy)]
pub struct Executed {
    pub row: Option<RowRef>,
    pub landed: bool,
    pub reply: OperationReply,
}

type Memo = HashMap<(Changes, u8, Op, Option<RowRef>), Executed>;

thread_local! {
    static MEMORY: RefCell<Memo> = RefCell::default();
}

/// Runs `op` on its row.
pub fn execute(changes: Changes, epoch: u8, op: Op, row: Option<RowRef>) -> Executed {
    MEMORY.with(|memory| {
        let key = (changes, epoch, op, row);
        if let Some(known) = memory.borrow().get(&key) {
            return *known;
        }
        let executed = Execution { changes, epoch, op, row }.run();
        memory.borrow_mut().insert(key, executed);
        executed
    })
}

struct Execution {
    changes: Changes,
    epoch: u8,
    op: Op,
    row: Option<RowRef>,
}

impl Execution {
    fn run(&self) -> Executed {
        match self.op {
            Op::Claim(..) | Op::Put(..) | Op::Void(..) => self.run_append(),
            Op::Acquire(..)
            | Op::TakeOver(..)
            | Op::Renew(..)
            | Op::MarkHandOver(..)
            | Op::YieldToDeliveries(..)
            | Op::HandOver(..)
            | Op::ReleaseEmpty(..)
            | Op::Release(..)
            | Op::Follow(_)
            | Op::RequestYield => self.run_lease(),
            Op::Settle(..)
            | Op::SettleAndRelease(..)
            | Op::Spill(..)
            | Op::SpillPage(..)
            | Op::Park(..)
            | Op::Fail { .. }
            | Op::Block(..)
            | Op::MarkStart(..) => self.run_delivery(),
            _ => self.run_operator(),
        }
    }

    fn run_append(&self) -> Executed {
        let entity = entity();
        let now = time(self.epoch, ClockReading::Early);
        let purge_at = now + RETENTION;
        match self.op {
            Op::Claim(drawn) => {
                let nonce = drawn.nonce();
                let tail = self.row.and_then(|row| row.number(a::TAIL));
                let now = if self.changes.has(ViolatedRule::RecreatedRowsReuseNumbers) {
                    time(0, ClockReading::Early)
                } else {
                    tail.map_or(now, |tail| arrival(tail + 1))
                };
                self.with(&Claim { entity, nonce: &nonce, now }, |claimed| {
                    OperationReply::Claimed(claimed.sequence.0, intern_view(&claimed.state))
                })
            }
            Op::Put(id, drawn, sequence) => {
                let envelope = Envelope::pack(
                    &Incoming {
                        entity: entity.clone(),
                        identity: identity(id),
                        provider: None,
                        topic: "t".into(),
                        family: "t".into(),
                        event_time: None,
                        received_at: arrival(sequence),
                        content_type: None,
                        body: Default::default(),
                    },
                    &drawn.nonce(),
                    purge_at,
                );
                self.with(&Put { envelope: &envelope, sequence: Sequence(sequence) }, |outcome| match outcome {
                    PutOutcome::Stored => OperationReply::Stored,
                    PutOutcome::Voided => OperationReply::Voided,
                })
            }
            Op::Void(sequence) => {
                self.with(&Void { entity, sequence: Sequence(sequence), purge_at }, |voided| match voided {
                    Voided::Void => OperationReply::Voided,
                    Voided::Filled(_) => OperationReply::Filled,
                })
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn run_lease(&self) -> Executed {
        let entity = entity();
        let now = time(self.epoch, ClockReading::Early);
        match self.op {
            Op::Acquire(kind, drawn, clock) => {
                let request = self.request(kind, drawn, clock);
                self.with(&request, |acquired| OperationReply::Answered(AcquiredRef::of(acquired)))
            }
            Op::TakeOver(kind, drawn, seen) => {
                let take_over =
                    TakeOver { request: self.request(kind, drawn, ClockReading::Late), seen: (*seen).clone() };
                self.with(&take_over, |acquired| OperationReply::Answered(AcquiredRef::of(acquired)))
            }
            Op::Renew(lease) => {
                self.with(&Renew { lease: &lease, now, length: LEASE, wrong: None }, |renewed| match renewed {
                    Renewed::Renewed(state) => OperationReply::Goes(lease, intern_view(&state)),
                    Renewed::Lost => OperationReply::Lost,
                })
            }
            Op::MarkHandOver(lease) => self.with(&MarkHandOver { lease: &lease }, |_| OperationReply::Done),
            Op::YieldToDeliveries(lease) => self.with(&YieldToDeliveries { lease: &lease, now }, |ended| match ended {
                Ended::Ended(state) => OperationReply::Ended(Some(intern_view(&state))),
                Ended::Lost => OperationReply::Lost,
            }),
            Op::HandOver(lease, suspected) => {
                self.with(&HandOver { lease: &lease, suspected, due: now, is_pause: false }, |ended| match ended {
                    Ended::Ended(state) => OperationReply::Ended(Some(intern_view(&state))),
                    Ended::Lost => OperationReply::Lost,
                })
            }
            Op::ReleaseEmpty(lease, is_exclusive, stays) => {
                let recent = self.row.map(|row| view_of(&row).recent.clone()).unwrap_or_default();
                let remembers = !is_exclusive || !self.changes.has(ViolatedRule::PurgedBeforeItIsForgotten);
                let recent = if remembers { recent } else { Recent::default() };
                let retention = if is_exclusive { RETENTION / 100 } else { RETENTION };
                let purge_at = idle_purge_at(entity, &recent, now, retention).filter(|_| !stays);
                self.with(&ReleaseEmpty { lease: &lease, purge_at }, |released| match released {
                    Released::Released => OperationReply::Ended(None),
                    Released::Grown(state) => OperationReply::Grown(intern_view(&state)),
                    Released::Lost => OperationReply::Lost,
                })
            }
            Op::Release(lease) => self.with(&Release { lease: &lease }, |ended| match ended {
                Ended::Ended(state) => OperationReply::Ended(Some(intern_view(&state))),
                Ended::Lost => OperationReply::Lost,
            }),
            Op::Follow(token) => {
                self.with(&Follow { entity, token: FencingToken(token), due: now }, |()| OperationReply::Done)
            }
            Op::RequestYield => self
                .with(&RequestYield { entity, now, until: now + Duration::from_secs(10) }, |()| OperationReply::Done),
            other => unreachable!("{other:?}"),
        }
    }

    fn run_delivery(&self) -> Executed {
        let entity = entity();
        let now = time(self.epoch, ClockReading::Early);
        let purge_at = now + RETENTION;
        match self.op {
            Op::Settle(lease, decision, hands_over) => {
                let settle = Settle { lease: &lease, decision: &decision, now, length: LEASE, hands_over };
                self.with(&settle, |settled| match settled {
                    Settled::Settled(_, state) if self.changes.has(ViolatedRule::OneTokenPerDrain) => {
                        held_reply((*lease).clone(), &state)
                    }
                    Settled::Settled(lease, state) => held_reply(lease, &state),
                    Settled::Lost => OperationReply::Lost,
                })
            }
            Op::SettleAndRelease(lease, decision, stays) => {
                let purge_at = (!stays).then_some(purge_at);
                let last = SettleAndRelease { lease: &lease, decision: &decision, purge_at };
                self.with(&last, |settled| match settled {
                    SettledAndReleased::Released => OperationReply::Ended(None),
                    SettledAndReleased::Grown(state) => OperationReply::Grown(intern_view(&state)),
                    SettledAndReleased::Lost => OperationReply::Lost,
                })
            }
            Op::Spill(receipt) => {
                let spill = Spill::of(entity, &receipt, purge_at).expect("it has a row");
                self.with(&spill, |()| OperationReply::Done)
            }
            Op::SpillPage(receipts) => {
                let spill = SpillPage::of(entity, &receipts, purge_at).expect("a page has receipts");
                self.with(&spill, |()| OperationReply::Done)
            }
            Op::Park(id, sequence) => {
                // The same row as from `delivery::parked_copy`: the payload, without an end of its retention.
                let row = Row::new()
                    .with(a::VERSION, webhook_serializer::protocol::format::FORMAT)
                    .with(a::DELIVERY_ID, identity(id).delivery_id.as_str())
                    .with(a::REDRIVE, u32::from(id.redrive));
                self.with(&Park { entity, sequence: Sequence(sequence), row: &row }, |()| OperationReply::Done)
            }
            Op::Fail { lease, sequence, attempts, retries, suspected, one_by_one, retry } => {
                let then = if retry { AfterFailure::RetryAt(retry_at(self.epoch)) } else { AfterFailure::Block };
                let sequence = Sequence(sequence);
                let lease = &*lease;
                let error = "";
                let source = SourceTag::default();
                let fail = Fail { lease, sequence, attempts, retries, suspected, one_by_one, then, error, source };
                self.with(&fail, failed_reply)
            }
            Op::Block(lease, sequence, reason) => {
                let source = SourceTag::default();
                self.with(&Block { lease: &lease, sequence: Sequence(sequence), reason, source }, failed_reply)
            }
            Op::MarkStart(lease, sequence) => {
                self.with(&MarkStart { lease: &lease, sequence: Sequence(sequence) }, |marked| match marked {
                    Marked::Recorded => OperationReply::Done,
                    Marked::Lost => OperationReply::Lost,
                })
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn run_operator(&self) -> Executed {
        let entity = entity();
        let now = time(self.epoch, ClockReading::Early);
        let purge_at = now + RETENTION;
        match self.op {
            Op::Unblock => {
                // The operator's read and write are one step here. The simulation covers a write that lands
                // late.
                let seen = self.row.as_ref().map_or(FencingToken(0), |row| view_of(row).token);
                self.with(&Unblock { entity, seen }, |unblocked| match unblocked {
                    Unblocked::Ended(_) => OperationReply::Done,
                    Unblocked::NotBlocked(_) => OperationReply::Refused,
                })
            }
            Op::Hold(seen) => self.with(&BeginHold { entity, seen, now }, turned),
            Op::Resume(seen) => self.with(&EndHold { seen: &seen, purge_at: Some(purge_at) }, turned),
            Op::Skip(lease, seen, decision) => {
                let may_go = !seen.is_on_hold();
                let purge_at = may_go.then_some(purge_at);
                let skip = Skip { lease: &lease, decision: &decision, seen: &seen, now, purge_at };
                self.with(&skip, |skipped| match skipped {
                    Skipped::Skipped => OperationReply::Ended(None),
                    Skipped::Changed(state) => OperationReply::Grown(intern_view(&state)),
                    Skipped::Lost => OperationReply::Lost,
                })
            }
            Op::Rewind(lease, seen, from) => {
                let rewind = Rewind { lease: &lease, seen: &seen, from: Sequence(from), since: arrival(from) };
                self.with(&rewind, |rewound| match rewound {
                    Rewound::Rewound(state) => held_reply((*lease).clone(), &state),
                    Rewound::Lost => OperationReply::Lost,
                })
            }
            Op::ForceRelease(seen) => {
                self.with(&ForceRelease { seen: &seen, record: HolderInfo::new("operator") }, |forced| match forced {
                    Forced::Released(_) => OperationReply::Done,
                    Forced::Changed(_) => OperationReply::Refused,
                })
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn request(&self, kind: LeaseKind, drawn: NonceId, clock: ClockReading) -> Acquire {
        Acquire {
            entity: entity().clone(),
            kind,
            holder: drawn.nonce(),
            info: HolderInfo::new(""),
            now: time(self.epoch, clock),
            length: LEASE,
        }
    }

    fn with<O: Operation>(&self, operation: &O, reply: impl FnOnce(O::Outcome) -> OperationReply) -> Executed {
        self.evaluated(operation, operation.write(), reply)
    }

    fn evaluated<O: Operation>(
        &self,
        operation: &O,
        mut write: Write,
        reply: impl FnOnce(O::Outcome) -> OperationReply,
    ) -> Executed {
        self.change_write(&mut write);
        let before = self.row.map(|row| (*row).clone());
        match memory::evaluate(&write, before.as_ref()) {
            Ok(mut after) => {
                self.forget_whose_clock(&mut after);
                let shown = matches!(write.action, Action::Update(_)).then(|| after.clone()).flatten();
                let outcome = operation.judge(Written::Landed(shown)).expect("the model's rows are sound");
                let row = after.map(RowRef::of);
                Executed { row, landed: true, reply: reply(outcome) }
            }
            Err(memory::ConditionFailed) => {
                let free = before.as_ref().is_some_and(|row| row.get(a::HOLDER).is_none());
                let token = before.as_ref().and_then(|row| row.number(a::TOKEN));
                let outcome = operation.judge(Written::Refused(before)).expect("the model's rows are sound");
                let reply = match (self.op, reply(outcome)) {
                    (Op::SettleAndRelease(..) | Op::ReleaseEmpty(..) | Op::Release(_), OperationReply::Lost)
                        if free && self.changes.has(ViolatedRule::ReleaseRecognisedWithoutToken) =>
                    {
                        OperationReply::Ended(None)
                    }
                    (Op::SettleAndRelease(lease, ..), OperationReply::Lost)
                        if free
                            && token == Some(lease.token().next().0)
                            && self.changes.has(ViolatedRule::ReleaseRecognisedWithoutHead) =>
                    {
                        OperationReply::Ended(None)
                    }
                    (_, reply) => reply,
                };
                Executed { row: self.row, landed: false, reply }
            }
        }
    }
}

fn turned(turned: HoldChanged) -> OperationReply {
    match turned {
        HoldChanged::Done(_) => OperationReply::Done,
        HoldChanged::Changed(_) => OperationReply::Refused,
    }
}

fn held_reply(lease: Lease, state: &EntityState) -> OperationReply {
    OperationReply::Goes(intern_lease(lease), intern_view(state))
}

fn failed_reply(failed: Failed) -> OperationReply {
    match failed {
        Failed::Counted => OperationReply::Ended(None),
        Failed::Lost => OperationReply::Lost,
    }
}
