//! Adobe Commerce signs by RSA-SHA256, with a key pair that Commerce generates. The signature is in
//! base64. The source's secret is the public key in PEM. Signing is off by default in Commerce.
//!
//! Adobe's documentation does not say clearly whether Commerce signs the body or the base64 of the
//! body. Its text says base64. But its sample runs behind the Adobe I/O runtime, which itself
//! encodes a JSON body in base64. So a signature of either is accepted. If Commerce signs the
//! base64, a request with that base64 as its body is accepted too. Such a body is not JSON, so no
//! entity is found.
//!
//! Commerce waits for the answer before it continues with the operation that triggered the
//! webhook. The answer must be `{"op":"success"}`.

use std::time::Duration;

use super::{
    Encoding, Headers, Proof, Provider, Request, RsaKey, Secret, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    public_key::{self},
    rule::{EntityKind, Example, Rule, RuleLine},
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct AdobeCommerce;

const SIGNATURE: &str = "x-adobe-commerce-webhook-signature";

fn key(secret: &Secret) -> Option<RsaKey> {
    RsaKey::in_pem(secret.expose())
}

const LINES: &[RuleLine] = &[
    RuleLine {
        families: &[],
        places: &["/data/order/entity_id", "/order/entity_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: &[],
        places: &[
            "/data/invoice/order_id",
            "/data/shipment/order_id",
            "/data/creditmemo/order_id",
            "/invoice/order_id",
            "/shipment/order_id",
            "/creditmemo/order_id",
        ],
        kind: EntityKind::Named("order"),
    },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"eventName":"observer.sales_order_save_after","data":{"order":{"entity_id":"7","increment_id":"000000007"}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"eventName":"observer.sales_order_shipment_save_after","data":{"shipment":{"entity_id":"3","order_id":"7"}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"eventName":"observer.sales_order_creditmemo_save_after","data":{"creditmemo":{"entity_id":"4","order_id":"7"}}}"#,
            "order/7",
        ),
        Example::new(
            r#"{"eventName":"observer.sales_order_save_after","data":{"order":{"entity_id":"8","increment_id":"000000008"}}}"#,
            "order/8",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::Topic, IdPart::Body],
    topic: &["/eventName"],
    between_words: &['_'],
    account: &["/data/order/store_id"],
    event_time: &[
        "/data/order/updated_at",
        "/data/invoice/updated_at",
        "/data/shipment/updated_at",
        "/data/creditmemo/updated_at",
    ],
    horizon: Some(Duration::ZERO),
    lines: LINES,
    answer: Some(r#"{"op":"success"}"#),
    shop_order: ShopOrder::Own,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the public key, in PEM: *Stores → Settings → Configuration → Adobe Services → Webhooks*, with signatures \
             enabled and a key pair generated",
    signing: None,
    signature: "`x-adobe-commerce-webhook-signature`: base64 RSA-SHA256 of the body or of its base64",
    signed: SignedParts::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(5)),
    retries: None,
    switches_off: "nothing. But a failing or slow hook that is `required` stops the checkout or the save that \
                   triggered it",
    checks: "none. Every delivery must be answered exactly `{\"op\":\"success\"}`",
    care: "The customer waits for the answer, so use hooks that are not required, and that run `after` the event. \
           The payload has the hook's fields. Include `eventName` and `data` as in the samples, or use entity \
           templates. The deadline is the hook's `timeout`.",
    sources: &[
        "https://developer.adobe.com/commerce/extensibility/webhooks/signature-verification/",
        "https://developer.adobe.com/commerce/extensibility/webhooks/responses/",
        "https://developer.adobe.com/commerce/extensibility/webhooks/xml-schema/",
        "https://developer.adobe.com/commerce/extensibility/webhooks/commands/",
    ],
};

impl Provider for AdobeCommerce {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        key(secret).is_none().then_some("it is not an RSA public key in PEM (`-----BEGIN PUBLIC KEY-----`)")
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let claimed = Encoding::Base64.read(SIGNATURE, request.headers.required(SIGNATURE)?)?;
        let encoded = Encoding::Base64.encode(request.body);
        let signed = |key: RsaKey| [encoded.as_bytes(), request.body].iter().any(|text| key.verifies(text, &claimed));
        if secrets.iter().filter_map(key).any(signed) { Ok(Proof::DELIVERY) } else { Err(Unverified::Mismatch) }
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    /// Signs `body` with a private key, which only samples and tests have.
    fn sign(&self, _headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let encoded = Encoding::Base64.encode(body);
        let signature = public_key::sign_by_rsa(secret.expose(), encoded.as_bytes());
        signature.map(|signature| (SIGNATURE.to_owned(), Encoding::Base64.encode(&signature))).into_iter().collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::public_key::tests::{PRIVATE, PUBLIC};
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "adobe-commerce",
            secrets: [include_str!("../tests/rsa-private.pem"), include_str!("../tests/rsa-another.pem")],
            secret_of: None,
            header: Some("x-adobe-commerce-webhook-signature".into()),
            ..PLAIN
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("adobe-commerce-creditmemo-save-after.json", "observer.sales_order_creditmemo_save_after/sha256:qAMZfPwqTtgt30pmEZB2ErFtaPacLZdtfU-0aHjOs-s", "observer.sales_order_creditmemo_save_after", "observer.sales_order_creditmemo_save", None, Some(1_767_801_600_000), "order/42"),
        ("adobe-commerce-order-save-after.json", "observer.sales_order_save_after/sha256:Ung2YwGbTdq0loIaJDQT2N9rBUNZ7qbwRdRAhbnWNYQ", "observer.sales_order_save_after", "observer.sales_order_save", Some("1"), Some(1_767_621_600_000), "order/42"),
        ("adobe-commerce-shipment-save-after.json", "observer.sales_order_shipment_save_after/sha256:qmLCgWalZ2jzzbHLP5RSsel-JNKSXmqkRvZWs_NyAlU", "observer.sales_order_shipment_save_after", "observer.sales_order_shipment_save", None, Some(1_767_712_500_000), "order/42"),
    ];

    #[test]
    fn adobe_signature_covers_body_or_base64_of_body() {
        let verify = |signature: &str, body: &[u8]| {
            let headers = [(SIGNATURE, signature)].into_iter().collect();
            AdobeCommerce.verify(Request { headers: &headers, body }, &[Secret::new(PUBLIC)])
        };
        // Made by `printf body | openssl dgst -sha256 -sign …`.
        let of_body = include_str!("../tests/rsa-of-body.txt");
        assert_eq!(verify(of_body, b"body"), Ok(Proof::DELIVERY));
        let signed = AdobeCommerce.sign(&Headers::default(), b"{}", &Secret::new(PRIVATE), Timestamp::from_secs(0));
        assert_eq!(verify(&signed[0].1, b"{}"), Ok(Proof::DELIVERY));
        assert_eq!(verify(&signed[0].1, b"{} "), Err(Unverified::Mismatch));
    }

    #[test]
    fn public_key_cannot_sign() {
        let sign = |secret| AdobeCommerce.sign(&Headers::default(), b"", &Secret::new(secret), Timestamp::from_secs(0));
        assert_eq!(sign(PUBLIC), []);
        assert_eq!(AdobeCommerce.objection(&Secret::new(PUBLIC)), None);
        assert!(AdobeCommerce.objection(&Secret::new("secret")).unwrap().contains("PEM"));
    }
}
