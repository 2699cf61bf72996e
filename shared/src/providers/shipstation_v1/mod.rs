//! ShipStation's V1 API does not sign its requests. A request is accepted if its URL holds the
//! source's secret, `?token=…`. Register that URL with ShipStation and keep it confidential.
//!
//! The payload is a URL that returns the orders or shipments of one import or one batch of
//! labels. So the entity is that import or batch.

use super::{
    facts::{Facts, IdPart, Payload, Reads, SignedParts},
    preset::TokenPreset,
    rule::{EntityKind, Example, Rule, RuleLine},
    token,
};

pub(super) static SHIPSTATION_V1: TokenPreset = TokenPreset { token: token::IN_URL, reads: READS };

const LINES: &[RuleLine] = &[RuleLine {
    families: &[],
    places: &["/resource_url"],
    kind: EntityKind::Inside { word: "batch", marks: &["importBatch=", "batchId="] },
}];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"resource_url":"https://ssapi.shipstation.com/shipments?storeID=1&batchId=7&includeShipmentItems=False","resource_type":"SHIP_NOTIFY"}"#,
            "batch/7",
        ),
        Example::new(
            r#"{"resource_url":"https://ssapi.shipstation.com/shipments?storeID=1&batchId=7&includeShipmentItems=True","resource_type":"ITEM_SHIP_NOTIFY"}"#,
            "batch/7",
        ),
        Example::new(
            r#"{"resource_url":"https://ssapi.shipstation.com/orders?storeID=1&importBatch=8","resource_type":"ORDER_NOTIFY"}"#,
            "batch/8",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::Topic, IdPart::At(&["/resource_url"])],
    topic: &["/resource_type"],
    between_words: &['_'],
    lines: LINES,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "a token of your own in the URL, `…/webhooks/NAME?token=…`",
    signing: None,
    signature: "none; the token in the URL",
    signed: SignedParts { body: false, ..SignedParts::BODY },
    payload: Payload::Reference,
    resolution: None,
    deadline: None,
    retries: None,
    switches_off: "not documented",
    checks: "none",
    care: "Anybody who learns the URL can send anything: keep it out of logs and tickets. The payload names a URL. \
           Fetch it from ShipStation's own host only, with your own credentials. One webhook covers all orders of an \
           import, or a batch of labels. For new integrations, use V2, which signs.",
    sources: &[
        "https://docs.shipstation.com/apis/shipstation-v1/docs/models/webhook",
        "https://help.shipstation.com/hc/en-us/articles/360025856252-ShipStation-Webhooks",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "shipstation-v1", signs_body: false, ..PLAIN }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("shipstation-v1-item-order-notify.json", "ITEM_ORDER_NOTIFY/https://ssapi.shipstation.com/orders?storeID=206264&importBatch=21565fda-dd85-44f6-9baa-f1b3fb854ee6&includeItems=True", "ITEM_ORDER_NOTIFY", "ITEM_ORDER", None, None, "batch/21565fda-dd85-44f6-9baa-f1b3fb854ee6"),
        ("shipstation-v1-item-ship-notify.json", "ITEM_SHIP_NOTIFY/https://ssapi.shipstation.com/shipments?storeID=206264&batchId=1b5cde6f-b113-485e-bdc0-77a3e19a65a9&includeShipmentItems=True", "ITEM_SHIP_NOTIFY", "ITEM_SHIP", None, None, "batch/1b5cde6f-b113-485e-bdc0-77a3e19a65a9"),
        ("shipstation-v1-order-notify.json", "ORDER_NOTIFY/https://ssapi.shipstation.com/orders?storeID=206264&importBatch=21565fda-dd85-44f6-9baa-f1b3fb854ee6", "ORDER_NOTIFY", "ORDER", None, None, "batch/21565fda-dd85-44f6-9baa-f1b3fb854ee6"),
        ("shipstation-v1-ship-notify.json", "SHIP_NOTIFY/https://ssapi.shipstation.com/shipments?storeID=206264&batchId=1b5cde6f-b113-485e-bdc0-77a3e19a65a9&includeShipmentItems=False", "SHIP_NOTIFY", "SHIP", None, None, "batch/1b5cde6f-b113-485e-bdc0-77a3e19a65a9"),
    ];
}
