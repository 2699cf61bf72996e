//! Shippo sends `Shippo-Auth-Signature: t=…,v1=…`, a hexadecimal HMAC-SHA256 of `t.body`. Shippo
//! signs only for customers who ask. A webhook without a signature is accepted if its URL has the
//! source's secret, `?token=…`.
//!
//! If a request has a signature, the token in its URL is ignored.

use std::{borrow::Cow, time::Duration};

use super::{
    Headers, Proof, Provider, Request, Secret, Signing, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
    token,
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Shippo;

const SIGNATURE: &str = "shippo-auth-signature";

const SIGNING: Signing = Signing { header: Cow::Borrowed("Shippo-Auth-Signature"), ..Signing::STAMPED };

/// The locations of the entity's id in Shippo's events. A parcel whose label was bought outside
/// Shippo has no transaction, so its tracking number identifies it.
const LINES: &[RuleLine] = &[
    RuleLine { families: &["transaction"], places: &["/data/object_id"], kind: EntityKind::Named("transaction") },
    RuleLine { families: &["track"], places: &["/data/transaction"], kind: EntityKind::Named("transaction") },
    RuleLine { families: &["track"], places: &["/data/tracking_number"], kind: EntityKind::Named("tracking") },
    RuleLine { families: &[], places: &["/data/object_id"], kind: EntityKind::Family },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"event":"transaction_created","data":{"object_id":"t1","tracking_number":"9205","status":"SUCCESS"}}"#,
            "transaction/t1",
        ),
        Example::new(
            r#"{"event":"track_updated","data":{"carrier":"usps","tracking_number":"9205","transaction":"t1"}}"#,
            "transaction/t1",
        ),
        Example::new(
            r#"{"event":"track_updated","data":{"carrier":"usps","tracking_number":"9206","transaction":null}}"#,
            "tracking/9206",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::Topic, IdPart::Body],
    topic: &["/event"],
    between_words: &['_'],
    account: &["/data/object_owner"],
    event_time: &["/data/tracking_status/object_updated", "/data/tracking_status/status_date", "/data/object_updated"],
    lines: LINES,
    shop_order: ShopOrder::Copied { to: "`metadata` of the transaction", fields: &["/data/metadata"] },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the HMAC secret that Shippo gives you on request, or a token of your own in the URL, `?token=…`",
    signing: Some(&SIGNING),
    signature: ". With a token in the URL instead, nothing is signed",
    signed: SignedParts { time: true, ..SignedParts::BODY },
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Milliseconds),
    deadline: Some(Duration::from_secs(3)),
    retries: None,
    switches_off: "not documented",
    checks: "none. The portal's test events are deliveries with `\"test\": true`",
    care: "An event has no id, so its body's hash identifies it. With a token, anybody who learns the URL can send \
           anything.",
    sources: &["https://docs.goshippo.com/tracking/webhook-security", "https://docs.goshippo.com/tracking/webhooks"],
};

impl Provider for Shippo {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        let reason = "it is an API token; Shippo signs with an HMAC secret that it gives you on request";
        signature::objection(secret, &["shippo_live_", "shippo_test_"], reason)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        if request.headers.get(SIGNATURE).is_none() && token::IN_URL.is_sent(request.headers) {
            return token::IN_URL.verify(request.headers, secrets);
        }
        SIGNING.verify(request, secrets.iter().filter_map(HmacKey::of))
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        HmacKey::of(secret).map(|key| SIGNING.sign(headers, body, &key, now)).unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("shippo", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("shippo-track-updated-token.json", "track_updated/sha256:WSsFeouegVqicvahPiBuAt4UUSg-EyI8IA9ETSmtgC4", "track_updated", "track", None, Some(1_767_712_500_311), "tracking/92055901755477000000000022"),
        ("shippo-track-updated.json", "track_updated/sha256:tzN5tgJyvaI1hoK4zBhJwxKHGtc3is86P9H5IH6_GdQ", "track_updated", "track", None, Some(1_767_880_800_092), "transaction/915d94940ea54c3a80cbfa328722f5a1"),
        ("shippo-transaction-created.json", "transaction_created/sha256:C7jGzAEIa8osHac5FFtpZHjcYvLB1UmcGMzkCYMCbWA", "transaction_created", "transaction", Some("ops@example.com"), Some(1_767_701_603_842), "transaction/915d94940ea54c3a80cbfa328722f5a1"),
    ];

    fn verify(signature: Option<&str>, query: &str) -> Result<Verified, Unverified> {
        let headers: Headers = signature.map(|value| (SIGNATURE, value)).into_iter().collect();
        let request = Request { headers: &headers.with_query(query), body: b"{}" };
        Shippo.verify(request, &[Secret::new("secret")])?.near(Timestamp::from_secs(1_767_621_700), TOLERANCE)
    }

    /// The signature from `printf '1767621700.{}' | openssl dgst -sha256 -hmac secret`.
    const GOOD: &str = "t=1767621700,v1=ddf0cf1fe174e903612d728389ae04fa25238c64bd305cb213f1ffab6d327583";

    #[test]
    fn url_token_is_checked_only_without_a_signature() {
        assert_eq!(verify(Some(GOOD), ""), Ok(Verified::Delivery));
        assert_eq!(verify(Some(GOOD), "token=other"), Ok(Verified::Delivery));
        assert_eq!(verify(None, "token=secret"), Ok(Verified::Delivery));
        assert_eq!(verify(None, "token=other"), Err(Unverified::Mismatch));
        assert_eq!(verify(None, ""), Err(Unverified::Missing(SIGNATURE.into())));
        assert_eq!(verify(Some(&GOOD.replace('7', "8")), "token=secret"), Err(Unverified::Mismatch));
        assert_eq!(verify(Some(""), "token=secret"), Err(Unverified::Malformed(SIGNATURE.into())));
    }

    #[test]
    fn shippo_api_token_is_refused_as_secret() {
        assert!(Shippo.objection(&Secret::new("shippo_test_0123")).unwrap().contains("API token"));
        assert_eq!(Shippo.objection(&Secret::new("0123")), None);
    }

    #[test]
    fn shippo_topics_of_one_object_have_one_family() {
        let family = |event| {
            let body = format!(r#"{{"event":"{event}"}}"#);
            tests::describe(&Shippo, &[], &body).family
        };
        assert_eq!(family("transaction_created"), family("transaction_updated"));
        assert_eq!((family("track_updated").as_str(), family("batch_purchased").as_str()), ("track", "batch"));
    }
}
