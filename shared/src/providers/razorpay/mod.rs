//! Razorpay sends `X-Razorpay-Signature`, a hexadecimal HMAC-SHA256 of the body. The event's id is in an unsigned
//! header.

use std::{borrow::Cow, time::Duration};

use super::{
    Encoding, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static RAZORPAY: Preset = Preset { signing: SIGNING, reads: READS, ..Preset::PLAIN };

const SIGNING: Signing =
    Signing { header: Cow::Borrowed("X-Razorpay-Signature"), encoding: Encoding::Hex, ..Signing::BODY };

/// A subscription, QR code or virtual account gets payments of several orders, so its own lines precede the order's.
/// In a payment link's events, the order's own id lacks its prefix, so the payment's `order_id` precedes it.
const LINES: &[RuleLine] = &[
    RuleLine { families: &["subscription"], places: &["/payload/subscription/entity/id"], kind: EntityKind::Family },
    RuleLine { families: &["qr_code"], places: &["/payload/qr_code/entity/id"], kind: EntityKind::Family },
    RuleLine {
        families: &["virtual_account"],
        places: &["/payload/virtual_account/entity/id"],
        kind: EntityKind::Family,
    },
    RuleLine {
        families: &[],
        places: &[
            "/payload/payment/entity/order_id",
            "/payload/invoice/entity/order_id",
            "/payload/payment_link/entity/order_id",
            "/payload/order/entity/id",
        ],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &[],
        places: &[
            "/payload/payment/entity/id",
            "/payload/refund/entity/payment_id",
            "/payload/dispute/entity/payment_id",
        ],
        kind: EntityKind::Named("payment"),
    },
    RuleLine {
        families: &[],
        places: &[
            "/payload/invoice/entity/id",
            "/payload/payment_link/entity/id",
            "/payload/settlement/entity/id",
            "/payload/payout/entity/id",
            "/payload/payout_link/entity/id",
            "/payload/transaction/entity/id",
            "/payload/payment.downtime/entity/id",
        ],
        kind: EntityKind::Family,
    },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"event":"payment.captured","payload":{"payment":{"entity":{"id":"pay_7","order_id":"order_7"}}},"created_at":1767621606}"#,
            "order/order_7",
        ),
        Example::new(
            r#"{"event":"order.paid","payload":{"payment":{"entity":{"id":"pay_7","order_id":"order_7"}},"order":{"entity":{"id":"order_7"}}},"created_at":1767621606}"#,
            "order/order_7",
        ),
        Example::new(
            r#"{"event":"refund.processed","payload":{"refund":{"entity":{"id":"rfnd_7","payment_id":"pay_7"}},"payment":{"entity":{"id":"pay_7","order_id":"order_7"}}},"created_at":1767801602}"#,
            "order/order_7",
        ),
        Example::new(
            r#"{"event":"payment.captured","payload":{"payment":{"entity":{"id":"pay_8","order_id":null}}},"created_at":1767621606}"#,
            "payment/pay_8",
        ),
        Example::new(
            r#"{"event":"subscription.charged","payload":{"subscription":{"entity":{"id":"sub_7"}},"payment":{"entity":{"id":"pay_9","order_id":"order_9"}}},"created_at":1767801602}"#,
            "subscription/sub_7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["x-razorpay-event-id"])],
    topic: &["/event"],
    account: &["/account_id"],
    event_time: &["/created_at"],
    lines: LINES,
    horizon: Some(Duration::from_secs(24 * 3600)),
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the secret that you wrote when the webhook was created; not the API key's secret",
    signing: Some(&SIGNING),
    signature: "",
    signed: SignedParts::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(5)),
    retries: None,
    switches_off: "failures for 24 h. Razorpay sends an e-mail; enable the webhook in the dashboard",
    checks: "none",
    care: "The time is that of the event; the objects have only the time of their own creation. After a change of the \
           secret, retries of older events have signatures under the old one: keep both for a day. A payment may be \
           authorised after it failed. A payment link that expires often names no order.",
    sources: &[
        "https://razorpay.com/docs/webhooks/validate-test/",
        "https://razorpay.com/docs/webhooks/best-practices/",
        "https://razorpay.com/docs/webhooks/payments/",
        "https://github.com/razorpay/razorpay-python/blob/master/razorpay/utility/utility.py",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("razorpay", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("razorpay-order-paid.json", "DESlpx1ExampleEvt2", "order.paid", "order", Some("acc_BFQ7uQEaa7j2z7"), Some(1_767_621_606_000), "order/order_DESlLckIVRkHWj"),
        ("razorpay-payment-captured.json", "DESlpx1ExampleEvt1", "payment.captured", "payment", Some("acc_BFQ7uQEaa7j2z7"), Some(1_767_621_606_000), "order/order_DESlLckIVRkHWj"),
        ("razorpay-payment-dispute-created.json", "DESlpx1ExampleEvt4", "payment.dispute.created", "payment.dispute", Some("acc_BFQ7uQEaa7j2z7"), Some(1_768_399_201_000), "order/order_DESlLckIVRkHWj"),
        ("razorpay-refund-processed.json", "DESlpx1ExampleEvt3", "refund.processed", "refund", Some("acc_BFQ7uQEaa7j2z7"), Some(1_767_801_602_000), "order/order_DESlLckIVRkHWj"),
    ];

    /// The signature is from the tests of Razorpay's library for Node (`test/utils/razorpay-utils.spec.js`).
    #[test]
    fn published_razorpay_signature_is_accepted() {
        let headers = [("X-Razorpay-Signature", "2fe04e22977002e6c7cb553adab8b460cb9e2a4970d5953cb27a8472752e3bbc")];
        let verified = tests::verify(&RAZORPAY, &headers, br#"{"a":1,"b":2,"c":{"d":3}}"#, &["123456"], 0);
        assert_eq!(verified, Ok(Verified::Delivery));
    }
}
