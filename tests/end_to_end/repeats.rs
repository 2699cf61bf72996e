//! Repeats from senders that give no id.

use tests::prelude::*;

const ACME: &str = "[sources.acme]\nprovider = 'generic'\nsecrets = ['q7mZ4kT1']\nhandler = 'h'\n\
     generic = { header = 'x-sign', hash = 'sha256', encoding = 'hex', entity = '/order', retried_for = '1h' }\n";
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

async fn post(world: &TestWorld, source: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    let webhook = signed_as(&world.sources(), source, headers, body, world.env.now());
    let ingest = Ingest::new(world.sources(), world.inbox(), world.env.clone());
    let status = ingest.answer(&request(&webhook)).await.status_code;
    world.work(&[world.drainer(Done)]).await;
    status
}

/// Returns whether all ids differ: a receiver applies each id once.
fn has_distinct_ids(world: &TestWorld) -> bool {
    let applied = world.applied();
    applied.iter().collect::<BTreeSet<_>>().len() == applied.len()
}

async fn until_the_end_of_a_period(world: &TestWorld) {
    let hour = HOUR.as_millis() as u64;
    let gone = world.env.now().as_millis() % hour;
    tokio::time::advance(Duration::from_millis(hour - gone) - SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn second_deletion_webhook_of_order_is_applied() {
    const WOO: &str = "[sources.woo]\nprovider = 'woocommerce'\nsecrets = ['q7mZ4kT1']\nhandler = 'h'\n";
    for has_id in [true, false] {
        let world = TestWorld::new().with_sources(WOO);
        for (topic, id) in [("order.deleted", "1"), ("order.restored", "2"), ("order.deleted", "3")] {
            let mut headers = vec![("x-wc-webhook-topic", topic), ("x-wc-webhook-source", "https://shop.example/")];
            headers.extend(has_id.then_some(("x-wc-webhook-delivery-id", id)));
            tokio::time::advance(60 * SECOND).await;
            assert_eq!(post(&world, "woo", &headers, r#"{"id":7}"#).await, 200);
        }
        assert_eq!(world.settlements("woo/order/7").await, [Settlement::Applied; 3]);
        assert!(has_distinct_ids(&world), "{:?}", world.applied());
    }
}

#[tokio::test(start_paused = true)]
async fn second_webhook_with_order_state_holded_is_applied() {
    let key = include_str!("../../events/keys/private.pem");
    let commerce =
        format!("[sources.commerce]\nprovider = 'adobe-commerce'\nsecrets = \"\"\"{key}\"\"\"\nhandler = 'h'\n");
    let world = TestWorld::new().with_sources(&commerce);
    for state in ["holded", "processing", "holded"] {
        tokio::time::advance(60 * SECOND).await;
        let body = format!(
            r#"{{"eventName":"observer.sales_order_save_after","data":{{"order":{{"entity_id":"7","state":"{state}"}}}}}}"#
        );
        assert_eq!(post(&world, "commerce", &[], &body).await, 200);
    }
    assert_eq!(world.settlements("commerce/order/7").await, [Settlement::Applied; 3]);
    assert!(has_distinct_ids(&world), "{:?}", world.applied());
}

/// Promise: without a sender's id, an equal body is a repeat while the sender retries.
#[tokio::test(start_paused = true)]
async fn equal_body_is_a_repeat_while_sender_retries() {
    let world = TestWorld::new().with_sources(ACME);
    let body = r#"{"order":"o/7"}"#;
    until_the_end_of_a_period(&world).await;
    post(&world, "acme", &[], body).await;
    tokio::time::advance(2 * SECOND).await;
    post(&world, "acme", &[], body).await;
    tokio::time::advance(2 * HOUR).await;
    post(&world, "acme", &[], body).await;
    use Settlement::{Applied, Repeat};
    assert_eq!(world.settlements("acme/o/7").await, [Applied, Repeat, Applied]);
    assert!(has_distinct_ids(&world), "{:?}", world.applied());
    let entity = key("acme/o/7");
    let state = world.state("acme/o/7").await;
    let places = world.operator().settled(&entity, Some(&state), 10).await.unwrap().places;
    let firsts: Vec<_> = places.values().map(|past| past.first.map(|first| state.head.0 - first.0)).collect();
    assert_eq!(firsts, [None, Some(2), None], "the second is a repeat of the first");
}

/// The first delivery's receipt, from the period before, has left the order's row.
#[tokio::test(start_paused = true)]
async fn equal_body_is_recognised_as_repeat_by_its_spilled_receipt() {
    let world = TestWorld::new().with_sources(ACME);
    let body = |number: u32| format!(r#"{{"order":"o/7","number":{number}}}"#);
    until_the_end_of_a_period(&world).await;
    for number in 0..40 {
        post(&world, "acme", &[], &body(number)).await;
    }
    tokio::time::advance(2 * SECOND).await;
    post(&world, "acme", &[], &body(0)).await;
    assert_eq!(world.settlements("acme/o/7").await.last(), Some(&Settlement::Repeat));
    assert_eq!(world.applied().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn deferred_copy_of_a_stored_body_is_a_repeat() {
    let mut world = TestWorld::new().with_sources(&ACME.replace("1h", "0s"));
    let whole = world.table.clone();
    let clock = world.env.clone();
    let end = clock.monotonic() + 10 * SECOND;
    world.table = Arc::new(FaultyTable::new(whole, &world.env, move |call| {
        let is_put = matches!(call.writes, [Write { action: Action::Put(_), .. }]);
        if is_put && clock.monotonic() < end { Fault::ReplyLost } else { Fault::None }
    }));
    assert_eq!(post(&world, "acme", &[], r#"{"order":"o/7"}"#).await, 202);
    let settlements = world.settlements("acme/o/7").await;
    assert_eq!(settlements[..2], [Settlement::Applied, Settlement::Repeat]);
    assert!(settlements[2..].iter().all(|settlement| *settlement == Settlement::Repeat), "{settlements:?}");
}
