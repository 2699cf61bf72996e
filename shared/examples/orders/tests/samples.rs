use super::*;
use crate::protocol::table::{Row, TableName, Value};

/// The samples of one entity in the order of their arrival, each with the
/// state that it leads to.
const SHOPIFY: [(&str, State); 5] = [
    ("shopify-orders-create.json", State::Received),
    ("shopify-orders-paid.json", State::Paid),
    ("shopify-fulfillments-create.json", State::PartiallyFulfilled),
    ("shopify-refunds-create.json", State::PartiallyRefunded),
    ("shopify-orders-cancelled.json", State::Cancelled),
];
const STRIPE: [(&str, State); 2] =
    [("stripe-payment-intent-succeeded.json", State::Paid), ("stripe-charge-refunded.json", State::PartiallyRefunded)];
const WOOCOMMERCE: [(&str, State); 2] =
    [("woocommerce-order-created.json", State::Received), ("woocommerce-order-updated.json", State::Paid)];

async fn applied(samples: &[(&str, State)]) -> Order {
    let mut shop = Shop::open();
    let mut order = None;
    for (name, state) in samples {
        let incoming = sample(name);
        shop.apply(&incoming).await;
        let after = shop.order(&incoming.entity).await;
        assert_eq!(after.state(), *state, "{name}");
        assert_ne!(after.history().last().unwrap().remark, Remark::Unknown, "{name}");
        order = Some(after);
    }
    order.unwrap()
}

#[tokio::test]
async fn shopify_s_samples_end_cancelled_with_a_part_sent_and_a_part_refunded() {
    let order = applied(&SHOPIFY).await;
    assert_eq!(
        order.to_string(),
        "cancelled: total 48.20 USD, paid 48.20 USD, refunded 21.60 USD, fulfilment part, revision 5"
    );
    let steps: Vec<_> = order.history().iter().map(|entry| (entry.sequence.0, entry.from, entry.to)).collect();
    assert_eq!(steps[0], (1, None, State::Received));
    assert_eq!(steps[4], (5, Some(State::PartiallyRefunded), State::Cancelled));
    assert_eq!(order.history()[1].delivery_id, "1da83e8a-c086-4c42-a7eb-e6adac5e357b");
    assert_eq!(
        order.history()[1].to_string(),
        "2026-01-05T14:01:42.190Z shopify orders/paid 1da83e8a-c086-4c42-a7eb-e6adac5e357b: received -> paid"
    );
    assert_eq!(order.history()[1].event_time, Some(Timestamp::from_millis(1_767_621_700_000)));
    let newest: Vec<_> = order.newest_event_times().map(|(source, time)| (source.as_str(), time)).collect();
    assert_eq!(newest, [("shopify", Timestamp::from_millis(1_767_880_800_000))]);
}

#[tokio::test]
async fn stripe_s_samples_end_partially_refunded() {
    let order = applied(&STRIPE).await;
    assert_eq!(order.to_string(), "partially_refunded: paid 48.20 USD, refunded 21.60 USD, revision 2");
}

#[tokio::test]
async fn woocommerce_s_samples_end_paid() {
    let order = applied(&WOOCOMMERCE).await;
    assert_eq!(order.to_string(), "paid: total 26.60 USD, paid 26.60 USD, revision 2");
}

#[tokio::test]
async fn a_shop_and_its_payment_service_on_one_entity_tell_of_the_same_money() {
    let names =
        [SHOPIFY[0], STRIPE[0], SHOPIFY[1], SHOPIFY[2], SHOPIFY[3], STRIPE[1], SHOPIFY[4]].map(|(name, _)| name);
    let entity = EntityKey::parse("shopify/order/450789469").unwrap();
    let mut shop = Shop::open();
    let mut states = Vec::new();
    for name in names {
        shop.apply(&Incoming { entity: entity.clone(), ..sample(name) }).await;
        states.push(shop.order(&entity).await.state());
    }
    assert_eq!(states[..2], [State::Received, State::Paid], "the payment is known before the shop tells of it");
    assert_eq!(
        shop.order(&entity).await.to_string(),
        "cancelled: total 48.20 USD, paid 48.20 USD, refunded 21.60 USD, fulfilment part, revision 7"
    );
}

#[tokio::test]
async fn samples_in_other_words_are_recorded_and_change_nothing() {
    for name in ["generic-order-updated.json", "standard-webhooks-order-shipped.json"] {
        let mut shop = Shop::open();
        let incoming = sample(name);
        shop.apply(&incoming).await;
        let order = shop.order(&incoming.entity).await;
        assert_eq!((order.state(), order.history()[0].remark), (State::Received, Remark::Unknown), "{name}");
        assert_eq!(order.history()[0].topic, incoming.topic);
    }
}

