//! One order: what its sources told, and what that comes to.

use std::{collections::BTreeMap, fmt};

use super::{
    amount::{Amount, Currency, Money, Totals},
    history::Entry,
    state::{Life, Payment, Progress, Standing, State},
    view::View,
};
use crate::{protocol::entity::SourceName, time::Timestamp};

/// An order as it is kept. A new one is `Order::default()`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    pub(super) revision: u64,
    pub(super) views: BTreeMap<SourceName, View>,
    pub(super) is_incomplete: bool,
    pub(super) history: Vec<Entry>,
}

impl Order {
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

    /// Its last deliveries in arrival order: at most `HISTORY_ENTRIES`, fewer
    /// where the row has no room for them.
    pub fn history(&self) -> &[Entry] {
        &self.history
    }
}

impl fmt::Display for Order {
    /// One line: `paid: total 48.20 USD, paid 48.20 USD, revision 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = self.standing();
        write!(f, "{}: ", self.state())?;
        if let Some(total) = self.total() {
            write!(f, "total {total}, ")?;
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
