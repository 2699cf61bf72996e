//! What one source has told about an order, and how it is put together.
//!
//! Two kinds of news are kept apart:
//!
//! - A **fact** has an id and cannot unhappen: this payment came through, that
//!   refund was made. Facts are merged by id, however late and however often
//!   they come; of two tellings of one fact the one that is further along
//!   stands (failed, then succeeded; the greater amount).
//! - A **snapshot** is the order as the shop saw it at one moment. Only the
//!   newest counts: an older one is late and changes nothing, one of the very
//!   same time counts if it is further along, since clocks that tick in whole
//!   seconds do not say which came first. Without a time it counts from its
//!   arrival.
//!
//! Each of these is the greater of two values, so that the order of arrival
//! does not matter where the source gives times. A source's times are compared
//! with its own alone.

use std::collections::BTreeMap;

use super::{
    amount::{Money, Totals},
    news::{Existence, FactId, News, Parcel, PaymentFact, Snapshot},
    state::{Dispute, Payment, Progress},
};
use crate::time::Timestamp;

/// Whether an event's snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It was, or there was none.
    InTime,
    /// A newer one had been taken before.
    Late,
}

/// The snapshot that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) at: Option<Timestamp>,
    pub(super) snapshot: Snapshot,
}

/// What one source has told.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct View {
    /// The newest time of any event of this source.
    pub(super) newest: Option<Timestamp>,
    pub(super) told: Option<Told>,
    /// The most that any event showed to have been paid, without ids.
    pub(super) shown_paid: Totals,
    pub(super) payments: BTreeMap<FactId, PaymentFact>,
    pub(super) refunds: BTreeMap<FactId, Money>,
    pub(super) parcels: BTreeMap<FactId, (Option<Timestamp>, Parcel)>,
    pub(super) disputes: BTreeMap<FactId, Dispute>,
    pub(super) is_deleted: bool,
}

/// Keeps the greater of what is there and `value`.
fn raise<V: Ord + Clone>(facts: &mut BTreeMap<FactId, V>, id: &FactId, value: V) {
    match facts.get_mut(id) {
        Some(known) => *known = value.max(known.clone()),
        None => {
            facts.insert(id.clone(), value);
        }
    }
}

impl View {
    /// Takes in what an event of the source's time `at` says.
    pub(super) fn hear(&mut self, at: Option<Timestamp>, news: &News) -> Heard {
        for money in &news.paid {
            self.shown_paid.raise(&money.currency, money.amount);
        }
        for (id, payment) in &news.payments {
            raise(&mut self.payments, id, payment.clone());
        }
        for (id, money) in &news.refunds {
            raise(&mut self.refunds, id, money.clone());
        }
        for (id, parcel) in &news.parcels {
            raise(&mut self.parcels, id, (at, *parcel));
        }
        for (id, dispute) in &news.disputes {
            raise(&mut self.disputes, id, *dispute);
        }
        if let Some(existence) = news.existence {
            self.is_deleted = existence == Existence::Deleted;
        }
        news.snapshot.as_ref().map_or(Heard::InTime, |snapshot| self.look(at, snapshot))
    }

