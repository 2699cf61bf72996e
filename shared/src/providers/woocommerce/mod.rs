//! WooCommerce sends a base64 HMAC-SHA256 of the body. The key is the secret with its HTML entities
//! decoded: the shop stores the secret encoded, and decodes it before it signs.
//!
//! A newly enabled webhook first sends an unsigned form body, `webhook_id=N`, and stays
//! disabled unless that request is answered 200. Only exactly that body, without a signature, is a
//! ping. The shop never retries. The shop builds the payload when it sends the webhook, so two
//! bodies for one event may differ. These facts are from `includes/class-wc-webhook.php` of
//! woocommerce/woocommerce.

use std::{borrow::Cow, time::Duration};

use super::{
    Headers, Proof, Provider, Request, Secret, Signing, Unverified,
    facts::{Facts, FailureLimit, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct WooCommerce;

const SIGNATURE: &str = "x-wc-webhook-signature";

const SIGNING: Signing = Signing { header: Cow::Borrowed("X-WC-Webhook-Signature"), ..Signing::BODY };

fn key(secret: &Secret) -> Option<HmacKey> {
    secret.text().map_or_else(|| HmacKey::of(secret), |text| HmacKey::new(decoded(text).into_owned()))
}

/// Decodes HTML entities in one pass, so that `&amp;lt;` becomes `&lt;`. WordPress does the same in
/// `wp_specialchars_decode` with `ENT_QUOTES`.
fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let mut pieces = text.split('&');
    let mut decoded = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let entity = piece.split_once(';').and_then(|(name, rest)| Some((character(name)?, rest)));
        let (character, rest) = entity.unwrap_or(('&', piece));
        decoded.push(character);
        decoded.push_str(rest);
    }
    Cow::Owned(decoded)
}

/// Returns the character of an HTML entity that WordPress decodes. A numeric entity may have leading
/// zeros.
fn character(entity: &str) -> Option<char> {
    let number =
        |digits: &'static str, at: usize| entity.get(at..).is_some_and(|text| text.trim_start_matches('0') == digits);
    let is_hex = entity.starts_with("#x") || entity.starts_with("#X");
    let is_decimal = entity.starts_with('#');
    Some(match entity {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        _ if is_hex && number("26", 2) => '&',
        _ if is_hex && number("22", 2) => '"',
        _ if is_hex && number("27", 2) => '\'',
        _ if is_decimal && number("38", 1) => '&',
        _ if is_decimal && number("60", 1) => '<',
        _ if is_decimal && number("62", 1) => '>',
        _ if is_decimal && number("34", 1) => '"',
        _ if is_decimal && number("39", 1) => '\'',
        _ => return None,
    })
}

const LINES: &[RuleLine] = &[RuleLine { families: &[], places: &["/id"], kind: EntityKind::Family }];

/// The locations of an event's fields in WooCommerce's requests. The shop's delivery id is a hash of the webhook's
/// number and the current second. It distinguishes two `order.deleted` with equal bodies. This project's id also
/// contains the body's hash, which distinguishes two changes within one second.
const READS: Reads = Reads {
    delivery_id: &[
        IdPart::Account,
        IdPart::Topic,
        IdPart::Maybe(&["/id"]),
        IdPart::At(&["x-wc-webhook-delivery-id"]),
        IdPart::Body,
    ],
    topic: &["x-wc-webhook-topic"],
    account: &["x-wc-webhook-source"],
    event_time: &["/date_modified_gmt"],
    horizon: Some(Duration::ZERO),
    lines: LINES,
    failure_limit: Some(FailureLimit::Above(5)),
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the webhook's secret, which you choose: *WooCommerce → Settings → Advanced → Webhooks*",
    signing: Some(&SIGNING),
    signature: ", under the secret with its HTML entities decoded",
    signed: SignedParts::BODY,
    payload: Payload::Current,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(60)),
    retries: None,
    switches_off: "the webhook is *disabled* until you set it to *active*",
    checks: "`webhook_id=N`, an unsigned form, when a webhook is saved: answered exactly 200, not stored",
    care: "WooCommerce does not retry, so a webhook that was not accepted is lost. It builds the payload when it sends \
           the webhook, so two webhooks may show the same, later state. Both are handled.",
    sources: &[
        "https://woocommerce.com/document/webhooks/",
        "https://github.com/woocommerce/woocommerce/blob/trunk/plugins/woocommerce/includes/class-wc-webhook.php",
    ],
};

const fn example(topic: &'static str, body: &'static str, entity: &'static str) -> Example {
    Example { header: Some(("x-wc-webhook-topic", topic)), body, entity }
}

