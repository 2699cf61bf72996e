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
    Address, Described, Encoding, Keys, Provider, Published, Request, Secret, Uncertified, Unverified, Verified,
    describe,
    facts::{Facts, IdPart, Payload, Reads, Resolution, Signed},
    rule::{Example, Kind, Line, Rule},
    tables,
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

/// The locations of the entity's id in PayPal's events. Captures and refunds name their order among
/// the related ids.
const LINES: &[Line] = &[
    Line { families: &["CHECKOUT.ORDER"], places: &["/resource/id"], kind: Kind::Named("order") },
    Line {
        families: &[],
        places: &["/resource/supplementary_data/related_ids/order_id", "/resource/order_id"],
        kind: Kind::Named("order"),
    },
    Line { families: &["PAYMENT.SALE"], places: &["/resource/parent_payment"], kind: Kind::Named("payment") },
    Line { families: &["CUSTOMER.DISPUTE"], places: &["/resource/dispute_id"], kind: Kind::Named("dispute") },
    Line { families: &[], places: &["/resource/id"], kind: Kind::At("/resource_type") },
];

pub(super) const RULE: Rule = Rule {
    lines: LINES,
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
    between_words: describe::BETWEEN_WORDS,
    account: &["/resource/payee/merchant_id", "/resource/purchase_units/0/payee/merchant_id"],
    event_time: &["/resource/update_time", "/create_time"],
    horizon: Some(Duration::from_secs(3 * 24 * 3600)),
};

const FACTS: Facts = Facts {
    secret: "none. The source has the `webhook_id`, which PayPal shows next to the webhook",
    signature: "`paypal-transmission-sig`: base64 RSA-SHA256 of transmission id, transmission time, webhook id and \
                the body's CRC-32 in decimal, separated by vertical bars. The key is that of the certificate that \
                `paypal-cert-url` names. Ingest fetches the certificate from PayPal's hosts only",
    signed: Signed { headers: &[ID, TIME], by_checksum: true, ..Signed::BODY },
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: None,
    retries: Some(25),
    switches_off: "not documented",
    checks: "none",
    care: "A CRC-32 does not protect the body: anybody who has seen one transmission can construct another body for \
           its signature. Before an irreversible effect, let the handler ask PayPal. Ingest does not check the \
           signed time, because PayPal does not document whether a retry has a new time.",
    sources: &["https://developer.paypal.com/api/rest/webhooks", "https://developer.paypal.com/api/rest/webhooks/rest"],
};

fn address(url: &str) -> Option<Address> {
    let rest = url.strip_prefix("https://")?;
    let host = HOSTS.into_iter().find(|host| rest.strip_prefix(host).is_some_and(|path| path.starts_with('/')))?;
    let path = rest.strip_prefix(host).filter(|path| path.starts_with(FOLDER))?;
    Address::new(host, path, "cert_file")
}

/// Computes the CRC-32 of ISO 3309, as zlib does.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let (mut value, mut bit) = (index as u32, 0);
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

    fn describe(&self, request: Request<'_>) -> Described {
        tables::describe(&READS, LINES, request)
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
    ) -> Result<Verified, Unverified> {
        let header = |name| request.headers.required(name);
        let (id, time, signature) = (header(ID)?, header(TIME)?, header(SIGNATURE)?);
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
        if webhook_ids.iter().any(has_signed) { Ok(Verified::Delivery) } else { Err(Unverified::Mismatch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
