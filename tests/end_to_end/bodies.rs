//! Bodies reach their handler unchanged, up to 6 MB and with every digit of large numbers.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use tests::prelude::*;
use webhook_serializer::{engine::append::AppendError, protocol::delivery::LARGEST_BODY, sources::OnOutage};

#[tokio::test(start_paused = true)]
async fn oversized_body_is_not_appended() {
    let world = TestWorld::new();
    let append = async |bytes: usize| {
        let incoming = Incoming { body: vec![b' '; bytes].into(), ..world.incoming("test/a", "1") };
        world.inbox().append(&incoming).await.map(drop)
    };
    let refused = Err(AppendError::TooLarge(LARGEST_BODY + 1));
    assert_eq!(append(LARGEST_BODY + 1).await, refused);
    let incoming = Incoming { body: vec![b' '; LARGEST_BODY + 1].into(), ..world.incoming("test/a", "1") };
    let time = Duration::from_secs(5);
    // Compressed, the body would fit a queue message, but the worker would refuse the delivery.
    assert_eq!(world.inbox().accept(&incoming, None, None, OnOutage::Queue, time).await.map(drop), refused);
    assert_eq!((world.memory.rows(&TableName::Entities), world.memory.rows(&TableName::Inbox)), (vec![], vec![]));
    assert!(world.messages.is_empty());
    assert_eq!(append(LARGEST_BODY).await, Ok(()));
}

/// If the append were accepted, a worker would run a delivery handler under the job's lease.
#[tokio::test(start_paused = true)]
async fn append_to_a_jobs_key_is_refused() {
    let world = TestWorld::new();
    let incoming = world.incoming("cron/nightly", "1");
    assert_eq!(world.inbox().append(&incoming).await.map(drop), Err(AppendError::IsAJob));
    let time = Duration::from_secs(5);
    let accepted = world.inbox().accept(&incoming, None, None, OnOutage::Queue, time).await;
    assert_eq!(accepted.map(drop), Err(AppendError::IsAJob), "it is not deferred either");
    assert_eq!((world.memory.rows(&TableName::Entities), world.memory.rows(&TableName::Inbox)), (vec![], vec![]));
    assert!(world.messages.is_empty());
}

/// The body takes eighteen rows. Runs in memory, because a debug build may exceed a sender's patience.
///
/// Promise: bodies of 6 MB arrive unchanged; larger ones are refused, at ingest and by appends.
#[tokio::test(start_paused = true)]
async fn six_incompressible_megabytes_reach_handler_unchanged() {
    let world = TestWorld::new();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let mut body = noise(&world.env, LARGEST_BODY);
    let webhook = signed(&world.sources(), "test", "1", body.clone(), world.env.now());
    let request = |body: &[u8]| HttpRequest {
        body: Some(STANDARD.encode(body)),
        is_base64_encoded: true,
        ..request(&SignedWebhook { body: Vec::new(), ..webhook.clone() })
    };
    assert_eq!(ingest.answer(&request(&body)).await.status_code, 200);
    let kept = DeliveryCollector::default();
    world.work(&[world.drainer(kept.clone())]).await;
    // The noise names no order, so the delivery is parked, and then redriven to an order.
    let parked = world.operator().parked(&key("test/unrouted")).await.unwrap();
    let entity = key("test/order/7");
    world.operator().redrive(&parked[0], Some(&entity)).await.unwrap();
    world.work(&[world.drainer(kept.clone())]).await;
    let deliveries = kept.first(1).await;
    assert!(deliveries[0].body()[..] == body[..], "{} bytes arrived", deliveries[0].body().len());
    body.push(b' ');
    assert_eq!(ingest.answer(&request(&body)).await.status_code, 413);
}

