//! Standard Webhooks (standardwebhooks.com) signs `id.timestamp.body`.
//!
//! A `v1` signature is a base64 HMAC-SHA256 under the bytes that a `whsec_…` secret encodes. A
//! `v1a` signature is Ed25519; the source's secret is then the public key, `whpk_…`. While a
//! key is rolled, the signature header lists several signatures. Signatures of unknown
//! versions are ignored. The three headers may also have their `svix-…` names.
//!
//! Other providers sign in the same way with another form of key: see [`Scheme`].

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;

use super::{
    Encoding, HashName, Headers, Proof, Provider, Request, Secret, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    public_key::Ed25519,
    rule::{EntityKind, Rule, RuleLine},
    signature::{self, HmacKey},
};
use crate::{protocol::entity::DeliveryId, time::Timestamp};

#[derive(Debug)]
pub(super) struct Scheme {
    pub(super) key: fn(&Secret) -> Option<SchemeKey>,
    pub(super) objection: fn(&Secret) -> &'static str,
    pub(super) reads: Reads,
}

pub(super) const STANDARD_WEBHOOKS: Scheme = Scheme {
    key,
    objection: |secret| {
        let is_public = ["whpk_", "whsk_"].iter().any(|prefix| secret.expose().starts_with(prefix.as_bytes()));
        if is_public { "it is not `whpk_` and an Ed25519 key in base64" } else { NO_KEY }
    },
    reads: READS,
};

pub(super) enum SchemeKey {
    Shared(HmacKey),
    /// A public key, or in samples and tests a key pair. Otherwise only the sender has the private key.
    Pair(Ed25519),
}

/// Derives the key from `secret`. The prefix `whsec_` is optional, as in the libraries of Standard
/// Webhooks. A secret `whsk_…` is a private key, for samples and tests.
pub(super) fn key(secret: &Secret) -> Option<SchemeKey> {
    let Some(secret) = secret.text() else { return HmacKey::of(secret).map(SchemeKey::Shared) };
    let bytes = |text| STANDARD.decode(text).ok();
    if let Some(public) = secret.strip_prefix("whpk_") {
        return Ed25519::public(bytes(public)?).map(SchemeKey::Pair);
    }
    if let Some(private) = secret.strip_prefix("whsk_") {
        return Ed25519::private(&bytes(private)?).map(SchemeKey::Pair);
    }
    HmacKey::new(bytes(secret.strip_prefix("whsec_").unwrap_or(secret))?).map(SchemeKey::Shared)
}

pub(super) const NO_KEY: &str = "it is not `whsec_` and the key's bytes in base64; if the sender uses the secret's text \
                                 itself as the key, as Polar does, write `base64:` and that text in base64";

