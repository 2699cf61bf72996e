//! What holds for every provider, whatever the bytes.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use proptest::prelude::*;

use crate::{
    providers::{
        Address, Generic, Headers, Keys, NAMES, NoKeys, Provider, Request, RsaKey, Secret, Uncertified, Unverified,
        Verified, by_name, is_pointer, rule_of,
    },
    time::Timestamp,
};

const NOW: Timestamp = Timestamp::from_secs(1_767_621_700);

/// A provider, and the secret of its own form that is made of any bytes.
type Case = (Box<dyn Provider>, fn(&[u8]) -> Secret);

fn plain(bytes: &[u8]) -> Secret {
    Secret::new(bytes.iter().map(|byte| char::from(b'!' + byte % 94)).collect::<String>())
}

fn encoded(bytes: &[u8]) -> Secret {
    Secret::new(format!("whsec_{}", STANDARD.encode(bytes)))
}

/// Every provider, the generic one in several forms.
fn all() -> Vec<Case> {
    let generic = |toml: &str| -> Case { (Box::new(toml::from_str::<Generic>(toml).unwrap()), plain) };
    vec![
        (Box::new(crate::providers::shopify::Shopify), plain),
        (Box::new(crate::providers::stripe::Stripe), plain),
        (Box::new(crate::providers::woocommerce::WooCommerce), plain),
        (Box::new(crate::providers::standard_webhooks::StandardWebhooks), encoded),
        generic("header = 'x-a'\nhash = 'sha1'\nencoding = 'hex'\nprefix = 'sha1='"),
        generic("header = 'x-a'\nhash = 'sha512'\nencoding = 'base64'\nseparator = ' '\nentity = '/a'\ntopic = 'x-b'"),
        generic(
            "header = 'x-a'\nhash = 'sha256'\nencoding = 'hex'\nseparator = ','\nprefix = 'v1='\n\
             timestamp_prefix = 't='\nsigned = '{timestamp}.{header:x-b}.{body}'\nevent_time = ['/a', 'x-b']",
        ),
    ]
}

fn verify(provider: &dyn Provider, headers: &Headers, body: &[u8], secrets: &[Secret]) -> Result<Verified, Unverified> {
    provider.verify(Request { headers, body }, secrets, NOW)
}

#[test]
fn every_named_provider_exists() {
    for name in NAMES {
        assert_eq!(by_name(name).is_some(), name != "generic", "{name}");
        assert_eq!(rule_of(name).is_some(), name != "generic", "{name}");
    }
    assert!(by_name("Shopify").is_none());
}

#[test]
fn every_example_is_about_what_it_says_and_every_line_of_a_rule_names_places_in_a_body() {
    for name in NAMES {
        let (Some(provider), Some(rule)) = (by_name(name), rule_of(name)) else { continue };
        for example in rule.examples {
            let headers = example.headers.iter().copied().collect();
            let described = provider.describe(Request { headers: &headers, body: example.body.as_bytes() });
            assert_eq!(described.entity.as_deref(), Some(example.entity), "{name}: {}", example.body);
            assert_ne!(described.topic, "unknown", "{name}: {}", example.body);
        }
        assert!(rule.lines.iter().flat_map(|line| line.places).all(|place| is_pointer(place)), "{name}");
    }
}

#[test]
fn an_empty_secret_signs_and_verifies_nothing() {
    for (provider, secret_of) in all() {
        let headers = provider.sign(&Headers::default(), b"body", &secret_of(b"secret"), NOW).into_iter().collect();
        for empty in [Secret::new(""), Secret::new("\0\0")] {
            assert!(provider.objection(&empty).is_some(), "{provider:?}");
            assert_eq!(provider.sign(&Headers::default(), b"body", &empty, NOW), []);
            assert_eq!(verify(&*provider, &headers, b"body", &[empty]), Err(Unverified::Mismatch), "{provider:?}");
        }
        assert_eq!(verify(&*provider, &headers, b"body", &[]), Err(Unverified::Mismatch), "{provider:?}");
    }
}

/// Header values as a forger might send them: nearly right, or anything.
fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[tv01=,a-f0-9 ]{0,30}",
        "(v1|sha1=|t=17676217..,v1=|v1,)[a-zA-Z0-9+/=]{0,44}",
        "17676217[0-9]{2}",
    ]
}

fn any_headers() -> impl Strategy<Value = Headers> {
    const KNOWN: [&str; 16] = [
        "x-shopify-hmac-sha256",
        "shopify-hmac-sha256",
        "x-shopify-topic",
        "x-shopify-triggered-at",
        "shopify-resource-id",
        "stripe-signature",
        "x-wc-webhook-signature",
        "x-wc-webhook-topic",
        "x-wc-webhook-source",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "svix-signature",
        "x-a",
        "x-b",
        "x-shopify-webhook-id",
    ];
    prop::collection::vec((prop::sample::select(KNOWN.to_vec()), any_value()), 0..20)
        .prop_map(|headers| headers.into_iter().collect())
}

/// Bodies that are anything, or JSON with the members that are looked for.
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

