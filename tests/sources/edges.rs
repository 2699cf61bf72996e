//! Edges of requests and documents: header bytes that are not UTF-8 (Lambda and `local` replace each by U+FFFD), and a
//! handler without a name.

use tests::prelude::*;
use webhook_serializer::{
    providers::{self, Headers},
    sources::{ReceivedWebhook, Sources},
};

const SOURCES: &str = "[sources.hdr]\nprovider = 'generic'\nsecrets = ['a-test-secret-0123456789']\nhandler = 'log'\n\
                       topics = { take = 'paid' }\n[sources.hdr.generic]\nheader = 'x-sig'\nhash = 'sha256'\n\
                       encoding = 'hex'\nsigned = '{body}'\ntopic = 'x-topic'\ndelivery_id = 'x-id'\n\
                       entity_kind = 'order'\nentity = 'x-order'\n";

fn received(headers: [(&str, &str); 3], body: &str) -> ReceivedWebhook {
    let sources = Sources::parse(SOURCES).unwrap();
    let headers: Headers = headers.into_iter().collect();
    let request = providers::Request { headers: &headers, body: body.as_bytes() };
    sources.get("hdr").unwrap().receive(request, Env::system().now())
}

#[test]
fn unreadable_header_counts_as_missing() {
    let good = received([("x-topic", "paid"), ("x-id", "1"), ("x-order", "7")], "{}");
    assert_eq!((good.unrouted, good.ignored), (None, None));
    let topic = received([("x-topic", "pa\u{fffd}d"), ("x-id", "1"), ("x-order", "7")], "{}");
    assert!(topic.unrouted.is_some() && topic.ignored.is_none(), "{topic:?}");
    let order = received([("x-topic", "paid"), ("x-id", "1"), ("x-order", "M\u{fffd}ller")], "{}");
    assert!(order.unrouted.is_some(), "{order:?}");
    let id = |body| received([("x-topic", "paid"), ("x-id", "evt-\u{fffd}"), ("x-order", "7")], body).incoming.identity;
    assert_ne!(id("{\"amount\":10}"), id("{\"amount\":20}"));
}

/// GitHub sends such forms unless another content type is chosen.
#[test]
fn form_with_json_in_a_field_is_explained() {
    let why = |body: &str| {
        let form = ("content-type", "application/x-www-form-urlencoded");
        received([("x-topic", "paid"), ("x-id", "1"), form], body).unrouted.expect("a reason")
    };
    assert!(why("payload=%7B%22id%22%3A7%7D").ends_with("let the sender send application/json, if it can"));
    assert!(why("payload=7").ends_with("`{form:NAME}` reads a field of it"));
}

#[test]
fn empty_handler_is_refused() {
    let document = "[sources.a]\nprovider = 'shopify'\nsecrets = ['a-test-secret-0123456789']\nhandler = ' '\n";
    let refused = Sources::parse(document).unwrap_err().to_string();
    assert!(refused.contains("`handler` must have the name of a handler"), "{refused}");
}
