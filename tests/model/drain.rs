//! What a draining worker knows: the production value, moved on by the
//! production functions. Interned like the rows, and every move remembered.

use std::{
    cell::RefCell,
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{Arc, LazyLock, Mutex},
    thread::LocalKey,
    time::Duration,
};

use webhook_serializer::{
    engine::drain::{
        page::Page,
        plan::{Drain, Moment, Step},
    },
    handler::Outcome,
    protocol::{entity::Sequence, state::Settlement},
    sources::{Found, Source, Sources},
};

use crate::store::{
    Clock, Decided, Id, Interned, Pool, Stored, Told, View, arrival, decided, delivery_at, entity, id_of, intern,
    receipt, retry_at, time,
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
    MadeSure(Told),
    Filled,
    Voided,
    /// The place in front is settled; with a receipt beside it.
    Settled(View, Option<Told>),
}

thread_local! {
    static GRANTED: RefCell<HashMap<View, Knows>> = RefCell::default();
    static LEARNED: RefCell<HashMap<(Knows, u8, Learned), Knows>> = RefCell::default();
    static DECISIONS: RefCell<HashMap<(Knows, u8, Settlement, bool), Decided>> = RefCell::default();
}

fn remembered<K: Clone + Eq + Hash, V: Copy>(
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

/// A worker that has all the time in the world, alone in its batch.
pub fn moment(epoch: u8, clock: Clock) -> Moment {
    Moment { now: time(epoch, clock), left: AMPLE, is_alone: true, is_spent: false }
}

/// One that is at the end of it.
pub fn at_the_end(epoch: u8) -> Moment {
    Moment { left: Duration::ZERO, ..moment(epoch, Clock::Late) }
}

impl Knows {
    pub fn granted(view: View) -> Knows {
        remembered(&GRANTED, view, |view| intern(&DRAINS, Drain::granted((**view).clone())))
    }

    /// The place to be decided next, and whose it is, once that was read.
    pub fn place(&self) -> (u64, Option<Id>) {
        let front = self.front();
        let sequence = front.map_or(self.state().next(), |waiting| waiting.unpacked.head().sequence());
        (sequence.0, front.and_then(|waiting| delivery_at(&waiting.row)))
    }

    /// What it does next, at a source like that.
    pub fn next_step(&self, moment: &Moment, source: &Arc<Source>) -> Step {
        self.next(moment, Some(&Found::Source(source.clone())))
    }

    /// What it does once its handler has answered.
    pub fn answer(&self, outcome: Outcome, source: &Source) -> Step {
        self.answered(outcome, source, 0.0)
    }

    /// What settling the place in front decides. `rated`: a handler of a source
    /// with a rate has run.
    pub fn decides(self, epoch: u8, settlement: Settlement, rated: bool) -> Decided {
        remembered(&DECISIONS, (self, epoch, settlement, rated), |_| {
            let seen_at = arrival(self.state().tail.0 + 1);
            decided(self.decision(settlement, seen_at, rated.then(|| retry_at(epoch))))
        })
    }

    #[must_use]
    pub fn learns(self, epoch: u8, learned: Learned) -> Knows {
        remembered(&LEARNED, (self, epoch, learned), |(_, _, learned)| {
            let mut drain = (*self).clone();
            match learned {
                Learned::Seen(view) => drain.seen((**view).clone()),
                Learned::Read(from, rows, receipts) => {
                    let also = match drain.next(&moment(epoch, Clock::Late), None) {
                        Step::ReadPage(also) => also,
                        _ => None,
                    };
                    let page = Page::of(entity(), Sequence(*from), rows.iter().map(|row| (**row).clone()).collect());
                    let page = page.expect("the model's rows are sound");
                    let wanted: Vec<Id> = page.wanted(also.as_ref()).into_iter().map(id_of).collect();
                    let receipts = receipts.iter().filter(|(id, _)| wanted.contains(id));
                    let receipts: Vec<_> = receipts.map(|(_, row)| (**row).clone()).collect();
                    drain.read(page.with_receipts(&receipts).expect("the model's rows are sound"));
                }
                Learned::MadeSure(told) => drain.made_sure(receipt(epoch, *told)),
                Learned::Filled => drain.filled(),
                Learned::Voided => drain.voided(),
                Learned::Settled(view, told) => {
                    drain.settled((**view).clone(), told.map(|told| receipt(epoch, told)));
                }
            }
            intern(&DRAINS, drain)
        })
    }
}

/// By how often a delivery is tried, whether its order is then blocked, and
/// whether it has a rate.
type Sourced = HashMap<(u32, bool, bool), Arc<Source>>;

/// The source of all deliveries.
pub fn source(attempts: u32, block: bool, rated: bool) -> Arc<Source> {
    static SOURCES: LazyLock<Mutex<Sourced>> = LazyLock::new(Mutex::default);
    let mut sources = SOURCES.lock().unwrap();
    let source = sources.entry((attempts, block, rated)).or_insert_with(|| {
        let document = format!(
            "[sources.shop]\nprovider = \"shopify\"\nsecrets = [\"s\"]\nhandler = \"h\"\nhandler_timeout = \"10s\"\n\
             retry = {{ attempts = {attempts}, first = \"60s\", longest = \"60s\" }}\n{}{}",
            if block { "on_failure = \"block\"\n" } else { "" },
            if rated { "rate = \"1/s\"\n" } else { "" },
        );
        let sources = Sources::parse(&document).expect("a document");
        sources.iter().next().expect("a source").clone()
    });
    source.clone()
}
