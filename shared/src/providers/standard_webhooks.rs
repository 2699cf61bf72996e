//! Standard Webhooks (standardwebhooks.com): base64 HMAC-SHA256 over
//! `id.timestamp.body`, under the bytes that a `whsec_…` secret encodes.
//!
//! The signature header lists several, `v1,…` each, while a secret is rolled.
//! Only `v1` is checked: the asymmetric `v1a` and versions yet to come are
//! passed over, so a sender that signs with `v1a` alone is not believed. The
//! `svix-…` names of the same three headers are understood too.

use base64::{Engine, engine::general_purpose::STANDARD};

use super::{
    Described, Encoding, HashName, Headers, Provider, Request, Secret, Unverified, Verified, describe, event_time,
    rule::{self, Kind, Line, Rule},
    signature::{self, Key},
};
use crate::{protocol::entity::DeliveryId, time::Timestamp};

/// The Standard Webhooks rules.
#[derive(Debug)]
pub(super) struct StandardWebhooks;

/// The key that `secret` encodes; as in the specification's libraries the
/// `whsec_` in front may be left out.
fn key(secret: &Secret) -> Option<Key> {
    let Some(text) = secret.text() else { return Key::new(secret.expose()) };
    Key::new(STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?)
}

/// The names of a request's three headers: all of one family, so that nobody
/// can mix a signed header with an unsigned one of the other.
#[derive(Clone, Copy)]
struct Names {
    id: &'static str,
    timestamp: &'static str,
    signature: &'static str,
}

const NAMES: Names = Names { id: "webhook-id", timestamp: "webhook-timestamp", signature: "webhook-signature" };
const ALIASES: Names = Names { id: "svix-id", timestamp: "svix-timestamp", signature: "svix-signature" };

fn names(headers: &Headers) -> Names {
    let has_any =
        |names: Names| [names.id, names.timestamp, names.signature].iter().any(|name| headers.get(name).is_some());
    if !has_any(NAMES) && has_any(ALIASES) { ALIASES } else { NAMES }
}

/// The specification leaves the body to the sender: these are the places where
/// senders usually put it. Examples would say more than it does.
const LINES: &[Line] = &[
    Line { families: &[], places: &["/data/order_id", "/data/order/id"], kind: Kind::Named("order") },
    Line { families: &[], places: &["/data/id"], kind: Kind::Family },
];

pub(super) const RULE: Rule = Rule { lines: LINES, examples: &[] };

