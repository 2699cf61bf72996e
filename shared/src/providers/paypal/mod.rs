//! PayPal signs `transmission id|transmission time|webhook id|CRC-32 of the body` by RSA-SHA256. A
//! header gives the URL of the certificate with the key.
//!
//! The certificate is fetched from PayPal's hosts only, whatever the header says. The certificate
//! must be PayPal's, valid, and issued by a known authority. The webhook id in the signature must be
//! the source's. Otherwise an event of any other shop would be accepted.
//!
//! Only the body's CRC-32 is signed. So anybody who has seen a transmission can construct
//! another body with the same checksum, and only TLS keeps transmissions confidential.
//!
//! PayPal does not document whether a transmission that is resent days later has a new time.
//! So the age is not checked. The event's id identifies repeats.

use std::time::Duration;

use super::{
    Address, Encoding, Keys, Proof, Provider, Published, Request, Secret, Uncertified, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    rule::{EntityKind, Example, Rule, RuleLine},
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct PayPal;

const ID: &str = "paypal-transmission-id";
const TIME: &str = "paypal-transmission-time";
const SIGNATURE: &str = "paypal-transmission-sig";
const CERTIFICATE: &str = "paypal-cert-url";
const ALGORITHM: &str = "paypal-auth-algo";

const HOSTS: [&str; 4] = ["api.paypal.com", "api-m.paypal.com", "api.sandbox.paypal.com", "api-m.sandbox.paypal.com"];
const FOLDER: &str = "/v1/notifications/certs/";

const NAMES: [&str; 2] = ["messageverificationcerts.paypal.com", "messageverificationcerts.sandbox.paypal.com"];

const CAPTURES: &[&str] = &["PAYMENT.CAPTURE", "PAYMENT.REFUND"];

/// The URLs of a capture's own API calls and of the object that it belongs to: an order or an authorization, and
/// for a refund the capture.
const LINKS: &[&str] =
    &["/resource/links/0/href", "/resource/links/1/href", "/resource/links/2/href", "/resource/links/3/href"];

/// The locations of the entity's id in PayPal's events. Captures name their order among the related ids
/// or in a link; a refund names only its capture. A payment of a subscription has no
/// `parent_payment`, and its refund names only the sale.
const LINES: &[RuleLine] = &[
    RuleLine { families: &["CHECKOUT.ORDER"], places: &["/resource/id"], kind: EntityKind::Named("order") },
    RuleLine {
        families: &[],
        places: &["/resource/supplementary_data/related_ids/order_id", "/resource/order_id"],
        kind: EntityKind::Named("order"),
    },
    RuleLine {
        families: CAPTURES,
        places: LINKS,
        kind: EntityKind::Inside { word: "order", marks: &["/v2/checkout/orders/"] },
    },
    RuleLine {
        families: CAPTURES,
        places: &["/resource/supplementary_data/related_ids/capture_id", "/resource/capture_id"],
        kind: EntityKind::Named("capture"),
    },
    RuleLine {
        families: CAPTURES,
        places: LINKS,
        kind: EntityKind::Inside { word: "capture", marks: &["/payments/captures/"] },
    },
    RuleLine { families: &["PAYMENT.SALE"], places: &["/resource/parent_payment"], kind: EntityKind::Named("payment") },
    RuleLine { families: &["PAYMENT.SALE"], places: &["/resource/sale_id"], kind: EntityKind::Named("sale") },
    RuleLine { families: &["CUSTOMER.DISPUTE"], places: &["/resource/dispute_id"], kind: EntityKind::Named("dispute") },
    RuleLine { families: &[], places: &["/resource/id"], kind: EntityKind::At("/resource_type") },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"event_type":"CHECKOUT.ORDER.APPROVED","resource_type":"checkout-order","resource":{"id":"5O190127TN364715T"}}"#,
            "order/5O190127TN364715T",
        ),
        Example::new(
            r#"{"event_type":"PAYMENT.CAPTURE.COMPLETED","resource_type":"capture","resource":{"id":"42311647XV020574X","supplementary_data":{"related_ids":{"order_id":"5O190127TN364715T"}}}}"#,
            "order/5O190127TN364715T",
        ),
        Example::new(
            r#"{"event_type":"PAYMENT.CAPTURE.PENDING","resource_type":"capture","resource":{"id":"3C679366HH908993F","links":[{"rel":"up","href":"https://api.paypal.com/v2/payments/authorizations/7W5147081L658180V"}]}}"#,
            "capture/3C679366HH908993F",
        ),
        Example::new(
            r#"{"event_type":"PAYMENT.CAPTURE.REFUNDED","resource_type":"refund","resource":{"id":"1Y107995YT783435V","links":[{"rel":"self","href":"https://api.paypal.com/v2/payments/refunds/1Y107995YT783435V"},{"rel":"up","href":"https://api.paypal.com/v2/payments/captures/3C679366HH908993F"}]}}"#,
            "capture/3C679366HH908993F",
        ),
        Example::new(
            r#"{"event_type":"PAYMENT.SALE.COMPLETED","resource_type":"sale","resource":{"id":"1A615453BF810315T","billing_agreement_id":"I-DTVVSNCENF7M"}}"#,
            "sale/1A615453BF810315T",
        ),
        Example::new(
            r#"{"event_type":"PAYMENT.SALE.REFUNDED","resource_type":"refund","resource":{"id":"8M120387BY482841G","sale_id":"1A615453BF810315T"}}"#,
            "sale/1A615453BF810315T",
        ),
        Example::new(
            r#"{"event_type":"CUSTOMER.DISPUTE.CREATED","resource_type":"dispute","resource":{"dispute_id":"PP-D-4012"}}"#,
            "dispute/PP-D-4012",
        ),
        Example::new(
            r#"{"event_type":"BILLING.SUBSCRIPTION.ACTIVATED","resource_type":"subscription","resource":{"id":"I-BW452GLLEP1G"}}"#,
            "subscription/I-BW452GLLEP1G",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/id"])],
    topic: &["/event_type"],
    account: &["/resource/payee/merchant_id", "/resource/purchase_units/0/payee/merchant_id"],
    event_time: &["/resource/update_time", "/create_time"],
    horizon: Some(Duration::from_secs(3 * 24 * 3600)),
    lines: LINES,
    shop_order: ShopOrder::Copied {
        to: "`custom_id` of the purchase unit, and of each refund",
        fields: &["/resource/custom_id", "/resource/purchase_units/0/custom_id"],
    },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "none. The source has the `webhook_id`, which PayPal shows next to the webhook",
    signing: None,
    signature: "`paypal-transmission-sig`: base64 RSA-SHA256 of transmission id, transmission time, webhook id and \
                the body's CRC-32 in decimal, separated by vertical bars. The key is that of the certificate that \
                `paypal-cert-url` names. Ingest fetches the certificate from PayPal's hosts only",
    signed: SignedParts { headers: &[ID, TIME], by_checksum: true, ..SignedParts::BODY },
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: None,
    retries: Some(25),
    switches_off: "not documented",
    checks: "none",
    care: "A CRC-32 does not protect the body: anybody who has seen one transmission can construct another body for \
           its signature. Before an irreversible effect, let the handler ask PayPal. Ingest does not check the \
           signed time, because PayPal does not document whether a retry has a new time. A refund names its capture \
           but not the order. To keep it in sequence with its order, give both the same `custom_id` and use \
           `entity = [\"{source}/order/{/resource/custom_id}\", \
           \"{source}/order/{/resource/purchase_units/0/custom_id}\", \"{source}/{entity}\"]`. A payment of a \
           subscription has a `billing_agreement_id` and no `parent_payment`; its refund has only the `sale_id` \
           (events published in 2020 and 2022, read on 2026-11-26). The webhook simulator signs for the id \
           `WEBHOOK_ID`, so anybody's simulated event would fit a source with that id: ingest does not use it.",
    sources: &[
        "https://developer.paypal.com/api/rest/webhooks",
        "https://developer.paypal.com/api/rest/webhooks/rest",
        "https://developer.paypal.com/api/rest/webhooks/simulator",
        "https://github.com/shopware/SwagPayPal/pull/7",
        "https://github.com/shopware/SwagPayPal/pull/13",
    ],
};

