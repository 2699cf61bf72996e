//! Etsy signs as Standard Webhooks does, with the endpoint's `whsec_…` secret.
//!
//! The payload holds only the event, the shop and the URL of the receipt. This flat form is
//! confirmed in etsy/open-api discussion 1564. Etsy calls an order a receipt.

use std::time::Duration;

use super::{
    Secret,
    facts::{Facts, IdPart, Payload, Reads, ShopOrder},
    rule::{EntityKind, Example, Rule, RuleLine},
    standard_webhooks::{self as scheme, Scheme, SchemeKey},
};

pub(super) const ETSY: Scheme = Scheme { key, objection: |_| scheme::NO_KEY, reads: READS };

fn key(secret: &Secret) -> Option<SchemeKey> {
    scheme::key(secret).filter(|key| matches!(key, SchemeKey::Shared(_)))
}

const LINES: &[RuleLine] = &[RuleLine {
    families: &[],
    places: &["/resource_url"],
    kind: EntityKind::Inside { word: "order", marks: &["/receipts/"] },
}];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"event_type":"order.paid","resource_url":"https://api.etsy.com/v3/application/shops/1/receipts/7","shop_id":1}"#,
            "order/7",
        ),
        Example::new(
            r#"{"event_type":"order.shipped","resource_url":"https://api.etsy.com/v3/application/shops/1/receipts/7","shop_id":1}"#,
            "order/7",
        ),
        Example::new(
            r#"{"event_type":"order.paid","resource_url":"https://api.etsy.com/v3/application/shops/1/receipts/8","shop_id":1}"#,
            "order/8",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(scheme::IDS)],
    topic: &["/event_type"],
    account: &["/shop_id"],
    horizon: Some(Duration::from_secs(5 + 5 * 60 + 30 * 60 + (2 + 5 + 10 + 10) * 3600)),
    lines: LINES,
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the endpoint's signing secret, `whsec_…`, shown in the app's webhook portal",
    signing: None,
    signature: "Standard Webhooks: `webhook-signature`, `v1,` and base64 HMAC-SHA256 of id, time and body, separated \
                by dots",
    signed: scheme::SIGNED,
    payload: Payload::Reference,
    resolution: None,
    deadline: None,
    retries: Some(7),
    switches_off: "not documented. A disabled endpoint gets nothing until you enable it in the portal",
    checks: "none. The portal's test message is a signed, normal delivery",
    care: "Etsy sends webhooks to commercial apps only. The event holds only the receipt's URL. Fetch the receipt to \
           get its current state. Events have no time, so their age is unknown.",
    sources: &[
        "https://developers.etsy.com/documentation/essentials/webhooks",
        "https://github.com/etsy/open-api/discussions/1564",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "etsy",
            secrets: ["whsec_c2VjcmV0", "whsec_YW5vdGhlcg=="],
            secret_of: Some(encoded),
            ..scheme()
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("etsy-order-canceled.json", "msg_2vExampleDev0Etsy0000000003", "order.canceled", "order", Some("51780431"), None, "order/3928471122"),
        ("etsy-order-delivered.json", "msg_2vExampleDev0Etsy0000000002", "order.delivered", "order", Some("51780431"), None, "order/3928471122"),
        ("etsy-order-paid.json", "msg_2vExampleDev0Etsy0000000000", "order.paid", "order", Some("51780431"), None, "order/3928471122"),
        ("etsy-order-shipped.json", "msg_2vExampleDev0Etsy0000000001", "order.shipped", "order", Some("51780431"), None, "order/3928471122"),
    ];

    #[test]
    fn etsy_receipt_id_in_resource_url_is_the_order_id() {
        let described = |url: &str| {
            let body = format!(r#"{{"event_type":"order.paid","resource_url":"{url}","shop_id":9007199254740993}}"#);
            tests::describe(&ETSY, &[], &body)
        };
        let base = "https://api.etsy.com/v3/application/shops/1";
        for behind in ["", "?includes=Transactions", "/payments"] {
            let receipt = format!("{base}/receipts/9007199254740995{behind}");
            assert_eq!(described(&receipt).entity.as_deref(), Some("order/9007199254740995"));
        }
        assert_eq!(described(&format!("{base}/listings/7")).entity, None);
        assert_eq!(described("").account.as_deref(), Some("9007199254740993"));
        assert_eq!(described("").event_time, None);
    }
}
