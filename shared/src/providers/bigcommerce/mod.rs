//! BigCommerce signs as Standard Webhooks does. The key is the client secret's own bytes.
//! BigCommerce's code samples encode the secret in base64 only because the libraries of
//! Standard Webhooks decode it.
//!
//! The payload holds only the object's id. Two updates of one order within a second have the
//! same body, including its `hash`. Only the signed `webhook-id` differs.

use std::time::Duration;

use super::{
    Secret,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder},
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
    standard_webhooks::{self as scheme, Scheme, SchemeKey},
};

pub(super) const BIGCOMMERCE: Scheme = Scheme { key, objection: signature::no_key, reads: READS };

fn key(secret: &Secret) -> Option<SchemeKey> {
    HmacKey::of(secret).map(SchemeKey::Shared)
}

/// The locations of the entity's id in BigCommerce's events, from its table of events. A cart that
/// became an order stays a separate entity, because the cart's other events do not name the order.
const LINES: &[RuleLine] = &[
    RuleLine {
        families: &["store/order", "store/order/refund", "store/order/message"],
        places: &["/data/id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine { families: &["store/order/transaction"], places: &["/data/order_id"], kind: EntityKind::Named("order") },
    RuleLine { families: &["store/order/metafield"], places: &["/data/resource_id"], kind: EntityKind::Named("order") },
    RuleLine { families: &["store/shipment"], places: &["/data/orderId"], kind: EntityKind::Named("order") },
    RuleLine { families: &[], places: &["/data/id"], kind: EntityKind::At("/data/type") },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(r#"{"scope":"store/order/updated","data":{"type":"order","id":7}}"#, "order/7"),
        Example::new(
            r#"{"scope":"store/order/statusUpdated","data":{"type":"order","id":7,"status":{"previous_status_id":0,"new_status_id":10}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"scope":"store/order/refund/created","data":{"type":"order","id":7,"refund":{"refund_id":3}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"scope":"store/order/transaction/created","data":{"type":"transaction","order_id":7,"transaction_id":"176342342"}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"scope":"store/order/metafield/created","data":{"metafield_id":14,"resource_id":"7"}}"#,
            "order/7",
        ),
        Example::new(r#"{"scope":"store/shipment/created","data":{"type":"shipment","id":3,"orderId":7}}"#, "order/7"),
        Example::new(r#"{"scope":"store/product/updated","data":{"type":"product","id":7}}"#, "product/7"),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(scheme::IDS)],
    topic: &["/scope"],
    account: &["/producer"],
    event_time: &["/created_at"],
    horizon: Some(Duration::from_secs(48 * 3600)),
    lines: LINES,
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the client secret of the API account or app that made the webhook",
    signing: None,
    signature: "Standard Webhooks: `webhook-signature`, `v1,` and base64 HMAC-SHA256 of id, time and body, separated \
                by dots",
    signed: scheme::SIGNED,
    payload: Payload::Reference,
    resolution: Some(Resolution::Seconds),
    deadline: None,
    retries: Some(11),
    switches_off: "a last retry that fails. BigCommerce then deactivates the webhook and sends an e-mail. If a \
                   domain got at least 100 webhooks within two minutes and answered fewer than 90 % of them 2xx, all \
                   its webhooks pause for three minutes",
    checks: "none",
    care: "The event holds only the order's id. Fetch the order to get its current state. Several stores of one app \
           may use the same order numbers. `entity = \"{source}/{account}/{entity}\"` keeps them apart.",
    sources: &[
        "https://developer.bigcommerce.com/docs/integrations/webhooks/https-webhook-overview",
        "https://developer.bigcommerce.com/docs/integrations/webhooks/events",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests::rows::*;
    use crate::{
        providers::{Unverified, Verified, tests},
        time::Timestamp,
    };

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "bigcommerce", ..scheme() }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("bigcommerce-order-created.json", "cb8df3c7-c9cf-4e62-b2d7-81bc9eb0d9b2", "store/order/created", "store/order", Some("stores/abcde12345"), Some(1_767_621_600_000), "order/250"),
        ("bigcommerce-order-refund-created.json", "9a149b40-187b-444a-8a45-000b42fb2785", "store/order/refund/created", "store/order/refund", Some("stores/abcde12345"), Some(1_767_801_600_000), "order/250"),
        ("bigcommerce-order-status-updated.json", "ebf7f956-fdd5-4bfe-a0a3-27e249951ea8", "store/order/statusUpdated", "store/order", Some("stores/abcde12345"), Some(1_767_621_700_000), "order/250"),
        ("bigcommerce-order-transaction-created.json", "117223e0-910e-4d44-a05a-be460994b4d7", "store/order/transaction/created", "store/order/transaction", Some("stores/abcde12345"), Some(1_767_621_699_000), "order/250"),
        ("bigcommerce-shipment-created.json", "82fa60f2-ee3c-4fa0-94aa-8b95b384311f", "store/shipment/created", "store/shipment", Some("stores/abcde12345"), Some(1_767_712_500_000), "order/250"),
    ];

    /// The key in the test vector of the Standard Webhooks libraries is not text, so this test cannot use
    /// that vector. Python made the signature: `base64(hmac(b"secret", b'msg_1.1767621700.{"data":1}',
    /// sha256))`.
    #[test]
    fn secret_text_is_used_undecoded_as_key() {
        let headers = [
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", "1767621700"),
            ("webhook-signature", "v1,GE2IfJwxenbcQ9YhW6iejqFUIyvy4hP1/Qs13p7qrSQ="),
        ];
        let verify = |secret| tests::verify(&BIGCOMMERCE, &headers, br#"{"data":1}"#, &[secret], 1_767_621_700);
        assert_eq!(verify("secret"), Ok(Verified::Delivery));
        assert_eq!(verify("c2VjcmV0"), Err(Unverified::Mismatch), "base64 of it is another secret");
    }

    #[test]
    fn equal_bodies_with_different_ids_are_separate_deliveries() {
        let body = r#"{"scope":"store/order/updated","hash":"3f9e","created_at":1767621600,"data":{"id":7}}"#;
        let id = |id| {
            let described = tests::describe(&BIGCOMMERCE, &[("webhook-id", id)], body);
            (described.delivery_id.to_string(), described.repeated_within)
        };
        assert_eq!(id("msg_1"), ("msg_1".to_owned(), None));
        assert_eq!(id("msg_2"), ("msg_2".to_owned(), None));
    }

    #[test]
    fn producer_field_names_the_senders_account() {
        let converted = r#"{"scope":"store/cart/converted","producer":"stores/abcde","created_at":1561486893,
                            "data":{"type":"cart","id":"d300","orderId":252}}"#;
        let described = tests::describe(&BIGCOMMERCE, &[], converted);
        assert_eq!(described.account.as_deref(), Some("stores/abcde"));
        assert_eq!(described.entity.as_deref(), Some("cart/d300"));
        assert_eq!(described.event_time, Some(Timestamp::from_secs(1_561_486_893)));
    }
}