fn address(url: &str) -> Option<Address> {
    let rest = url.strip_prefix("https://")?;
    let host = HOSTS.into_iter().find(|host| rest.strip_prefix(host).is_some_and(|path| path.starts_with('/')))?;
    let path = rest.strip_prefix(host).filter(|path| path.starts_with(FOLDER))?;
    Address::new(host, path, "cert_file")
}

/// Computes the CRC-32 of ISO 3309, as zlib does.
pub fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

impl Provider for PayPal {
    fn objection(&self, _secret: &Secret) -> Option<&'static str> {
        Some("PayPal signs with its own key: leave `secrets` out and set `webhook_id`")
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn published(&self) -> Option<&dyn Published> {
        Some(self)
    }
}

impl Published for PayPal {
    fn recipient(&self) -> Option<&'static str> {
        Some("webhook_id")
    }

    fn verify(
        &self,
        request: Request<'_>,
        webhook_ids: &[String],
        keys: &dyn Keys,
        now: Timestamp,
    ) -> Result<Proof, Unverified> {
        let header = |name| request.headers.required(name);
        let id = header(ID)?;
        let time = header(TIME)?;
        let signature = header(SIGNATURE)?;
        let at = address(header(CERTIFICATE)?).ok_or_else(|| Unverified::malformed(CERTIFICATE))?;
        if request.headers.get(ALGORITHM).is_some_and(|algorithm| algorithm != "SHA256withRSA") {
            return Err(Unverified::malformed(ALGORITHM));
        }
        let signature = Encoding::Base64.read(SIGNATURE, signature)?;
        if webhook_ids.is_empty() {
            return Err(Unverified::Mismatch);
        }
        let pem = keys.find(&at).ok_or_else(|| Unverified::Unfetched(at.clone()))?;
        let key = keys.certified(&pem, &NAMES, now).map_err(|reason| match reason {
            // PayPal should have a readable certificate from a known authority at this address. If
            // not, the webhook is not at fault.
            Uncertified::Unreadable | Uncertified::Issuer => Unverified::Unusable(at, reason.to_string()),
            Uncertified::Expired | Uncertified::Name => Unverified::Certificate(reason),
        })?;
        let crc = crc32(request.body);
        let has_signed =
            |webhook_id: &String| key.verifies(format!("{id}|{time}|{webhook_id}|{crc}").as_bytes(), &signature);
        if webhook_ids.iter().any(has_signed) { Ok(Proof::DELIVERY) } else { Err(Unverified::Mismatch) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow { name: "paypal", header: Some("paypal-transmission-sig".into()), ..PUBLISHED }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("paypal-checkout-order-approved.json", "WH-0000000ExampleDev01-ORDERAPPROVED", "CHECKOUT.ORDER.APPROVED", "CHECKOUT.ORDER", Some("EXAMPLEMERCH1"), Some(1_767_621_688_000), "order/5O190127TN364715T"),
        ("paypal-payment-capture-completed.json", "WH-0000000ExampleDev02-CAPTURECOMPLETED", "PAYMENT.CAPTURE.COMPLETED", "PAYMENT.CAPTURE", Some("EXAMPLEMERCH1"), Some(1_767_621_695_000), "order/5O190127TN364715T"),
        ("paypal-payment-capture-refunded.json", "WH-0000000ExampleDev03-CAPTUREREFUNDED", "PAYMENT.CAPTURE.REFUNDED", "PAYMENT.CAPTURE", None, Some(1_767_801_601_000), "order/5O190127TN364715T"),
    ];

    fn entity(event_type: &str, resource_type: &str, resource: &str) -> Option<String> {
        let body = format!(
            r#"{{"id":"WH-1","event_type":"{event_type}","resource_type":"{resource_type}","resource":{resource}}}"#
        );
        tests::describe(&PayPal, &[], &body).entity
    }

    fn links(paths: &[&str]) -> String {
        let link = |path: &&str| format!(r#"{{"rel":"x","href":"https://api.paypal.com{path}","method":"GET"}}"#);
        format!("[{}]", paths.iter().map(link).collect::<Vec<_>>().join(","))
    }

    /// The resources have the fields of events that users of PayPal have published, such as in
    /// github.com/shopware/SwagPayPal, pull requests 7 and 13 (2020).
    #[test]
    fn refund_of_subscription_payment_has_the_sale_as_entity() {
        let sale = entity("PAYMENT.SALE.COMPLETED", "sale", r#"{"id":"S1","billing_agreement_id":"I-1"}"#);
        let refund = entity("PAYMENT.SALE.REFUNDED", "refund", r#"{"id":"R1","sale_id":"S1"}"#);
        let reversed = entity("PAYMENT.SALE.REVERSED", "refund", r#"{"id":"R2","sale_id":"S1"}"#);
        assert_eq!([sale, refund, reversed], [const { Some("sale/S1") }; 3].map(|key| key.map(str::to_owned)));
        let classic = r#"{"id":"R1","sale_id":"S1","parent_payment":"PAY-1"}"#;
        assert_eq!(entity("PAYMENT.SALE.REFUNDED", "sale", classic).as_deref(), Some("payment/PAY-1"));
    }

    #[test]
    fn capture_and_refund_without_related_ids_share_an_entity() {
        let order = links(&["/v2/payments/captures/C1", "/v2/payments/captures/C1/refund", "/v2/checkout/orders/O1"]);
        let of_order = entity("PAYMENT.CAPTURE.COMPLETED", "capture", &format!(r#"{{"id":"C1","links":{order}}}"#));
        assert_eq!(of_order.as_deref(), Some("order/O1"));
        let up =
            links(&["/v2/payments/captures/C1", "/v2/payments/captures/C1/refund", "/v2/payments/authorizations/A1"]);
        let of_authorization =
            entity("PAYMENT.CAPTURE.COMPLETED", "capture", &format!(r#"{{"id":"C1","links":{up}}}"#));
        let bare = entity("PAYMENT.CAPTURE.PENDING", "capture", r#"{"id":"C1"}"#);
        let refund = links(&["/v2/payments/refunds/R1", "/v2/payments/captures/C1"]);
        let refunded = entity("PAYMENT.CAPTURE.REFUNDED", "refund", &format!(r#"{{"id":"R1","links":{refund}}}"#));
        let pending = entity("PAYMENT.REFUND.PENDING", "refund", &format!(r#"{{"id":"R1","links":{refund}}}"#));
        let first_api = entity("PAYMENT.CAPTURE.REFUNDED", "refund", r#"{"id":"R1","capture_id":"C1"}"#);
        for found in [of_authorization, bare, refunded, pending, first_api] {
            assert_eq!(found.as_deref(), Some("capture/C1"));
        }
        let related = r#"{"id":"R1","supplementary_data":{"related_ids":{"capture_id":"C1"}}}"#;
        assert_eq!(entity("PAYMENT.CAPTURE.REFUNDED", "refund", related).as_deref(), Some("capture/C1"));
        let related = r#"{"id":"C1","supplementary_data":{"related_ids":{"order_id":"O1"}}}"#;
        assert_eq!(entity("PAYMENT.CAPTURE.COMPLETED", "capture", related).as_deref(), Some("order/O1"));
    }

    /// Promise: published keys come from their senders' hosts only, and are kept an hour; without one, 503.
    #[test]
    fn certificate_url_must_have_paypal_host_and_path() {
        let found = |url: &str| address(url).map(|at| at.to_string());
        for url in [
            "https://api.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-90621ecd",
            "https://api.sandbox.paypal.com/v1/notifications/certs/CERT-360caa42-fca2a594-a5cafa77",
            "https://api-m.paypal.com/v1/notifications/certs/CERT-1",
        ] {
            assert_eq!(found(url).as_deref(), Some(url));
        }
        for url in [
            "http://api.paypal.com/v1/notifications/certs/CERT-1",
            "https://api.paypal.com.example.com/v1/notifications/certs/CERT-1",
            "https://api.paypal.com:444/v1/notifications/certs/CERT-1",
            "https://api.paypal.com@example.com/v1/notifications/certs/CERT-1",
            "https://me@api.paypal.com/v1/notifications/certs/CERT-1",
            "https://example.com/v1/notifications/certs/CERT-1",
            "https://www.paypal.com/v1/notifications/certs/CERT-1",
            "https://api.paypal.com/v1/notifications/certs/../../oauth2/token",
            "https://api.paypal.com/v1/notifications/certs/",
            "https://api.paypal.com/v1/reports",
            "https://api.paypal.com/v1/notifications/certs/CERT-1?a=b",
            "HTTPS://api.paypal.com/v1/notifications/certs/CERT-1",
            "//api.paypal.com/v1/notifications/certs/CERT-1",
            "",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
    }

    /// The published value is the check value of CRC-32/ISO-HDLC.
    #[test]
    fn crc32_matches_the_published_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
