//! What there is in the model: rows, the queue, and where each actor stands.

use webhook_serializer::{
    engine::{append::Appending, drain::plan::Group},
    protocol::{attempt::Retries, entity::Sequence, hold::Hold, state::BlockReason},
};

use crate::{
    drain::Knows,
    operations::Op,
    store::{Answer, Decided, Drawn, Held, Id, Item, Stored, Told, View, arrival, view_of},
};

/// How much may go wrong, and how much is asked for. Each is used up as it
/// happens, so that every exploration ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Budget {
    /// Ingest instances, or operators, that die.
    pub ingest_crashes: u8,
    /// Workers that die.
    pub worker_crashes: u8,
    /// Places given up while their ingest still lives.
    pub voids: u8,
    /// Messages delivered to a second worker while the first has them.
    pub copies: u8,
    /// Writes that land and whose reply is lost.
    pub lost_replies: u8,
    /// Leases taken over.
    pub take_overs: u8,
    /// Drains that end as the function's time does.
    pub overruns: u8,
    /// Handlers that fail.
    pub failures: u8,
    /// Handlers that outlive their timeout and whose effect comes late.
    pub timeouts: u8,
    /// Handlers that reject a delivery.
    pub rejections: u8,
    /// Renewals that tell a holder it lost its lease.
    pub renewals: u8,
    /// Gaps that may stem from retention.
    pub expiries: u8,
    /// Exclusive holders that die.
    pub visitor_crashes: u8,
    /// Exclusive leases wanted.
    pub visits: u8,
    /// Parked deliveries put back.
    pub redrives: u8,
    /// Entities unblocked.
    pub unblocks: u8,
    /// Leases ended by force.
    pub forced: u8,
    /// Idle rows deleted by TTL.
    pub purges: u8,
    /// Drains that stop as the store does not answer.
    pub outages: u8,
    /// Drains that go behind everybody else.
    pub slices: u8,
    /// Entities put on hold.
    pub holds: u8,
    /// Deliveries skipped.
    pub skips: u8,
    /// Entities set back.
    pub rewinds: u8,
    /// Ends of that before its own.
    pub rewind_ends: u8,
    /// Writes of an operator's that land at any time later, or never.
    pub late_writes: u8,
}

/// One append: `Inbox::append`, for a webhook or a redrive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    pub id: Id,
    /// The author of its nonces.
    pub author: u8,
    pub knows: Appending,
    pub doubt: bool,
    /// What had been answered when it claimed.
    pub after: u8,
    pub step: AppendStep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AppendStep {
    Claim,
    /// Claimed: the put beside the wake-up.
    Write {
        sequence: u64,
        stored: Option<bool>,
        /// The wake-up to be sent beside it says this token.
        owed: Option<u64>,
    },
    /// Answered 2xx.
    Answered(u64),
    /// Answered 503, or dead.
    Ended,
}

impl Append {
    pub fn new(id: Id, author: u8) -> Self {
        Self { id, author, knows: Appending::default(), doubt: false, after: 0, step: AppendStep::Claim }
    }

    pub fn drawn(&self) -> Drawn {
        Drawn(self.author, self.knows.places as u8)
    }

    pub fn has_begun(&self) -> bool {
        self.step != AppendStep::Claim || self.doubt || self.knows.places > 0
    }

    pub fn is_over(&self) -> bool {
        matches!(self.step, AppendStep::Answered(_) | AppendStep::Ended)
    }
}

/// A message in a worker's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// As long as this worker does not delete it, it comes again.
    Own,
    /// The other worker has it too.
    Copy,
    /// Deleted by the other worker meanwhile.
    Deleted,
}

/// A worker with a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Worker {
    pub message: Message,
    /// What that says.
    pub token: Option<u64>,
    /// It was received again, and a fresh one was sent in its place.
    pub is_replaced: bool,
    pub step: Step,
    /// What it holds.
    pub drain: Option<Draining>,
}

impl Worker {
    pub fn draining(&self) -> &Draining {
        self.drain.as_ref().expect("a drain")
    }

    pub fn draining_mut(&mut self) -> &mut Draining {
        self.drain.as_mut().expect("a drain")
    }
}

