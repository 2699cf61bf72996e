//! Stripe sends `Stripe-Signature: t=…,v1=…`, a hexadecimal HMAC-SHA256 of `t.body` under the whole
//! `whsec_…` text.
//!
//! While a secret is rolled, the header has several `v1`. Other entries, such as `v0` in test
//! mode, are ignored. `t` is the time of the attempt and differs in every retry. That time limits
//! replays, but says nothing about the order of events. A snapshot event holds its object; a
//! thin event holds only the object's id.

use std::{borrow::Cow, time::Duration};

use super::{
    Envelope, Inlet, Request, Secret, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    json::pointer,
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self},
};

pub(super) static STRIPE: Preset = Preset { signing: SIGNING, reads: READS, objection, is_ping, ..Preset::PLAIN };

const SIGNING: Signing = Signing { header: Cow::Borrowed("Stripe-Signature"), ..Signing::STAMPED };

const SECRET_PREFIX: &[u8] = b"whsec_";

const API_KEYS: [&str; 3] = ["sk_", "rk_", "pk_"];

/// The type of the test event that Stripe sends to a destination of thin events.
const PING: &str = "v2.core.event_destination.ping";

const READS: Reads = Reads {
    inlet: Inlet::WebhooksOrQueue(&[Envelope::EVENTBRIDGE]),
    delivery_id: &[IdPart::At(&["/id"])],
    topic: &["/type"],
    account: &["/account", "/context"],
    event_time: &["/created"],
    horizon: Some(Duration::from_secs(3 * 24 * 3600)),
    lines: LINES,
    shop_order: ShopOrder::Copied {
        to: "`metadata.order_id` of the payment",
        fields: &["/data/object/metadata/order_id"],
    },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the endpoint's signing secret, including `whsec_`: *Developers → Webhooks*, or the CLI's `stripe listen`",
    signing: Some(&SIGNING),
    signature: "; several `v1` during a rotation",
    signed: SignedParts { time: true, ..SignedParts::BODY },
    payload: Payload::Depends,
    resolution: Some(Resolution::Seconds),
    deadline: None,
    retries: None,
    switches_off: "failures for several days; Stripe first sends an e-mail",
    checks: "`v2.core.event_destination.ping`, a signed thin event: answered 200 and `{}`, not stored",
    care: "A snapshot event holds its object at the time of the event. A thin event holds only the object's id: \
           fetch the object. The `created` of thin events has milliseconds. Stripe does not promise order. Refunds \
           and disputes lack their payment's `metadata.order_id`. They run under `payment_intent/ID`, beside the order. \
           This template keeps all under the payment; set it before the first webhook: `entity = [\"{source}/payment_intent/{payment_intent.*:/data/object/id}\", \
           \"{source}/payment_intent/{/data/object/payment_intent}\", \"{source}/{entity}\"]`. From API \
           version 2025-03-31 on, an invoice has no `payment_intent`, and a charge no `invoice`: \
           `invoice_payment.*` names both (read on 2026-11-26). So with a newer version, an invoice's events leave the \
           payment's order and run under `invoice/ID`, in parallel. If you change the version, do it when few \
           deliveries wait. To keep an invoice and its `invoice_payment` together instead, use \
           `entity = [\"{source}/invoice/{invoice.*:/data/object/id}\", \
           \"{source}/invoice/{invoice_payment.*:/data/object/invoice}\", \"{source}/{entity}\"]`.",
    sources: &[
        "https://docs.stripe.com/webhooks",
        "https://docs.stripe.com/event-destinations",
        "https://docs.stripe.com/changelog/basil/2025-03-31/add-support-for-multiple-partial-payments-on-invoices",
        "https://docs.stripe.com/api/invoice-payment/object",
    ],
};

/// The locations of a payment's id. Stripe's API expands a field to the whole object on request. From API version
/// 2025-03-31 on, an invoice does not name its payment; an `invoice_payment` names both.
const PAYMENT_INTENT: &[&str] = &[
    "/data/object/payment_intent",
    "/data/object/payment_intent/id",
    "/data/object/payment/payment_intent",
    "/data/object/payment/payment_intent/id",
];

