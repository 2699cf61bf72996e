//! `serializer replay`: a past delivery, posted once more to somebody else.

use std::sync::mpsc::Receiver;

use serde_json::Value;

use crate::{
    endpoint::{self, Post},
    running::{Local, complained, event, file, folder, printed, ran},
};

const ORDER: &str = "warehouse/order/450789469";
const SECRET: &str = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==";

/// It answers `/500…` with that, and everything else with 200.
fn endpoint() -> (String, Receiver<Post>) {
    endpoint::endpoint(|_, post| {
        let status = if post.path.starts_with("/500") { "500 No" } else { "200 OK" };
        (status.to_owned(), "heard".to_owned())
    })
}

fn sources(url: &str) -> String {
    format!(
        "[sources.warehouse]\nprovider = 'standard-webhooks'\nsecrets = ['{SECRET}']\nhandler = 'forward'\n\
         forward = {{ url = '{url}/first', secret = '{SECRET}', allow_private = true }}\n"
    )
}

/// Text that does not compress to less than half.
fn noise(length: usize) -> String {
    let next = |seed: &mut u64| {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from_digit((*seed >> 60) as u32, 16)
    };
    (0..length).scan(7, |seed, _| next(seed)).collect()
}

/// A run that has forwarded one delivery of so many bytes more than the sample.
fn forwarded(padding: usize, folder: &tempfile::TempDir) -> (Local, String, Receiver<Post>, Post) {
    let (url, posted) = endpoint();
    let sources = file(folder, "sources.toml", &sources(&url));
    let sources = sources.to_str().expect("a path in UTF-8");
    let mut local = Local::start(&["--sources", sources]);
    let sample = std::fs::read_to_string(event("standard-webhooks-order-shipped.json")).expect("a sample");
    let mut sample: Value = serde_json::from_str(&sample).expect("JSON");
    let body = sample["body"].as_str().expect("a body").replacen('{', &format!("{{\"pad\":\"{}\",", noise(padding)), 1);
    sample["body"] = body.into();
    let sample = file(folder, "event.json", &sample.to_string());
    let sent = ran(&["send", "--to", &local.url, "--sources", sources, sample.to_str().expect("a path in UTF-8")]);
    assert!(sent.status.success(), "{sent:?}");
    local.until(|told| told["outcome"] == "applied");
    let first = posted.recv().expect("it was forwarded");
    (local, url, posted, first)
}

fn inspected(local: &Local) -> Value {
    serde_json::from_str(&printed(&local.ran(&["show", ORDER, "--json"]))).expect("JSON")
}

#[test]
fn replay_sends_forwarded_request_newly_signed() {
    let folder = folder();
    // In parts, and in one row.
    for padding in [900_000, 0] {
        let (local, url, posted, first) = forwarded(padding, &folder);
        let before = inspected(&local);
        let place = before["settled"][0]["sequence"].to_string();
        let done = local.ran(&["replay", ORDER, &place, "--to", &format!("{url}/mine?a=b"), "--json"]);
        assert!(done.status.success(), "{done:?}");
        let told: Value = serde_json::from_str(&printed(&done)).expect("JSON");
        assert_eq!((&told["status"], &told["answer"]), (&200.into(), &"heard".into()), "{told}");
        let again = posted.recv().expect("it was sent");
        assert_eq!(again.path, "/mine?a=b");
        assert!(again.body == first.body && again.body.len() > padding, "{} bytes", again.body.len());
        for same in
            ["webhook-id", "content-type", "serializer-topic", "serializer-sequence", "serializer-fencing-token"]
        {
            assert_eq!(again.header(same), first.header(same), "{same}");
        }
        assert_eq!((first.header("serializer-replay"), again.header("serializer-replay")), (None, Some("true")));
        let body = folder.path().join("body");
        std::fs::write(&body, &again.body).expect("a file can be written");
        let mut verify = vec!["verify", "--provider", "standard-webhooks", "--secret", SECRET];
        for header in again.headers.iter().filter(|header| header.to_lowercase().starts_with("webhook-")) {
            verify.extend(["-H", header.as_str()]);
        }
        verify.push(body.to_str().expect("a path in UTF-8"));
        let verified = ran(&verify);
        assert!(verified.status.success(), "{verified:?}");
        assert_eq!(inspected(&local), before);
        assert!(posted.try_recv().is_err(), "no handler was started");
    }
}

#[test]
fn replay_of_many_stops_at_first_refusal() {
    let folder = folder();
    let (mut local, url, posted, _) = forwarded(0, &folder);
    let text = std::fs::read_to_string(event("standard-webhooks-order-shipped.json")).expect("a sample");
    let mut sample: Value = serde_json::from_str(&text).expect("JSON");
    sample["headers"]["webhook-id"] = "another".into();
    let (sample, sources) = (file(&folder, "another.json", &sample.to_string()), folder.path().join("sources.toml"));
    let [sample, sources] = [&sample, &sources].map(|path| path.to_str().expect("a path in UTF-8"));
    assert!(ran(&["send", "--to", &local.url, "--sources", sources, sample]).status.success());
    local.until(|told| told["outcome"] == "applied");
    assert_eq!(posted.recv().expect("it was forwarded").path, "/first");
    let place = inspected(&local)["settled"][0]["sequence"].as_u64().expect("a number");
    let around = format!("{}..{}", place - 3, place + 3);
    let done = local.ran(&["replay", ORDER, &around, "--to", &format!("{url}/500"), "--unsigned"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    assert!(printed(&done).starts_with(&format!("500  {place} order.shipped  ")), "{done:?}");
    let post = posted.recv().expect("it was sent");
    let signed = ["webhook-signature", "webhook-timestamp"].map(|name| post.header(name));
    assert_eq!((post.path.as_str(), signed), ("/500", [None, None]));
    let whole = local.ran(&["replay", ORDER, &around, "--to", &url]);
    assert!(
        whole.status.success() && complained(&whole).contains("5 of these sequences hold no stored delivery"),
        "{whole:?}"
    );
    let places = [posted.recv(), posted.recv()].map(|post| {
        let post = post.expect("both were sent, and the second not before");
        post.header("serializer-sequence").and_then(|place| place.parse::<u64>().ok())
    });
    assert_eq!(places, [Some(place), Some(place + 1)]);
}

#[test]
fn impossible_replay_is_explained() {
    let folder = folder();
    let (local, url, posted, _) = forwarded(0, &folder);
    let said = |arguments: &[&str]| {
        let done = local.ran(&[&["replay", ORDER], arguments].concat());
        assert!(!done.status.success(), "{done:?}");
        complained(&done)
    };
    assert!(said(&["7", "--to", &url]).contains("is not kept any more"));
    assert!(said(&["9999999999999", "--to", &url]).contains("the last that arrived is "));
    assert!(said(&["7", "--to", "localhost"]).contains("--to: the URL must be a whole URL, such as https://"));
    assert!(said(&["9..7", "--to", &url]).contains("the last, 7, comes before the first, 9"));
    let shop = Local::start(&[]);
    assert!(shop.send(&["shopify-orders-create.json"]).status.success());
    let parked = shop.ran(&["show", "shopify/order/450789469", "--json"]);
    let parked: Value = serde_json::from_str(&printed(&parked)).expect("JSON");
    let place = parked["state"]["tail"].to_string();
    let unsigned = complained(&shop.ran(&["replay", "shopify/order/450789469", &place, "--to", &url]));
    assert!(unsigned.contains("source `shopify` forwards nowhere") && unsigned.contains("--unsigned"), "{unsigned}");
    assert!(posted.try_recv().is_err());
}
