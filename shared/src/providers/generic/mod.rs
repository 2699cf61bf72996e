//! Verifies webhooks of senders without their own module, by an HMAC, a public key or a token, as the configuration
//! describes it.
//!
//! [`GenericOptions`] mirrors the sender's documentation: the header and form of the
//! signature and the bytes it covers, or the place of the token, and the locations of a delivery's id, topic, entity and
//! time. A [`Generic`] exists only if the options are consistent. Fields outside `signed` are
//! only as trustworthy as the connection. If neither a timestamp nor a delivery id is signed,
//! anybody who has seen a request can replay it.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;

use super::{
    Described, Headers, Proof, Provider, Request, Secret, Signing, UNDOCUMENTED_HORIZON, Unverified, describe,
    event_time,
    public_key::PublicKeyKind,
    signature::{HmacKey, no_key},
    token::TokenPlace,
};
use crate::{protocol::entity::DeliveryId, time::Timestamp};

mod options;
mod signed;

use options::objection_with_queue;
pub use options::{GenericOptions, InvalidValueLocation, ValueLocation};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGeneric {
    #[error("{0:?} is not a header's name")]
    Header(String),
    #[error("`signed` may contain {{body}}, {{timestamp}} and {{header:…}}, but not {0:?}")]
    Placeholder(String),
    #[error("`signed` must contain {{body}}; anybody could change an unsigned body")]
    BodyUnsigned,
    #[error("`signed` contains {{timestamp}}; locate it with `timestamp_header` or `timestamp_prefix`")]
    TimestampUnplaced,
    #[error(
        "`signed` does not contain {{timestamp}}, and an unsigned time proves nothing; remove `timestamp_header` and `timestamp_prefix`"
    )]
    TimestampUnsigned,
    #[error("`timestamp_header` and `timestamp_prefix` exclude each other; remove one")]
    TimestampTwice,
    #[error("`timestamp_prefix` needs a `separator` between the timestamp and the signature")]
    TimestampInseparable,
    #[error("`{0}` must not be empty; leave it out instead")]
    Empty(&'static str),
    #[error(
        "missing field `{0}`; a sender that does not sign needs `token_in` instead of `header`, `hash` and `encoding`"
    )]
    Missing(&'static str),
    #[error("`hash` is for a shared secret, and `public_key` replaces it; remove one")]
    HashAndPublicKey,
    #[error("`token_in` is for a sender that does not sign; remove `{0}`, or `token_in`")]
    TokenAndSignature(&'static str),
    #[error("{0:?} is no place for a token; write a header's name, `{{query:NAME}}` or `basic`")]
    TokenPlace(String),
    #[error("`prefix` is only for a token in a header; remove it")]
    TokenPrefix,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "GenericOptions")]
pub struct Generic {
    options: GenericOptions,
    proof: GenericProof,
}

/// The proof that a request comes from its sender.
#[derive(Debug, Clone, PartialEq, Eq)]
enum GenericProof {
    Hmac(Signing),
    PublicKey(Signing, PublicKeyKind),
    Token(TokenPlace),
    /// None: the deliveries are the messages of a queue.
    Absent,
}

impl Generic {
    /// Returns why these options do not fit their source, which gets webhooks, or messages if `has_queue` is set.
    pub(crate) fn objection_in_source(&self, has_queue: bool) -> Option<String> {
        match (has_queue, &self.proof) {
            (true, _) => objection_with_queue(&self.options),
            (false, GenericProof::Absent) => Some(InvalidGeneric::Missing("header").to_string()),
            (false, _) => None,
        }
    }
}

