//! TikTok Shop sends a hexadecimal HMAC-SHA256 of the app key and the body in the header `Authorization`, under the app's
//! secret. The source's secret is both, separated by a colon.

use std::time::Duration;

use super::{
    Encoding, HashName, Headers, Proof, Provider, Request, Secret, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct TikTokShop;

const SIGNATURE: &str = "authorization";

/// Returns the app key, which is signed, and the key of the HMAC.
fn keys(secret: &Secret) -> Option<(&[u8], HmacKey)> {
    let text = secret.expose();
    let colon = text.iter().position(|byte| *byte == b':').filter(|colon| *colon > 0)?;
    Some((&text[..colon], HmacKey::new(&text[colon + 1..])?))
}

const fn line(places: &'static [&'static str], kind: &'static str) -> RuleLine {
    RuleLine { families: &[], places, kind: EntityKind::Named(kind) }
}

const LINES: &[RuleLine] = &[
    line(&["/data/order_id", "/data/package_list/0/order_id_list/0", "/data/order_ids/0"], "order"),
    line(&["/data/package_list/0/package_id", "/data/package_id"], "package"),
    line(&["/data/product_id"], "product"),
    line(&["/data/combined_listing_id"], "listing"),
    line(&["/shop_id"], "shop"),
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"type":1,"tts_notification_id":"1","shop_id":"3","timestamp":1767621600,"data":{"order_id":"7","order_status":"UNPAID","update_time":1767621598}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":4,"tts_notification_id":"2","shop_id":"3","timestamp":1767625200,"data":{"package_list":[{"package_id":"8","order_id_list":["7"]}]}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":12,"tts_notification_id":"3","shop_id":"3","timestamp":1768001200,"data":{"order_id":"7","return_id":"9"}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":6,"tts_notification_id":"4","shop_id":"7","timestamp":1768001200,"data":{}}"#,
            "shop/7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/tts_notification_id"])],
    topic: &["/type"],
    account: &["/shop_id"],
    event_time: &["/data/update_time", "/timestamp"],
    lines: LINES,
    horizon: Some(Duration::from_secs(16 * 3600)),
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the app key, a colon and the app secret, from the app's page in the Partner Center",
    signing: None,
    signature: "`Authorization`: hexadecimal HMAC-SHA256 of the app key and the body",
    signed: SignedParts::BODY,
    payload: Payload::Reference,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(3)),
    retries: Some(4),
    switches_off: "not documented",
    checks: "none",
    care: "The topic is a number: 1 an order's status, 3 its address, 4 a package, 11 a cancellation, 12 a return. An event \
           about several orders in one package belongs to the first of them. Deadline and retries are from secondary \
           sources. TikTok's other webhooks, `TikTok-Signature`, are another product. A proxy in front of ingest must \
           pass `Authorization` on.",
    sources: &[
        "https://partner.tiktokshop.com/docv2/page/tts-webhooks-overview",
        "https://partner.tiktokshop.com/docv2/page/1-order-status-change",
        "https://partner.tiktokshop.com/docv2/page/12-return-status-change",
    ],
};

impl Provider for TikTokShop {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        keys(secret).is_none().then_some("it is not the app key, a colon and the app secret")
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let claimed = [Encoding::Hex.read(SIGNATURE, request.headers.required(SIGNATURE)?)?];
        // Each secret is tried, even after one has matched.
        let tried: Vec<_> = secrets
            .iter()
            .filter_map(keys)
            .map(|(app, key)| signature::check(HashName::Sha256, std::iter::once(key), &[app, request.body], &claimed))
            .collect();
        if tried.iter().any(Result::is_ok) { Ok(Proof::DELIVERY) } else { Err(Unverified::Mismatch) }
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, _headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let signature = |(app, key): (&[u8], HmacKey)| Encoding::Hex.encode(&HashName::Sha256.hmac(&key, &[app, body]));
        keys(secret).map(|keys| (SIGNATURE.to_owned(), signature(keys))).into_iter().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "tiktok-shop",
            secrets: ["app:secret", "app:another"],
            secret_of: None,
            header: Some(SIGNATURE.into()),
            more: "00",
            ..PLAIN
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("tiktok-shop-order-status-change.json", "7327112393057371910", "1", "1", Some("7494049642642441621"), Some(1_767_621_598_000), "order/576486316948490001"),
        ("tiktok-shop-return-status-change.json", "7327112393057371913", "12", "12", Some("7494049642642441621"), Some(1_768_001_190_000), "order/576486316948490001"),
    ];

    /// The request is the example in TikTok Shop's documentation.
    #[test]
    fn published_tiktok_shop_signature_is_accepted() {
        let body = r#"{"type":1,"tts_notification_id":"7380066284010030890","shop_id":"7495540735365777507","timestamp":1718305585,"data":{"is_on_hold_order":true,"order_id":"576653688135258178","order_status":"UNPAID","update_time":1718305585}}"#;
        let headers = [("Authorization", "5dec0f11ec2f6783b8deee53c9ffbf8d024302f7c7e7fa55a35d17629031ac05")];
        let verified = |secret| tests::verify(&TikTokShop, &headers, body.as_bytes(), &[secret], 0);
        assert_eq!(verified("abcdef:123"), Ok(Verified::Delivery));
        for other in ["abcdeg:123", "abcdef:124", ":abcdef123", "abcdef123"] {
            assert_eq!(verified(other), Err(Unverified::Mismatch), "{other}");
        }
    }
}
