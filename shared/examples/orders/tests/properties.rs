use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    super::news::{Existence, FactId, News, Parcel, PaymentFact, Snapshot},
    *,
};
use crate::protocol::entity::Sequence;

fn usd(cents: u32) -> Money {
    Money::from_stored(&format!("{}.{:02} USD", cents / 100, cents % 100)).unwrap()
}

fn ids() -> impl Strategy<Value = FactId> {
    (0..4_u8).prop_map(|number| FactId::new(&number.to_string()))
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let refunded = prop::option::of((1..100_u32).prop_map(usd));
    (any::<bool>(), select(Progress::ALL), select(Progress::ALL), select(Payment::ALL), 1..100_u32, refunded).prop_map(
        |(is_cancelled, refund, fulfilment, payment, total, refunded)| Snapshot {
            is_cancelled,
            refund,
            fulfilment,
            payment,
            total: usd(total),
            refunded,
        },
    )
}

fn news() -> impl Strategy<Value = News> {
    let payment = prop_oneof![Just(PaymentFact::Failed), (1..100_u32).prop_map(|sum| PaymentFact::Succeeded(usd(sum)))];
    let facts = (
        vec((1..100_u32).prop_map(usd), 0..2),
        vec((ids(), payment), 0..3),
        vec((ids(), (1..100_u32).prop_map(usd)), 0..3),
        vec((ids(), select(Parcel::ALL)), 0..3),
        vec((ids(), select(Dispute::ALL)), 0..2),
    );
    let existence = prop_oneof![9 => Just(None), 1 => Just(Some(Existence::Deleted))];
    (prop::option::of(snapshots()), facts, existence).prop_map(
        |(snapshot, (paid, payments, refunds, parcels, disputes), existence)| News {
            snapshot,
            paid,
            payments,
            refunds,
            parcels,
            disputes,
            existence,
        },
    )
}

/// Events of up to three sources whose clocks tick so slowly that many of
/// their times are the same.
fn events() -> impl Strategy<Value = OrderEvent> {
    let source = select(["shop", "payments", "other-shop"].as_slice());
    (source, 0..6_u64, prop::option::weighted(0.9, news())).prop_map(|(source, time, news)| OrderEvent {
        source: SourceName::parse(source).unwrap(),
        topic: "orders/updated".into(),
        delivery_id: "1da83e8a-c086-4c42-a7eb-e6adac5e357b".into(),
        sequence: Sequence(1_767_621_600_000),
        received_at: Timestamp::from_millis(1_767_621_600_000),
        event_time: Some(Timestamp::from_secs(1_767_621_600 + time)),
        news,
    })
}

fn applied(events: &[OrderEvent]) -> Order {
    events.iter().fold(Order::default(), |order, event| apply(&order, event))
}

/// All that is known, apart from how it came to be known.
fn knowledge(order: &Order) -> Order {
    Order { history: Vec::new(), revision: 0, ..order.clone() }
}

/// An event of the shop with one new refund, all its texts as long as they get.
fn fullest(number: u64) -> OrderEvent {
    let refund = (FactId::new(&format!("{number:032}")), usd(number as u32 + 1));
    OrderEvent {
        source: SourceName::parse(&"s".repeat(64)).unwrap(),
        topic: super::super::history::short_topic(&"t".repeat(128)),
        delivery_id: short_delivery_id(&"d".repeat(256)),
        sequence: Sequence(1_767_621_600_000 + number),
        received_at: Timestamp::from_millis(1_767_621_600_001 + number),
        event_time: Some(Timestamp::from_millis(1_767_621_600_001 + number)),
        news: Some(News { refunds: vec![refund], ..News::default() }),
    }
}

const TOPICS: [&str; 5] =
    ["orders/paid", "refunds/create", "order_transactions/create", "charge.refunded", "order.updated"];

