//! What a draining worker knows: the production value, moved on by the
//! production functions. Interned like the rows, and every move remembered.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{LazyLock, Mutex},
    thread::LocalKey,
    time::Duration,
};

use webhook_serializer::{
    engine::drain::{
        begin::{Begin, Drained, begin},
        page::Page,
        plan::{Answered, Drain, Ending, Group, Memory, Moment, Step},
    },
    handler::Outcome,
    protocol::{
        attempt::Retries,
        entity::{FencingToken, Sequence},
        receipt::Settlement,
    },
    sources::{Found, Sources, deliver::Deliver},
    time::Timestamp,
};

use crate::store::{
    Answer, Clock, Decided, Held, Id, Interned, Pool, Stored, Told, View, arrival, decided, delivery_at, entity, id_of,
    intern, intern_lease, intern_view, retry_at, time, told,
};

/// What a drain knows.
pub type Knows = Interned<Drain>;

static DRAINS: Pool<Drain> = LazyLock::new(Mutex::default);

impl fmt::Debug for Knows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state().head)
    }
}

/// What a drain learns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Learned {
    Seen(View),
    /// A page from this place on, and receipts.
    Read(u64, Vec<Stored>, Vec<(Id, Stored)>),
    Spilled(Told),
    Filled,
    Voided,
    /// The place in front is settled.
    Settled(View, Decided),
}

/// A step of the plan, with its arguments.
pub type Todo = Interned<Step>;

static TODOS: Pool<Step> = LazyLock::new(Mutex::default);

impl fmt::Debug for Todo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", **self)
    }
}

/// When a plan is asked: by which clock, or at the end of the function's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    At(Clock),
    TheEnd,
}

/// What a handler says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Said {
    Done,
    Commit,
    Retry,
    Reject,
}

/// How a drain begins.
#[derive(Debug, Clone, Copy)]
pub enum Begun {
    Granted(Held, Knows),
    Drained(Drained),
    AskAgain,
    TakeOver(View),
}

/// How places ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ended {
    pub settlement: Settlement,
    pub group: Group,
    pub token: u64,
    /// A handler of a source with a rate has run.
    pub rated: bool,
}

/// How long a delivery is remembered that a worker settles.
pub const RETENTION: Duration = Duration::from_secs(1000);

/// Everything that waits has done so for longer than any limit asks.
const LONG_AGO: Answered = Answered { at: Timestamp::from_millis(u64::MAX / 2), took: Duration::ZERO, fraction: 0.0 };

/// A source: how often a delivery is tried, whether its order is then blocked,
/// whether it has a rate, and what it delivers at once.
pub type Sort = (u32, bool, bool, Deliver);

thread_local! {
    static SOURCES: RefCell<HashMap<Sort, &'static Found>> = RefCell::default();
    static BEGUN: RefCell<HashMap<(Answer, u8, Clock, usize), Begun>> = RefCell::default();
    static NEXT: RefCell<HashMap<(Knows, u8, When, Sort), Todo>> = RefCell::default();
    static ANSWERED: RefCell<HashMap<(Knows, Said, Group, Sort), Todo>> = RefCell::default();
    static LEARNED: RefCell<HashMap<(Knows, u8, Learned), Knows>> = RefCell::default();
    static DECISIONS: RefCell<HashMap<(Knows, u8, Ended), Decided>> = RefCell::default();
}

/// What `make` says of `key`, made once.
pub fn remembered<K: Clone + Eq + Hash, V: Copy>(
    memory: &'static LocalKey<RefCell<HashMap<K, V>>>,
    key: K,
    make: impl FnOnce(&K) -> V,
) -> V {
    if let Some(known) = memory.with_borrow(|memory| memory.get(&key).copied()) {
        return known;
    }
    let value = make(&key);
    memory.with_borrow_mut(|memory| memory.insert(key, value));
    value
}

/// More time than anything takes.
const AMPLE: Duration = Duration::from_secs(600);

fn moment(epoch: u8, when: When) -> Moment {
    let (clock, left) = match when {
        When::At(clock) => (clock, AMPLE),
        When::TheEnd => (Clock::Late, Duration::ZERO),
    };
    Moment { now: time(epoch, clock), left, is_alone: true, is_spent: false }
}

/// What follows an answer to a request for the lease. Nobody waits for another
/// holder here: that is a second look, later. `capacity` is how many receipts the
/// row holds.
pub fn begun(answer: Answer, epoch: u8, clock: Clock, capacity: usize) -> Begun {
    let memory = Memory { capacity, retention: RETENTION };
    let begins = || begin((*answer).clone(), time(epoch, clock), AMPLE, None);
    remembered(&BEGUN, (answer, epoch, clock, capacity), |_| match begins() {
        Begin::Granted(lease, state) => {
            Begun::Granted(intern_lease(lease), intern(&DRAINS, Drain::granted(state, memory)))
        }
        Begin::NothingToDo => Begun::Drained(Drained::Ended),
        Begin::NotNow(delay, reason) => Begun::Drained(Drained::NotNow(delay, reason)),
        Begin::Awaits(token, delay) => Begun::Drained(Drained::Awaits(token, delay)),
        Begin::AskAfter(_) => Begun::AskAgain,
        Begin::TakeOver { seen, .. } => Begun::TakeOver(intern_view(&seen)),
        Begin::LookWithin(_) => unreachable!("it does not wait"),
    })
}

