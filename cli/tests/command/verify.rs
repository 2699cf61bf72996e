//! `verify` and `sign`: checks and makes signatures by the provider's rules.

mod keys;

use std::{
    io::Write,
    process::{Output, Stdio},
};

use serde_json::{Value, json};
use webhook_serializer::providers;

use crate::running::{complained, printed, ran, serializer};

const BODY: &str = r#"{"id":1001,"note":"é/&","updated_at":"2026-01-05T09:00:00Z"}"#;

/// The time at which the tests sign.
const AT: &str = "1767621700";

/// Runs a command with `body` on its standard input.
fn with_input(arguments: &[&str], body: &[u8]) -> Output {
    let mut command = serializer(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be started");
    // The command may end without reading; the test's assertions show that.
    let _ = child.stdin.take().expect("it is piped").write_all(body);
    child.wait_with_output().expect("it ends")
}

/// Returns the headers that `sign` makes, as `name: value`.
fn signed(provider: &str, secret: &str, more: &[&str], body: &[u8]) -> Vec<String> {
    let arguments = [&["sign", "--provider", provider, "--secret", secret, "--now", AT], more].concat();
    let done = with_input(&arguments, body);
    assert!(done.status.success(), "{done:?}");
    printed(&done).lines().map(str::to_owned).collect()
}

/// Returns the output of `verify` and its exit code.
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

/// Returns the reason why the webhook is invalid.
fn reason((said, code): (Value, Option<i32>)) -> String {
    assert_eq!((&said["valid"], code), (&json!(false), Some(1)), "{said}");
    said["reason"].as_str().expect("a text").to_owned()
}

fn is_valid((said, code): &(Value, Option<i32>)) -> bool {
    assert_eq!(*code == Some(0), said["valid"] == true, "{said}");
    *code == Some(0)
}

/// Promise: `serializer verify` describes valid webhooks, and names usual mistakes.
#[test]
fn verify_reports_webhook_fields_and_signed_parts() {
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
fn verify_lists_the_parts_that_each_provider_signs() {
    let covered = |provider, secret, more: &[&str], headers: &[&str], body: &str| {
        let mut sent = signed(provider, secret, more, body.as_bytes());
        sent.retain(|header| !more.contains(&header.as_str()));
        sent.extend(headers.iter().map(|header| (*header).to_owned()));
        let said = verified(provider, secret, &sent, more, body.as_bytes());
        assert!(is_valid(&said), "{said:?}");
        said.0["signed"].clone()
    };
    let event = r#"{"id":"evt_1","type":"charge.refunded","created":1767621600}"#;
    assert_eq!(covered("stripe", "whsec_s", &[], &[], event), json!(["topic", "id", "time", "body"]));
    // Here the event time comes from a header, which the signature does not cover.
    let headers = ["X-Shopify-Topic: a/b", "X-Shopify-Triggered-At: 2026-01-05T14:00:02Z"];
    assert_eq!(covered("shopify", "s", &[], &headers, "{}"), json!(["body"]));
    // The body has no event time, so `time` means the signature's own time.
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
fn verify_names_each_usual_mistake() {
    let shopify = signed("shopify", "secret", &[], BODY.as_bytes());
    let of_body = |body: &str| reason(verified("shopify", "secret", &shopify, &[], body.as_bytes()));
    for (body, named) in [
        (format!("{BODY}\n"), "ends with a newline that was not signed"),
        (format!("{BODY}\r\n"), "ends with a newline that was not signed"),
        (format!("  {BODY}"), "white space around the body"),
        (format!("\u{feff}{BODY}"), "byte order mark"),
        (BODY.replace(',', ", ").replace("\":", "\": "), "parsed and serialised again"),
        (BODY.replace('{', "{\n    ").replace(',', ",\n    ").replace('}', "\n}"), "parsed and serialised again"),
        (BODY.replace('é', "\\u00e9").replace('/', "\\/").replace('&', "\\u0026"), "parsed and serialised again"),
        (serde_json::to_string(BODY).unwrap(), "serialised twice"),
        (BODY.bytes().map(char::from).collect(), "Latin-1"),
        ("eyJpZCI6MTAwMX0=".into(), "does not fit this body of 16 bytes"),
        (json!({ "body": BODY, "headers": {}, "isBase64Encoded": false }).to_string(), "a function's event"),
        (BODY.replace("1001", "1002"), "with the given secret, nor with the usual changes of the body"),
    ] {
        assert!(of_body(&body).contains(named), "{body}: {}", of_body(&body));
    }
    let of_secret = |secret: &str| reason(verified("shopify", secret, &shopify, &[], BODY.as_bytes()));
    for (secret, named) in [
        ("other", "does not fit this body"),
        ("secret\n", "if the white space around the secret is removed"),
        ("'secret'", "if the quotation marks"),
        ("SECRET=secret", "the part of the secret after the `=`"),
        ("736563726574", "write `hex:` in front of the secret"),
        ("c2VjcmV0", "write `base64:` in front of the secret"),
        ("hex:7365637", "after `hex:` is not hexadecimal"),
        ("", "it is empty"),
    ] {
        assert!(of_secret(secret).contains(named), "{secret}: {}", of_secret(secret));
    }
    let hex = "x-shopify-hmac-sha256: 6f9e2c0dd5a2a2d0a1d2d5d5a59d4b1e".to_owned();
    let of_headers =
        |provider: &str, headers: &[String]| reason(verified(provider, "whsec_s", headers, &[], BODY.as_bytes()));
    assert!(of_headers("shopify", &[hex]).contains("does not fit this body"));
    assert!(of_headers("shopify", &[]).starts_with("there is no header x-shopify-hmac-sha256"));
    let shopify = signed("shopify", "whsec_s", &[], BODY.as_bytes());
    assert_eq!(of_headers("stripe", &shopify), "shopify signed it: verify it with --provider shopify");
    let others = signed("shopify", "other", &[], BODY.as_bytes());
    let verify_as_shopify = "the webhook has the headers of shopify, not of stripe: verify it with --provider shopify";
    assert_eq!(of_headers("stripe", &others), verify_as_shopify);
    let malformed = of_headers("stripe", &["stripe-signature: v1".to_owned()]);
    assert!(malformed.contains("stripe sends a value such as `t=1767621700,v1="), "{malformed}");
    let none = with_input(&["verify", "--provider", "shopify", "-H", &shopify[0]], BODY.as_bytes());
    assert!(printed(&none).contains("there is no --secret"), "{none:?}");
}

#[test]
fn verify_names_wrong_signature_encoding() {
    let options = ["--option", "header=x-s", "--option", "hash=sha256", "--option"];
    let hex = [&options[..], &["encoding=hex"]].concat();
    let base64 = [&options[..], &["encoding=base64"]].concat();
    for (sent, asked, named) in [
        (&hex, &base64, "the signature in x-s is in hexadecimal, but must be in base64"),
        (&base64, &hex, "the signature in x-s is in base64, but must be in hexadecimal"),
    ] {
        let headers = signed("generic", "secret", sent, BODY.as_bytes());
        assert_eq!(reason(verified("generic", "secret", &headers, asked, BODY.as_bytes())), named);
    }
}

#[test]
fn verify_reports_signed_time_outside_the_tolerance() {
    let headers = signed("stripe", "whsec_s", &[], BODY.as_bytes());
    let at = |more: &[&str]| verified("stripe", "whsec_s", &headers, more, BODY.as_bytes());
    assert!(is_valid(&at(&["--now", AT])));
    let stale = reason(at(&["--now", "1767622301"]));
    assert!(stale.contains("fits, but its time, 2026-01-05T14:01:40.000Z, is 601 s before"), "{stale}");
    assert!(stale.contains("--now 1767621700"), "{stale}");
    assert!(reason(at(&["--now", "1767621000"])).contains("700 s after"));
    assert!(is_valid(&at(&["--now", "1767622301", "--option", "tolerance=601"])));
    reason(at(&["--now", "1767622301", "--option", "tolerance=10m"]));
    assert!(reason(at(&["--now", "1767621761", "--option", "tolerance=60"])).contains("61 s before"));
    let with_newline =
        verified("stripe", "whsec_s", &headers, &["--now", "1767622301"], format!("{BODY}\n").as_bytes());
    let both = reason(with_newline);
    assert!(
        both.contains("ends with a newline") && both.contains("Besides, the signature fits, but its time, "),
        "{both}"
    );
}

/// RFC 4231, test case 3: neither its key nor its data are text.
#[test]
fn binary_key_and_body_are_verified() {
    let body = [0xdd; 50];
    let header = "x-s: 773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe".to_owned();
    let options = ["--option", "header=X-S", "--option", "hash=sha256", "--option", "encoding=hex"];
    for secret in ["hex:AAaaAAaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "base64:qqqqqqqqqqqqqqqqqqqqqqqqqqo="] {
        let said = verified("generic", secret, std::slice::from_ref(&header), &options, &body);
        assert!(is_valid(&said), "{said:?}");
    }
}

/// Promise: `serializer sign` signs; keys may be hexadecimal or base64; times may differ by `tolerance`.
#[test]
fn sign_and_verify_agree_for_each_signable_provider() {
    let mut signing = 0;
    for provider in providers::NAMES {
        let secret = "whsec_c2VjcmV0";
        let options: &[&str] = match provider {
            "generic" => &["--option", "header=x-s", "--option", "hash=sha1", "--option", "encoding=base64"],
            _ => &["--url", "https://example.com/webhooks/shop"],
        };
        let arguments = [&["sign", "--provider", provider, "--secret", secret, "--now", AT], options].concat();
        let done = with_input(&arguments, BODY.as_bytes());
        // The sender signs with a private key, or its secrets have another form.
        if !done.status.success() {
            continue;
        }
        signing += 1;
        let headers: Vec<String> = printed(&done).lines().map(str::to_owned).collect();
        assert!(is_valid(&verified(provider, secret, &headers, options, BODY.as_bytes())), "{provider}: {done:?}");
        reason(verified(provider, "whsec_b3RoZXI=", &headers, options, BODY.as_bytes()));
    }
    assert!(signing >= 11, "{signing}");
}

#[test]
fn unsigned_woocommerce_ping_is_valid() {
    let (said, code) = verified("woocommerce", "secret", &[], &[], b"webhook_id=12");
    assert_eq!((&said["valid"], &said["signed"], code), (&json!(true), &json!([]), Some(0)));
}

#[test]
fn verify_derives_entity_from_template() {
    let headers = signed("shopify", "secret", &[], BODY.as_bytes());
    let entity = |template: &str| {
        let option = format!("entity={template}");
        verified("shopify", "secret", &headers, &["--option", &option], BODY.as_bytes()).0["entity"].clone()
    };
    assert_eq!(entity("{source}/note/{/id}"), "shopify/note/1001");
    assert_eq!(entity("{source}/{/nothing}"), Value::Null);
}

#[test]
fn verify_with_unusable_arguments_exits_with_code_2() {
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
    assert!(complained(&unsigned).contains("give a --secret") && unsigned.status.code() == Some(1), "{unsigned:?}");
}

#[test]
fn verify_says_url_has_no_effect_if_url_is_not_signed() {
    let headers = signed("shopify", "secret", &[], BODY.as_bytes());
    let arguments =
        ["verify", "--provider", "shopify", "--secret", "secret", "-H", &headers[0], "--url", "https://example.com/"];
    let done = with_input(&arguments, BODY.as_bytes());
    assert!(done.status.success() && complained(&done).contains("--url has no effect"), "{done:?}");
}

/// Promise: a token in the URL is verified, and covers nothing.
#[test]
fn verify_checks_token_in_url_and_lists_no_signed_parts() {
    let body =
        r#"{"resource_url":"https://ssapi.shipstation.com/orders?importBatch=8","resource_type":"ORDER_NOTIFY"}"#;
    let at = |provider, secret, url: &[&str]| verified(provider, secret, &[], url, body.as_bytes());
    let good = ["--url", "https://example.com/webhooks/shop?a=b&token=s%65cret#top"];
    let (said, code) = at("shipstation-v1", "secret", &good);
    let expected = json!({
        "valid": true, "topic": "ORDER_NOTIFY", "event_time": null, "entity": "batch/8", "signed": [],
        "delivery_id": "ORDER_NOTIFY/https://ssapi.shipstation.com/orders?importBatch=8",
    });
    assert_eq!((said, code), (expected, Some(0)));
    assert!(is_valid(&at("shippo", "secret", &good)));
    for provider in ["shipstation-v1", "shippo"] {
        assert_eq!(reason(at(provider, "other", &good)), "the token in the URL matches none of the given secrets");
        let complaint = complained(&with_input(&[&["sign", "--provider", provider], &good[..]].concat(), b""));
        assert!(!complaint.contains("makes no difference"), "{complaint}");
    }
    let named = at("shipstation-v1", "secret", &["--url", "https://example.com/"]);
    assert_eq!(reason(named), "the URL has no `?token=`, in which shipstation-v1 sends the secret");
    assert!(reason(at("shipstation-v1", "secret", &[])).contains("give the URL that it calls, with --url 'https://"));
    let missing = reason(at("shopify", "secret", &good));
    assert!(missing.starts_with("there is no header x-shopify-hmac-sha256"), "{missing}");
    let nothing = ran(&["sign", "--provider", "shipstation-v1", "--secret", "a b", "Cargo.toml"]);
    assert!(complained(&nothing).contains("identifies it: ?token=a%20b"), "{nothing:?}");
}

/// Promise: `verify` lists only what the signature covers, also if it covers some fields of the body.
#[test]
fn verify_lists_signed_fields_of_a_body_that_is_signed_in_part() {
    // The key, the item and its signature are from the tests of Adyen's library for Python.
    let key = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";
    let item = json!({
        "pspReference": "7914073381342284", "merchantReference": "TestPayment-1407325143704",
        "merchantAccountCode": "TestMerchant", "amount": { "currency": "EUR", "value": 1130 },
        "eventCode": "AUTHORISATION", "success": "true", "eventDate": "2019-05-06T17:15:34.121+02:00",
        "additionalData": { "hmacSignature": "coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=" },
    });
    let body = json!({ "live": "false", "notificationItems": [{ "NotificationRequestItem": item }] }).to_string();
    let (said, code) = verified("adyen", key, &[], &[], body.as_bytes());
    assert_eq!((&said["signed"], code), (&json!(["topic", "id"]), Some(0)), "{said}");
}

#[test]
fn verify_reads_token_and_order_of_unsigned_request() {
    let form = "content-type: application/x-www-form-urlencoded".to_owned();
    let at = |place: &str, secret: &str, header: &str| {
        let options = [format!("token_in={place}"), "entity={form:id}".to_owned(), "account={query:shop}".to_owned()];
        let mut arguments = vec!["--url", "https://example.com/webhooks/shop?token=secret&shop=7"];
        options.iter().for_each(|option| arguments.extend(["--option", option]));
        verified("generic", secret, &[header.to_owned(), form.clone()], &arguments, b"id=tr_7")
    };
    for (place, secret, header) in [
        ("{query:token}", "secret", "a: b"),
        ("x-key", "secret", "x-key: secret"),
        ("basic", "user:secret", "authorization: Basic dXNlcjpzZWNyZXQ="),
    ] {
        let (said, code) = at(place, secret, header);
        assert_eq!((code, &said["entity"], &said["signed"]), (Some(0), &json!("tr_7"), &json!([])), "{said}");
        let other = reason(at(place, "user:other", header));
        assert_eq!(other, "the token that the request holds matches none of the given secrets");
    }
    assert!(reason(at("x-key", "secret", "a: b")).contains("header x-key is missing"));
    assert!(reason(at("basic", "secret", "a: b")).contains("lacks the colon"));
}

#[test]
fn verify_names_url_that_fits_the_signature() {
    let url = |url| ["--url", url];
    let headers = signed("square", "secret", &url("https://example.com/a"), BODY.as_bytes());
    let at = |given| verified("square", "secret", &headers, &url(given), BODY.as_bytes());
    assert!(is_valid(&at("https://example.com/a")));
    for given in
        ["https://example.com/a/", "http://example.com/a", "https://www.example.com/a", "https://EXAMPLE.com/a"]
    {
        assert_eq!(reason(at(given)), "the signature fits with --url https://example.com/a", "{given}");
    }
    let other = reason(at("https://example.com/b"));
    assert!(other.contains("square signs the URL: compare --url with the URL of the subscription"), "{other}");
    let headers = signed("square", "secret", &url("https://www.example.com/a"), BODY.as_bytes());
    let bare = reason(verified("square", "secret", &headers, &url("https://example.com/a?x=1"), BODY.as_bytes()));
    assert_eq!(bare, "the signature fits with --url https://www.example.com/a");
    let sent = [&headers[..], &["host: www.example.com".into(), "x-forwarded-host: hooks.example.org".into()]].concat();
    let elsewhere =
        reason(verified("square", "secret", &sent, &url("https://abc.lambda-url.on.aws/a"), BODY.as_bytes()));
    assert_eq!(elsewhere, "the signature fits with --url https://www.example.com/a");
}

#[test]
fn verify_names_numbers_that_were_rewritten() {
    let of = |sent: &str, got: &str| {
        let headers = signed("shopify", "secret", &[], sent.as_bytes());
        reason(verified("shopify", "secret", &headers, &[], got.as_bytes()))
    };
    for (sent, got) in [
        (r#"{"weight":136.0}"#, r#"{"weight":136}"#),
        (
            r#"{"id":7,"weight":136.0,"total":"9.50","price":48.20}"#,
            r#"{"id":7,"weight":136,"total":"9.50","price":48.2}"#,
        ),
        (r#"{"id": 7, "weight": 136.0}"#, r#"{"id":7,"weight":136}"#),
        ("{\"a\": 1.0, \"b\": [2, 3.50]}", r#"{"a":1,"b":[2,3.5]}"#),
    ] {
        let said = of(sent, got);
        assert!(said.contains("numbers") && said.contains("parsed and serialised again"), "{sent}: {said}");
    }
    let many: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let sent = format!("[{}.0]", many.join(".0,"));
    let got = format!("[{}]", many.join(","));
    assert!(of(&sent, &got).contains("numbers"), "all of many numbers");
}

#[test]
fn verify_names_header_that_came_twice() {
    let header = &signed("shopify", "secret", &[], BODY.as_bytes())[0];
    let value = header.split_once(": ").expect("a header").1;
    let said = reason(verified("shopify", "secret", &[format!("{header},{value}")], &[], BODY.as_bytes()));
    assert!(said.starts_with("the signature in x-shopify-hmac-sha256 comes twice"), "{said}");
    let given_twice = [header.clone(), header.clone()];
    assert_eq!(reason(verified("shopify", "secret", &given_twice, &[], BODY.as_bytes())), said);
    let other = header.replace(value, &value.chars().rev().collect::<String>());
    let said = reason(verified("shopify", "secret", &[header.clone(), other], &[], BODY.as_bytes()));
    assert!(said.starts_with("header x-shopify-hmac-sha256 has several values"), "{said}");
}

#[test]
fn verify_names_compression() {
    let mut headers = signed("shopify", "secret", &[], BODY.as_bytes());
    let gzip = b"\x1f\x8b\x08\x00 compressed";
    let said = reason(verified("shopify", "secret", &headers, &[], gzip));
    assert!(said.ends_with("The body is compressed (gzip): ingest takes only bodies that are not"), "{said}");
    headers.push("content-encoding: gzip".into());
    let said = reason(verified("shopify", "secret", &headers, &[], BODY.as_bytes()));
    assert!(said.starts_with("the body is compressed (gzip), and ingest answers 415"), "{said}");
}

#[test]
fn verify_names_signed_time_in_milliseconds() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let time = format!("{AT}000");
    let options = [
        "header=webhook-signature",
        "hash=sha256",
        "encoding=base64",
        "prefix=v1,",
        "signed={header:webhook-id}.{header:webhook-timestamp}.{body}",
    ];
    let mut more: Vec<&str> = options.iter().flat_map(|option| ["--option", *option]).collect();
    let time = format!("webhook-timestamp: {time}");
    more.extend(["--header", "webhook-id: 1", "--header", &time]);
    let mut headers = signed("generic", "kq8fzA1ckq8f", &more, BODY.as_bytes());
    headers.extend(["webhook-id: 1".into(), time.clone()]);
    let secret = format!("whsec_{}", STANDARD.encode("kq8fzA1ckq8f"));
    let said = reason(verified("standard-webhooks", &secret, &headers, &[], BODY.as_bytes()));
    assert!(said.contains("is in milliseconds, but standard-webhooks demands seconds"), "{said}");
}

#[test]
fn verify_explains_secret_that_is_the_key_itself() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    const POLAR: &str = "polar_whs_abcdef0123456789";
    let key = format!("base64:{}", STANDARD.encode(POLAR));
    let id = ["--header", "webhook-id: 1"];
    let headers = signed("standard-webhooks", &key, &id, BODY.as_bytes());
    let said = reason(verified("standard-webhooks", POLAR, &headers, &[], BODY.as_bytes()));
    assert!(said.contains("the secret's text itself is the key"), "{said}");
}

#[test]
fn verify_says_why_valid_webhook_has_no_order() {
    let of = |body: &[u8], more: &[&str]| {
        let mut headers = signed("shopify", "secret", &[], body);
        headers.push("x-shopify-topic: orders/paid".into());
        let (said, code) = verified("shopify", "secret", &headers, more, body);
        assert_eq!((&said["valid"], &said["entity"], code), (&json!(true), &Value::Null, Some(0)), "{said}");
        said["unrouted"].as_str().expect("a reason").to_owned()
    };
    let marked = format!("\u{feff}{BODY}");
    assert_eq!(of(marked.as_bytes(), &[]), "the body begins with a byte-order mark, which JSON does not allow");
    assert_eq!(of(b"{}", &[]), "the source's rules find no order in the webhook");
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(513));
    assert!(of(long.as_bytes(), &[]).contains("a key has at most 512 bytes"));
    assert!(of(b"{}", &["--option", "entity={source}/{/id}"]).contains("find no order"));
}

#[test]
fn sign_says_at_once_that_sender_has_the_private_key() {
    for provider in ["paypal", "adobe-io-events", "shipstation-v2"] {
        for secret in [&[][..], &["--secret", "y"]] {
            let done = with_input(&[&["sign", "--provider", provider], secret].concat(), b"{}");
            let complaint = complained(&done);
            assert!(complaint.contains(&format!("only {provider} has its private key")), "{complaint}");
            assert!(!complaint.contains("give a --secret") && !complaint.contains("note:"), "{complaint}");
        }
    }
}
