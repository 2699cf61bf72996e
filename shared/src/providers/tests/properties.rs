//! Tests of properties that hold for every provider and any bytes.

use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    providers::{
        Address, Headers, IdPart, Keys, NAMES, NoKeys, Request, RsaKey, Secret, TOLERANCE, Uncertified, Unverified,
        Verified, by_name, is_pointer, rule_of,
        tests::rows::{NOW, ProviderRow, ROWS},
    },
    sources::Sources,
    time::Timestamp,
};

#[test]
fn every_listed_provider_except_generic_has_an_entity_rule() {
    for name in NAMES {
        assert_eq!(by_name(name).is_some(), name != "generic", "{name}");
        assert_eq!(rule_of(name).is_some(), name != "generic", "{name}");
    }
    assert!(by_name("Shopify").is_none());
}

/// Promise: each provider's rule finds the order of its examples.
#[test]
fn documented_entity_examples_agree_with_code() {
    for name in NAMES {
        let (Some(provider), Some(rule)) = (by_name(name), rule_of(name)) else { continue };
        for example in rule.examples {
            let headers = example.header.into_iter().collect();
            let described = provider.describe(Request { headers: &headers, body: example.body.as_bytes() });
            assert_eq!(described.entity.as_deref(), Some(example.entity), "{name}: {}", example.body);
            assert_eq!(described.has_topic(), !rule.reads.topic.is_empty(), "{name}: {}", example.body);
        }
        let mut places = rule.reads.lines.iter().flat_map(|line| line.places);
        assert!(places.all(|place| is_pointer(place) || is_parameter(place)), "{name}");
    }
}

/// WooCommerce's own default is a consumer secret, and a secret that its owner chooses may look like anything.
#[test]
fn chosen_secret_is_not_refused_for_its_looks() {
    for (name, secret) in [
        ("woocommerce", "cs_0123456789abcdef0123456789abcdef01234567"),
        ("razorpay", "rzp_live_0123456789"),
        ("github", "ghp_0123456789"),
        ("easypost", "EZAK0123456789"),
    ] {
        assert_eq!(by_name(name).unwrap().objection(&Secret::new(secret)), None, "{name}");
    }
}

/// The senders of these secrets make them.
#[test]
fn credential_of_another_kind_is_refused() {
    for (name, credential, secret) in [
        ("square", "EAAA0123456789", "0123456789"),
        ("twilio", "AC0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef"),
        ("stripe", "sk_live_0123456789", "whsec_0123456789"),
        ("shopify", "shpat_0123456789", "0123456789"),
    ] {
        let objection = |secret| by_name(name).unwrap().objection(&Secret::new(secret));
        assert!(objection(credential).is_some_and(|reason| reason.contains("; ")), "{name}");
        assert_eq!(objection(secret), None, "{name}");
    }
}

fn is_parameter(place: &str) -> bool {
    (place.starts_with("{form:") || place.starts_with("{query:")) && place.ends_with('}')
}

#[test]
fn url_option_is_refused_unless_url_is_signed() {
    for name in NAMES {
        let (Some(provider), Some(rule)) = (by_name(name), rule_of(name)) else { continue };
        assert_eq!(provider.with_url(Some("https://example.com/")).is_ok(), rule.facts.signed.url, "{name}");
    }
}

#[test]
fn documented_facts_of_every_provider_are_complete() {
    for name in NAMES {
        let Some(rule) = rule_of(name) else { continue };
        let places = rule.reads.topic.iter().chain(rule.reads.account).chain(rule.reads.event_time);
        let is_header =
            |place: &str| place.bytes().all(|byte| byte.is_ascii_lowercase() || b"-0123456789".contains(&byte));
        assert!(places.clone().all(|place| is_pointer(place) || is_parameter(place) || is_header(place)), "{name}");
        assert!(!rule.reads.delivery_id.is_empty(), "{name}");
        let is_form_of_an_id = rule.reads.delivery_id == [IdPart::Request];
        assert!(!rule.reads.topic.is_empty() || is_form_of_an_id, "{name}");
        assert_eq!(rule.reads.event_time.is_empty(), rule.facts.resolution.is_none(), "{name}");
        assert!(!rule.facts.sources.is_empty(), "{name}");
        assert!(rule.facts.sources.iter().all(|source| source.starts_with("https://")), "{name}");
        assert!(rule.facts.signed.body || rule.facts.signed.headers.is_empty(), "{name}");
    }
}

#[test]
fn published_key_provider_refuses_secrets() {
    let mut published = Vec::new();
    for name in NAMES {
        let Some(provider) = by_name(name) else { continue };
        let Some(own) = provider.published() else { continue };
        let headers = Headers::default();
        let secret = Secret::new("secret");
        assert_eq!(provider.sign(&headers, b"body", &secret, NOW), [], "{name}");
        let request = Request { headers: &headers, body: b"body" };
        assert_eq!(provider.verify(request, &[secret]), Err(Unverified::Mismatch), "{name}");
        let document = format!("[sources.a]\nprovider = '{name}'\nsecrets = 'q7mZ4kT1'\nhandler = 'h'\n");
        let objection = Sources::parse(&document).expect_err("it has no secret").to_string();
        assert!(objection.contains("leave `secrets` out"), "{name}: {objection}");
        assert!(own.recipient().is_none_or(|field| objection.contains(&format!("`{field}`"))), "{name}: {objection}");
        published.push(name);
    }
    assert_eq!(published, ["adobe-io-events", "paypal", "shipstation-v2"]);
}