impl Knows {
    /// The place to be decided next, and whose it is, once that was read.
    pub fn place(&self) -> (u64, Option<Id>) {
        let front = self.front();
        let sequence = front.map_or(self.state().next(), |waiting| waiting.unpacked.head().sequence());
        (sequence.0, front.and_then(|waiting| delivery_at(&waiting.row)))
    }

    /// Whether it is known to be on hold.
    pub fn is_on_hold(&self) -> bool {
        self.state().hold.since().is_some()
    }

    /// Those of a group that its handler gets.
    pub fn handled(&self, group: Group) -> Vec<(u64, Id)> {
        let one = |row| delivery_at(row).expect("a delivery");
        self.members(group).map(|waiting| (waiting.unpacked.head().sequence().0, one(&waiting.row))).collect()
    }

    /// What it does next, at a source of that sort.
    pub fn next_step(self, epoch: u8, when: When, sort: Sort) -> Todo {
        remembered(&NEXT, (self, epoch, when, sort), |_| {
            intern(&TODOS, self.next(&moment(epoch, when), Some(source(sort))))
        })
    }

    /// What it does once its handler has answered.
    pub fn answer(self, said: Said, group: Group, sort: Sort) -> Todo {
        remembered(&ANSWERED, (self, said, group, sort), |_| {
            let Found::Source(source) = source(sort) else { unreachable!() };
            let outcome = match said {
                Said::Done => Outcome::Done,
                Said::Commit => Outcome::Commit(Vec::new()),
                Said::Retry => Outcome::retry(""),
                Said::Reject => Outcome::Reject(String::new()),
            };
            intern(&TODOS, self.answered(outcome, group, source, LONG_AGO))
        })
    }

    /// What it does about a commit of which a condition did not hold.
    pub fn commit_refused(self, group: Group, sort: Sort) -> Todo {
        let Found::Source(source) = source(sort) else { unreachable!() };
        intern(&TODOS, self.refused(group, source, LONG_AGO))
    }

    /// What it does about a gap whose wait is over; `expired`: it is older than
    /// half the retention.
    pub fn gap_is_over(self, epoch: u8, expired: bool) -> Todo {
        let retention = if expired { Duration::ZERO } else { Duration::MAX };
        intern(&TODOS, self.gap_stays(time(epoch, Clock::Late), retention))
    }

    /// What settling the places in front decides.
    pub fn decides(self, epoch: u8, ended: Ended) -> Decided {
        remembered(&DECISIONS, (self, epoch, ended), |_| {
            let Ended { settlement, group, token, rated } = ended;
            let at = time(epoch, Clock::Early);
            let ending = Ending {
                settlement,
                group,
                token: FencingToken(token),
                attempts: 0,
                took: None,
                at,
                carried: Retries::default(),
            };
            let seen_at = arrival(self.state().tail.0 + 1);
            decided(self.decision(ending, seen_at, rated.then(|| retry_at(epoch))))
        })
    }

    /// What is to be written elsewhere before that is done.
    pub fn spills(&self, decided: Decided) -> Vec<Told> {
        self.to_spill(&decided).into_iter().map(told).collect()
    }

    /// What may be written elsewhere beside it.
    pub fn spills_ahead(&self, decided: Decided) -> Vec<Told> {
        self.to_spill_ahead(&decided).into_iter().map(told).collect()
    }

    #[must_use]
    pub fn learns(self, epoch: u8, learned: Learned) -> Knows {
        remembered(&LEARNED, (self, epoch, learned), |(_, _, learned)| {
            let mut drain = (*self).clone();
            match learned {
                Learned::Seen(view) => drain.seen((**view).clone()),
                Learned::Read(from, rows, receipts) => {
                    let page = Page::of(entity(), Sequence(*from), rows.iter().map(|row| (**row).clone()).collect());
                    let page = page.expect("the model's rows are sound");
                    let wanted: Vec<Id> = page.wanted().into_iter().map(id_of).collect();
                    let receipts = receipts.iter().filter(|(id, _)| wanted.contains(id));
                    let receipts: Vec<_> = receipts.map(|(_, row)| (**row).clone()).collect();
                    drain.read(page.with_receipts(&receipts).expect("the model's rows are sound"));
                }
                Learned::Spilled(told) => drain.spilled(vec![(**told).clone()]),
                Learned::Filled => drain.filled(),
                Learned::Voided => drain.voided(),
                Learned::Settled(view, decided) => drain.settled((**view).clone(), decided),
            }
            intern(&DRAINS, drain)
        })
    }
}

/// A source of that sort.
fn source(sort: Sort) -> &'static Found {
    remembered(&SOURCES, sort, |(attempts, block, rated, deliver)| {
        let document = format!(
            "[sources.shop]\nprovider = \"shopify\"\nsecrets = [\"s\"]\nhandler = \"h\"\nhandler_timeout = \"10s\"\n\
             retry = {{ attempts = {attempts}, first = \"60s\", longest = \"60s\" }}\n{}{}{}",
            if *block { "on_failure = \"block\"\n" } else { "" },
            if *rated { "rate = \"1/s\"\n" } else { "" },
            match deliver {
                Deliver::Each => String::new(),
                Deliver::UpTo(most) => format!("deliver = {{ up_to = {most} }}\n"),
                Deliver::Latest => "deliver = \"latest\"\n".into(),
            },
        );
        let sources = Sources::parse(&document).expect("a document");
        let source = sources.iter().next().expect("a source").clone();
        Box::leak(Box::new(Found::Source(source)))
    })
}