/// These bytes are published everywhere, and nobody has signed anything.
struct Whatever(Vec<u8>);

impl Keys for Whatever {
    fn find(&self, _: &Address) -> Option<Bytes> {
        Some(self.0.clone().into())
    }

    fn certified(&self, pem: &[u8], _: &[&'static str], _: Timestamp) -> Result<RsaKey, Uncertified> {
        RsaKey::in_info(pem).ok_or(Uncertified::Unreadable)
    }

    fn has_signed(&self, _: &RsaKey, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

/// What may be published: anything, or nearly a key.
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
    fn what_is_signed_is_believed_whichever_secret_comes_first(
        body in any::<Vec<u8>>(),
        bytes in prop::collection::vec(1_u8.., 1..100),
        other in prop::collection::vec(1_u8.., 1..100),
    ) {
        for (provider, secret_of) in all() {
            let (secret, other) = (secret_of(&bytes), secret_of(&other));
            let headers = provider.sign(&Headers::default(), &body, &secret, NOW).into_iter().collect();
            for secrets in [&[secret.clone()][..], &[secret.clone(), other.clone()], &[other.clone(), secret.clone()]] {
                prop_assert_eq!(verify(&*provider, &headers, &body, secrets), Ok(Verified::Delivery), "{:?}", provider);
            }
        }
    }

    #[test]
    fn any_text_that_is_usable_verifies_what_it_signs(body in any::<Vec<u8>>(), text in "\\PC{1,80}") {
        for (provider, _) in all() {
            let secret = Secret::new(text.clone());
            if provider.objection(&secret).is_none() {
                let headers = provider.sign(&Headers::default(), &body, &secret, NOW).into_iter().collect();
                prop_assert_eq!(verify(&*provider, &headers, &body, &[secret]), Ok(Verified::Delivery), "{:?}", provider);
            }
        }
    }

    #[test]
    fn one_flipped_bit_is_not_believed(
        body in prop::collection::vec(any::<u8>(), 1..200),
        bytes in prop::collection::vec(1_u8.., 1..100),
        at in any::<prop::sample::Index>(),
    ) {
        let bit = at.index(body.len() * 8);
        let mut flipped = body.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for (provider, secret_of) in all() {
            let secret = secret_of(&bytes);
            let headers = provider.sign(&Headers::default(), &body, &secret, NOW).into_iter().collect();
            prop_assert_eq!(verify(&*provider, &headers, &flipped, &[secret]), Err(Unverified::Mismatch), "{:?}", provider);
        }
    }

    #[test]
    fn another_secret_is_not_believed(
        body in any::<Vec<u8>>(),
        bytes in prop::collection::vec(0_u8..94, 1..100),
        other in prop::collection::vec(0_u8..94, 1..100),
    ) {
        // Zeros at the end make no difference to an HMAC's key.
        let [bytes, other] = [bytes, other].map(|bytes| bytes.into_iter().map(|byte| byte + 1).collect::<Vec<_>>());
        prop_assume!(bytes != other);
        for (provider, secret_of) in all() {
            let headers = provider.sign(&Headers::default(), &body, &secret_of(&bytes), NOW).into_iter().collect();
            let refused = verify(&*provider, &headers, &body, &[secret_of(&other)]);
            prop_assert_eq!(refused, Err(Unverified::Mismatch), "{:?}", provider);
        }
    }

    #[test]
    fn no_request_and_no_key_makes_a_provider_that_publishes_its_key_panic(
        headers in any_published_headers(),
        body in any_body(),
        key in any_published(),
        now in any::<u64>(),
    ) {
        for provider in NAMES.into_iter().filter_map(by_name) {
            let Some(published) = provider.published() else { continue };
            let request = Request { headers: &headers, body: &body };
            for keys in [&Whatever(key.clone()) as &dyn Keys, &NoKeys] {
                let verified = published.verify(request, &["ours".into()], keys, Timestamp::from_millis(now));
                prop_assert!(verified.is_err(), "{:?}", verified);
            }
            let described = provider.describe(request);
            prop_assert!(!described.topic.is_empty() && !described.family.is_empty());
            prop_assert!(!described.delivery_id.as_str().is_empty());
            prop_assert_ne!(described.entity.as_deref(), Some(""));
        }
    }

    #[test]
    fn no_request_makes_anything_panic(headers in any_headers(), body in any_body(), now in any::<u64>()) {
        for (provider, _) in all() {
            let request = Request { headers: &headers, body: &body };
            let secrets = [plain(b"secret"), Secret::new("\\&#")];
            let verified = provider.verify(request, &secrets, Timestamp::from_millis(now));
            prop_assert_ne!(verified, Ok(Verified::Delivery));
            let described = provider.describe(request);
            prop_assert!(!described.topic.is_empty() && !described.family.is_empty());
            prop_assert!(!described.delivery_id.as_str().is_empty());
            prop_assert_ne!(described.entity.as_deref(), Some(""));
            provider.sign(&headers, &body, &secrets[0], Timestamp::from_millis(now));
        }
    }
}
