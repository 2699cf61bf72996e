//! Mollie calls the `webhookUrl` of a payment with the form `id=tr_…` at each change of it, and does not sign. A request is
//! accepted if its URL holds the source's secret, `?token=…`.
//!
//! The form is the same at each change, so each request is a delivery.

use std::time::Duration;

use super::{
    facts::{Facts, IdPart, Payload, Reads, ShopOrder, SignedParts},
    preset::TokenPreset,
    rule::{EntityKind, Example, Rule, RuleLine},
    token,
};

pub(super) static MOLLIE_CLASSIC: TokenPreset = TokenPreset { token: token::IN_URL, reads: READS };

const LINES: &[RuleLine] = &[RuleLine { families: &[], places: &["{form:id}"], kind: EntityKind::Named("payment") }];

pub(super) const RULE: Rule = Rule {
    examples: &[Example::new("id=tr_7", "payment/tr_7"), Example::new("id=tr_8", "payment/tr_8")],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::Request],
    lines: LINES,
    horizon: Some(Duration::from_secs(26 * 3600)),
    shop_order: ShopOrder::Copied { to: "`webhookUrl` of the payment, as `&order=ID`", fields: &["query:order"] },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "a token of your own in the `webhookUrl` of each payment, `?token=…`",
    signing: None,
    signature: "none. The URL has the token",
    signed: SignedParts { body: false, ..SignedParts::BODY },
    payload: Payload::Reference,
    resolution: None,
    deadline: Some(Duration::from_secs(15)),
    retries: Some(9),
    switches_off: "nothing: the URL belongs to the payment",
    checks: "none",
    care: "Fetch the payment: the form says only that it changed. A retry of a late answer is handled again, and finds the \
           same payment. To keep payment, refunds and a second payment of one order together, write the order into the \
           `webhookUrl`, `?token=…&order=7`, and use `entity = \"{source}/order/{query:order}\"`.",
    sources: &[
        "https://docs.mollie.com/reference/webhooks",
        "https://github.com/mollie/api-documentation/blob/master/source/overview/webhooks.rst",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "mollie-classic", signs_body: false, ..PLAIN }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("mollie-classic-payment.json", "sha256:DXpu9vkqr5MNPN0H91Irmt6oQYI2zpJFs_W8LXu3oOo", "unknown", "unknown", None, None, "payment/tr_5B8cwPMGnU6qLbRvo7qEZo"),
    ];

    #[test]
    fn equal_forms_of_a_payment_never_count_as_repeats() {
        let described = tests::describe(&MOLLIE_CLASSIC, &[], "id=tr_7");
        assert_eq!(described.repeated_within, Some(Duration::ZERO));
        assert!(READS.has_retries(), "Mollie retries what is refused in an outage");
    }
}
