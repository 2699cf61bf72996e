//! One order: what its sources told, and what that comes to.

use std::{collections::BTreeMap, fmt};

use super::{
    amount::{Amount, Currency, Money, Totals},
    event::OrderEvent,
    history::{Entry, Remark},
    news::News,
    row,
    state::{Life, Payment, Progress, Standing, State},
    view::{Heard, View},
};
use crate::{protocol::entity::SourceName, time::Timestamp};

/// How many deliveries an order's history goes back, where they fit in.
pub const HISTORY_ENTRIES: usize = 40;

/// The most bytes of a row, by DynamoDB's count and without its key, which has
/// up to 517 more. Every event writes the whole row, and in a transaction that
/// costs twice: 14 write units at the most. The history gives way. An order of
/// ten events has about 1500 bytes: 4 units.
pub const ROW_BYTES: usize = 6 * 1024;

/// The most bytes of a row without its history, with new facts in it: some 100
/// payments, refunds and parcels.
const FACT_BYTES: usize = 4 * 1024;

/// What snapshots may add to that: they take the place of others, but one of
/// them may be longer.
const SNAPSHOT_BYTES: usize = 512;

/// An order as it is kept. A new one is `Order::default()`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    pub(super) revision: u64,
    pub(super) views: BTreeMap<SourceName, View>,
    pub(super) is_incomplete: bool,
    pub(super) history: Vec<Entry>,
}

/// The order after `event`, which is the next in its arrival order. Pure. What
/// is applied again changes the revision and the history, and nothing else. The
/// same events in another order come to the same order, but for snapshots
/// without a time and an order thrown away and restored: there the last to
/// arrive counts.
///
/// A fact that finds no room in the row is left out and the order is marked as
/// incomplete; its snapshots go on being taken.
pub fn apply(order: &Order, event: &OrderEvent) -> Order {
    let from = (order.revision > 0).then(|| order.state());
    let (mut next, remark) = match &event.news {
        Some(news) => order.told(event, news),
        None => (order.told(event, &News::default()).0, Remark::Unknown),
    };
    next.revision += 1;
    let entry = Entry {
        at: event.received_at,
        event_time: event.event_time,
        source: event.source.clone(),
        topic: event.topic.clone(),
        delivery_id: event.delivery_id.clone(),
        sequence: event.sequence,
        from,
        to: next.state(),
        remark,
    };
    next.history.push(entry);
    row::trim_history(&mut next);
    next
}

impl Order {
    /// With what the event says, as far as there is room.
    fn told(&self, event: &OrderEvent, news: &News) -> (Order, Remark) {
        let (next, remark) = self.heard(event, news);
        if row::size_without_history(&next) <= FACT_BYTES {
            return (next, remark);
        }
        let smaller = self.heard(event, &news.without_facts()).0;
        let is_complete = smaller.views == next.views;
        if row::size_without_history(&smaller) > FACT_BYTES + SNAPSHOT_BYTES {
            return (Order { is_incomplete: true, ..self.clone() }, Remark::NoRoom);
        }
        if is_complete { (next, remark) } else { (Order { is_incomplete: true, ..smaller }, Remark::NoRoom) }
    }

    fn heard(&self, event: &OrderEvent, news: &News) -> (Order, Remark) {
        let mut next = self.clone();
        let view = next.views.entry(event.source.clone()).or_default();
        let before = view.clone();
        let heard = view.hear(event.event_time, news);
        let remark = match heard {
            Heard::Late => Remark::Late,
            Heard::InTime if *view == before => Remark::Nothing,
            Heard::InTime => Remark::Applied,
        };
        view.newest = view.newest.max(event.event_time);
        (next, remark)
    }

    /// How many deliveries it has seen.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Its state, in one word.
    pub fn state(&self) -> State {
        State::of(self.standing())
    }