/// The names of a request's three headers: all begin with `webhook-`, or all with `svix-`. If a request
/// could mix both, a forger could combine a signed header with an unsigned one.
#[derive(Clone, Copy)]
struct HeaderNames {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const NAMES: HeaderNames =
    HeaderNames { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const ALIASES: HeaderNames = HeaderNames { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

fn names(headers: &Headers) -> HeaderNames {
    let has_any = |names: HeaderNames| {
        [names.id, names.timestamp, names.signature].iter().any(|name| headers.get(name).is_some())
    };
    if !has_any(NAMES) && has_any(ALIASES) { ALIASES } else { NAMES }
}

/// The two headers that may hold a delivery's id. In a verified request, one of them is not empty.
pub(super) const IDS: &[&str] = &[NAMES.id, ALIASES.id];

pub(super) const SIGNED: SignedParts = SignedParts {
    headers: &[NAMES.id, NAMES.timestamp, ALIASES.id, ALIASES.timestamp],
    time: true,
    ..SignedParts::BODY
};

/// The maximum number of Ed25519 signatures of a request that are tried. Each try costs a pass over the
/// body.
const MOST_V1A: usize = 4;

fn verify(request: Request<'_>, keys: &[SchemeKey]) -> Result<Proof, Unverified> {
    let names = names(request.headers);
    let header = |name| request.headers.required(name);
    let malformed = Unverified::malformed;
    let id = header(names.id)?;
    let time = header(names.timestamp)?;
    let list = header(names.signature)?;
    if id.trim().is_empty() {
        return Err(malformed(names.id));
    }
    let signed_at = signature::seconds(time).ok_or_else(|| malformed(names.timestamp))?;
    let of = |version: &'static str| {
        let texts = list.split_whitespace().filter_map(move |entry| entry.strip_prefix(version)?.strip_prefix(','));
        texts.filter_map(|text| Encoding::Base64.decode(text))
    };
    let (of_v1, of_v1a): (Vec<_>, Vec<_>) = (of("v1").collect(), of("v1a").take(MOST_V1A).collect());
    if of_v1.is_empty() && of_v1a.is_empty() {
        return Err(malformed(names.signature));
    }
    let parts = [id.as_bytes(), b".", time.as_bytes(), b".", request.body];
    let mut shared = Vec::new();
    let mut pairs = Vec::new();
    for key in keys {
        match key {
            SchemeKey::Shared(key) => shared.push(key.clone()),
            SchemeKey::Pair(pair) => pairs.push(pair),
        }
    }
    signature::check(HashName::Sha256, shared.into_iter(), &parts, &of_v1).or_else(|mismatch| {
        let message = if pairs.is_empty() || of_v1a.is_empty() { Vec::new() } else { parts.concat() };
        let is_signed = pairs.iter().any(|pair| of_v1a.iter().any(|signature| pair.verifies(&message, signature)));
        if is_signed { Ok(()) } else { Err(mismatch) }
    })?;
    Ok(Proof { signed_at: Some(signed_at), ..Proof::DELIVERY })
}

fn sign(headers: &Headers, body: &[u8], key: &SchemeKey, now: Timestamp) -> Vec<(String, String)> {
    let names = names(headers);
    let given = headers.get(names.id).filter(|id| !id.trim().is_empty());
    let id = given.map_or_else(|| DeliveryId::from_body(body).to_string(), str::to_owned);
    let time = signature::seconds_text(now);
    let parts = [id.as_bytes(), b".", time.as_bytes(), b".", body];
    let signature = match key {
        SchemeKey::Shared(key) => Some(("v1", HashName::Sha256.hmac(key, &parts))),
        SchemeKey::Pair(pair) => pair.sign(&parts.concat()).map(|signature| ("v1a", signature)),
    };
    let Some((version, signature)) = signature else { return Vec::new() };
    let signature = format!("{version},{}", Encoding::Base64.encode(&signature));
    vec![(names.id.to_owned(), id), (names.timestamp.to_owned(), time), (names.signature.to_owned(), signature)]
}

/// The names of the three headers of a request.
pub(crate) const HEADERS: [&str; 3] = [NAMES.id, NAMES.timestamp, NAMES.signature];

/// Signs a request whose body comes in pieces. Returns the values of [`HEADERS`]: the id, the time, and a signature
/// under each of `secrets` that is a shared one.
pub(crate) fn sign_pieces(
    id: String,
    body: impl Iterator<Item = Bytes>,
    secrets: &[Secret],
    now: Timestamp,
) -> [String; 3] {
    let shared = |secret| match key(secret)? {
        SchemeKey::Shared(key) => Some(key),
        SchemeKey::Pair(_) => None,
    };
    let keys: Vec<HmacKey> = secrets.iter().filter_map(shared).collect();
    let time = signature::seconds_text(now);
    let signed = std::iter::once(format!("{id}.{time}.").into()).chain(body);
    let signatures = signature::hmacs_of_pieces(&keys, signed);
    let signatures: Vec<_> =
        signatures.iter().map(|signature| format!("v1,{}", Encoding::Base64.encode(signature))).collect();
    [id, time, signatures.join(" ")]
}

/// The usual locations of the entity's id. Standard Webhooks lets each sender choose the form of the
/// body.
const LINES: &[RuleLine] = &[
    RuleLine { families: &[], places: &["/data/order_id", "/data/order/id"], kind: EntityKind::Named("order") },
    RuleLine { families: &[], places: &["/data/id"], kind: EntityKind::Family },
];

/// The usual locations of an event's fields. Standard Webhooks lets each sender choose the form of the
/// body, and recommends `type`, `timestamp` and `data`. The signed timestamp is the time of the
/// attempt, so it cannot be the time of the event.
const READS: Reads = Reads {
    delivery_id: &[IdPart::At(IDS)],
    topic: &["/type"],
    event_time: &["/timestamp"],
    lines: LINES,
    shop_order: ShopOrder::Copied {
        to: "`order_id` of the event's data",
        fields: &["/data/order_id", "/data/order/id"],
    },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "`whsec_` and the key's bytes in base64; or, for senders with a key pair (`v1a`), their public key, \
             `whpk_…`",
    signing: None,
    signature: "`webhook-signature`: a list of signatures. Each covers id, time and body, joined by dots, and is \
                `v1,` and base64 HMAC-SHA256, or `v1a,` and base64 Ed25519. The header names `svix-…` are accepted \
                too",
    signed: SIGNED,
    payload: Payload::Depends,
    resolution: Some(Resolution::Milliseconds),
    deadline: Some(Duration::from_secs(15)),
    retries: None,
    switches_off: "an answer of 410, which ingest never gives; failures for a long time",
    checks: "none",
    care: "The specification recommends these values; senders differ. The id is the same for all retries, and \
           signed, so a replayed request is recognised as a repeat.",
    sources: &["https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md"],
};

pub(super) const RULE: Rule = Rule { examples: &[], reads: READS, facts: FACTS };

impl Provider for Scheme {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        (self.key)(secret).is_none().then(|| (self.objection)(secret))
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        verify(request, &secrets.iter().filter_map(self.key).collect::<Vec<_>>())
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&self.reads)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        (self.key)(secret).map(|key| sign(headers, body, &key, now)).unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![
            ProviderRow {
                name: "standard-webhooks",
                secrets: ["whsec_c2VjcmV0", "whsec_YW5vdGhlcg=="],
                secret_of: Some(encoded),
                ..scheme()
            },
            ProviderRow {
                name: "standard-webhooks",
                // The seeds of RFC 8032, section 7.1, tests 2 and 1.
                secrets: [
                    "whsk_TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs=",
                    "whsk_nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
                ],
                secret_of: None,
                mark: "v1a,",
                ..scheme()
            },
        ]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("standard-webhooks-order-shipped.json", "msg_2vExampleDev0Shipped000001", "order.shipped", "order", None, Some(1_767_712_470_250), "order/450789469"),
        ("standard-webhooks-parcel-delivered.json", "msg_2vExampleDev0Delivered0001", "parcel.delivered", "parcel", None, Some(1_767_880_800_500), "order/450789469"),
    ];

