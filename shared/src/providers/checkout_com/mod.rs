//! Checkout.com sends `Cko-Signature`, a hexadecimal HMAC-SHA256 of the body.

use std::{borrow::Cow, time::Duration};

use super::{
    Encoding, Secret, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static CHECKOUT_COM: Preset = Preset { signing: SIGNING, reads: READS, objection, ..Preset::PLAIN };

const SIGNING: Signing = Signing { header: Cow::Borrowed("Cko-Signature"), encoding: Encoding::Hex, ..Signing::BODY };

fn objection(secret: &Secret) -> Option<&'static str> {
    secret
        .expose()
        .starts_with(b"sk_")
        .then_some("it is an API key; use the webhook's signature key, which the dashboard shows")
}

/// A dispute has its own id. It names its payment.
const LINES: &[RuleLine] = &[
    RuleLine { families: &[], places: &["/data/payment_id"], kind: EntityKind::Named("payment") },
    RuleLine { families: &["payment", "card"], places: &["/data/id"], kind: EntityKind::Named("payment") },
    RuleLine { families: &[], places: &["/data/id"], kind: EntityKind::Family },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"id":"evt_1","type":"payment_approved","data":{"id":"pay_7","action_id":"act_1","reference":"ORD-7"}}"#,
            "payment/pay_7",
        ),
        Example::new(
            r#"{"id":"evt_2","type":"payment_refunded","data":{"id":"pay_7","action_id":"act_2","reference":"ORD-7"}}"#,
            "payment/pay_7",
        ),
        Example::new(
            r#"{"id":"evt_3","type":"dispute_received","data":{"id":"dsp_1","payment_id":"pay_7","payment_reference":"ORD-7"}}"#,
            "payment/pay_7",
        ),
        Example::new(r#"{"id":"evt_4","type":"payout_paid","data":{"id":"7"}}"#, "payout/7"),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/id"])],
    topic: &["/type"],
    between_words: &['_'],
    account: &["/data/entity_id"],
    event_time: &["/data/processed_on", "/timestamp", "/created_on"],
    lines: LINES,
    horizon: Some(Duration::from_secs(30 * 3600)),
    shop_order: ShopOrder::Copied {
        to: "`reference` of the payment",
        fields: &["/data/payment_reference", "/data/reference"],
    },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the webhook's signature key, which the dashboard generates; not the API key",
    signing: Some(&SIGNING),
    signature: "",
    signed: SignedParts::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Milliseconds),
    deadline: Some(Duration::from_secs(10)),
    retries: Some(8),
    switches_off: "not documented",
    checks: "none",
    care: "An action has the id of its payment. A customer who tries twice makes two payments with one reference. To keep \
           them together, use `entity = [\"{source}/order/{/data/payment_reference}\", \
           \"{source}/order/{/data/reference}\", \"{source}/{entity}\"]`, unless you give captures and refunds \
           references of their own. The deadline is that of the previous platform. A second proof, the \
           `Authorization` header, is not checked.",
    sources: &[
        "https://www.checkout.com/docs/developer-resources/event-notifications/receive-webhooks",
        "https://www.checkout.com/docs/developer-resources/event-notifications/receive-webhooks/configure-your-webhook-server",
        "https://www.checkout.com/docs/developer-resources/event-notifications/event-types",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::Provider;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("checkout-com", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("checkout-com-dispute-evidence-required.json", "evt_b6anegml5j6u7kwzuzdg6r4sem", "dispute_evidence_required", "dispute_evidence", Some("ent_3heic3vsec6urkmvnm7uwcqr5m"), Some(1_768_404_032_582), "payment/pay_vti5layihapu5bhbn5tjtk6eem"),
        ("checkout-com-payment-approved.json", "evt_caxmnvuvbe4elkbdx2imwbnjxu", "payment_approved", "payment", None, Some(1_767_614_161_129), "payment/pay_vti5layihapu5bhbn5tjtk6eem"),
        ("checkout-com-payment-captured.json", "evt_fkfqht6yonme7bk7jawrgzbbxq", "payment_captured", "payment", None, Some(1_767_690_747_469), "payment/pay_vti5layihapu5bhbn5tjtk6eem"),
        ("checkout-com-payment-refunded.json", "evt_sojezy57bieu5hbxrmem74jx54", "payment_refunded", "payment", None, Some(1_767_778_109_368), "payment/pay_vti5layihapu5bhbn5tjtk6eem"),
    ];

    #[test]
    fn checkout_api_key_is_refused_as_secret() {
        assert!(CHECKOUT_COM.objection(&Secret::new("sk_sbox_0123456789")).unwrap().contains("API key"));
        assert_eq!(CHECKOUT_COM.objection(&Secret::new("0123456789")), None);
    }

    #[test]
    fn dispute_has_the_entity_of_its_payment() {
        let of = |body| tests::describe(&CHECKOUT_COM, &[], body).entity;
        let dispute = r#"{"type":"dispute_won","data":{"id":"dsp_1","payment_id":"pay_7"}}"#;
        assert_eq!(of(dispute), of(r#"{"type":"payment_captured","data":{"id":"pay_7"}}"#));
    }
}