pub(super) const RULE: Rule = Rule {
    examples: &[
        example("order.created", r#"{"id":7,"number":"7"}"#, "order/7"),
        example("order.deleted", r#"{"id":7}"#, "order/7"),
        example("order.updated", r#"{"id":8}"#, "order/8"),
        example("product.updated", r#"{"id":7}"#, "product/7"),
        example("customer.updated", r#"{"id":7}"#, "customer/7"),
    ],
    reads: READS,
    facts: FACTS,
};

fn is_ping(body: &[u8]) -> bool {
    body.strip_prefix(b"webhook_id=")
        .is_some_and(|id| (1..=20).contains(&id.len()) && id.iter().all(u8::is_ascii_digit))
}

impl Provider for WooCommerce {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        key(secret).is_none().then(|| signature::no_key(secret))
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        if request.headers.get(SIGNATURE).is_none() && is_ping(request.body) {
            return Ok(Proof::PING);
        }
        SIGNING.verify(request, secrets.iter().filter_map(key))
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn sign(&self, headers: &Headers, body: &[u8], secret: &Secret, now: Timestamp) -> Vec<(String, String)> {
        key(secret).map(|key| SIGNING.sign(headers, body, &key, now)).unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests::rows::*;
    use crate::{protocol::entity::DeliveryId, providers::tests};

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("woocommerce", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("woocommerce-order-created.json", "https://store.example.com/order.created/727/ced077bdbb87c14cf3a856a1ac080176/sha256:-QgBVYGMzYm29QKmMyLkToWKlc-FtjgRena2cbmfFs0", "order.created", "order", Some("https://store.example.com"), Some(1_767_621_600_000), "order/727"),
        ("woocommerce-order-deleted.json", "https://store.example.com/order.deleted/727/c54a15088c5afe5e36465c4eedf92336/sha256:m3MwiPbeMCIYpP4q03-2iiMe1EfRKD0wGo5t9o0hmts", "order.deleted", "order", Some("https://store.example.com"), None, "order/727"),
        ("woocommerce-order-updated.json", "https://store.example.com/order.updated/727/7879906eba8cdb4538a6407bd4bff92f/sha256:KUWL4huWsqBr-E9nxAOQOR26vsEsaORNZJyJaTcW-QA", "order.updated", "order", Some("https://store.example.com"), Some(1_767_621_700_000), "order/727"),
    ];

    const BODY: &[u8] = br#"{"id":727}"#;
    /// The signature from `printf '{"id":727}' | openssl dgst -sha256 -hmac "a&b<'>\"" -binary | base64`.
    const OF_DECODED: &str = "wBAXaOWupFxxMi3KCPYCU3l1y04YfN4sOWM4NzNbrDM=";

    fn verify(headers: &[(&str, &str)], body: &[u8], secrets: &[&str]) -> Result<Verified, Unverified> {
        tests::verify(&WooCommerce, headers, body, secrets, 0)
    }

    fn described(headers: &[(&str, &str)], body: &str) -> Described {
        tests::describe(&WooCommerce, headers, body)
    }

    #[test]
    fn html_entities_in_secret_are_decoded_for_key() {
        let headers = [("X-WC-Webhook-Signature", OF_DECODED)];
        for secret in ["a&amp;b&lt;&#039;&gt;&quot;", "a&b<'>\"", "a&#38;b&#0060;&#X27;&#62;&#x22;"] {
            assert_eq!(verify(&headers, BODY, &["old", secret]), Ok(Verified::Delivery), "{secret}");
        }
    }

    #[test]
    fn html_entities_are_decoded_once() {
        for (text, expected) in [
            ("plain", "plain"),
            ("&amp;lt;", "&lt;"),
            ("&amp;amp;", "&amp;"),
            ("&#x26;&#X0022;&#x27;&#038;&#60;&#62;&#34;&#39;", "&\"'&<>\"'"),
            ("&&amp;&", "&&&"),
            ("&copy;&AMP;&#x3c;&#960;", "&copy;&AMP;&#x3c;&#960;"),
            ("&amp", "&amp"),
            ("&;&#;&#x;é&é;", "&;&#;&#x;é&é;"),
        ] {
            assert_eq!(decoded(text), expected);
        }
    }

    #[test]
    fn only_unsigned_activation_form_is_a_ping() {
        let missing = Err(Unverified::Missing(SIGNATURE.into()));
        assert_eq!(verify(&[], b"webhook_id=12", &["secret"]), Ok(Verified::Ping));
        for body in
            ["webhook_id=", "webhook_id=1&a=b", "webhook_id=1\n", " webhook_id=1", "webhook_id=-1", "WEBHOOK_ID=1"]
        {
            assert_eq!(verify(&[], body.as_bytes(), &["secret"]), missing, "{body:?}");
        }
        assert_eq!(verify(&[], b"webhook_id=123456789012345678901", &["secret"]), missing);
        assert_eq!(verify(&[(SIGNATURE, "AAAA")], b"webhook_id=12", &["secret"]), Err(Unverified::Mismatch));
    }

    #[test]
    fn delivery_id_joins_shop_topic_object_id_and_body_hash() {
        let named = |id: Option<&str>| {
            let headers =
                [("X-WC-Webhook-Source", "https://shop.example.com/"), ("X-WC-Webhook-Topic", "order.deleted")];
            let headers: Vec<_> = headers.into_iter().chain(id.map(|id| ("X-WC-Webhook-Delivery-ID", id))).collect();
            let described = described(&headers, r#"{"id":727}"#);
            (described.delivery_id.to_string(), described.repeated_within)
        };
        let front = "https://shop.example.com/order.deleted/727";
        let hash = DeliveryId::from_body(BODY);
        assert_eq!(named(Some("a1")), (format!("{front}/a1/{hash}"), None));
        assert_eq!(named(None), (format!("{front}/{hash}/{hash}"), Some(Duration::ZERO)));
    }

    #[test]
    fn entity_is_the_object_of_the_topic() {
        let entity = |topic, body| described(&[("x-wc-webhook-topic", topic)], body).entity;
        assert_eq!(entity("order.deleted", r#"{"id":727}"#).as_deref(), Some("order/727"));
        assert_eq!(entity("product.updated", r#"{"id":3}"#).as_deref(), Some("product/3"));
        assert_eq!(entity("action.woocommerce_add_to_cart", r#"{"action":"x","arg":1}"#), None);
    }
}
