//! Bodies arrive as they were sent, whatever their bytes, up to 6 MB; numbers
//! too large for a double keep every digit.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serializer::samples::Webhook;
use tests::{
    lane::{Kept, Lane},
    webhooks::{request, signed},
    world::World,
};
use webhook_serializer::{
    functions::ingest::{Ingest, Request},
    protocol::{delivery::LARGEST_BODY, entity::EntityKey},
    time::Surroundings,
};

/// The entity stands in a header, so that the body is any bytes.
const SOURCES: &str = r#"
[sources.any]
provider = "standard-webhooks"
secrets = ["whsec_c2VjcmV0"]
handler = "test"
entity = "{source}/{header:x-order}"
"#;

fn webhook(lane: &Lane, id: &str, body: Vec<u8>) -> Webhook {
    let mut webhook = signed(&lane.sources, "any", id, body, lane.surroundings.now());
    webhook.headers.push(("x-order".into(), id.into()));
    webhook
}

/// Does not shrink.
fn noise(surroundings: &Surroundings, bytes: usize) -> Vec<u8> {
    let some = || surroundings.fraction().to_bits().wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
    std::iter::repeat_with(some).flatten().take(bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn any_body_from_nothing_to_six_megabytes_reaches_its_handler_as_it_was_sent() {
    let mut lane = Lane::start(SOURCES).await;
    let kept = Kept::default();
    lane.local.work(|_| kept.clone());
    let bodies = [
        ("nothing", Vec::new()),
        ("a-zero", vec![0]),
        ("every-byte", (0..=255).collect()),
        ("no-text", b"{\"id\":\"\xff\xfe\xc3\x28\"}".to_vec()),
        ("text", "{\"name\":\"\u{1F4E6} \u{00e9}\"}".into()),
        ("in-several-rows", noise(&lane.surroundings, 800 * 1024)),
        ("six-megabytes", vec![b' '; LARGEST_BODY]),
    ];
    for (id, body) in &bodies {
        let answer = lane.post(&webhook(&lane, id, body.clone())).await;
        assert_eq!(answer.status, 200, "{id}: {}", answer.body);
    }
    let too_long = webhook(&lane, "too-long", vec![b' '; LARGEST_BODY + 1]);
    assert_eq!(lane.post(&too_long).await.status, 413);
    let deliveries = kept.first(bodies.len()).await;
    for (id, body) in &bodies {
        let delivery = deliveries.iter().find(|delivery| delivery.delivery_id().as_str() == *id).expect("it arrived");
        assert!(delivery.body()[..] == body[..], "{id}: {} bytes arrived", delivery.body().len());
    }
    assert_eq!(deliveries.len(), bodies.len(), "and nothing else");
    lane.local.stop().await.expect("nothing had failed");
}

/// Six megabytes that do not shrink, in eighteen rows. In memory under a paused
/// clock: without optimization the machine may need longer for them than a
/// sender waits.
#[tokio::test(start_paused = true)]
async fn six_megabytes_that_do_not_shrink_reach_their_handler_as_they_were_sent() {
    let world = World::new();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.surroundings.clone());
    let mut body = noise(&world.surroundings, LARGEST_BODY);
    let webhook = signed(&world.sources(), "test", "1", body.clone(), world.surroundings.now());
    let request = |body: &[u8]| Request {
        body: Some(STANDARD.encode(body)),
        is_base64_encoded: true,
        ..request(&Webhook { body: Vec::new(), ..webhook.clone() })
    };
    assert_eq!(ingest.answer(&request(&body)).await.status_code, 200);
    let kept = Kept::default();
    world.work(&[world.drainer(kept.clone())]).await;
    // Noise names no order: it is parked, whole, and put where it belongs.
    let parked = world.operator().parked(&EntityKey::parse("test/unrouted").unwrap()).await.unwrap();
    let entity = EntityKey::parse("test/order/7").unwrap();
    world.operator().redrive(&parked[0], Some(&entity)).await.unwrap();
    world.work(&[world.drainer(kept.clone())]).await;
    let deliveries = kept.first(1).await;
    assert!(deliveries[0].body()[..] == body[..], "{} bytes arrived", deliveries[0].body().len());
    body.push(b' ');
    assert_eq!(ingest.answer(&request(&body)).await.status_code, 413);
}

#[tokio::test(start_paused = true)]
async fn a_body_may_come_in_base64_or_not() {
    let world = World::new();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.surroundings.clone());
    let body = tests::webhooks::update("7");
    let plain = |id: &str| request(&signed(&world.sources(), "test", id, body.clone(), world.surroundings.now()));
    let encoded = |id: &str| Request { body: Some(STANDARD.encode(&body)), is_base64_encoded: true, ..plain(id) };
    for request in [plain("1"), encoded("2")] {
        assert_eq!(ingest.answer(&request).await.status_code, 200);
    }
    let said_to_be = Request { is_base64_encoded: true, ..plain("3") };
    assert_eq!(ingest.answer(&said_to_be).await.status_code, 400);
    let kept = Kept::default();
    world.work(&[world.drainer(kept.clone())]).await;
    let deliveries = kept.first(2).await;
    let [plain, encoded] = &deliveries[..] else { panic!("two arrived: {deliveries:?}") };
    assert_eq!(plain.body(), encoded.body());
    assert_eq!(plain.body()[..], *body.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn an_id_above_two_to_the_53rd_is_exact_from_ingest_to_handler() {
    #[derive(Deserialize)]
    struct Update {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        order_id: u64,
    }
    let world = World::new();
    let ingest = Ingest::new(world.sources(), world.inbox(), world.surroundings.clone());
    // Neighbours that a double cannot tell apart.
    let orders = [9_007_199_254_740_992, 9_007_199_254_740_993, u64::MAX - 1, u64::MAX];
    for order in orders {
        let body = format!(r#"{{"type":"order.updated","data":{{"order_id":{order}}}}}"#);
        let webhook = signed(&world.sources(), "test", &order.to_string(), body, world.surroundings.now());
        assert_eq!(ingest.answer(&request(&webhook)).await.status_code, 200);
    }
    let kept = Kept::default();
    world.work(&[world.drainer(kept.clone())]).await;
    let mut seen: Vec<(String, u64)> = Vec::new();
    for delivery in kept.first(orders.len()).await {
        let update: Update = delivery.json().expect("it is JSON");
        seen.push((delivery.entity().to_string(), update.data.order_id));
    }
    seen.sort_by_key(|(_, order)| *order);
    assert_eq!(seen, orders.map(|order| (format!("test/order/{order}"), order)));
}
