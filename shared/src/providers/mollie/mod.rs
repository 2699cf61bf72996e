//! Mollie's signed webhooks have `X-Mollie-Signature: sha256=…`, a hexadecimal HMAC-SHA256 of the body. For a day after
//! the secret was rotated, a webhook has two such headers. For the webhooks of `webhookUrl`, which Mollie does not sign,
//! see `mollie-classic`.

use std::{borrow::Cow, time::Duration};

use super::{
    Encoding, Secret, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
};

pub(super) static MOLLIE: Preset = Preset { signing: SIGNING, reads: READS, objection, ..Preset::PLAIN };

/// Lambda joins the two headers by a comma.
const SIGNING: Signing = Signing {
    header: Cow::Borrowed("X-Mollie-Signature"),
    encoding: Encoding::Hex,
    prefix: Cow::Borrowed("sha256="),
    separator: Some(Cow::Borrowed(",")),
    ..Signing::BODY
};

fn objection(secret: &Secret) -> Option<&'static str> {
    let is_api_key = [&b"live_"[..], b"test_", b"access_"].iter().any(|prefix| secret.expose().starts_with(prefix));
    is_api_key.then_some("it is an API key; use the webhook's signing secret")
}

/// A refund, capture or chargeback names its payment only in a full payload.
const LINES: &[RuleLine] = &[
    RuleLine {
        families: &["refund", "capture", "chargeback", "dispute"],
        places: &["/_embedded/entity/paymentId"],
        kind: EntityKind::Named("payment"),
    },
    RuleLine { families: &[], places: &["/entityId"], kind: EntityKind::Family },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"resource":"event","id":"event_1","type":"payment.paid","entityId":"tr_7","createdAt":"2026-01-05T15:59:04.0Z","_embedded":{"entity":{"id":"tr_7"}}}"#,
            "payment/tr_7",
        ),
        Example::new(
            r#"{"resource":"event","id":"event_2","type":"refund.refunded","entityId":"re_7","createdAt":"2026-01-07T09:13:37.0Z","_embedded":{"entity":{"id":"re_7","paymentId":"tr_7"}}}"#,
            "payment/tr_7",
        ),
        Example::new(
            r#"{"resource":"event","id":"event_3","type":"payment-link.paid","entityId":"pl_7","createdAt":"2026-01-08T14:02:31.0Z"}"#,
            "payment-link/pl_7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/id"])],
    topic: &["/type"],
    account: &["/_embedded/entity/profileId"],
    event_time: &["/createdAt"],
    lines: LINES,
    horizon: Some(Duration::from_secs(26 * 3600)),
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the webhook's signing secret: *Developers → Webhooks*",
    signing: Some(&SIGNING),
    signature: ". For a day after a rotation, two such headers",
    signed: SignedParts::BODY,
    payload: Payload::Depends,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(15)),
    retries: Some(9),
    switches_off: "repeated failures: the webhook becomes `blocked`",
    checks: "none. *Ping* sends a signed, normal delivery",
    care: "Choose full payloads: a simple one does not name the payment of a refund or chargeback, which then runs beside \
           its payment. Number and span of the retries are from a secondary source. The webhooks of `webhookUrl` are \
           [`mollie-classic`](#mollie-classic).",
    sources: &[
        "https://docs.mollie.com/reference/webhooks-new",
        "https://docs.mollie.com/reference/webhooks-best-practices",
        "https://docs.mollie.com/reference/get-webhook-event",
        "https://github.com/mollie/mollie-api-php/blob/master/src/Webhooks/SignatureValidator.php",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("mollie", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("mollie-payment-link-paid.json", "event_Qm3RtY7uZpLsX9cVbNaWe", "payment-link.paid", "payment-link", None, Some(1_767_880_951_000), "payment-link/pl_qng5gbbv8NAZ5gpM5ZYgx"),
        ("mollie-payment-paid.json", "event_GvJ8WHrp5isUdRub9CJyH", "payment.paid", "payment", Some("pfl_QkEhN94Ba"), Some(1_767_628_744_000), "payment/tr_5B8cwPMGnU6qLbRvo7qEZo"),
        ("mollie-refund-refunded.json", "event_K2nT4vXq8mYbWc7dLhRfP", "refund.refunded", "refund", None, Some(1_767_777_217_000), "payment/tr_5B8cwPMGnU6qLbRvo7qEZo"),
    ];

    /// Python made the signature: `hmac.new(b"test_webhook_secret", body, hashlib.sha256)`.
    #[test]
    fn either_header_of_rotated_mollie_secret_suffices() {
        let body = br#"{"id":"tr_12345","event_type":"payment-link.paid"}"#;
        let own = "sha256=e479a5e4aaa17db94cfc546071e10e91c0b37f21e464e751ebdd7d7ad2ffd146";
        let other = format!("sha256={}", "0".repeat(64));
        for value in [own.to_owned(), format!("{own},{other}"), format!("{other}, {own}")] {
            let headers = [("X-Mollie-Signature", value.as_str())];
            let verified = tests::verify(&MOLLIE, &headers, body, &["test_webhook_secret"], 0);
            assert_eq!(verified, Ok(Verified::Delivery), "{value}");
        }
    }
}
