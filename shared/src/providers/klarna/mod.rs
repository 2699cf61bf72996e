//! Klarna calls the URLs of an order or a session, and does not sign. A request is accepted if its URL holds the source's
//! secret, `?token=…`. Klarna writes the order's id into the query, where the URL has `{checkout.order.id}`.

use std::time::Duration;

use super::{
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    preset::TokenPreset,
    rule::{EntityKind, Example, Rule, RuleLine},
    token,
};

pub(super) static KLARNA: TokenPreset = TokenPreset { token: token::IN_URL, reads: READS };

const fn line(places: &'static [&'static str], kind: &'static str) -> RuleLine {
    RuleLine { families: &[], places, kind: EntityKind::Named(kind) }
}

const LINES: &[RuleLine] = &[
    line(&["{query:klarna_order_id}", "{query:order_id}", "/order_id", "/session/order_id"], "order"),
    line(&["/session/session_id", "/session_id"], "session"),
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(r#"{"order_id":"7849fd85","event_type":"FRAUD_RISK_STOPPED"}"#, "order/7849fd85"),
        Example::new(r#"{"order_id":"7849fd85","event_type":"FRAUD_RISK_ACCEPTED"}"#, "order/7849fd85"),
        Example::new(
            r#"{"event_id":"1","session":{"session_id":"a15b228c","status":"COMPLETED"}}"#,
            "session/a15b228c",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/event_id"])],
    topic: &["/event_type", "/session/status"],
    between_words: &[],
    event_time: &["/session/updated_at"],
    lines: LINES,
    shop_order: ShopOrder::Copied { to: "the callback's URL, as `&order=ID`", fields: &["query:order"] },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "a token of your own in each URL that you give Klarna, `?token=…`",
    signing: None,
    signature: "none. The URL has the token",
    signed: SignedParts { body: false, ..SignedParts::BODY },
    payload: Payload::Reference,
    resolution: Some(Resolution::Milliseconds),
    deadline: Some(Duration::from_secs(3)),
    retries: None,
    switches_off: "not documented",
    checks: "none",
    care: "A push of Klarna Checkout has no body: register `?token=…&klarna_order_id={checkout.order.id}`, then fetch and \
           acknowledge the order. A second push of an order counts as a repeat for 3 to 6 days. You write the URL for \
           each order, so with `?token=…&order=7` and `entity = \"{source}/order/{query:order}\"` it can name your own \
           order. The deadline is that of the hosted payment page. Callbacks whose answer changes the checkout \
           (validation, address, shipping) need their own endpoint. Klarna Network signs (`Klarna-Signature`): use \
           `generic`.",
    sources: &[
        "https://docs.klarna.com/klarna-checkout/additional-resources/confirm-purchase",
        "https://docs.klarna.com/order-management/in-depth-knowledge/pending-orders",
        "https://docs.klarna.com/klarna-payments/in-depth-knowledge/authorization-callback",
        "https://docs.klarna.com/hosted-payment-page/api-documentation/status-callbacks/",
    ],
};

#[cfg(test)]
pub(super) mod tests {
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "klarna", signs_body: false, ..PLAIN }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("klarna-checkout-push.json", "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU", "unknown", "unknown", None, None, "order/7849fd85-47dc-4919-a7ce-47b9f461562f"),
        ("klarna-fraud-risk-accepted.json", "sha256:XQz-qsHegdzSRFR4TCsnY5XVOfRZu-hCv-AY5ufYnIc", "FRAUD_RISK_ACCEPTED", "FRAUD_RISK_ACCEPTED", None, None, "order/7849fd85-47dc-4919-a7ce-47b9f461562f"),
        ("klarna-session-completed.json", "3f7d2c1e-8a64-4b0f-9c55-2d0b7e6a9f10", "COMPLETED", "COMPLETED", None, Some(1_767_618_847_000), "session/a15b228c-02ad-11e9-8eb2-f2801f1b9fd1"),
    ];
}
