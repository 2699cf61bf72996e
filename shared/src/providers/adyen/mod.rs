//! Adyen's standard webhooks have a base64 HMAC-SHA256 inside the body, of eight fields joined by colons. The key is the
//! hexadecimal HMAC key of the webhook.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Encoding, HashName, Proof, Provider, Request, Secret, Unverified,
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    json::pointer,
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::{self, HmacKey},
};

#[derive(Debug)]
pub(super) struct Adyen;

const SIGNED: [&str; 8] = [
    "pspReference",
    "originalReference",
    "merchantAccountCode",
    "merchantReference",
    "amount/value",
    "amount/currency",
    "eventCode",
    "success",
];

const SIGNATURE: &str = "hmacSignature";

#[derive(Deserialize)]
struct Notification<'a> {
    #[serde(rename = "notificationItems", borrow)]
    items: Vec<&'a RawValue>,
}

fn field<'a>(item: &'a RawValue, name: &str) -> Option<Cow<'a, str>> {
    pointer(item.get().as_bytes(), &format!("/NotificationRequestItem/{name}"))
}

/// Returns the signed text, or `None` if it is ambiguous: a colon in a field could also be the end of that field. Other
/// fields would then have the same signature.
///
/// The merchant's reference may have colons, since the shop chooses it. In a report, the file's name may have them
/// instead, if the item has no other reference.
fn signed(item: &RawValue) -> Option<String> {
    let values = SIGNED.map(|name| field(item, name).unwrap_or_default());
    let [_, original, _, reference, _, _, event, _] = &values;
    let is_report = event == "REPORT_AVAILABLE";
    let may_have_colons = |name: &str| match name {
        "merchantReference" => !is_report,
        "pspReference" => is_report && original.is_empty() && reference.is_empty(),
        _ => false,
    };
    let is_clear = SIGNED.iter().zip(&values).all(|(name, value)| may_have_colons(name) || !value.contains(':'));
    is_clear.then(|| values.join(":"))
}

fn key(secret: &Secret) -> Option<HmacKey> {
    match secret.text() {
        Some(text) => HmacKey::new(Encoding::Hex.decode(text.trim())?),
        None => HmacKey::of(secret),
    }
}

const fn line(place: &'static [&'static str]) -> RuleLine {
    RuleLine { families: &[], places: place, kind: EntityKind::Named("payment") }
}

/// A capture, refund or dispute has its own reference. It names its payment as the original.
const LINES: &[RuleLine] = &[
    line(&["/notificationItems/0/NotificationRequestItem/originalReference"]),
    line(&["/notificationItems/0/NotificationRequestItem/pspReference"]),
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"notificationItems":[{"NotificationRequestItem":{"eventCode":"AUTHORISATION","pspReference":"P7","merchantReference":"order-7","success":"true"}}]}"#,
            "payment/P7",
        ),
        Example::new(
            r#"{"notificationItems":[{"NotificationRequestItem":{"eventCode":"CAPTURE","pspReference":"C1","originalReference":"P7","merchantReference":"order-7","success":"true"}}]}"#,
            "payment/P7",
        ),
        Example::new(
            r#"{"notificationItems":[{"NotificationRequestItem":{"eventCode":"AUTHORISATION","pspReference":"P8","merchantReference":"order-7","success":"false"}}]}"#,
            "payment/P8",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[
        IdPart::Account,
        IdPart::Topic,
        IdPart::At(&["/notificationItems/0/NotificationRequestItem/pspReference"]),
        IdPart::Maybe(&["/notificationItems/0/NotificationRequestItem/success"]),
    ],
    topic: &["/notificationItems/0/NotificationRequestItem/eventCode"],
    account: &["/notificationItems/0/NotificationRequestItem/merchantAccountCode"],
    event_time: &["/notificationItems/0/NotificationRequestItem/eventDate"],
    lines: LINES,
    horizon: Some(Duration::from_secs(30 * 24 * 3600)),
    answer: Some("[accepted]"),
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the webhook's HMAC key, 64 hexadecimal digits: *Developers → Webhooks → Security*",
    signing: None,
    signature: "`hmacSignature` in each item's `additionalData`: base64 HMAC-SHA256 of `pspReference`, \
                `originalReference`, `merchantAccountCode`, `merchantReference`, the amount's value and currency, \
                `eventCode` and `success`, separated by colons",
    signed: SignedParts {
        body: false,
        fields: &[
            "/notificationItems/0/NotificationRequestItem/pspReference",
            "/notificationItems/0/NotificationRequestItem/merchantAccountCode",
            "/notificationItems/0/NotificationRequestItem/eventCode",
            "/notificationItems/0/NotificationRequestItem/success",
        ],
        ..SignedParts::BODY
    },
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(10)),
    retries: None,
    switches_off: "nothing. Adyen repeats the oldest failed webhook alone for 30 days, and the later ones wait behind it",
    checks: "none. *Test configuration* sends signed, normal deliveries",
    care: "Choose the JSON format. The signature covers eight fields, and neither time nor reason: before an \
           irreversible effect, let the handler ask Adyen. The previous key stays valid for webhooks that Adyen already \
           made: keep both for a while. With `entity = \"{source}/order/\
           {/notificationItems/0/NotificationRequestItem/merchantReference}\"`, all payments of an order wait for each \
           other, if modifications have no reference of their own. A webhook with several items, which Adyen never \
           sends, is refused: nothing signs the list. Adyen's other webhooks sign in another way: use `generic`.",
    sources: &[
        "https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures",
        "https://docs.adyen.com/development-resources/webhooks/handle-webhook-events",
        "https://docs.adyen.com/development-resources/webhooks/troubleshoot",
        "https://github.com/Adyen/adyen-python-api-library/blob/main/Adyen/util.py",
        "https://github.com/Adyen/adyen-openapi/blob/main/json/Webhooks-v1.json",
    ],
};

