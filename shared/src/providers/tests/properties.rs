//! What holds for every provider, whatever the bytes.

use base64::{Engine, engine::general_purpose::STANDARD};
use proptest::prelude::*;

use crate::{
    providers::{
        Generic, Headers, NAMES, Provider, Request, Secret, Unverified, Verified, by_name, is_pointer, rule_of,
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