/// The locations of the entity's id in Stripe's events. A thin event holds only the kind, the id and
/// the URL of its object.
const LINES: &[RuleLine] = &[
    RuleLine { families: &[], places: &["/data/object/metadata/order_id"], kind: EntityKind::Named("order") },
    RuleLine { families: &[], places: PAYMENT_INTENT, kind: EntityKind::Named("payment_intent") },
    RuleLine {
        families: &["invoice_payment"],
        places: &["/data/object/payment/charge"],
        kind: EntityKind::Named("charge"),
    },
    RuleLine { families: &["invoice_payment"], places: &["/data/object/invoice"], kind: EntityKind::Named("invoice") },
    RuleLine { families: &[], places: &["/data/object/id"], kind: EntityKind::At("/data/object/object") },
    RuleLine { families: &[], places: &["/related_object/id"], kind: EntityKind::At("/related_object/type") },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","object":"payment_intent"}}}"#,
            "payment_intent/pi_1",
        ),
        Example::new(
            r#"{"type":"charge.refunded","data":{"object":{"id":"ch_1","object":"charge","payment_intent":"pi_1"}}}"#,
            "payment_intent/pi_1",
        ),
        Example::new(
            r#"{"type":"charge.dispute.created","data":{"object":{"id":"dp_1","object":"dispute","charge":"ch_1","payment_intent":"pi_1"}}}"#,
            "payment_intent/pi_1",
        ),
        Example::new(
            r#"{"type":"payment_intent.succeeded","data":{"object":{"id":"pi_2","object":"payment_intent","metadata":{"order_id":"7"}}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":"charge.succeeded","data":{"object":{"id":"ch_2","object":"charge","payment_intent":"pi_2","metadata":{"order_id":"7"}}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"type":"invoice_payment.paid","data":{"object":{"id":"inpay_1","object":"invoice_payment","invoice":"in_1","payment":{"type":"payment_intent","payment_intent":"pi_1"}}}}"#,
            "payment_intent/pi_1",
        ),
        Example::new(
            r#"{"type":"customer.updated","data":{"object":{"id":"cus_1","object":"customer"}}}"#,
            "customer/cus_1",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

fn objection(secret: &Secret) -> Option<&'static str> {
    let reason = "it is an API key; the signing secret of a webhook begins with `whsec_`";
    signature::objection(secret, &API_KEYS, reason).or_else(|| {
        let is_signing = secret.expose().starts_with(SECRET_PREFIX);
        (!is_signing).then_some("it does not begin with `whsec_`, as a signing secret of Stripe does")
    })
}

