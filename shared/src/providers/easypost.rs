//! EasyPost sends `X-Hmac-Signature: hmac-sha256-hex=…`, a hexadecimal HMAC-SHA256 of
//! the body. The key is the webhook's secret in Unicode normal form NFKD, as in
//! EasyPost's client libraries.

use std::time::Duration;

use unicode_normalization::UnicodeNormalization;

use super::{
    Described, Encoding, HashName, Headers, Provider, Request, Secret, Unverified, Verified, describe,
    facts::{Facts, IdPart, Payload, Reads, Resolution, Signed},
    rule::{Example, Kind, Line, Rule},
    signature::{self, Key},
    tables,
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct EasyPost;

const SIGNATURE: &str = "x-hmac-signature";
const PREFIX: &str = "hmac-sha256-hex=";

fn key(secret: &Secret) -> Option<Key> {
    secret.text().map_or_else(|| Key::of(secret), |text| Key::new(text.nfkd().collect::<String>()))
}

const LINES: &[Line] = &[Line { families: &[], places: &["/result/id", "/result/tracking_code"], kind: Kind::Family }];

pub(super) const RULE: Rule = Rule {
    lines: LINES,
    examples: &[
        Example::new(
            r#"{"object":"Event","id":"evt_1","description":"tracker.created","result":{"id":"trk_7","object":"Tracker","tracking_code":"9400","shipment_id":"shp_1"}}"#,
            "tracker/trk_7",
        ),
        Example::new(
            r#"{"object":"Event","id":"evt_2","description":"tracker.updated","result":{"id":"trk_7","object":"Tracker","tracking_code":"9400","shipment_id":"shp_1"}}"#,
            "tracker/trk_7",
        ),
        Example::new(
            r#"{"object":"Event","id":"evt_3","description":"tracker.updated","result":{"id":"trk_8","object":"Tracker","tracking_code":"9401","shipment_id":"shp_1"}}"#,
            "tracker/trk_8",
        ),
        Example::new(
            r#"{"object":"Event","id":"evt_4","description":"insurance.purchased","result":{"id":"ins_7","object":"Insurance","reference":"7","tracking_code":"9400"}}"#,
            "insurance/ins_7",
        ),
        Example::new(
            r#"{"object":"Event","id":"evt_5","description":"batch.updated","result":{"id":"batch_7","object":"Batch","reference":"7","state":"purchased"}}"#,
            "batch/batch_7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::At(&["/id"])],
    topic: &["/description"],
    between_words: describe::BETWEEN_WORDS,
    account: &["/user_id"],
    event_time: &["/result/updated_at", "/created_at"],
    horizon: None,
};

const FACTS: Facts = Facts {
    secret: "the `webhook_secret` that you chose when the webhook was created or updated",
    signature: "`X-Hmac-Signature: hmac-sha256-hex=…`: hexadecimal HMAC-SHA256 of the body, under the secret in \
                Unicode normal form NFKD",
    signed: Signed::BODY,
    payload: Payload::Snapshot,
    resolution: Some(Resolution::Seconds),
    deadline: Some(Duration::from_secs(7)),
    retries: Some(6),
    switches_off: "repeated failures. The webhook's *update* enables it again",
    checks: "none",
    care: "Deadline and retries are from secondary sources. Events do not name your order. An insurance has a \
           `reference` that you set, a tracker has none ([one order, several providers](one-order.md)).",
    sources: &[
        "https://docs.easypost.com/docs/webhooks",
        "https://docs.easypost.com/guides/webhooks-guide",
        "https://github.com/EasyPost/easypost-python/blob/master/easypost/util.py",
    ],
};

impl Provider for EasyPost {
    fn objection(&self, secret: &Secret) -> Option<&'static str> {
        key(secret).is_none().then_some(signature::EMPTY)
    }

    fn verify(&self, request: Request<'_>, secrets: &[Secret], _now: Timestamp) -> Result<Verified, Unverified> {
        let value = request.headers.required(SIGNATURE)?;
        let claimed = value.trim().strip_prefix(PREFIX).and_then(|text| Encoding::Hex.decode(text));
        let claimed = claimed.ok_or_else(|| Unverified::malformed(SIGNATURE))?;
        signature::check(HashName::Sha256, secrets.iter().filter_map(key), &[request.body], &[claimed])?;
        Ok(Verified::Delivery)
    }

    fn describe(&self, request: Request<'_>) -> Described {
        tables::describe(&READS, LINES, request)
    }

    fn sign(&self, _headers: &Headers, body: &[u8], secret: &Secret, _now: Timestamp) -> Vec<(String, String)> {
        let Some(key) = key(secret) else { return Vec::new() };
        let mac = HashName::Sha256.hmac(&key, &[body]);
        vec![(SIGNATURE.to_owned(), format!("{PREFIX}{}", Encoding::Hex.encode(&mac)))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::tests;

    /// The event is from the tests of EasyPost's client libraries (easypost-python, `tests/conftest.py`).
    const BODY: &str = concat!(
        r#"{"result":{"id":"batch_123...","object":"Batch","mode":"test","state":"created","num_shipments":0,"#,
        r#""reference":null,"created_at":"2022-07-26T17:22:32Z","updated_at":"2022-07-26T17:22:32Z","#,
        r#""scan_form":null,"shipments":[],"status":{"created":0,"queued_for_purchase":0,"creation_failed":0,"#,
        r#""postage_purchased":0,"postage_purchase_failed":0},"pickup":null,"label_url":null},"#,
        r#""description":"batch.created","mode":"test","previous_attributes":null,"completed_urls":null,"#,
        r#""user_id":"user_123...","status":"pending","object":"Event","id":"evt_123..."}"#,
    );
    const GOOD: &str = "hmac-sha256-hex=e93977c8ccb20363d51a62b3fe1fc402b7829be1152da9e88cf9e8d07115a46b";

    fn verify(secret: &str) -> Result<Verified, Unverified> {
        tests::verify(&EasyPost, &[("X-Hmac-Signature", GOOD)], BODY.as_bytes(), &[secret], 0)
    }

    #[test]
    fn published_batch_event_has_the_batch_as_entity() {
        let described = tests::describe(&EasyPost, &[], BODY);
        assert_eq!((described.topic.as_str(), described.delivery_id.as_str()), ("batch.created", "evt_123..."));
        assert_eq!(described.entity.as_deref(), Some("batch/batch_123..."));
    }

    #[test]
    fn secret_is_normalized_by_nfkd() {
        for secret in ["s\u{e9}cret", "se\u{301}cret", "s\u{e9}cre\u{ff54}"] {
            assert_eq!(verify(secret), Ok(Verified::Delivery), "{secret:?}");
        }
        for secret in ["secret", "se\u{300}cret"] {
            assert_eq!(verify(secret), Err(Unverified::Mismatch), "{secret:?}");
        }
    }
}
