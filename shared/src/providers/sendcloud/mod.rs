//! Sendcloud sends `Sendcloud-Signature`, a hexadecimal HMAC-SHA256 of the body, under the integration's key. Its events
//! have no id.

use std::{borrow::Cow, time::Duration};

use super::{
    Encoding, Request, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    json::pointer,
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static SENDCLOUD: Preset = Preset { signing: SIGNING, reads: READS, is_ping, ..Preset::PLAIN };

const SIGNING: Signing =
    Signing { header: Cow::Borrowed("Sendcloud-Signature"), encoding: Encoding::Hex, ..Signing::BODY };

fn is_ping(request: Request<'_>) -> bool {
    pointer(request.body, "/action").as_deref() == Some("test_webhook")
}

const fn line(places: &'static [&'static str], kind: &'static str) -> RuleLine {
    RuleLine { families: &[], places, kind: EntityKind::Named(kind) }
}

/// The order's number is the one value that parcels and returns share.
const LINES: &[RuleLine] = &[
    line(&["/parcel/order_number", "/data/order_number"], "order"),
    line(&["/parcel/id"], "parcel"),
    line(&["/data/id"], "return"),
    line(&["/integration/id"], "integration"),
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"action":"parcel_status_changed","timestamp":1767880830153,"parcel":{"id":1,"order_number":"7"}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"action":"return_created","timestamp":1768399200412,"data":{"id":2,"order_number":"7"}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"action":"parcel_status_changed","timestamp":1767880830153,"parcel":{"id":7,"order_number":""}}"#,
            "parcel/7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::Body],
    topic: &["/action"],
    account: &["/integration/id"],
    event_time: &["/timestamp"],
    lines: LINES,
    horizon: Some(Duration::from_secs(10 * 3600)),
    shop_order: ShopOrder::Copied {
        to: "the parcel, as its order number",
        fields: &["/parcel/order_number", "/data/order_number"],
    },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the integration's webhook signature key, or its secret key, in the integration's settings",
    signing: Some(&SIGNING),
    signature: "",
    signed: SignedParts::BODY,
    payload: Payload::Depends,
    resolution: Some(Resolution::Milliseconds),
    deadline: None,
    retries: Some(10),
    switches_off: "not documented",
    checks: "*Test API Webhook* in the integration's settings sends the action `test_webhook`. Ingest answers 200 and \
             stores nothing",
    care: "The first retry comes after 5 minutes, the later ones at most an hour after the one before. An order of \
           several parcels sends an event for each. The order's number is your own, and two shops of one account may use \
           the same. Sendcloud's event subscriptions are another product, which does not sign.",
    sources: &[
        "https://sendcloud.dev/api/v3/webhooks/index",
        "https://sendcloud.dev/api/v2/webhooks",
        "https://sendcloud.dev/api/v3/webhooks/parcel-status-changed",
        "https://sendcloud.dev/api/v2/webhooks/return-created",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("sendcloud", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("sendcloud-parcel-status-changed.json", "sha256:i5ZOlaofF_Xrl26qXHdFhACbS952lJvIAZaZPVmemBI", "parcel_status_changed", "parcel_status_changed", None, Some(1_767_880_830_153), "order/450789469"),
        ("sendcloud-return-created.json", "sha256:ugylWFJkRzO4WFi--jzTBsf7EWhwzrn3shzELs2-yYM", "return_created", "return_created", None, Some(1_768_399_200_412), "order/450789469"),
    ];

    /// The signature is the example in Sendcloud's documentation.
    #[test]
    fn published_sendcloud_signature_is_accepted() {
        let headers = [("Sendcloud-Signature", "1eed4b3d41f4653ac64fd56f1bf1cbfd349e4482cbc11dff7134bd93e5da4b0a")];
        let verified = tests::verify(&SENDCLOUD, &headers, br#"{"key": "value"}"#, &["secretkey"], 0);
        assert_eq!(verified, Ok(Verified::Delivery));
    }
}