    // The test vector of the Standard Webhooks libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SIGNED_AT: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const GOOD: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const BAD: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn verify_at(headers: &[(&str, &str)], secrets: &[&str], now: u64) -> Result<Verified, Unverified> {
        tests::verify(&STANDARD_WEBHOOKS, headers, BODY, secrets, now)
    }

    fn verify(signature: &str, secrets: &[&str]) -> Result<Verified, Unverified> {
        let headers = [("Webhook-Id", ID), ("Webhook-Timestamp", "1614265330"), ("Webhook-Signature", signature)];
        verify_at(&headers, secrets, SIGNED_AT)
    }

    fn described(headers: &[(&str, &str)], body: &str) -> Described {
        tests::describe(&STANDARD_WEBHOOKS, headers, body)
    }

    #[test]
    fn published_standard_webhook_is_accepted() {
        assert_eq!(verify(GOOD, &[SECRET]), Ok(Verified::Delivery));
        assert_eq!(verify(GOOD, &["whsec_AAAB", SECRET.strip_prefix("whsec_").unwrap()]), Ok(Verified::Delivery));
    }

    #[test]
    fn signing_reproduces_published_signature() {
        let headers = [("webhook-id", ID)].into_iter().collect();
        let signed = STANDARD_WEBHOOKS.sign(&headers, BODY, &Secret::new(SECRET), Timestamp::from_secs(SIGNED_AT));
        assert_eq!(signed[1], ("webhook-timestamp".into(), "1614265330".into()));
        assert_eq!(signed[2], ("webhook-signature".into(), GOOD.into()));
    }

    #[test]
    fn one_valid_signature_among_several_suffices() {
        assert_eq!(verify(&format!("v1a,hnO3 {BAD} v2,x v1,%% {GOOD}"), &[SECRET]), Ok(Verified::Delivery));
    }

    #[test]
    fn svix_headers_are_read_like_webhook_headers() {
        let headers = [("svix-id", ID), ("svix-timestamp", "1614265330"), ("svix-signature", GOOD)];
        assert_eq!(verify_at(&headers, &[SECRET], SIGNED_AT), Ok(Verified::Delivery));
        assert_eq!(described(&headers, "{}").delivery_id.as_str(), ID);
    }

    #[test]
    fn svix_and_webhook_headers_are_not_mixed() {
        let headers = [("webhook-id", ID), ("svix-timestamp", "1614265330"), ("svix-signature", GOOD)];
        let missing = Err(Unverified::Missing("webhook-timestamp".into()));
        assert_eq!(verify_at(&headers, &[SECRET], SIGNED_AT), missing);
    }

    #[test]
    fn unreadable_signature_header_is_malformed() {
        let good = [("webhook-id", ID), ("webhook-timestamp", "1614265330"), ("webhook-signature", GOOD)];
        for (headers, name) in [
            (vec![good[0], ("webhook-timestamp", "2021-02-25"), good[2]], "webhook-timestamp"),
            (vec![("webhook-id", " "), good[1], good[2], ("svix-id", "svix")], "webhook-id"),
        ] {
            let malformed = Err(Unverified::Malformed(name.into()));
            assert_eq!(verify_at(&headers, &[SECRET], SIGNED_AT), malformed);
        }
        for signature in ["", "v1,", "v1a,", "v2,hnO3", "g0hM9SsE"] {
            let malformed = Err(Unverified::Malformed("webhook-signature".into()));
            assert_eq!(verify(signature, &[SECRET]), malformed, "{signature:?}");
        }
        assert_eq!(verify("v1a,hnO3", &[SECRET]), Err(Unverified::Mismatch));
    }

    /// The key pair is from RFC 8032, section 7.1, test 2.
    const PRIVATE: &str = "whsk_TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs=";
    const PUBLIC: &str = "whpk_PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=";
    /// Python made the signature: `Ed25519PrivateKey.from_private_bytes(seed).sign(id + b".1614265330." +
    /// body)`.
    const BY_PAIR: &str =
        "v1a,7anDmyOh9LNskt5GJUTacHmbvyUkT0/S1jnxFAp+h2hcVXnQLWhtWA2+wP6vO0AUwEYP23IIZVuneGRhNj7hDQ==";

    #[test]
    fn public_key_verifies_asymmetric_signature() {
        for secrets in [&[PUBLIC][..], &[SECRET, PUBLIC], &[PRIVATE]] {
            assert_eq!(verify(BY_PAIR, secrets), Ok(Verified::Delivery), "{secrets:?}");
            assert_eq!(verify(&format!("{BAD} {BY_PAIR}"), secrets), Ok(Verified::Delivery), "{secrets:?}");
        }
        assert_eq!(verify(BY_PAIR, &[SECRET]), Err(Unverified::Mismatch));
        assert_eq!(verify(GOOD, &[PUBLIC]), Err(Unverified::Mismatch));
        let another = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
        assert_eq!(verify(BY_PAIR, &[another]), Err(Unverified::Mismatch));
    }

    #[test]
    fn private_key_signs_and_public_key_does_not() {
        let headers = [("webhook-id", ID)].into_iter().collect();
        let sign =
            |secret| STANDARD_WEBHOOKS.sign(&headers, BODY, &Secret::new(secret), Timestamp::from_secs(SIGNED_AT));
        assert_eq!(sign(PRIVATE)[2], ("webhook-signature".into(), BY_PAIR.into()));
        assert_eq!(sign(PUBLIC), []);
    }

    #[test]
    fn fifth_asymmetric_signature_is_ignored() {
        let wrong = "v1a,AAAA ".repeat(3);
        assert_eq!(verify(&format!("{wrong}{BY_PAIR}"), &[PUBLIC]), Ok(Verified::Delivery));
        assert_eq!(verify(&format!("{wrong}v1a,AAAA {BY_PAIR}"), &[PUBLIC]), Err(Unverified::Mismatch));
    }

    #[test]
    fn secret_not_in_base64_is_unusable() {
        let long = PUBLIC.replace("PUAX", "PUAXPUAX");
        for (secret, expected) in [
            (SECRET, true),
            ("MfKQ9r8G", true),
            ("whsec_", false),
            ("whsec_a b", false),
            (PUBLIC, true),
            ("whpk_MfKQ9r8G", false),
            (&long, false),
        ] {
            assert_eq!(STANDARD_WEBHOOKS.objection(&Secret::new(secret)).is_none(), expected, "{secret}");
        }
    }

    #[test]
    fn entity_is_order_else_object() {
        let entity = |body| described(&[], body).entity;
        assert_eq!(entity(r#"{"type":"order.shipped","data":{"order_id":7,"id":1}}"#).as_deref(), Some("order/7"));
        assert_eq!(entity(r#"{"type":"parcel.lost","data":{"order":{"id":"7"}}}"#).as_deref(), Some("order/7"));
        assert_eq!(entity(r#"{"type":"order.created","data":{"id":7}}"#).as_deref(), Some("order/7"));
        assert_eq!(entity(r#"{"type":"order.created"}"#), None);
    }
}
