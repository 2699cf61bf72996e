//! EasyPost sends `X-Hmac-Signature: hmac-sha256-hex=…`, a hexadecimal HMAC-SHA256 of
//! the body. The key is the webhook's secret in Unicode normal form NFKD, as in
//! EasyPost's client libraries.

use std::{borrow::Cow, time::Duration};

use unicode_normalization::UnicodeNormalization;

use super::{
    Encoding, Secret, Signing,
    facts::{Facts, IdPart, Payload, Reads, Resolution, ShopOrder, SignedParts},
    preset::Preset,
    rule::{EntityKind, Example, Rule, RuleLine},
    signature::HmacKey,
};

pub(super) static EASYPOST: Preset = Preset { signing: SIGNING, reads: READS, key, ..Preset::PLAIN };

const SIGNING: Signing = Signing {
    header: Cow::Borrowed("X-Hmac-Signature"),
    encoding: Encoding::Hex,
    prefix: Cow::Borrowed("hmac-sha256-hex="),
    ..Signing::BODY
};

fn key(secret: &Secret) -> Option<HmacKey> {
    secret.text().map_or_else(|| HmacKey::of(secret), |text| HmacKey::new(text.nfkd().collect::<String>()))
}

const LINES: &[RuleLine] =
    &[RuleLine { families: &[], places: &["/result/id", "/result/tracking_code"], kind: EntityKind::Family }];

pub(super) const RULE: Rule = Rule {
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
    account: &["/user_id"],
    event_time: &["/result/updated_at", "/created_at"],
    lines: LINES,
    shop_order: ShopOrder::Copied { to: "`reference` of an insurance", fields: &["insurance.*:/result/reference"] },
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "the `webhook_secret` that you chose when the webhook was created or updated",
    signing: Some(&SIGNING),
    signature: ", under the secret in Unicode normal form NFKD",
    signed: SignedParts::BODY,
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::tests;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow::of("easypost", &SIGNING)]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("easypost-insurance-purchased.json", "evt_3a9c5d6e0f1b4a7c8d2e9f4061b7c5a3", "insurance.purchased", "insurance", Some("user_00000000000000000000000000000001"), Some(1_767_701_647_000), "insurance/ins_5f0c7a1e92d84b06a3e1c94d7b28f650"),
        ("easypost-tracker-created.json", "evt_1b8b041229e4d5e67d2341a71f948000", "tracker.created", "tracker", Some("user_00000000000000000000000000000001"), Some(1_767_701_600_000), "tracker/trk_691bd7ce02d8c0edbc035ad0bf156947"),
        ("easypost-tracker-updated.json", "evt_71b1a976e0c1cfbee6ce055f4d94da91", "tracker.updated", "tracker", Some("user_00000000000000000000000000000001"), Some(1_767_880_830_000), "tracker/trk_691bd7ce02d8c0edbc035ad0bf156947"),
    ];

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
        tests::verify(&EASYPOST, &[("X-Hmac-Signature", GOOD)], BODY.as_bytes(), &[secret], 0)
    }

    #[test]
    fn published_batch_event_has_the_batch_as_entity() {
        let described = tests::describe(&EASYPOST, &[], BODY);
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