impl Provider for StandardWebhooks {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        key(secret).is_none().then_some("it is not `whsec_` and the key's bytes in base64")
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret], now: Timestamp) -> Result<Verified, Unverified> {
        let names = names(request.headers);
        let header = |name: &str| request.headers.get(name).ok_or_else(|| Unverified::Missing(name.into()));
        let malformed = |name: &str| Unverified::Malformed(name.into());
        let (id, time, list) = (header(names.id)?, header(names.timestamp)?, header(names.signature)?);
        let signed_at = signature::seconds(time).ok_or_else(|| malformed(names.timestamp))?;
        let of_v1 = list.split_whitespace().filter_map(|entry| entry.strip_prefix("v1,"));
        let claimed: Vec<_> = of_v1.filter_map(|text| Encoding::Base64.decode(text)).collect();
        if claimed.is_empty() {
            return Err(malformed(names.signature));
        }
        let parts = [id.as_bytes(), b".", time.as_bytes(), b".", request.body];
        signature::check(HashName::Sha256, secrets.iter().filter_map(key), &parts, &claimed)?;
        signature::check_time(signed_at, now)?;
        Ok(Verified::Delivery)
    }

    /// The specification leaves the body to the sender and recommends `type`,
    /// `timestamp` and `data`. The signed timestamp is the attempt's and no
    /// event time.
    fn describe(&self, request: Request<'_>) -> Described {
        let first = |at| describe::first(request.body, &[at]);
        let topic = describe::topic(first("/type").as_deref());
        let family = describe::family(&topic).to_owned();
        let id = request.headers.get(names(request.headers).id).filter(|id| !id.is_empty());
        let entity = rule::find(LINES, &family, request.body).and_then(|found| found.entity());
        Described {
            delivery_id: id.map_or_else(|| DeliveryId::from_body(request.body), DeliveryId::new),
            topic,
            family,
            event_time: first("/timestamp").and_then(|time| event_time::parse(&time)),
            entity,
        }
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        let Some(key) = key(secret) else { return Vec::new() };
        let names = names(headers);
        let id = headers.get(names.id).map_or_else(|| DeliveryId::from_body(body).to_string(), str::to_owned);
        let time = signature::seconds_text(now);
        let mac = HashName::Sha256.hmac(&key, &[id.as_bytes(), b".", time.as_bytes(), b".", body]);
        let signature = format!("v1,{}", Encoding::Base64.encode(&mac));
        vec![(names.id.to_owned(), id), (names.timestamp.to_owned(), time), (names.signature.to_owned(), signature)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The vector that the specification's own libraries are tested with.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SIGNED_AT: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const GOOD: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    const BAD: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    fn verify_at(headers: &[(&str, &str)], secrets: &[&str], now: u64) -> Result<Verified, Unverified> {
        let headers = headers.iter().copied().collect();
        let secrets: Vec<Secret> = secrets.iter().copied().map(Secret::new).collect();
        StandardWebhooks.verify(Request { headers: &headers, body: BODY }, &secrets, Timestamp::from_secs(now))
    }

    fn verify(signature: &str, secrets: &[&str]) -> Result<Verified, Unverified> {
        let headers = [("Webhook-Id", ID), ("Webhook-Timestamp", "1614265330"), ("Webhook-Signature", signature)];
        verify_at(&headers, secrets, SIGNED_AT)
    }

    fn described(headers: &[(&str, &str)], body: &str) -> Described {
        let headers = headers.iter().copied().collect();
        StandardWebhooks.describe(Request { headers: &headers, body: body.as_bytes() })
    }

    #[test]
    fn the_published_signature_is_believed() {
        assert_eq!(verify(GOOD, &[SECRET]), Ok(Verified::Delivery));
        assert_eq!(verify(GOOD, &["whsec_AAAB", SECRET.strip_prefix("whsec_").unwrap()]), Ok(Verified::Delivery));
    }

    #[test]
    fn the_published_signature_is_made() {
        let headers = [("webhook-id", ID)].into_iter().collect();
        let signed = StandardWebhooks.sign(&headers, BODY, &Secret::new(SECRET), Timestamp::from_secs(SIGNED_AT));
        assert_eq!(signed[1], ("webhook-timestamp".into(), "1614265330".into()));
        assert_eq!(signed[2], ("webhook-signature".into(), GOOD.into()));
    }

    #[test]
    fn one_good_signature_among_several_is_enough() {
        assert_eq!(verify(&format!("v1a,hnO3 {BAD} v2,x v1,%% {GOOD}"), &[SECRET]), Ok(Verified::Delivery));
    }

    #[test]
    fn the_svix_names_stand_for_the_same_headers() {
        let headers = [("svix-id", ID), ("svix-timestamp", "1614265330"), ("svix-signature", GOOD)];
        assert_eq!(verify_at(&headers, &[SECRET], SIGNED_AT), Ok(Verified::Delivery));
        assert_eq!(described(&headers, "{}").delivery_id.as_str(), ID);
    }

    #[test]
    fn the_two_families_of_names_are_not_mixed() {
        let headers = [("webhook-id", ID), ("svix-timestamp", "1614265330"), ("svix-signature", GOOD)];
        let missing = Err(Unverified::Missing("webhook-timestamp".into()));
        assert_eq!(verify_at(&headers, &[SECRET], SIGNED_AT), missing);
    }

    #[test]
    fn each_reason_not_to_believe_is_told_apart() {
        let good = [("webhook-id", ID), ("webhook-timestamp", "1614265330"), ("webhook-signature", GOOD)];
        for (index, (name, _)) in good.iter().enumerate() {
            let mut headers = good.to_vec();
            headers.remove(index);
            let missing = Err(Unverified::Missing((*name).into()));
            assert_eq!(verify_at(&headers, &[SECRET], SIGNED_AT), missing);
        }
        let undated = [good[0], ("webhook-timestamp", "2021-02-25"), good[2]];
        let malformed = Err(Unverified::Malformed("webhook-timestamp".into()));
        assert_eq!(verify_at(&undated, &[SECRET], SIGNED_AT), malformed);
        for signature in ["", "v1,", "v1a,hnO3", "g0hM9SsE"] {
            let malformed = Err(Unverified::Malformed("webhook-signature".into()));
            assert_eq!(verify(signature, &[SECRET]), malformed, "{signature:?}");
        }
        assert_eq!(
            verify_at(&good, &[SECRET], SIGNED_AT + 301),
            Err(Unverified::Stale(Timestamp::from_secs(SIGNED_AT)))
        );
        assert_eq!(
            verify_at(&good, &[SECRET], SIGNED_AT - 301),
            Err(Unverified::Stale(Timestamp::from_secs(SIGNED_AT)))
        );
        for secret in ["whsec_AAAB", "whsec_", "whsec_not base64", ""] {
            assert_eq!(verify(GOOD, &[secret]), Err(Unverified::Mismatch), "{secret:?}");
        }
        assert_eq!(verify(GOOD, &[]), Err(Unverified::Mismatch));
    }

    #[test]
    fn a_secret_that_is_not_base64_is_not_usable() {
        for (secret, expected) in [(SECRET, true), ("MfKQ9r8G", true), ("whsec_", false), ("whsec_a b", false)] {
            assert_eq!(StandardWebhooks.objection(&Secret::new(secret)).is_none(), expected, "{secret}");
        }
    }

    #[test]
    fn the_entity_is_the_order_or_else_the_thing_itself() {
        let entity = |body| described(&[], body).entity;
        assert_eq!(entity(r#"{"type":"order.shipped","data":{"order_id":7,"id":1}}"#).as_deref(), Some("order/7"));
        assert_eq!(entity(r#"{"type":"parcel.lost","data":{"order":{"id":"7"}}}"#).as_deref(), Some("order/7"));
        assert_eq!(entity(r#"{"type":"order.created","data":{"id":7}}"#).as_deref(), Some("order/7"));
        assert_eq!(entity(r#"{"type":"order.created"}"#), None);
    }
}