#[test]
fn empty_secret_neither_signs_nor_verifies() {
    for row in ROWS.iter() {
        let provider = row.provider();
        let own = Secret::new(row.secrets[0]);
        let headers = row.signed(b"body", &own);
        for empty in [Secret::new(""), Secret::new("\0\0")] {
            assert!(provider.objection(&empty).is_some(), "{}", row.name);
            assert_eq!(provider.sign(&Headers::default(), b"body", &empty, NOW), []);
            assert_eq!(provider.query(&empty), None);
            assert_eq!(row.verify(&headers, b"body", &[empty]), Err(Unverified::Mismatch), "{}", row.name);
        }
        assert_eq!(provider.objection(&own), None, "{}", row.name);
    }
}

fn known_headers() -> Vec<&'static str> {
    let of_tables = NAMES.into_iter().filter_map(rule_of).flat_map(|rule| {
        let of_ids = rule.reads.delivery_id.iter().flat_map(|part| match part {
            IdPart::At(places) | IdPart::Maybe(places) => *places,
            _ => &[],
        });
        let places = of_ids.chain(rule.reads.topic).chain(rule.reads.account).chain(rule.reads.event_time);
        places
            .chain(rule.facts.signed.headers)
            .copied()
            .filter(|place| !place.starts_with(['/', '{']))
            .collect::<Vec<_>>()
    });
    let others = ["svix-signature", "shopify-hmac-sha256", "shopify-resource-id", "shopify-action", "x-b"];
    of_tables.chain(ROWS.iter().filter_map(|row| row.header.as_deref())).chain(others).collect()
}

fn of_any_secret() -> impl Iterator<Item = (&'static ProviderRow, fn(&[u8]) -> Secret)> {
    ROWS.iter().filter_map(|row| Some((row, row.secret_of?)))
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[tv01=,a-f0-9 ]{0,30}",
        "(v1|v1a,|sha1=|hmac-sha256(-hex)?=|t=17676217..,v1=|v1,)[a-zA-Z0-9+/=]{0,90}",
        "17676217[0-9]{2}",
    ]
}

fn any_headers() -> impl Strategy<Value = Headers> {
    prop::collection::vec((prop::sample::select(known_headers()), any_value()), 0..20)
        .prop_map(|headers| headers.into_iter().collect())
}

fn any_query() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "(token=|&|%|[a-z0-9]){0,20}"]
}

fn any_body() -> impl Strategy<Value = Vec<u8>> {
    let member = (prop::sample::select(vec!["id", "order_id", "type", "created", "updated_at", "a"]), any_value());
    prop_oneof![
        any::<Vec<u8>>(),
        "webhook_id=[0-9]{0,25}".prop_map(String::into_bytes),
        prop::collection::vec(member, 0..6).prop_map(|members| {
            let members: serde_json::Map<_, _> =
                members.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
            serde_json::json!({ "data": { "object": members.clone() }, "order": members.clone() })
                .as_object()
                .map(|outer| outer.clone().into_iter().chain(members).collect::<serde_json::Map<_, _>>())
                .map(|body| serde_json::to_vec(&body).unwrap())
                .unwrap()
        }),
    ]
}

struct SameEverywhere(Vec<u8>);

impl Keys for SameEverywhere {
    fn find(&self, _: &Address) -> Option<Bytes> {
        Some(self.0.clone().into())
    }

    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        RsaKey::in_info(pem).ok_or(Uncertified::Unreadable)
    }
}

fn any_published() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<Vec<u8>>(),
        prop::collection::vec(prop::sample::select(vec![0x30, 0x82, 0x81, 0x03, 0x00, 0x05, 0xff]), 0..40),
        "-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\n]{0,60}(-----END PUBLIC KEY-----)?".prop_map(String::into_bytes),
        r#"\{"keys":\[(\{"kid":"[ab]","kty":"RSA","n":"[A-Za-z0-9_=-]{0,20}","e":"[A-Z]{0,4}"\},?){0,3}\]\}"#
            .prop_map(String::into_bytes),
    ]
}

fn any_published_headers() -> impl Strategy<Value = Headers> {
    const KNOWN: [&str; 12] = [
        "paypal-transmission-id",
        "paypal-transmission-time",
        "paypal-transmission-sig",
        "paypal-cert-url",
        "paypal-auth-algo",
        "x-adobe-digital-signature-1",
        "x-adobe-public-key1-path",
        "x-adobe-digital-signature-2",
        "x-adobe-public-key2-path",
        "x-shipengine-rsa-sha256-key-id",
        "x-shipengine-timestamp",
        "x-shipengine-rsa-sha256-signature",
    ];
    let value = prop_oneof![
        any::<String>(),
        "[ab]|AAAA|SHA256withRSA|2026-01-05T14:01:40Z|/prod/keys/[a./]{0,8}",
        "https://api(-m)?(.sandbox)?.paypal.com/v1/notifications/certs/[A-Z./]{0,8}",
    ];
    prop::collection::vec((prop::sample::select(KNOWN.to_vec()), value), 0..20)
        .prop_map(|headers| headers.into_iter().collect())
}