    /// All that its state depends on.
    pub fn standing(&self) -> Standing {
        let views = || self.views.values();
        let is_cancelled = views().filter_map(View::snapshot).any(|snapshot| snapshot.is_cancelled);
        let disputes = || views().flat_map(|view| view.disputes.values().copied());
        Standing {
            // Of several, an open one matters.
            dispute: disputes().min(),
            life: if views().any(|view| view.is_deleted) {
                Life::Deleted
            } else if is_cancelled {
                Life::Cancelled
            } else {
                Life::Open
            },
            refund: self.refund(),
            fulfilment: views().map(View::fulfilment).max().unwrap_or(Progress::None),
            payment: self.payment(),
        }
    }

    /// What it costs, by the newest snapshot.
    pub fn total(&self) -> Option<&Money> {
        let told = self.views.values().filter_map(|view| view.told.as_ref());
        told.map(|told| (told.at, &told.snapshot.total)).max().map(|(_, total)| total)
    }

    /// What was paid, whatever went back since. Sources tell of the same
    /// money, each as far as it knows; so the most that one of them tells
    /// counts, not their sum.
    pub fn paid(&self) -> Totals {
        self.most(View::paid)
    }

    /// What went back, likewise.
    pub fn refunded(&self) -> Totals {
        self.most(View::refunded)
    }

    fn most(&self, of: impl Fn(&View) -> Totals) -> Totals {
        let mut most = Totals::default();
        self.views.values().for_each(|view| most.raise_all(&of(view)));
        most
    }

    /// Paid where a shop says so, or where as much is paid as it costs; where
    /// nobody told what it costs, any payment is all of it.
    fn payment(&self) -> Payment {
        let snapshots = || self.views.values().filter_map(View::snapshot);
        let told = snapshots().map(|snapshot| snapshot.payment).max().unwrap_or(Payment::Unpaid);
        let paid = self.paid();
        let covers = self.total().is_none_or(|total| paid.of(&total.currency).is_some_and(|sum| sum >= total.amount));
        if told == Payment::Paid || (paid.is_positive() && covers) {
            Payment::Paid
        } else if told == Payment::Partial || paid.is_positive() {
            Payment::Partial
        } else if self.views.values().any(View::has_failed_payment) {
            Payment::Failed
        } else {
            Payment::Unpaid
        }
    }

    /// Full where a shop says so, or where as much went back as was paid, or as
    /// it costs if no payment is known.
    fn refund(&self) -> Progress {
        let snapshots = || self.views.values().filter_map(View::snapshot);
        let told = snapshots().map(|snapshot| snapshot.refund).max().unwrap_or(Progress::None);
        let (paid, refunded) = (self.paid(), self.refunded());
        if told == Progress::Full || !refunded.is_positive() {
            return told;
        }
        let is_back = |currency: &Currency, due: Amount| {
            !due.is_positive() || refunded.of(currency).is_some_and(|sum| sum >= due)
        };
        let all_is_back = if paid.is_positive() {
            paid.iter().all(|(currency, sum)| is_back(currency, sum))
        } else {
            self.total().is_some_and(|total| is_back(&total.currency, total.amount))
        };
        if all_is_back { Progress::Full } else { Progress::Part }
    }

    /// Whether a fact was left out because the row has no room for it: then
    /// its totals may be too small.
    pub fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }

    /// The newest event time of each source, by that source's clock.
    pub fn newest_event_times(&self) -> impl Iterator<Item = (&SourceName, Timestamp)> {
        self.views.iter().filter_map(|(source, view)| Some((source, view.newest?)))
    }

    /// Its last deliveries in arrival order: at most [`HISTORY_ENTRIES`], fewer
    /// where the row has no room for them.
    pub fn history(&self) -> &[Entry] {
        &self.history
    }
}

impl fmt::Display for Order {
    /// One line: `paid: costs 48.20 USD, paid 48.20 USD, revision 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = self.standing();
        write!(f, "{}: ", self.state())?;
        if let Some(total) = self.total() {
            write!(f, "costs {total}, ")?;
        }
        write!(f, "paid {}, ", self.paid())?;
        if self.refunded().is_positive() {
            write!(f, "refunded {}, ", self.refunded())?;
        }
        if standing.fulfilment != Progress::None {
            write!(f, "fulfilment {}, ", standing.fulfilment)?;
        }
        write!(f, "revision {}", self.revision)?;
        if self.is_incomplete { f.write_str(", incomplete") } else { Ok(()) }
    }
}
