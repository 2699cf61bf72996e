//! What an event makes of an order.

use super::{
    event::OrderEvent,
    history::{Entry, Remark},
    news::News,
    order::Order,
    row,
    view::Heard,
};

/// The most bytes of a row without its history, with new facts in it: some 100
/// payments, refunds and parcels.
const FACT_BYTES: usize = 4 * 1024;

/// What snapshots may add to that: they take the place of others, but one of
/// them may be longer.
const SNAPSHOT_BYTES: usize = 512;

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
}