fn is_ping(request: Request<'_>) -> bool {
    pointer(request.body, "/type").is_some_and(|topic| topic == PING)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests::rows::*;
    use crate::{protocol::entity::DeliveryId, providers::tests};

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { secrets: ["whsec_one", "whsec_two"], ..ProviderRow::of("stripe", &SIGNING) }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("stripe-charge-dispute-created.json", "evt_1SpC8yExampleDev0disputed", "charge.dispute.created", "charge.dispute", None, Some(1_768_399_200_000), "payment_intent/pi_3SmC8xExampleDev0aBcDeFg"),
        ("queues/stripe-charge-refunded.json", "evt_3SmC8xExampleDev0refunded", "charge.refunded", "charge", None, Some(1_767_801_602_000), "order/450789469"),
        ("stripe-charge-refunded.json", "evt_3SmC8xExampleDev0refunded", "charge.refunded", "charge", None, Some(1_767_801_602_000), "order/450789469"),
        ("stripe-checkout-session-completed.json", "evt_1SmC8yExampleDev0completed", "checkout.session.completed", "checkout.session", None, Some(1_767_621_697_000), "order/450789469"),
        ("stripe-payment-intent-succeeded.json", "evt_3SmC8xExampleDev0succeeded", "payment_intent.succeeded", "payment_intent", None, Some(1_767_621_697_000), "order/450789469"),
        ("stripe-thin-meter-error.json", "evt_test_65ExampleDev0thin", "v1.billing.meter.error_report_triggered", "v1.billing.meter", None, Some(1_767_621_800_250), "billing.meter/mtr_test_61ExampleDev0meter"),
    ];

    const SECRET: &str = "whsec_stripe-development-secret";
    const BODY: &[u8] = br#"{"id":"evt_1"}"#;
    const SIGNED_AT: u64 = 1_767_621_700;
    /// The output of `printf '1767621700.{"id":"evt_1"}' | openssl dgst -sha256 -hmac
    /// whsec_stripe-development-secret`.
    const GOOD: &str = "ff87c35ab3a194aab049c820cedc0f7e6e8f05336b1074c1119f49340709d251";
    const BAD: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    fn verify(value: &str) -> Result<Verified, Unverified> {
        tests::verify(&STRIPE, &[("Stripe-Signature", value)], BODY, &["whsec_rolled", SECRET], SIGNED_AT)
    }

    fn described(body: &str) -> Described {
        tests::describe(&STRIPE, &[], body)
    }

    #[test]
    fn stripe_api_key_is_refused_as_secret() {
        for key in ["sk_live_1", "sk_test_1", "rk_live_1", "rk_test_1", "pk_live_1", "pk_test_1"] {
            let objection = STRIPE.objection(&Secret::new(key));
            assert_eq!(
                objection,
                Some("it is an API key; the signing secret of a webhook begins with `whsec_`"),
                "{key}"
            );
        }
        assert_eq!(STRIPE.objection(&Secret::new(SECRET)), None);
    }

    #[test]
    fn secret_without_stripes_prefix_is_refused() {
        for secret in ["hush", "whsec", "WHSEC_1", " whsec_1"] {
            assert!(
                STRIPE.objection(&Secret::new(secret)).unwrap().contains("does not begin with `whsec_`"),
                "{secret}"
            );
        }
    }

    #[test]
    fn one_valid_signature_among_several_suffices() {
        let value = format!("t={SIGNED_AT}, v1={BAD}, v1=short, v0={BAD}, v1={GOOD}, later=x");
        assert_eq!(verify(&value), Ok(Verified::Delivery));
    }

    #[test]
    fn v0_signature_is_ignored() {
        let malformed = Err(Unverified::Malformed(SIGNING.name()));
        assert_eq!(verify(&format!("t={SIGNED_AT},v0={GOOD}")), malformed);
        assert_eq!(verify(&format!("t={SIGNED_AT},v0={GOOD},v1={BAD}")), Err(Unverified::Mismatch));
    }

    #[test]
    fn unreadable_signature_header_is_malformed() {
        for value in ["", "t=", &format!("v1={GOOD}"), &format!("t=now,v1={GOOD}"), &format!("t={SIGNED_AT},v1=x")] {
            assert_eq!(verify(value), Err(Unverified::Malformed(SIGNING.name())), "{value:?}");
        }
    }

    #[test]
    fn changed_signed_time_yields_mismatch_instead_of_stale() {
        assert_eq!(verify(&format!("t={},v1={GOOD}", SIGNED_AT - 9000)), Err(Unverified::Mismatch));
    }

    #[test]
    fn entity_is_order_else_payment_else_object() {
        for (object, expected) in [
            (r#"{"id":"ch_1","object":"charge","payment_intent":"pi_1","metadata":{"order_id":"7"}}"#, "order/7"),
            (r#"{"id":"ch_1","object":"charge","payment_intent":"pi_1","metadata":{}}"#, "payment_intent/pi_1"),
            (r#"{"id":"pi_1","object":"payment_intent","metadata":{"order_id":""}}"#, "payment_intent/pi_1"),
            (r#"{"id":"cus_1","object":"customer","payment_intent":null}"#, "customer/cus_1"),
            (
                r#"{"id":"ch_1","object":"charge","payment_intent":{"id":"pi_1","object":"payment_intent"}}"#,
                "payment_intent/pi_1",
            ),
            (r#"{"id":"in_1","object":"invoice","payment_intent":"pi_1"}"#, "payment_intent/pi_1"),
            (r#"{"id":"in_1","object":"invoice"}"#, "invoice/in_1"),
            (
                r#"{"id":"inpay_1","object":"invoice_payment","invoice":"in_1","payment":{"type":"payment_intent","payment_intent":"pi_1"}}"#,
                "payment_intent/pi_1",
            ),
            (
                r#"{"id":"inpay_1","object":"invoice_payment","payment":{"payment_intent":{"id":"pi_1"}}}"#,
                "payment_intent/pi_1",
            ),
            (
                r#"{"id":"inpay_1","object":"invoice_payment","invoice":"in_1","payment":{"type":"charge","charge":"ch_1"}}"#,
                "charge/ch_1",
            ),
            (
                r#"{"id":"inpay_1","object":"invoice_payment","invoice":"in_1","payment":{"type":"payment_record"}}"#,
                "invoice/in_1",
            ),
        ] {
            let topic = if object.contains("invoice_payment") { "invoice_payment.paid" } else { "charge.updated" };
            let described = described(&format!(r#"{{"type":"{topic}","data":{{"object":{object}}}}}"#));
            assert_eq!(described.entity.as_deref(), Some(expected));
        }
        assert_eq!(described(r#"{"data":{"object":{"object":"balance"}}}"#).entity, None);
    }

    #[test]
    fn thin_event_has_related_object_as_entity() {
        let thin = described(
            r#"{"id":"evt_2","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered",
                "created":"2026-01-05T14:00:00.250Z","related_object":{"id":"mtr_1","type":"billing.meter"}}"#,
        );
        assert_eq!(thin.entity.as_deref(), Some("billing.meter/mtr_1"));
        assert_eq!(thin.family, "v1.billing.meter");
        assert_eq!(thin.event_time, Some(Timestamp::from_millis(1_767_621_600_250)));
    }

    #[test]
    fn unsigned_ping_is_refused() {
        let body = br#"{"id":"evt_3","object":"v2.core.event","type":"v2.core.event_destination.ping"}"#;
        let now = Timestamp::from_secs(SIGNED_AT);
        let signed = STRIPE.sign(&Headers::default(), body, &Secret::new(SECRET), now);
        let verify = |headers: &Headers| STRIPE.verify(Request { headers, body }, &[Secret::new(SECRET)]);
        assert_eq!(verify(&signed.into_iter().collect()), Ok(Proof { signed_at: Some(now), ..Proof::PING }));
        assert_eq!(verify(&Headers::default()), Err(Unverified::Missing(SIGNING.name())));
    }

    #[test]
    fn delivery_id_is_event_id_else_body_hash() {
        assert_eq!(described(r#"{"id":"evt_1"}"#).delivery_id.as_str(), "evt_1");
        assert_eq!(described("{}").delivery_id, DeliveryId::from_body(b"{}"));
    }
}