impl Provider for Generic {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        match &self.proof {
            GenericProof::Hmac(_) => HmacKey::of(secret).is_none().then(|| no_key(secret)),
            GenericProof::PublicKey(_, kind) => kind.read(secret).is_none().then(|| kind.objection()),
            GenericProof::Token(place) => place.objection(secret),
            GenericProof::Absent => None,
        }
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        match &self.proof {
            GenericProof::Hmac(signing) => signing.verify(request, secrets.iter().filter_map(HmacKey::of)),
            GenericProof::PublicKey(signing, kind) => {
                let keys: Vec<_> = secrets.iter().filter_map(|secret| kind.read(secret)).collect();
                signing.verify_by(request, |parts, claimed| kind.check(&keys, &parts.concat(), claimed))
            }
            GenericProof::Token(place) => place.verify(request.headers, secrets),
            GenericProof::Absent => Err(Unverified::Mismatch),
        }
    }

    fn has_retries(&self) -> bool {
        self.options.retried_for != Some(Duration::ZERO)
    }

    fn may_mistake_events_for_repeats(&self) -> bool {
        let GenericOptions { delivery_id, event_time, .. } = &self.options;
        delivery_id.is_empty() && event_time.is_empty() && self.has_retries()
    }

    fn describe(&self, request: Request<'_>) -> Described {
        let GenericOptions { delivery_id, topic, account, entity, entity_kind, event_time, .. } = &self.options;
        let topic = describe::topic(describe::found(request, topic).as_deref());
        let name = describe::found(request, entity);
        let own_id = describe::found_id(request, delivery_id).map(|id| DeliveryId::new(id.into_owned()));
        Described {
            repeated_within: own_id.is_none().then(|| self.options.retried_for.unwrap_or(UNDOCUMENTED_HORIZON)),
            delivery_id: own_id.unwrap_or_else(|| DeliveryId::from_body(request.body)),
            family: describe::family(&topic).to_owned(),
            topic,
            account: describe::found(request, account).map(Cow::into_owned),
            event_time: describe::found(request, event_time).and_then(|time| event_time::parse(&time)),
            entity: name.map(|name| match entity_kind {
                Some(kind) => format!("{kind}/{name}"),
                None => name.into_owned(),
            }),
        }
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        match &self.proof {
            GenericProof::Hmac(signing) => {
                HmacKey::of(secret).map(|key| signing.sign(headers, body, &key, now)).unwrap_or_default()
            }
            GenericProof::PublicKey(signing, kind) => {
                signing.sign_by(headers, body, now, |parts| kind.sign(secret, &parts.concat()))
            }
            GenericProof::Token(place) => place.headers(secret),
            GenericProof::Absent => Vec::new(),
        }
    }

    fn query(&self, secret: &Secret) -> Option<String> {
        match &self.proof {
            GenericProof::Hmac(_) | GenericProof::PublicKey(..) | GenericProof::Absent => None,
            GenericProof::Token(place) => place.query(secret),
        }
    }

    fn challenge(&self) -> Option<&str> {
        self.options.challenge.as_deref()
    }

    fn answer(&self) -> Option<&str> {
        self.options.answer.as_deref()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests::rows::*;
    use crate::providers::tests::{describe, verify};

    pub fn rows() -> Vec<ProviderRow> {
        vec![
            ProviderRow {
                name: "generic",
                generic: "header = 'x-a'\nhash = 'sha1'\nencoding = 'hex'\nprefix = 'sha1='",
                header: Some("x-a".into()),
                mark: "sha1=",
                more: "00",
                ..PLAIN
            },
            ProviderRow {
                name: "generic",
                generic: "header = 'x-a'\nhash = 'sha512'\nencoding = 'base64'\nseparator = ' '\nentity = '/a'\ntopic = 'x-b'",
                header: Some("x-a".into()),
                ..PLAIN
            },
            ProviderRow {
                name: "generic",
                generic: "header = 'x-a'\nhash = 'sha256'\nencoding = 'hex'\nseparator = ','\nprefix = 'v1='\n\
                  timestamp_prefix = 't='\nsigned = '{timestamp}.{header:x-b}.{body}'\nevent_time = ['/a', 'x-b']",
                header: Some("x-a".into()),
                mark: "v1=",
                more: "00",
                signs_time: true,
                is_list: true,
                ..PLAIN
            },
        ]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("generic-order-updated.json", "dlv_01ExampleDev0001", "order.updated", "order", None, Some(1_767_623_400_500), "order/9007199254740993"),
    ];

    fn generic(toml: &str) -> Generic {
        toml::from_str(toml).unwrap()
    }

    const LIKE_GITHUB: &str = r#"header = "X-Hub-Signature-256"
        hash = "sha256"
        encoding = "hex"
        prefix = "sha256=""#;

    const STAMPED: &str = r#"header = "x-signature"
        hash = "sha512"
        encoding = "base64"
        separator = " "
        prefix = "v1,"
        signed = "{header:x-id}.{timestamp}.{body}"
        timestamp_header = "x-time""#;

    const STAMPED_INSIDE: &str = r#"header = "x-signature"
        hash = "sha1"
        encoding = "hex"
        separator = ","
        prefix = "v1="
        timestamp_prefix = "t="
        signed = "{timestamp}.{body}""#;

    /// The signature is the example in GitHub's documentation of webhooks.
    #[test]
    fn published_signature_is_accepted() {
        let headers =
            [("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")];
        let secrets = ["old", "It's a Secret to Everybody"];
        assert_eq!(verify(&generic(LIKE_GITHUB), &headers, b"Hello, World!", &secrets, 0), Ok(Verified::Delivery));
    }

    /// Python made the signature: `hmac.new(b"secret", b"msg_1.1767621700.{}", hashlib.sha512)`.
    ///
    /// Promise: `generic` describes other senders.
    #[test]
    fn signature_over_headers_time_and_body_is_accepted() {
        let list = "v2,AAAA v1,WUb/UboQJtD8hPBb2UCe1C30hGhPBgdRQu5B9pWUz1/enALSrTV+PUJFSeJELnBjEghNGdPIsZeAKbUN7an5iA== v1,AAAA";
        let headers = [("x-id", "msg_1"), ("x-time", "1767621700"), ("x-signature", list)];
        assert_eq!(verify(&generic(STAMPED), &headers, b"{}", &["secret"], 1_767_621_700), Ok(Verified::Delivery));
    }

    /// Python made the signature: `hmac.new(b"secret", b"1767621700.{}", hashlib.sha1)`.
    #[test]
    fn signed_time_is_read_from_signature_header() {
        let headers = [("x-signature", "t=1767621700, v1=2006471a8557144b3bd48dc69b48e101dfba60af")];
        assert_eq!(
            verify(&generic(STAMPED_INSIDE), &headers, b"{}", &["secret"], 1_767_621_700),
            Ok(Verified::Delivery)
        );
    }

    /// Python made the signature: `hmac.new(b"secret", b"https://hooks.example.com/webhooks/square{}",
    /// hashlib.sha256)`.
    #[test]
    fn signed_content_may_contain_fixed_text() {
        let square = generic(
            r#"header = "x-square-hmacsha256-signature"
            hash = "sha256"
            encoding = "base64"
            signed = "https://hooks.example.com/webhooks/square{body}""#,
        );
        let headers = [("x-square-hmacsha256-signature", "aaRCf+buZF7kNGF8LbF5zho5AfAsuR3rp6XqkKK63gg=")];
        assert_eq!(verify(&square, &headers, b"{}", &["secret"], 0), Ok(Verified::Delivery));
    }

    #[test]
    fn unreadable_signature_header_is_malformed() {
        let refused = |options: &str, headers: &[(&str, &str)]| {
            verify(&generic(options), headers, b"{}", &["secret"], 1_767_621_700).unwrap_err()
        };
        let undated = [("x-id", "msg_1"), ("x-time", "soon"), ("x-signature", "v1,AAAA")];
        assert_eq!(refused(STAMPED, &undated), Unverified::Malformed("x-time".into()));
        for signature in ["", "v1,", "v1,%%", "v2,AAAA", "AAAA"] {
            let headers = [("x-id", "msg_1"), ("x-time", "1767621700"), ("x-signature", signature)];
            assert_eq!(refused(STAMPED, &headers), Unverified::Malformed("x-signature".into()), "{signature:?}");
        }
        let without_time = [("x-signature", "v1=2006471a8557144b3bd48dc69b48e101dfba60af")];
        assert_eq!(refused(STAMPED_INSIDE, &without_time), Unverified::Malformed("x-signature".into()));
    }

    #[test]
    fn signed_time_may_be_date_or_milliseconds() {
        let generic = generic(STAMPED);
        let GenericProof::Hmac(signing) = &generic.proof else { panic!() };
        for time in ["2026-01-05T14:01:40Z", "1767621700000"] {
            let mac = signing.hash.hmac(&HmacKey::new("secret").unwrap(), &[b"msg_1.", time.as_bytes(), b".{}"]);
            let signature = format!("v1,{}", signing.encoding.encode(&mac));
            let headers = [("x-id", "msg_1"), ("x-time", time), ("x-signature", signature.as_str())];
            assert_eq!(verify(&generic, &headers, b"{}", &["secret"], 1_767_621_700), Ok(Verified::Delivery), "{time}");
            let stale = Err(Unverified::Stale(Timestamp::from_secs(1_767_621_700)));
            assert_eq!(verify(&generic, &headers, b"{}", &["secret"], 1_767_631_700), stale, "{time}");
        }
    }

    #[test]
    fn webhook_fields_are_read_from_configured_locations() {
        let generic = generic(&format!(
            r#"{LIKE_GITHUB}
            delivery_id = ["x-delivery", "/event/id"]
            topic = ["/event/type"]
            account = "x-shop"
            entity_kind = "order"
            entity = ["/order/id", "/order_id"]
            event_time = ["/order/updated_at", "x-sent-at"]"#
        ));
        let body = r#"{"event":{"id":"e1","type":"order.updated"},"order_id":18446744073709551617}"#;
        let described = describe(&generic, &[("x-sent-at", "1767621600"), ("x-shop", "7")], body);
        assert_eq!(
            described,
            Described {
                delivery_id: DeliveryId::new("e1"),
                repeated_within: None,
                topic: "order.updated".into(),
                family: "order".into(),
                account: Some("7".into()),
                event_time: Some(Timestamp::from_secs(1_767_621_600)),
                entity: Some("order/18446744073709551617".into()),
            }
        );
    }

    #[test]
    fn missing_generic_options_have_defaults() {
        let never_retried = generic(&format!("{LIKE_GITHUB}\nretried_for = \"0s\""));
        assert!(generic(LIKE_GITHUB).has_retries() && !never_retried.has_retries());
        let described = describe(&generic(LIKE_GITHUB), &[], "{}");
        assert_eq!(
            described,
            Described {
                delivery_id: DeliveryId::from_body(b"{}"),
                repeated_within: Some(UNDOCUMENTED_HORIZON),
                topic: "unknown".into(),
                family: "unknown".into(),
                account: None,
                event_time: None,
                entity: None,
            }
        );
    }
}
