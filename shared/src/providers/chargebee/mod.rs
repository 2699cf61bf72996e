//! Chargebee does not sign its webhooks. A request is accepted if it has the source's user name and password, by Basic
//! authentication.

use std::time::Duration;

use super::{
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    preset::TokenPreset,
    rule::{EntityKind, Example, Rule, RuleLine},
    token::TokenPlace,
};

pub(super) static CHARGEBEE: TokenPreset = TokenPreset { token: TokenPlace::Basic, reads: READS };

/// The customer is the one object that all events of a purchase name.
const LINES: &[RuleLine] = &[RuleLine {
    families: &[],
    places: &[
        "/content/customer/id",
        "/content/subscription/customer_id",
        "/content/invoice/customer_id",
        "/content/credit_note/customer_id",
        "/content/order/customer_id",
        "/content/transaction/customer_id",
    ],
    kind: EntityKind::Named("customer"),
}];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"id":"ev_1","occurred_at":1767621600,"event_type":"payment_succeeded","content":{"transaction":{"id":"txn_1","customer_id":"7"},"customer":{"id":"7"}}}"#,
            "customer/7",
        ),
        Example::new(
            r#"{"id":"ev_2","occurred_at":1767621598,"event_type":"invoice_generated","content":{"invoice":{"id":"INV-1","customer_id":"7","subscription_id":"sub_1"}}}"#,
            "customer/7",
        ),
        Example::new(
            r#"{"id":"ev_3","occurred_at":1767621598,"event_type":"credit_note_created","content":{"credit_note":{"id":"CN-1","customer_id":"8"}}}"#,
            "customer/8",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/id"])],
    topic: &["/event_type"],
    between_words: &['_'],
    event_time: &["/occurred_at"],
    lines: LINES,
    horizon: Some(Duration::from_secs(79 * 3600)),
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "`USER:PASSWORD`, the user name and password with which you protect the webhook's URL",
    signing: None,
    signature: "none. `Authorization` has user name and password",
    signed: SignedParts { body: false, ..SignedParts::BODY },
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(20)),
    retries: Some(7),
    switches_off: "not documented",
    checks: "none. *Test webhook* sends a normal delivery",
    care: "Chargebee says that duplicates and a wrong order are to be expected. A larger `resource_version` is the newer \
           state of an object. Not every event of a purchase names its subscription, so the order is the customer's. \
           The deadline is from a secondary source.",
    sources: &[
        "https://www.chargebee.com/docs/webhook_settings.html",
        "https://apidocs.chargebee.com/docs/api/events",
        "https://github.com/chargebee/chargebee-node/tree/master/src/resources/webhook",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "chargebee",
            secrets: ["user:secret", "user:another"],
            secret_of: None,
            header: Some("authorization".into()),
            mark: "Basic ",
            signs_body: false,
            ..PLAIN
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("chargebee-credit-note-created.json", "ev_AzZlGMUN0AD5e6Fg", "credit_note_created", "credit_note", None, Some(1_767_708_000_000), "customer/cust_1001"),
        ("chargebee-payment-succeeded.json", "ev_AzZlGMUN0AB1c2De", "payment_succeeded", "payment", None, Some(1_767_621_600_000), "customer/cust_1001"),
    ];
}