proptest! {
    #[test]
    fn any_order_of_arrival_leads_to_the_same_knowledge(
        (events, shuffled) in vec(events(), 0..10).prop_flat_map(
            |events| (Just(events.clone()), Just(events).prop_shuffle()),
        )
    ) {
        let [order, other] = [applied(&events), applied(&shuffled)];
        prop_assert_eq!(knowledge(&order), knowledge(&other));
        prop_assert_eq!(order.standing(), other.standing());
        prop_assert_eq!((order.paid(), order.refunded()), (other.paid(), other.refunded()));
        prop_assert_eq!(order.total(), other.total());
    }

    #[test]
    fn what_is_applied_again_changes_nothing(events in vec(events(), 1..10), again in any::<prop::sample::Index>()) {
        let order = applied(&events);
        let twice = apply(&order, again.get(&events));
        prop_assert_eq!(knowledge(&twice), knowledge(&order));
        prop_assert_eq!(twice.revision(), order.revision() + 1);
        prop_assert!(twice.history().last().unwrap().remark != Remark::Applied);
    }

    #[test]
    fn a_row_is_read_as_it_was_written(events in vec(events(), 0..12)) {
        let order = applied(&events);
        prop_assert_eq!(row::from_row(&row::to_row(&order)), Ok(order));
    }

    #[test]
    fn no_body_makes_it_panic(
        topic in select(TOPICS.as_slice()),
        body in vec(any::<u8>(), 0..40),
        fields in "(\"(id|currency|total_price|status|data|refunds)\":(\"USD\"|-?[0-9]{1,4}|null|\\[\\]),){0,5}",
    ) {
        for body in [body, format!("{{{fields}\"total\":1}}").into_bytes()] {
            let incoming = Incoming { topic: topic.into(), body: body.into(), ..sample_of_the_shop() };
            let _ = OrderEvent::read(&delivery(&incoming, 1));
        }
    }
}

fn sample_of_the_shop() -> Incoming {
    Incoming {
        entity: EntityKey::parse("shop/order/1").unwrap(),
        identity: crate::protocol::entity::Identity {
            source: shop(),
            delivery_id: crate::protocol::entity::DeliveryId::new("1"),
            redrive: 0,
        },
        provider: None,
        topic: "orders/updated".into(),
        family: "orders".into(),
        event_time: Some(Timestamp::from_millis(5)),
        received_at: Timestamp::from_millis(9),
        content_type: None,
        body: Vec::new().into(),
    }
}

