//! Tracks the deliveries that remain to be posted. The deliveries of an order are posted one at a time, in sequence.

use std::collections::{BTreeMap, VecDeque};

use webhook_serializer::protocol::{
    delivery::Delivery,
    entity::{EntityKey, Sequence},
};

#[derive(Debug, Default)]
pub struct ListenedOrders {
    orders: BTreeMap<EntityKey, OrderProgress>,
    ready: VecDeque<EntityKey>,
}

#[derive(Debug, Default)]
struct OrderProgress {
    /// The next sequence to post; `None` until the order's first sequence is known.
    next: Option<Sequence>,
    through: Option<Sequence>,
    /// The newest sequence that was accepted before the command started.
    past: Option<Sequence>,
    repeats: VecDeque<Delivery>,
    is_listed: bool,
}

#[derive(Debug, Clone)]
pub enum OrderWork {
    /// Post the delivery at the sequence `from`. If `from` is `None`, post the order's first delivery since the
    /// command's start time. `through` is the newest accepted sequence of the order that is known.
    Next {
        from: Option<Sequence>,
        through: Sequence,
    },
    Again(Box<Delivery>),
}

impl ListenedOrders {
    /// Adds the accepted delivery at the sequence `through`, and the earlier deliveries of its order that were not
    /// posted. `from` is the order's first sequence to post, if known. `is_past` means that the delivery was accepted
    /// before the command started.
    pub fn accepted(&mut self, entity: &EntityKey, from: Option<Sequence>, through: Sequence, is_past: bool) {
        let order = self.orders.entry(entity.clone()).or_default();
        order.next = order.next.or(from);
        order.through = order.through.max(Some(through));
        if is_past {
            order.past = order.past.max(Some(through));
        }
        self.list(entity);
    }

    pub fn again(&mut self, delivery: Delivery) {
        let entity = delivery.entity().clone();
        self.orders.entry(entity.clone()).or_default().repeats.push_back(delivery);
        self.list(&entity);
    }

    /// Returns an order that has work, and the order's next work. The order gets no further work until
    /// [`done`](Self::done).
    pub fn take(&mut self) -> Option<(EntityKey, OrderWork)> {
        let entity = self.ready.pop_front()?;
        let order = self.orders.get_mut(&entity)?;
        let work = match order.repeats.pop_front() {
            Some(delivery) => OrderWork::Again(Box::new(delivery)),
            None => OrderWork::Next { from: order.next, through: order.through? },
        };
        Some((entity, work))
    }

    pub fn done(&mut self, entity: &EntityKey, next: Option<Sequence>) {
        if let Some(order) = self.orders.get_mut(entity) {
            order.next = next.or(order.next);
            order.is_listed = false;
        }
        self.list(entity);
    }

    /// Returns the number of deliveries that were accepted before the command started and remain to be posted. An order
    /// whose first sequence is unknown counts as one.
    pub fn past(&self) -> u64 {
        let past = |order: &OrderProgress| match (order.past, order.next) {
            (None, _) => 0,
            (Some(_), None) => 1,
            (Some(past), Some(next)) => past.next().0.saturating_sub(next.0),
        };
        self.orders.values().map(past).sum()
    }

    fn list(&mut self, entity: &EntityKey) {
        let Some(order) = self.orders.get_mut(entity) else { return };
        let waits = order.through.is_some_and(|through| order.next.is_none_or(|next| next <= through));
        if !order.is_listed && (waits || !order.repeats.is_empty()) {
            order.is_listed = true;
            self.ready.push_back(entity.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        delivery::Incoming,
        entity::{DeliveryId, Identity, SourceName},
    };
    use webhook_serializer::time::Timestamp;

    use super::*;

    fn key(name: &str) -> EntityKey {
        EntityKey::parse(name).unwrap()
    }

    fn taken(orders: &mut ListenedOrders) -> String {
        match orders.take() {
            None => "-".into(),
            Some((entity, OrderWork::Again(delivery))) => format!("{entity} again {}", delivery.sequence()),
            Some((entity, OrderWork::Next { from: None, through })) => format!("{entity} ..{through}"),
            Some((entity, OrderWork::Next { from: Some(from), through })) => format!("{entity} {from}..{through}"),
        }
    }

    #[test]
    fn unanswered_delivery_delays_only_its_own_order() {
        let mut orders = ListenedOrders::default();
        orders.accepted(&key("a/1"), None, Sequence(7), false);
        orders.accepted(&key("a/1"), None, Sequence(9), false);
        orders.accepted(&key("b/1"), None, Sequence(3), false);
        assert_eq!([taken(&mut orders), taken(&mut orders), taken(&mut orders)], ["a/1 ..9", "b/1 ..3", "-"]);
        orders.accepted(&key("a/1"), None, Sequence(8), false);
        assert_eq!(taken(&mut orders), "-");
        orders.done(&key("a/1"), Some(Sequence(8)));
        assert_eq!(taken(&mut orders), "a/1 8..9");
        orders.done(&key("a/1"), Some(Sequence(10)));
        orders.done(&key("b/1"), Some(Sequence(4)));
        // A log line may arrive after its delivery was posted.
        orders.accepted(&key("a/1"), None, Sequence(9), false);
        assert_eq!(taken(&mut orders), "-");
    }

    #[test]
    fn delivery_posted_again_precedes_waiting_deliveries() {
        let incoming = Incoming {
            entity: key("a/1"),
            identity: Identity {
                source: SourceName::parse("a").unwrap(),
                delivery_id: DeliveryId::new("7"),
                redrive: 0,
            },
            provider: None,
            topic: String::new(),
            family: String::new(),
            event_time: None,
            received_at: Timestamp::from_secs(1),
            content_type: None,
            body: "{}".into(),
        };
        let mut orders = ListenedOrders::default();
        orders.accepted(&key("a/1"), Some(Sequence(7)), Sequence(9), false);
        assert_eq!(taken(&mut orders), "a/1 7..9");
        orders.again(Delivery::detached(incoming, Sequence(6)));
        assert_eq!(taken(&mut orders), "-");
        orders.done(&key("a/1"), Some(Sequence(8)));
        assert_eq!(taken(&mut orders), "a/1 again 6");
        orders.done(&key("a/1"), None);
        assert_eq!(taken(&mut orders), "a/1 8..9");
    }

    #[test]
    fn deliveries_accepted_before_listening_are_counted_until_posted() {
        let mut orders = ListenedOrders::default();
        orders.accepted(&key("a/1"), None, Sequence(9), true);
        orders.accepted(&key("b/1"), None, Sequence(3), false);
        assert_eq!((orders.past(), taken(&mut orders)), (1, "a/1 ..9".into()));
        orders.done(&key("a/1"), Some(Sequence(7)));
        assert_eq!(orders.past(), 3);
        orders.accepted(&key("a/1"), None, Sequence(12), false);
        orders.done(&key("a/1"), Some(Sequence(10)));
        assert_eq!(orders.past(), 0);
    }
}
