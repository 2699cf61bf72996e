//! Bodies of any bytes and size through the webhook endpoint.

use tests::{prelude::*, source};
use webhook_serializer::protocol::delivery::LARGEST_BODY;

/// The entity comes from a header, so the body may be any bytes.
const SOURCES: &str = source!("any", "entity = '{source}/{header:x-order}'");

fn webhook(deployment: &LocalDeployment, id: &str, body: Vec<u8>) -> SignedWebhook {
    let mut webhook = signed(&deployment.sources, "any", id, body, deployment.env.now());
    webhook.headers.push(("x-order".into(), id.into()));
    webhook
}

#[tokio::test(flavor = "multi_thread")]
async fn any_body_reaches_the_handler_unchanged() {
    let mut deployment = LocalDeployment::start(SOURCES).await;
    let kept = DeliveryCollector::default();
    deployment.local.work(|_| kept.clone());
    let bodies = [
        ("nothing", Vec::new()),
        ("a-zero", vec![0]),
        ("every-byte", (0..=255).collect()),
        ("no-text", b"{\"id\":\"\xff\xfe\xc3\x28\"}".to_vec()),
        ("text", "{\"name\":\"\u{1F4E6} \u{00e9}\"}".into()),
        ("in-several-rows", noise(&deployment.env, 800 * 1024)),
        ("six-megabytes", vec![b' '; LARGEST_BODY]),
    ];
    for (id, body) in &bodies {
        let answer = deployment.post(&webhook(&deployment, id, body.clone())).await;
        assert_eq!(answer.status, 200, "{id}: {}", answer.body);
    }
    let too_long = webhook(&deployment, "too-long", vec![b' '; LARGEST_BODY + 1]);
    assert_eq!(deployment.post(&too_long).await.status, 413);
    let deliveries = kept.first(bodies.len()).await;
    for (id, body) in &bodies {
        let delivery = deliveries.iter().find(|delivery| delivery.delivery_id().as_str() == *id).expect("it arrived");
        assert!(delivery.body()[..] == body[..], "{id}: {} bytes arrived", delivery.body().len());
    }
    assert_eq!(deliveries.len(), bodies.len(), "and nothing else");
    deployment.local.stop().await.expect("nothing had failed");
}