#[tokio::test]
async fn an_older_snapshot_does_not_put_the_order_back() {
    let mut shop = Shop::open();
    for name in ["shopify-orders-cancelled.json", "shopify-orders-create.json"] {
        shop.apply(&sample(name)).await;
    }
    let late = shop.apply(&sample("shopify-orders-paid.json")).await;
    assert_eq!(late.age(), Age::Older);
    let order = shop.order(late.entity()).await;
    assert_eq!(order.state(), State::Cancelled);
    let remarks: Vec<_> = order.history().iter().map(|entry| entry.remark).collect();
    assert_eq!(remarks, [Remark::Applied, Remark::Late, Remark::Late]);
    assert_eq!(order.paid().to_string(), "48.20 USD", "what it proves to have been paid is a fact");
}

#[tokio::test]
async fn a_delivery_put_back_by_an_operator_is_applied_again_without_harm() {
    let order = applied(&SHOPIFY).await;
    let mut shop = Shop::open();
    let mut first = Vec::new();
    for (name, _) in SHOPIFY {
        first.push(shop.apply(&sample(name)).await);
    }
    for delivery in first {
        shop.apply(&delivery.redriven(Timestamp::from_millis(1_767_900_000_000))).await;
    }
    let again = shop.order(&sample(SHOPIFY[0].0).entity).await;
    assert_eq!(again.revision(), 10);
    assert_eq!((again.standing(), again.paid(), again.refunded()), (order.standing(), order.paid(), order.refunded()));
    assert!(again.history()[5..].iter().all(|entry| matches!(entry.remark, Remark::Late | Remark::Nothing)));
}

#[tokio::test]
async fn nobody_s_name_or_address_is_kept() {
    let mut shop = Shop::open();
    for (name, _) in SHOPIFY.iter().chain(&STRIPE).chain(&WOOCOMMERCE) {
        shop.apply(&sample(name)).await;
    }
    let rows = shop.table.rows(&TableName::Named("shop-orders".into()));
    assert_eq!(rows.len(), 3);
    let kept = format!("{rows:?}");
    for personal in ["Ada", "ada@", "Sample", "Springfield", "62701", "cus_", "203.0.113.7", "mug", "#1001"] {
        assert!(!kept.contains(personal), "{personal}");
    }
}

#[tokio::test]
async fn the_row_shows_what_it_comes_to_to_other_readers() {
    let mut shop = Shop::open();
    for (name, _) in SHOPIFY {
        shop.apply(&sample(name)).await;
    }
    let row: Row = shop.table.rows(&TableName::Named("shop-orders".into())).remove(0);
    assert_eq!(row.text("order"), Some("shopify/order/450789469"));
    assert_eq!((row.text("state"), row.text("total")), (Some("cancelled"), Some("48.20 USD")));
    assert_eq!(row.number("revision"), Some(5));
    let usd = |amount: &str| Value::M([("USD".to_owned(), amount.into())].into());
    assert_eq!((row.get("paid"), row.get("refunded")), (Some(&usd("48.20")), Some(&usd("21.60"))));
    assert!(row.size() < 1024, "{} bytes", row.size());
}

#[tokio::test]
async fn a_body_that_is_not_what_its_topic_promises_is_rejected_and_not_quoted() {
    let shop = Shop::open();
    let incoming = Incoming { body: r#"{"email":"ada@example.com"}"#.into(), ..sample("shopify-orders-paid.json") };
    let Outcome::Reject(reason) = shop.handle(&delivery(&incoming, 1)).await.unwrap() else { panic!() };
    assert_eq!(reason, "the body is not what its topic promises: line 1, column 27");
    assert_eq!(shop.orders.order(&incoming.entity).await, Ok(None));
}

#[tokio::test]
async fn an_order_of_a_newer_version_is_left_alone() {
    let mut shop = Shop::open();
    let incoming = sample("shopify-orders-create.json");
    shop.apply(&incoming).await;
    let row = shop.table.rows(&TableName::Named("shop-orders".into())).remove(0).with("v", 2_u32);
    shop.table.write(&Write::put(shop.orders.key(&incoming.entity), row)).await.unwrap();
    assert!(shop.handle(&delivery(&incoming, 2)).await.is_err());
    assert_eq!(shop.orders.order(&incoming.entity).await, Err(OrderError::Corrupt(CorruptOrder::Newer(2))));
}

#[test]
fn it_answers_to_its_own_name_only() {
    let orders = Shop::open().orders;
    assert!(orders.answers_to("orders") && !orders.answers_to("order") && !orders.answers_to(""));
}