/// A lease, and what its holder knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Draining {
    pub lease: Held,
    pub knows: Knows,
    /// What the row asked to wait for was over when the lease was granted: one
    /// worker's clock does not go back.
    pub waited: bool,
    /// It stops, as the store does not answer.
    pub is_stopped: bool,
    /// What its handler was started for, where it was and that is not settled.
    pub group: Group,
}

impl Draining {
    pub fn has_to_wait(&self) -> bool {
        let state = self.knows.state();
        !self.waited && (state.yield_until.is_some() || state.retry_at.is_some())
    }
}

/// What a worker does next: one store write, one queue send or one step of a
/// handler each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Received more than once: a fresh one first.
    SendFresh,
    Acquire(Drawn),
    /// Held by somebody: what the clock says of it.
    Look(Drawn, Answer),
    TakeOver(Drawn, View),
    /// A fresh wake-up in place of this one.
    PutOff(Option<u64>),
    /// Asks its plan, where the clocks have a say in the answer.
    Ask,
    ReadPage,
    Gap,
    /// About to start a handler: where its holder vanished before, once that is
    /// written.
    Mark,
    Start,
    Run,
    /// Before a decision that drops receipts from the row: writes them elsewhere.
    Spill {
        decided: Decided,
        commits: bool,
    },
    Commit {
        decided: Decided,
        landed: bool,
    },
    Park {
        ran: bool,
    },
    Settle {
        decided: Decided,
        row: RowStep,
        /// What leaves the row next may be written elsewhere beside it.
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
    /// Stops: says that it is about to let go.
    Announce,
    HandOver,
    LetGo,
    /// As `LetGo`, with nothing left to be said about it.
    LetGoBlindly,
    Release,
    ReleaseEmpty,
    /// Done with the message: deleted, or kept.
    Finish {
        delete: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowStep {
    /// Settle and release.
    Last,
    /// Settle.
    Next,
}

/// An exclusive holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Visitor {
    #[default]
    Away,
    Acquire(Drawn),
    Look(Drawn, Answer),
    TakeOver(Drawn, View),
    Ask(Drawn),
    /// Waits for a drain to yield, or for its time.
    Poll,
    Hold(Held),
    /// Deliveries wait: ends its lease all the same.
    Leave(Held),
    Wake,
}

/// An operator.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Operator {
    #[default]
    Away,
    Check(u64, Id),
    Redrive(u64, Append),
    Forget(u64, Option<Append>),
    VoidExpired(u64),
    Unblock,
    Wake,
    Force(View),
    /// Puts it on hold, as this was seen.
    Hold(Hold),
    Resume(View),
    /// Asks for the lease, to skip this place.
    SkipAcquire(u64, Drawn),
    SkipLook(u64, Held),
    SkipPark(Held, Knows),
    SkipSettle(Held, View, Decided),
    SkipRelease(Held),
    /// Asks for the lease, to set the entity back to this place.
    RewindAcquire(u64, Drawn),
    RewindLook(u64, Held),
    RewindSpill(Held, View, u64),
    RewindWrite(Held, View, u64),
    RewindRelease(Held),
    /// Asks for the lease, to leave as it was what is yet to be run again.
    EndAcquire(Drawn),
    EndLook(Held),
    EndSettle(Held, View, Decided),
}

impl Operator {
    /// The append that puts a parked delivery back.
    pub fn append(&self) -> Option<&Append> {
        match self {
            Operator::Redrive(_, append) => Some(append),
            _ => None,
        }
    }
}