    fn look(&mut self, at: Option<Timestamp>, snapshot: &Snapshot) -> Heard {
        let Some(told) = &mut self.told else {
            self.told = Some(Told { at, snapshot: snapshot.clone() });
            return Heard::InTime;
        };
        match (at, told.at) {
            (Some(at), Some(known)) if at < known => return Heard::Late,
            (Some(at), Some(known)) if at == known => told.snapshot = snapshot.max(&told.snapshot).clone(),
            _ => *told = Told { at: at.or(told.at), snapshot: snapshot.clone() },
        }
        Heard::InTime
    }

    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.told.as_ref().map(|told| &told.snapshot)
    }

    /// What was paid: the single payments together, or what was shown, if that
    /// is more. Both tell of the same money.
    pub(super) fn paid(&self) -> Totals {
        let mut paid = Totals::default();
        for payment in self.payments.values() {
            if let PaymentFact::Succeeded(money) = payment {
                paid.add(money);
            }
        }
        paid.raise_all(&self.shown_paid);
        paid
    }

    /// What went back, likewise.
    pub(super) fn refunded(&self) -> Totals {
        let mut refunded = Totals::default();
        self.refunds.values().for_each(|money| refunded.add(money));
        if let Some(shown) = self.snapshot().and_then(|snapshot| snapshot.refunded.as_ref()) {
            refunded.raise(&shown.currency, shown.amount);
        }
        refunded
    }

    /// How much was sent, as the snapshot says; and some of it, if a parcel
    /// was sent since. A snapshot knows the parcels before it.
    pub(super) fn fulfilment(&self) -> Progress {
        let told_at = self.told.as_ref().and_then(|told| told.at);
        let since = |at: Option<Timestamp>| at.zip(told_at).is_none_or(|(at, told_at)| at >= told_at);
        let sent = self.parcels.values().any(|(at, parcel)| *parcel == Parcel::Sent && since(*at));
        let told = self.snapshot().map_or(Progress::None, |snapshot| snapshot.fulfilment);
        if sent { told.max(Progress::Part) } else { told }
    }

    /// Whether the last word about some payment is that it failed.
    pub(super) fn has_failed_payment(&self) -> bool {
        self.payments.values().any(|payment| *payment == PaymentFact::Failed)
            || self.snapshot().is_some_and(|snapshot| snapshot.payment == Payment::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Option<Timestamp> {
        Some(Timestamp::from_millis(millis))
    }

    fn usd(amount: &str) -> Money {
        Money::from_stored(&format!("{amount} USD")).unwrap()
    }

    fn snapshot(payment: Payment) -> Snapshot {
        Snapshot {
            is_cancelled: false,
            refund: Progress::None,
            fulfilment: Progress::None,
            payment,
            total: usd("10.00"),
            refunded: None,
        }
    }

    fn seen(payment: Payment) -> News {
        News { snapshot: Some(snapshot(payment)), ..News::default() }
    }

    #[test]
    fn an_older_snapshot_is_late_and_a_newer_one_counts() {
        let mut view = View::default();
        assert_eq!(view.hear(at(5), &seen(Payment::Paid)), Heard::InTime);
        assert_eq!(view.hear(at(4), &seen(Payment::Unpaid)), Heard::Late);
        assert_eq!(view.snapshot().unwrap().payment, Payment::Paid);
        assert_eq!(view.hear(at(6), &seen(Payment::Failed)), Heard::InTime);
        assert_eq!(view.snapshot().unwrap().payment, Payment::Failed);
    }

    #[test]
    fn of_two_snapshots_of_one_time_the_one_further_along_counts() {
        for order in [[Payment::Unpaid, Payment::Paid], [Payment::Paid, Payment::Unpaid]] {
            let mut view = View::default();
            for payment in order {
                assert_eq!(view.hear(at(5), &seen(payment)), Heard::InTime);
            }
            assert_eq!(view.snapshot().unwrap().payment, Payment::Paid);
        }
    }

    #[test]
    fn a_snapshot_without_a_time_counts_from_its_arrival() {
        let mut view = View::default();
        view.hear(at(5), &seen(Payment::Paid));
        assert_eq!(view.hear(None, &seen(Payment::Unpaid)), Heard::InTime);
        assert_eq!(view.snapshot().unwrap().payment, Payment::Unpaid);
        assert_eq!(view.hear(at(4), &seen(Payment::Paid)), Heard::Late, "the time known before is not forgotten");
    }

    #[test]
    fn a_late_snapshot_s_facts_are_taken_all_the_same() {
        let mut view = View::default();
        view.hear(at(5), &seen(Payment::Paid));
        let late = News { refunds: vec![(FactId::new("r"), usd("3.00"))], ..seen(Payment::Unpaid) };
        assert_eq!(view.hear(at(4), &late), Heard::Late);
        assert_eq!(view.refunded().to_string(), "3.00 USD");
    }

    #[test]
    fn a_fact_told_again_is_one_fact() {
        let mut view = View::default();
        let refund = |amount| News { refunds: vec![(FactId::new("ch"), usd(amount))], ..News::default() };
        for amount in ["3.00", "5.00", "3.00"] {
            view.hear(at(1), &refund(amount));
        }
        assert_eq!(view.refunded().to_string(), "5.00 USD");
    }

    #[test]
    fn a_payment_that_came_through_does_not_fail_afterwards() {
        let mut view = View::default();
        let payment = |fact| News { payments: vec![(FactId::new("pi"), fact)], ..News::default() };
        view.hear(at(1), &payment(PaymentFact::Failed));
        assert!(view.has_failed_payment());
        view.hear(at(2), &payment(PaymentFact::Succeeded(usd("5.00"))));
        view.hear(at(3), &payment(PaymentFact::Failed));
        assert!(!view.has_failed_payment());
        assert_eq!(view.paid().to_string(), "5.00 USD");
    }

    #[test]
    fn single_payments_and_what_is_shown_of_them_are_not_added_up() {
        let mut view = View::default();
        let paid = |id, amount| (FactId::new(id), PaymentFact::Succeeded(usd(amount)));
        view.hear(at(1), &News { payments: vec![paid("a", "4.00"), paid("b", "6.00")], ..News::default() });
        view.hear(at(2), &News { paid: vec![usd("10.00")], ..News::default() });
        assert_eq!(view.paid().to_string(), "10.00 USD");
    }

    #[test]
    fn a_parcel_counts_until_it_is_cancelled_or_a_newer_snapshot_knows_better() {
        let parcel = |parcel| News { parcels: vec![(FactId::new("1"), parcel)], ..News::default() };
        let mut view = View::default();
        view.hear(at(1), &seen(Payment::Paid));
        view.hear(at(2), &parcel(Parcel::Sent));
        assert_eq!(view.fulfilment(), Progress::Part);
        let mut cancelled = view.clone();
        cancelled.hear(at(3), &parcel(Parcel::Cancelled));
        cancelled.hear(at(2), &parcel(Parcel::Sent));
        assert_eq!(cancelled.fulfilment(), Progress::None);
        view.hear(at(3), &seen(Payment::Paid));
        assert_eq!(view.fulfilment(), Progress::None);
    }
}