impl Provider for Adyen {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        key(secret).is_none().then_some("it is not hexadecimal; write the webhook's HMAC key as Adyen shows it")
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret]) -> Result<Proof, Unverified> {
        let body = serde_json::from_slice::<Notification<'_>>(request.body);
        let items = body.map_err(|_| Unverified::NotInBody(SIGNATURE))?.items;
        // Adyen sends one item. Nothing signs a list, so a second item could make a seen webhook look like another one.
        let [item] = items[..] else { return Err(Unverified::NotInBody(SIGNATURE)) };
        let signature = field(item, "additionalData/hmacSignature").ok_or(Unverified::NotInBody(SIGNATURE))?;
        let claimed = Encoding::Base64.read(SIGNATURE, &signature)?;
        let signed = signed(item).ok_or(Unverified::Mismatch)?;
        signature::check(HashName::Sha256, secrets.iter().filter_map(key), &[signed.as_bytes()], &[claimed])?;
        Ok(Proof::DELIVERY)
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn signed_body(&self, body: &[u8], secret: &Secret) -> Option<Vec<u8>> {
        let key = key(secret)?;
        let mut text = String::from_utf8(body.to_vec()).ok()?;
        for item in serde_json::from_slice::<Notification<'_>>(body).ok()?.items {
            let signature = HashName::Sha256.hmac(&key, &[signed(item)?.as_bytes()]);
            text = text.replace(&*field(item, "additionalData/hmacSignature")?, &Encoding::Base64.encode(&signature));
        }
        Some(text.into_bytes())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        Vec::new()
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("adyen-authorisation.json", "ExampleShopECOM/AUTHORISATION/QFQTPCQ8HXSKGK82/true", "AUTHORISATION", "AUTHORISATION", Some("ExampleShopECOM"), Some(1_767_618_000_000), "payment/QFQTPCQ8HXSKGK82"),
        ("adyen-capture.json", "ExampleShopECOM/CAPTURE/JDD6LKT8MBLZNN84/true", "CAPTURE", "CAPTURE", Some("ExampleShopECOM"), Some(1_767_618_312_000), "payment/QFQTPCQ8HXSKGK82"),
        ("adyen-chargeback.json", "ExampleShopECOM/CHARGEBACK/9915555555555555/true", "CHARGEBACK", "CHARGEBACK", Some("ExampleShopECOM"), Some(1_768_867_200_000), "payment/QFQTPCQ8HXSKGK82"),
        ("adyen-refund.json", "ExampleShopECOM/REFUND/K2NWZ7XR5TGLNK82/true", "REFUND", "REFUND", Some("ExampleShopECOM"), Some(1_767_773_504_000), "payment/QFQTPCQ8HXSKGK82"),
    ];

    const KEY: &str = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056";

    /// The item and its signature are from Adyen's documentation and the tests of its library for Python.
    fn item(amount: u32, signature: &str) -> String {
        format!(
            r#"{{"NotificationRequestItem":{{"pspReference":"7914073381342284","merchantReference":"TestPayment-1407325143704","merchantAccountCode":"TestMerchant","amount":{{"currency":"EUR","value":{amount}}},"eventCode":"AUTHORISATION","success":"true","eventDate":"2019-05-06T17:15:34.121+02:00","additionalData":{{{signature}}}}}}}"#
        )
    }

    fn verify(items: &[String], secrets: &[&str]) -> Result<Verified, Unverified> {
        let body = format!(r#"{{"live":"false","notificationItems":[{}]}}"#, items.join(","));
        tests::verify(&Adyen, &[], body.as_bytes(), secrets, 0)
    }

    #[test]
    fn published_adyen_signature_is_accepted() {
        let signature = r#""hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=""#;
        let good = item(1130, signature);
        assert_eq!(verify(std::slice::from_ref(&good), &[KEY]), Ok(Verified::Delivery));
        assert_eq!(verify(std::slice::from_ref(&good), &["00", KEY]), Ok(Verified::Delivery));
        for (items, refusal) in [
            (vec![item(1131, signature)], Unverified::Mismatch),
            (vec![good.clone(), good.clone()], Unverified::NotInBody(SIGNATURE)),
            (vec![item(1130, "")], Unverified::NotInBody(SIGNATURE)),
            (vec![good.clone(), "{}".into()], Unverified::NotInBody(SIGNATURE)),
            (vec![], Unverified::NotInBody(SIGNATURE)),
            (vec![item(1130, r#""hmacSignature":"%""#)], Unverified::Malformed(SIGNATURE.into())),
            (vec!["7".into(), "".into()], Unverified::NotInBody(SIGNATURE)),
        ] {
            assert_eq!(verify(&items, &[KEY]), Err(refusal), "{items:?}");
        }
        assert_eq!(verify(std::slice::from_ref(&good), &[]), Err(Unverified::Mismatch));
        assert_eq!(verify(&[good], &["44782D"]), Err(Unverified::Mismatch));
    }

    /// Promise: an Adyen item whose colons were moved to another field is refused.
    #[test]
    fn colon_moved_to_another_field_is_refused() {
        let signed = |text: &str| {
            let secret = Secret::new(KEY);
            Encoding::Base64.encode(&HashName::Sha256.hmac(&key(&secret).unwrap(), &[text.as_bytes()]))
        };
        let verify = |text: &str, fields: [&str; 8]| {
            let [psp, original, account, reference, value, currency, event, success] = fields;
            let item = format!(
                r#"{{"NotificationRequestItem":{{"pspReference":"{psp}","originalReference":"{original}","merchantReference":"{reference}","merchantAccountCode":"{account}","amount":{{"currency":"{currency}","value":{value}}},"eventCode":"{event}","success":"{success}","additionalData":{{"hmacSignature":"{}"}}}}}}"#,
                signed(text)
            );
            verify(&[item], &[KEY])
        };
        let text = "PA::Shop:x:y:7500:SEK:AUTHORISATION:true";
        let genuine = ["PA", "", "Shop", "x:y", "7500", "SEK", "AUTHORISATION", "true"];
        assert_eq!(verify(text, genuine), Ok(Verified::Delivery));
        for moved in [
            ["PA:", "Shop", "x", "y", "7500", "SEK", "AUTHORISATION", "true"],
            ["PA", ":Shop", "x", "y", "7500", "SEK", "AUTHORISATION", "true"],
            ["PA", "", "Shop:x", "y", "7500", "SEK", "AUTHORISATION", "true"],
        ] {
            assert_eq!(verify(text, moved), Err(Unverified::Mismatch), "{moved:?}");
        }
        let other_amount = ["PA", "", "Shop", "x", "1", "7500:SEK", "AUTHORISATION", "true"];
        assert_eq!(verify("PA::Shop:x:1:7500:SEK:AUTHORISATION:true", other_amount), Err(Unverified::Mismatch));
        // A report's reference is a file's name.
        let text = "report_10:00.csv::Shop::0:EUR:REPORT_AVAILABLE:true";
        let report = |[psp, original, account, reference]: [&'static str; 4]| {
            verify(text, [psp, original, account, reference, "0", "EUR", "REPORT_AVAILABLE", "true"])
        };
        assert_eq!(report(["report_10:00.csv", "", "Shop", ""]), Ok(Verified::Delivery));
        assert_eq!(report(["report_10", "00.csv", "", "Shop:"]), Err(Unverified::Mismatch));
        assert_eq!(report(["report_10:00.csv:", "", "Shop", ""]), Err(Unverified::Mismatch));
    }

    #[test]
    fn second_list_of_items_is_refused() {
        let good = item(1130, r#""hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0=""#);
        let forged = item(9, "");
        for (one, other) in [(&good, &forged), (&forged, &good)] {
            let body = format!(r#"{{"notificationItems":[{one}],"notificationItems":[{other}]}}"#);
            let refused = tests::verify(&Adyen, &[], body.as_bytes(), &[KEY], 0);
            assert_eq!(refused, Err(Unverified::NotInBody(SIGNATURE)));
        }
    }

    #[test]
    fn sample_is_signed_again_under_another_key() {
        let secret = Secret::new("00FF");
        let body = format!(r#"{{"notificationItems":[{}]}}"#, item(7, r#""hmacSignature":"bm9uZQ==""#));
        let signed = Adyen.signed_body(body.as_bytes(), &secret).unwrap();
        assert_eq!(tests::verify(&Adyen, &[], &signed, &["00FF"], 0), Ok(Verified::Delivery));
        assert_eq!(Adyen.signed_body(b"{}", &secret), None);
    }

    #[test]
    fn adyen_secret_must_be_hexadecimal() {
        assert!(Adyen.objection(&Secret::new("a user's password")).unwrap().contains("hexadecimal"));
        assert!(Adyen.objection(&Secret::new("")).is_some());
        assert_eq!(Adyen.objection(&Secret::new(KEY)), None);
    }
}