/// Promise: 400, 413.
#[tokio::test(start_paused = true)]
async fn body_is_accepted_as_text_or_base64() {
    let world = TestWorld::new();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let body = update("7");
    let plain = |id: &str| request(&signed(&world.sources(), "test", id, body.clone(), world.env.now()));
    let encoded = |id: &str| HttpRequest { body: Some(STANDARD.encode(&body)), is_base64_encoded: true, ..plain(id) };
    for request in [plain("1"), encoded("2")] {
        assert_eq!(ingest.answer(&request).await.status_code, 200);
    }
    let said_to_be = HttpRequest { is_base64_encoded: true, ..plain("3") };
    assert_eq!(ingest.answer(&said_to_be).await.status_code, 400);
    let kept = DeliveryCollector::default();
    world.work(&[world.drainer(kept.clone())]).await;
    let deliveries = kept.first(2).await;
    let [plain, encoded] = &deliveries[..] else { panic!("two arrived: {deliveries:?}") };
    assert_eq!(plain.body(), encoded.body());
    assert_eq!(plain.body()[..], *body.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn json_id_above_two_to_53_stays_exact() {
    #[derive(Deserialize)]
    struct Update {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        order_id: u64,
    }
    let world = TestWorld::new();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    // A double cannot tell each of these numbers from its neighbour.
    let orders = [9_007_199_254_740_992, 9_007_199_254_740_993, u64::MAX - 1, u64::MAX];
    for order in orders {
        let body = format!(r#"{{"type":"order.updated","data":{{"order_id":{order}}}}}"#);
        let webhook = signed(&world.sources(), "test", &order.to_string(), body, world.env.now());
        assert_eq!(ingest.answer(&request(&webhook)).await.status_code, 200);
    }
    let kept = DeliveryCollector::default();
    world.work(&[world.drainer(kept.clone())]).await;
    let mut seen: Vec<(String, u64)> = Vec::new();
    for delivery in kept.first(orders.len()).await {
        let update: Update = delivery.json().expect("it is JSON");
        seen.push((delivery.entity().to_string(), update.data.order_id));
    }
    seen.sort_by_key(|(_, order)| *order);
    assert_eq!(seen, orders.map(|order| (format!("test/order/{order}"), order)));
}

/// Returns an order of at least a megabyte, and the ids of its lines. The ids count up from 2^53, where a
/// double can hold only every second number.
fn order_of_a_megabyte(id: u64) -> (String, Vec<u64>) {
    let mut ids: Vec<u64> = Vec::new();
    let mut lines = String::new();
    for number in 0.. {
        if lines.len() >= 1 << 20 {
            break;
        }
        let line = (1 << 53) + number;
        let comma = if number == 0 { "" } else { "," };
        lines += &format!(
            r#"{comma}{{"id":{line},"admin_graphql_api_id":"gid://shopify/LineItem/{line}","title":"Pot {number}","quantity":1,"sku":"POT-{number}","price":"1.00","properties":[{{"name":"engraving","value":"For Ada, number {number}"}}],"tax_lines":[{{"price":"0.08","rate":0.08,"title":"State tax"}}],"variant_id":{line},"fulfillment_status":null}}"#
        );
        ids.push(line);
    }
    let order = format!(
        r##"{{"id":{id},"name":"#1001","currency":"USD","total_price":"{total}.00","financial_status":"paid","fulfillment_status":null,"cancelled_at":null,"updated_at":"2026-01-05T09:00:00Z","line_items":[{lines}]}}"##,
        total = ids.len()
    );
    (order, ids)
}

/// Like the smallest order, it costs two writes and one wake-up.
///
/// Promise: a megabyte costs no more requests; ids above 2^53 are exact.
#[tokio::test(flavor = "multi_thread")]
async fn delivery_of_a_megabyte_costs_no_additional_request() {
    #[derive(Deserialize)]
    struct Order {
        id: u64,
        line_items: Vec<Line>,
    }
    #[derive(Deserialize)]
    struct Line {
        id: u64,
        variant_id: u64,
    }
    let mut testbed =
        TestBed::start_for("[sources.shop]\nprovider = 'shopify'\nsecrets = ['q7mZ4kT1']\nhandler = 'test'\n").await;
    let ingest = Ingest::new(testbed.sources(), testbed.inbox(), testbed.env().clone());
    let id = (1 << 53) + 1;
    let (large, lines) = order_of_a_megabyte(id);
    let small = r#"{"id":9007199254740992,"line_items":[]}"#.to_owned();
    assert!(large.len() >= 1 << 20 && lines.len() > 2000, "{} {}", large.len(), lines.len());
    let mut costs = Vec::new();
    for (name, body) in [("small", small), ("large", large)] {
        let sent = [("x-shopify-topic", "orders/create"), ("x-shopify-webhook-id", name)];
        let webhook = signed_as(testbed.sources(), "shop", &sent, body, testbed.env().now());
        let before = testbed.meter.reading();
        let answer = ingest.answer(&request(&webhook)).await;
        assert_eq!(answer.status_code, 200, "{name}: {}", answer.body);
        let cost = testbed.meter.reading() - before;
        costs.push((cost.writes, cost.reads, cost.sends, cost.failures));
    }
    assert_eq!(costs, [(2, 0, 1, 0); 2], "writes, reads, wake-ups, failures");

    let kept = DeliveryCollector::default();
    testbed.work(2, &kept);
    let deliveries = kept.first(2).await;
    testbed.rest().await;
    let delivery = deliveries.iter().find(|one| one.delivery_id().as_str().ends_with("/large")).expect("it arrived");
    assert_eq!(delivery.entity().as_str(), "shop/order/9007199254740993", "not the small one's");
    let order: Order = delivery.json().expect("it is JSON");
    assert_eq!(order.id, id);
    assert!(order.line_items.iter().map(|line| line.id).eq(lines.iter().copied()));
    assert!(order.line_items.iter().map(|line| line.variant_id).eq(lines));
}
