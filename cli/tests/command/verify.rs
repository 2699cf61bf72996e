//! `verify` and `sign`: a webhook at hand, held against its sender's rules.

use std::{
    io::Write,
    process::{Output, Stdio},
};

use serde_json::{Value, json};
use webhook_serializer::providers;

use crate::running::{complained, printed, ran, serializer};

const BODY: &str = r#"{"id":1001,"note":"é/&","updated_at":"2026-01-05T09:00:00Z"}"#;

/// When what is signed here is signed.
const AT: &str = "1767621700";

/// Runs a command with `body` on its standard input.
fn with_input(arguments: &[&str], body: &[u8]) -> Output {
    let mut command = serializer(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    // It may end without reading: that is for the assertions to say.
    let _ = child.stdin.take().expect("it is piped").write_all(body);
    child.wait_with_output().expect("it ends")
}

/// `name: value` of each header that `sign` makes.
fn signed(provider: &str, secret: &str, more: &[&str], body: &[u8]) -> Vec<String> {
    let arguments = [&["sign", "--provider", provider, "--secret", secret, "--now", AT], more].concat();
    let done = with_input(&arguments, body);
    assert!(done.status.success(), "{done:?}");
    printed(&done).lines().map(str::to_owned).collect()
}

/// What `verify` says, and how it ended.
fn verified(provider: &str, secret: &str, headers: &[String], more: &[&str], body: &[u8]) -> (Value, Option<i32>) {
    let mut arguments = vec!["verify", "--provider", provider, "--secret", secret];
    if !more.contains(&"--now") {
        arguments.extend(["--now", AT]);
    }
    headers.iter().for_each(|header| arguments.extend(["--header", header]));
    arguments.extend(more);
    let done = with_input(&arguments, body);
    let said = serde_json::from_str(&printed(&done)).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    (said, done.status.code())
}

/// Why it is not valid.
fn reason((said, code): (Value, Option<i32>)) -> String {
    assert_eq!((&said["valid"], code), (&json!(false), Some(1)), "{said}");
    said["reason"].as_str().expect("a text").to_owned()
}

fn is_valid((said, code): &(Value, Option<i32>)) -> bool {
    assert_eq!(*code == Some(0), said["valid"] == true, "{said}");
    *code == Some(0)
}

#[test]
fn a_good_webhook_is_told_with_what_it_is_about_and_what_of_it_is_signed() {
    let mut headers = signed("shopify", "secret", &[], BODY.as_bytes());
    headers.extend(["X-Shopify-Topic: orders/create".to_owned(), "x-shopify-webhook-id:  7 ".to_owned()]);
    let (said, code) = verified("shopify", "secret", &headers, &["--secret", "next"], BODY.as_bytes());
    let expected = json!({
        "valid": true, "topic": "orders/create", "delivery_id": "/orders/create/7", "entity": "order/1001",
        "event_time": 1_767_603_600_000_u64, "signed": ["time", "body"],
    });
    assert_eq!((said, code), (expected, Some(0)));
}

#[test]
fn what_is_covered_by_a_signature_is_found_out_for_each_sender() {
    let covered = |provider, secret, more: &[&str], headers: &[&str], body: &str| {
        let mut sent = signed(provider, secret, more, body.as_bytes());
        sent.extend(headers.iter().map(|header| (*header).to_owned()));
        let said = verified(provider, secret, &sent, more, body.as_bytes());
        assert!(is_valid(&said), "{said:?}");
        said.0["signed"].clone()
    };
    let event = r#"{"id":"evt_1","type":"charge.refunded","created":1767621600}"#;
    assert_eq!(covered("stripe", "whsec_s", &[], &[], event), json!(["topic", "id", "time", "body"]));
    // Its time is the header's now, which nobody signs.
    let headers = ["X-Shopify-Topic: a/b", "X-Shopify-Triggered-At: 2026-01-05T14:00:02Z"];
    assert_eq!(covered("shopify", "s", &[], &headers, "{}"), json!(["body"]));
    // Nothing in the body says when: the time of the signature is there.
    let id = ["--header", "webhook-id: 1"];
    assert_eq!(covered("standard-webhooks", "whsec_c2VjcmV0", &id, &[], "{}"), json!(["id", "time", "body"]));
    let generic = [
        "header=x-s",
        "hash=sha256",
        "encoding=hex",
        "delivery_id=x-id",
        "topic=x-topic",
        "signed={header:x-id}{body}",
    ];
    let mut more: Vec<&str> = generic.iter().flat_map(|option| ["--option", *option]).collect();
    more.extend(["--header", "x-id: 7", "--header", "x-topic: a"]);
    assert_eq!(covered("generic", "s", &more, &[], "{}"), json!(["id", "body"]));
}

#[test]
fn each_usual_mistake_is_named() {
    let shopify = signed("shopify", "secret", &[], BODY.as_bytes());
    let of_body = |body: &str| reason(verified("shopify", "secret", &shopify, &[], body.as_bytes()));
    for (body, named) in [
        (format!("{BODY}\n"), "a newline at its end that was not signed"),
        (format!("{BODY}\r\n"), "a newline at its end that was not signed"),
        (format!("  {BODY}"), "white space around it"),
        (format!("\u{feff}{BODY}"), "byte order mark"),
        (BODY.replace(',', ", ").replace("\":", "\": "), "parsed and serialised again"),
        (BODY.replace('{', "{\n    ").replace(',', ",\n    ").replace('}', "\n}"), "parsed and serialised again"),
        (BODY.replace('é', "\\u00e9").replace('/', "\\/").replace('&', "\\u0026"), "parsed and serialised again"),
        (serde_json::to_string(BODY).unwrap(), "serialised twice"),
        (BODY.bytes().map(char::from).collect(), "Latin-1"),
        ("eyJpZCI6MTAwMX0=".into(), "another secret's"),
        (json!({ "body": BODY, "headers": {}, "isBase64Encoded": false }).to_string(), "event of a function"),
        (BODY.replace("1001", "1002"), "another secret's, or of other bytes"),
    ] {
        assert!(of_body(&body).contains(named), "{body}: {}", of_body(&body));
    }
    let of_secret = |secret: &str| reason(verified("shopify", secret, &shopify, &[], BODY.as_bytes()));
    for (secret, named) in [
        ("other", "another secret's"),
        ("secret\n", "without the white space around it"),
        ("'secret'", "without the quotation marks"),
        ("SECRET=secret", "what is behind the `=`"),
        ("736563726574", "write `hex:` in front of it"),
        ("c2VjcmV0", "write `base64:` in front of it"),
        ("hex:7365637", "behind `hex:` is not hexadecimal"),
        ("", "it is empty"),
    ] {
        assert!(of_secret(secret).contains(named), "{secret}: {}", of_secret(secret));
    }
    let hex = "x-shopify-hmac-sha256: 6f9e2c0dd5a2a2d0a1d2d5d5a59d4b1e".to_owned();
    let of_headers =
        |provider: &str, headers: &[String]| reason(verified(provider, "secret", headers, &[], BODY.as_bytes()));
    assert!(of_headers("shopify", &[hex]).contains("another secret's"));
    assert!(of_headers("shopify", &[]).starts_with("there is no header x-shopify-hmac-sha256"));
    assert_eq!(of_headers("stripe", &shopify), "it is signed as shopify signs: verify it with --provider shopify");
    let others = signed("shopify", "other", &[], BODY.as_bytes());
    assert_eq!(of_headers("stripe", &others), "its headers are not stripe's but look like shopify's");
    let malformed = of_headers("stripe", &["stripe-signature: v1".to_owned()]);
    assert!(malformed.contains("stripe writes one such as `t=1767621700,v1="), "{malformed}");
    let none = with_input(&["verify", "--provider", "shopify", "-H", &shopify[0]], BODY.as_bytes());
    assert!(printed(&none).contains("there is no --secret"), "{none:?}");
}

#[test]
fn a_signature_in_another_encoding_is_named() {
    let options = ["--option", "header=x-s", "--option", "hash=sha256", "--option"];
    let hex = [&options[..], &["encoding=hex"]].concat();
    let base64 = [&options[..], &["encoding=base64"]].concat();
    for (sent, asked, named) in [
        (&hex, &base64, "the signature in x-s is in hexadecimal, and is to be in base64"),
        (&base64, &hex, "the signature in x-s is in base64, and is to be in hexadecimal"),
    ] {
        let headers = signed("generic", "secret", sent, BODY.as_bytes());
        assert_eq!(reason(verified("generic", "secret", &headers, asked, BODY.as_bytes())), named);
    }
}

#[test]
fn a_stale_webhook_is_good_at_its_own_time_and_within_the_tolerance() {
    let headers = signed("stripe", "whsec_s", &[], BODY.as_bytes());
    let at = |more: &[&str]| verified("stripe", "whsec_s", &headers, more, BODY.as_bytes());
    assert!(is_valid(&at(&["--now", AT])));
    let stale = reason(at(&["--now", "1767622301"]));
    assert!(stale.contains("stale: it was made at 2026-01-05T14:01:40.000Z, 601 s before"), "{stale}");
    assert!(stale.contains("--now 1767621700"), "{stale}");
    assert!(reason(at(&["--now", "1767621000"])).contains("700 s after"));
    assert!(is_valid(&at(&["--now", "1767622301", "--option", "tolerance=601"])));
    reason(at(&["--now", "1767622301", "--option", "tolerance=10m"]));
    assert!(reason(at(&["--now", "1767621761", "--option", "tolerance=60"])).contains("61 s before"));
    let with_newline =
        verified("stripe", "whsec_s", &headers, &["--now", "1767622301"], format!("{BODY}\n").as_bytes());
    let both = reason(with_newline);
    assert!(
        both.contains("a newline at its end") && both.contains("Besides, the signature is good but stale"),
        "{both}"
    );
}

/// RFC 4231, test case 3: neither its key nor its data are text.
#[test]
fn a_key_and_a_body_that_are_no_text_are_taken_as_bytes() {
    let body = [0xdd; 50];
    let header = "x-s: 773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe".to_owned();
    let options = ["--option", "header=X-S", "--option", "hash=sha256", "--option", "encoding=hex"];
    for secret in ["hex:AAaaAAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "base64:qqqqqqqqqqqqqqqqqqqqqqqqqqo="] {
        let said = verified("generic", secret, std::slice::from_ref(&header), &options, &body);
        assert!(is_valid(&said), "{said:?}");
    }
}

#[test]
fn what_is_signed_is_valid_for_every_provider_that_signs_with_a_secret() {
    let mut signing = 0;
    for provider in providers::NAMES {
        let secret = "whsec_c2VjcmV0";
        let options: &[&str] = match provider {
            "generic" => &["--option", "header=x-s", "--option", "hash=sha1", "--option", "encoding=base64"],
            _ => &["--url", "https://example.com/webhooks/shop"],
        };
        let arguments = [&["sign", "--provider", provider, "--secret", secret, "--now", AT], options].concat();
        let done = with_input(&arguments, BODY.as_bytes());
        if complained(&done).contains("does not sign with a secret that anybody else has") {
            continue;
        }
        signing += 1;
        let headers: Vec<String> = printed(&done).lines().map(str::to_owned).collect();
        assert!(is_valid(&verified(provider, secret, &headers, options, BODY.as_bytes())), "{provider}: {done:?}");
        reason(verified(provider, "whsec_b3RoZXI=", &headers, options, BODY.as_bytes()));
    }
    assert!(signing >= 5, "{signing}");
}

#[test]
fn what_cannot_be_told_is_neither_valid_nor_invalid() {
    for (arguments, named) in [
        (&["--provider", "shopify", "--option", "tolerances=3"][..], "unknown field `tolerances`"),
        (&["--provider", "generic", "--option", "header=x"], "missing field `hash`"),
        (&["--provider", "shopify", "no-such-file"], "no-such-file cannot be read"),
        (&["--provider", "no-such-provider"], "possible values: "),
    ] {
        let done = with_input(&[&["verify", "--secret", "s"], arguments].concat(), b"");
        assert_eq!((done.status.code(), printed(&done).as_str()), (Some(2), ""), "{done:?}");
        assert!(complained(&done).contains(named), "{done:?}");
    }
    let unsigned = ran(&["sign", "--provider", "shopify", "Cargo.toml"]);
    assert!(complained(&unsigned).contains("Give a --secret") && unsigned.status.code() == Some(1), "{unsigned:?}");
}

#[test]
fn a_url_that_is_not_signed_is_said_to_make_no_difference() {
    let headers = signed("shopify", "secret", &[], BODY.as_bytes());
    let arguments =
        ["verify", "--provider", "shopify", "--secret", "secret", "-H", &headers[0], "--url", "https://example.com/"];
    let done = with_input(&arguments, BODY.as_bytes());
    assert!(done.status.success() && complained(&done).contains("--url makes no difference"), "{done:?}");
}