proptest! {
    #[test]
    fn unrelated_headers_do_not_break_verification(
        others in any_headers(),
        body in prop::collection::vec(any::<u8>(), 1..200),
    ) {
        for row in ROWS.iter() {
            let provider = row.provider();
            let secret = Secret::new(row.secrets[0]);
            let signed = provider.sign(&others, &body, &secret, NOW);
            let kept = others.iter().filter(|(name, _)| !signed.iter().any(|(signed, _)| signed == name));
            let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let headers = kept.chain(signed.iter().cloned()).collect::<Headers>();
            let headers = headers.with_query(provider.query(&secret).unwrap_or_default());
            prop_assert_eq!(row.verify(&headers, &body, &[secret]), Ok(Verified::Delivery), "{}", row.name);
        }
    }

    #[test]
    fn signature_made_with_any_usable_secret_verifies(body in any::<Vec<u8>>(), text in "\\PC{1,80}") {
        for (row, _) in of_any_secret() {
            let secret = Secret::new(text.clone());
            if row.provider().objection(&secret).is_none() {
                let headers = row.signed(&body, &secret);
                prop_assert_eq!(row.verify(&headers, &body, &[secret]), Ok(Verified::Delivery), "{}", row.name);
            }
        }
    }

    #[test]
    fn body_with_a_flipped_bit_is_refused(
        body in prop::collection::vec(any::<u8>(), 1..200),
        bytes in prop::collection::vec(1_u8.., 1..100),
        at in any::<prop::sample::Index>(),
    ) {
        let bit = at.index(body.len() * 8);
        let mut flipped = body.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for (row, secret_of) in of_any_secret().filter(|(row, _)| row.signs_body) {
            let secret = secret_of(&bytes);
            let headers = row.signed(&body, &secret);
            prop_assert_eq!(row.verify(&headers, &flipped, &[secret]), Err(Unverified::Mismatch), "{}", row.name);
        }
    }

    #[test]
    fn webhook_signed_with_other_secret_is_refused(
        body in any::<Vec<u8>>(),
        bytes in prop::collection::vec(0_u8..94, 1..100),
        other in prop::collection::vec(0_u8..94, 1..100),
    ) {
        // Zeros at the end make no difference to an HMAC's key.
        let [bytes, other] = [bytes, other].map(|bytes| bytes.into_iter().map(|byte| byte + 1).collect::<Vec<_>>());
        prop_assume!(bytes != other);
        for (row, secret_of) in of_any_secret() {
            let headers = row.signed(&body, &secret_of(&bytes));
            let refused = row.verify(&headers, &body, &[secret_of(&other)]);
            prop_assert_eq!(refused, Err(Unverified::Mismatch), "{}", row.name);
        }
    }

    #[test]
    fn published_key_verification_never_panics(
        headers in any_published_headers(),
        body in any_body(),
        key in any_published(),
        now in any::<u64>(),
    ) {
        for provider in NAMES.into_iter().filter_map(by_name) {
            let Some(published) = provider.published() else { continue };
            let request = Request { headers: &headers, body: &body };
            for keys in [&SameEverywhere(key.clone()) as &dyn Keys, &NoKeys] {
                let verified = published.verify(request, &["ours".into()], keys, Timestamp::from_millis(now));
                prop_assert!(verified.is_err(), "{:?}", verified);
            }
            let described = provider.describe(request);
            prop_assert!(!described.topic.is_empty() && !described.family.is_empty());
            prop_assert!(!described.delivery_id.as_str().is_empty());
            prop_assert_ne!(described.entity.as_deref(), Some(""));
        }
    }

    /// Promise: nothing makes a provider panic or trust another secret.
    #[test]
    fn providers_never_panic_on_arbitrary_requests(
        headers in any_headers(),
        query in any_query(),
        body in any_body(),
        now in any::<u64>(),
    ) {
        let headers = headers.with_query(query);
        for row in ROWS.iter() {
            let provider = row.provider();
            let request = Request { headers: &headers, body: &body };
            let secrets = [Secret::new("a secret that nobody guesses"), Secret::new("\\&#"), Secret::new(row.secrets[1])];
            let verified = provider.verify(request, &secrets).and_then(|proof| proof.near(Timestamp::from_millis(now), TOLERANCE));
            prop_assert_ne!(verified, Ok(Verified::Delivery));
            let described = provider.describe(request);
            prop_assert!(!described.topic.is_empty() && !described.family.is_empty());
            prop_assert!(!described.delivery_id.as_str().is_empty());
            prop_assert_ne!(described.entity.as_deref(), Some(""));
            provider.sign(&headers, &body, &secrets[0], Timestamp::from_millis(now));
        }
    }
}