/// What must never be; kept once it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Broken {
    /// G1.
    Order,
    /// G2: a grant under a token that is not new.
    Token,
    /// G2: an effect accepted after that of a later delivery.
    LateEffect,
    /// G3.
    Loss,
    /// G4.
    Once,
    /// A sequence decided twice.
    DecidedTwice,
    /// A failure counted against another delivery.
    Charge,
    /// A handler started on hold.
    Hold,
    /// Another delivery skipped than the one that was seen.
    Skip,
    /// Settled again as something else, or more often than a person asked for.
    Rewind,
}

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    pub left: Budget,
    pub epoch: u8,
    pub row: Option<Stored>,
    pub inbox: Vec<(Item, Stored)>,
    /// Wake-ups in the queue, in order: what each says, and whether it was
    /// received before. A token that is not the newest any more is nobody's: 0.
    pub queue: Vec<(Option<u64>, bool)>,
    pub appends: Vec<Append>,
    pub workers: Vec<Option<Worker>>,
    pub visitor: Visitor,
    pub operator: Operator,
    /// What the receiver remembers: the newest token, and whose effect it was.
    pub receiver: (u64, u64),
    /// Effects of handlers that were given up: token, place.
    pub late: Vec<(u64, u64)>,
    /// What was decided, in order; forgotten with retention.
    pub settled: Vec<Told>,
    /// Whose rows were deleted by TTL since.
    pub forgotten: Vec<Id>,
    pub committed: Vec<Id>,
    pub newest_token: u64,
    /// Starts of what stands at `head + 1`, made or written.
    pub starts: u8,
    /// The first claim since the inbox was last empty.
    pub waiting_since: u64,
    pub broken: u16,
    /// What its operator was told last: whether it is on hold. `None`: a hold or its
    /// end is under way, or its author died.
    pub told_on_hold: Option<bool>,
    /// The newest token when it was put on hold.
    pub held_at: u64,
    /// Places that were set back to, once for each time.
    pub rewound: Vec<u64>,
    /// How often an entity was set back, and how often somebody wanted it to be.
    pub rewinds: u8,
    pub rewinds_wanted: u8,
    /// An operator's writes that are under way still, whom nobody waits for.
    pub late_writes: Vec<Op>,
}

impl State {
    pub fn item(&self, item: Item) -> Option<Stored> {
        self.inbox.binary_search_by_key(&item, |(item, _)| *item).ok().map(|at| self.inbox[at].1)
    }

    pub fn store(&mut self, item: Item, row: Option<Stored>) {
        match (self.inbox.binary_search_by_key(&item, |(item, _)| *item), row) {
            (Ok(at), Some(row)) => self.inbox[at].1 = row,
            (Err(at), Some(row)) => self.inbox.insert(at, (item, row)),
            (Ok(at), None) => {
                self.inbox.remove(at);
            }
            (Err(_), None) => {}
        }
    }

    /// Whether the row says since when its oldest delivery waits: no later than
    /// that came, and no earlier than the first that came to the empty inbox; and
    /// nothing where nothing waits and nobody is at work.
    pub fn pending_is_told(&self) -> bool {
        let Some(view) = self.row.map(|row| view_of(&row)) else { return true };
        let told = || {
            let since = view.pending_since?;
            Some((arrival(self.waiting_since)..=arrival(view.next().0)).contains(&since))
        };
        if view.is_empty() {
            return view.held.is_some() || view.pending_since.is_none();
        }
        told() == Some(true)
    }

    /// Whether it is on hold if its operator was told so, and only then.
    pub fn is_as_told(&self) -> bool {
        let under_way = matches!(self.operator, Operator::Hold(_) | Operator::Resume(_));
        let on_hold = self.view().is_some_and(|view| view.hold.since().is_some());
        under_way || self.told_on_hold.is_none_or(|told| told == on_hold)
    }

    pub fn view(&self) -> Option<View> {
        self.row.map(|row| view_of(&row))
    }

    /// Whether an ingest, or an operator, that lives has yet to fill this place.
    pub fn is_awaited(&self, sequence: u64) -> bool {
        let awaits = |append: &Append| matches!(append.step, AppendStep::Write { sequence: at, stored: None, .. } if at == sequence);
        self.appends.iter().chain(self.operator.append()).any(awaits)
    }

    /// What differs only by what no longer matters is one state.
    pub fn forget_old_tokens(&mut self) {
        let newest = self.newest_token;
        let forget = |token: &mut Option<u64>| *token = token.map(|token| if token < newest { 0 } else { token });
        self.queue.iter_mut().for_each(|(token, _)| forget(token));
        self.queue.sort_unstable();
        for worker in self.workers.iter_mut().flatten() {
            forget(&mut worker.token);
            if let Step::PutOff(token) = &mut worker.step {
                forget(token);
            }
        }
        let operator = match &mut self.operator {
            Operator::Redrive(_, append) => Some(append),
            _ => None,
        };
        for append in self.appends.iter_mut().chain(operator) {
            if let AppendStep::Write { owed, .. } = &mut append.step {
                forget(owed);
            }
        }
    }

    pub fn breaks(&mut self, broken: Broken) {
        self.broken |= 1 << broken as u16;
    }

    pub fn is_broken(&self, broken: Broken) -> bool {
        self.broken & 1 << broken as u16 != 0
    }
}
