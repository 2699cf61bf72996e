//! The samples of `events/`, sent through ingest.

use std::{fs, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use serializer::local::samples::{self, DevelopmentKeys, SOURCES};
use tests::prelude::*;
use webhook_serializer::functions::ingest::keys::PublishedKeys;

/// Returns the sample webhooks by file, signed at the current time.
fn webhooks(world: &TestWorld, sources: &Sources) -> Vec<(String, SignedWebhook)> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../events"));
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "json"));
    files.sort();
    let events = files.iter().map(|file| (file, fs::read_to_string(file).unwrap()));
    let webhooks = events.filter(|(_, event)| samples::is_webhook(event));
    webhooks
        .map(|(file, event)| {
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            (name, samples::webhook(&event, sources, world.env.now()).unwrap())
        })
        .collect()
}

/// Returns the webhook's request twice: with its body as text and in base64.
fn both_forms(webhook: &SignedWebhook) -> [HttpRequest; 2] {
    let text = request(webhook);
    let encoded = HttpRequest { body: Some(STANDARD.encode(&webhook.body)), is_base64_encoded: true, ..text.clone() };
    [text, encoded]
}

/// Returns an ingest that accepts the samples' published keys.
fn ingest(world: &TestWorld, sources: &Arc<Sources>) -> Ingest {
    let keys = PublishedKeys::beside(world.env.clone(), Arc::new(DevelopmentKeys));
    Ingest::new(sources, world.inbox(), world.env.clone()).with_keys(keys)
}

fn error(answer: &Response) -> String {
    format!("{} {}", answer.status_code, answer.body)
}

/// Promise: ingest answers with the body that a provider requires; changed deliveries get 401.
#[tokio::test(start_paused = true)]
async fn every_sample_is_accepted_and_answered_as_required() {
    let world = TestWorld::new();
    let sources = Arc::new(Sources::parse(SOURCES).unwrap());
    let ingest = ingest(&world, &sources);
    let mut deliveries = 0;
    let mut pings = 0;
    for (name, webhook) in webhooks(&world, &sources) {
        let is_ping = name.ends_with("-ping.json");
        for request in both_forms(&webhook) {
            let answer = ingest.answer(&request).await;
            let required = match webhook.source.as_str() {
                "slack" if is_ping => {
                    r#"{"challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P"}"#.to_owned()
                }
                _ if is_ping => "{}".to_owned(),
                "adobe-commerce" => r#"{"op":"success"}"#.to_owned(),
                "adyen" => "[accepted]".to_owned(),
                "slack" => String::new(),
                "twilio" => "<Response/>".to_owned(),
                _ => {
                    deliveries += 1;
                    assert!(answer.body.starts_with("{\"accepted\":"), "{name}: {}", error(&answer));
                    continue;
                }
            };
            assert_eq!((answer.status_code, answer.body.as_str()), (200, required.as_str()), "{name}");
            pings += usize::from(is_ping);
        }
    }
    assert!(deliveries > 120 && pings == 8, "{deliveries} {pings}");
}

/// Shopify checks this for the privacy topics before it lists an app.
#[tokio::test(start_paused = true)]
async fn every_changed_sample_is_answered_401() {
    let world = TestWorld::new();
    let sources = Arc::new(Sources::parse(SOURCES).unwrap());
    let ingest = ingest(&world, &sources);
    let mut refused = 0;
    for (name, webhook) in webhooks(&world, &sources) {
        if name == "woocommerce-ping.json" {
            continue;
        }
        let signed_by_url = webhook.query.is_some();
        let changed = if signed_by_url {
            HttpRequest { raw_query_string: "token=guessed".into(), ..request(&webhook) }
        } else if webhook.source == "adyen" {
            // Some fields of the body are signed.
            let body = String::from_utf8(webhook.body.clone()).unwrap().replace("\"value\":1", "\"value\":2");
            request(&SignedWebhook { body: body.into(), ..webhook })
        } else if webhook.source == "chargebee" {
            let headers = vec![("authorization".to_owned(), "Basic Z3Vlc3NlZDpndWVzc2Vk".to_owned())];
            request(&SignedWebhook { headers, ..webhook })
        } else {
            request(&SignedWebhook { body: [&webhook.body[..], b" "].concat(), ..webhook })
        };
        let answer = ingest.answer(&changed).await;
        assert_eq!(answer.status_code, 401, "{name}: {}", error(&answer));
        refused += 1;
    }
    assert!(refused > 40, "{refused}");
}