/// Every way in which one order's events can arrive, told in real bodies.
#[test]
fn an_order_s_life_comes_to_the_same_in_every_order_of_arrival() {
    let order = |status: &str, more: &str| {
        format!(r#"{{"id":1,"currency":"USD","total_price":"48.20","financial_status":"{status}"{more}}}"#)
    };
    let transaction = |id, kind, amount| {
        format!(r#"{{"id":{id},"kind":"{kind}","status":"success","amount":"{amount}","currency":"USD"}}"#)
    };
    let told = [
        ("orders/create", 1, order("pending", "")),
        ("order_transactions/create", 2, transaction(7, "sale", "48.20")),
        ("orders/paid", 2, order("paid", "")),
        ("fulfillments/create", 3, r#"{"id":5,"status":"success"}"#.to_owned()),
        ("refunds/create", 4, format!(r#"{{"id":6,"transactions":[{}]}}"#, transaction(8, "refund", "21.60"))),
        ("orders/updated", 4, order("partially_refunded", r#","fulfillment_status":"partial""#)),
        ("order_transactions/create", 5, transaction(9, "refund", "0.10")),
    ];
    let events: Vec<OrderEvent> = told
        .into_iter()
        .map(|(topic, seconds, body)| {
            let event_time = Some(Timestamp::from_secs(seconds));
            let incoming =
                Incoming { topic: topic.into(), body: body.into_bytes().into(), event_time, ..sample_of_the_shop() };
            OrderEvent::read(&delivery(&incoming, seconds)).unwrap()
        })
        .collect();
    let expected = applied(&events);
    assert_eq!(
        expected.to_string(),
        "partially_refunded: total 48.20 USD, paid 48.20 USD, refunded 21.70 USD, fulfilment part, revision 7"
    );
    let mut arrivals = vec![(Order::default(), events)];
    let mut ends = 0;
    while let Some((order, left)) = arrivals.pop() {
        if left.is_empty() {
            assert_eq!(knowledge(&order), knowledge(&expected));
            ends += 1;
        }
        for next in 0..left.len() {
            let mut left = left.clone();
            let event = left.remove(next);
            arrivals.push((apply(&order, &event), left));
        }
    }
    assert_eq!(ends, 5040);
}

#[test]
fn a_row_stays_small_and_keeps_its_newest_deliveries() {
    let mut order = Order::default();
    for number in 0..300 {
        order = apply(&order, &fullest(number));
        let key = Key::named("orders", KEY_ATTRIBUTE, "e".repeat(EntityKey::MAX_BYTES)).to_row();
        assert!(row::to_row(&order).size() <= ROW_BYTES);
        assert!(row::to_row(&order).size() + key.size() < 7 * 1024);
        assert_eq!(order.history().last().unwrap().sequence, fullest(number).sequence);
        assert!(order.history().len() <= HISTORY_ENTRIES);
    }
    assert_eq!(order.revision(), 300);
    assert!(order.history().len() > 6, "{}", order.history().len());
    assert_eq!(row::from_row(&row::to_row(&order)), Ok(order));
}

#[test]
fn an_ordinary_order_keeps_all_forty_deliveries() {
    let event = OrderEvent { source: shop(), topic: "orders/updated".into(), ..fullest(0) };
    let order = applied(&vec![OrderEvent { delivery_id: "1da83e8a-c086-4c42-a7eb-e6adac5e357b".into(), ..event }; 60]);
    assert_eq!(order.history().len(), HISTORY_ENTRIES);
}

#[test]
fn a_full_row_says_that_a_fact_is_missing_and_goes_on_taking_snapshots() {
    let mut order = (0..300).fold(Order::default(), |order, number| apply(&order, &fullest(number)));
    assert!(order.is_incomplete() && order.to_string().ends_with(", incomplete"));
    assert_eq!(order.history().last().unwrap().remark, Remark::NoRoom);
    let known = order.refunded();
    order = apply(&order, &fullest(0));
    assert_eq!((order.refunded(), order.history().last().unwrap().remark), (known, Remark::Nothing));
    let snapshot = Snapshot {
        is_cancelled: true,
        refund: Progress::Part,
        fulfilment: Progress::Part,
        payment: Payment::Paid,
        total: Money::from_stored("999999999999999.99999999 USD").unwrap(),
        refunded: None,
    };
    let event = OrderEvent { news: Some(News { snapshot: Some(snapshot), ..News::default() }), ..fullest(301) };
    order = apply(&order, &event);
    assert_eq!((order.state(), order.history().last().unwrap().remark), (State::Cancelled, Remark::Applied));
}

#[test]
fn a_failed_payment_shows_until_one_comes_through() {
    let payment = |id: &str, fact| OrderEvent {
        news: Some(News { payments: vec![(FactId::new(id), fact)], ..News::default() }),
        ..fullest(0)
    };
    let events = [payment("a", PaymentFact::Failed), payment("b", PaymentFact::Succeeded(usd(500)))];
    assert_eq!(applied(&events[..1]).state(), State::PaymentFailed);
    assert_eq!(applied(&events).state(), State::Paid);
}

#[test]
fn an_order_is_refunded_when_all_that_was_paid_went_back() {
    let fact = |news| OrderEvent { news: Some(news), ..fullest(0) };
    let paid = fact(News { paid: vec![usd(4820)], ..News::default() });
    let refund = |id: &str, cents| fact(News { refunds: vec![(FactId::new(id), usd(cents))], ..News::default() });
    let events = [refund("a", 2160), paid, refund("b", 2659), refund("c", 1)];
    let states: Vec<_> = (1..=4).map(|count| applied(&events[..count]).state()).collect();
    assert_eq!(states, [State::PartiallyRefunded, State::PartiallyRefunded, State::PartiallyRefunded, State::Refunded]);
}

#[test]
fn an_open_dispute_comes_before_all_else_until_it_is_closed() {
    let dispute = |dispute| OrderEvent {
        news: Some(News { disputes: vec![(FactId::new("dp"), dispute)], ..News::default() }),
        ..fullest(0)
    };
    let deleted =
        OrderEvent { news: Some(News { existence: Some(Existence::Deleted), ..News::default() }), ..fullest(0) };
    let restored =
        OrderEvent { news: Some(News { existence: Some(Existence::Restored), ..News::default() }), ..fullest(0) };
    let events = [deleted, dispute(Dispute::Open), dispute(Dispute::Closed), dispute(Dispute::Open), restored];
    let states: Vec<_> = (1..=5).map(|count| applied(&events[..count]).state()).collect();
    assert_eq!(states, [State::Deleted, State::Disputed, State::Deleted, State::Deleted, State::Received]);
}
