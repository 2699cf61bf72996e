//! ShipStation version 2 (formerly ShipEngine) signs `timestamp.body` by RSA-SHA256, with a key of
//! ShipStation's published set.
//!
//! ShipStation uses the same keys for all accounts, and the signature names no recipient. So
//! an event of another account is accepted if somebody sends it here. Keep the endpoint's URL
//! confidential, and have the handler look up the objects that events name.

use super::{
    Address, Encoding, Keys, Proof, Provider, Published, Request, RsaKey, Secret, Unverified, event_time,
    facts::{Facts, IdPart, Payload, Reads, Resolution, SignedParts},
    json::{self},
    rule::{EntityKind, Example, Rule, RuleLine},
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct ShipStationV2;

const KEY: &str = "x-shipengine-rsa-sha256-key-id";
const SIGNATURE: &str = "x-shipengine-rsa-sha256-signature";
const TIME: &str = "x-shipengine-timestamp";

/// The maximum number of keys in ShipStation's key set (JWKS) that are searched. The set has one or
/// two.
const MOST_KEYS: usize = 16;

/// The locations of the entity's id in ShipStation's events. Most events hold only a URL that
/// returns their object.
const LINES: &[RuleLine] = &[
    RuleLine { families: &[], places: &["/data/shipment_id"], kind: EntityKind::Named("shipment") },
    RuleLine { families: &[], places: &["/data/label_id"], kind: EntityKind::Named("label") },
    RuleLine { families: &[], places: &["/data/tracking_number"], kind: EntityKind::Named("tracking") },
    RuleLine { families: &[], places: &["/data/batch_id", "/batch_id"], kind: EntityKind::Named("batch") },
    RuleLine { families: &[], places: &["/resource_url"], kind: EntityKind::Family },
];

pub(super) const RULE: Rule = Rule {
    examples: &[
        Example::new(
            r#"{"resource_type":"API_TRACK","data":{"tracking_number":"1Z932R800390810600","status_code":"DE"}}"#,
            "tracking/1Z932R800390810600",
        ),
        Example::new(
            r#"{"resource_type":"API_TRACK","data":{"tracking_number":"1Z932R800390810601","status_code":"IT"}}"#,
            "tracking/1Z932R800390810601",
        ),
        Example::new(
            r#"{"resource_type":"API_BATCH","resource_url":"https://api.shipstation.com/v2/batches/se-7","batch_id":"se-7"}"#,
            "batch/se-7",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

/// The locations of an event's fields in ShipStation's requests. ShipStation sends no delivery id, so
/// the body identifies a delivery. The signed time is the time of the attempt, so it cannot be the
/// time of the event.
const READS: Reads = Reads {
    delivery_id: &[IdPart::Body],
    topic: &["/resource_type"],
    event_time: &["/data/events/0/occurred_at"],
    lines: LINES,
    ..Reads::DEFAULT
};

const FACTS: Facts = Facts {
    secret: "none. The signature names no recipient",
    signing: None,
    signature: "`x-shipengine-rsa-sha256-signature`: base64 RSA-SHA256 of `x-shipengine-timestamp`, a dot and the \
                body, under the key of `api.shipengine.com/jwks` that `x-shipengine-rsa-sha256-key-id` names",
    signed: SignedParts { headers: &[TIME], time: true, ..SignedParts::BODY },
    payload: Payload::Depends,
    resolution: Some(Resolution::Seconds),
    deadline: None,
    retries: None,
    switches_off: "not documented",
    checks: "none",
    care: "ShipStation uses the same keys for all accounts. So another account's event looks like yours if somebody \
           sends it to your URL. Keep the URL confidential, and let the handler look up the objects that events \
           name. An event has no id, so its body's hash identifies it. Only tracking events have a time.",
    sources: &["https://docs.shipstation.com/apis/shipstation-v2/docs/guides/webhooks"],
};

fn address() -> Address {
    Address::new("api.shipengine.com", "/jwks", "jwks_file").expect("it is a plain path")
}

fn key(set: &[u8], id: &str) -> Option<RsaKey> {
    let text = |index: usize, field: &str| json::pointer(set, &format!("/keys/{index}/{field}"));
    let index = (0..MOST_KEYS).find(|index| text(*index, "kid").is_some_and(|kid| kid == id))?;
    let number = |field| Encoding::Base64.decode(&text(index, field)?);
    if text(index, "kty")? == "RSA" { Some(RsaKey::of_numbers(&number("n")?, &number("e")?)) } else { None }
}

impl Provider for ShipStationV2 {
    fn objection(&self, _secret: &Secret) -> Option<&'static str> {
        Some("ShipStation signs with its own key: leave `secrets` out")
    }

    fn reads(&self) -> Option<&Reads> {
        Some(&READS)
    }

    fn published(&self) -> Option<&dyn Published> {
        Some(self)
    }
}

impl Published for ShipStationV2 {
    fn recipient(&self) -> Option<&'static str> {
        None
    }

    fn verify(
        &self,
        request: Request<'_>,
        _recipients: &[String],
        keys: &dyn Keys,
        _now: Timestamp,
    ) -> Result<Proof, Unverified> {
        let header = |name| request.headers.required(name);
        let id = header(KEY)?;
        let time = header(TIME)?;
        let signature = header(SIGNATURE)?;
        let signed_at = event_time::parse(time).ok_or_else(|| Unverified::malformed(TIME))?;
        let signature = Encoding::Base64.read(SIGNATURE, signature)?;
        let at = address();
        let set = keys.find(&at).ok_or_else(|| Unverified::Unfetched(at.clone()))?;
        // The key may have been published since the set was fetched.
        let key = key(&set, id).ok_or(Unverified::Outdated(at))?;
        if !key.verifies(&[time.as_bytes(), b".", request.body].concat(), &signature) {
            return Err(Unverified::Mismatch);
        }
        Ok(Proof { signed_at: Some(signed_at), ..Proof::DELIVERY })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::providers::NoKeys;
    use crate::providers::tests::rows::*;

    pub fn rows() -> Vec<ProviderRow> {
        vec![ProviderRow {
            name: "shipstation-v2",
            header: Some("x-shipengine-rsa-sha256-signature".into()),
            signs_time: true,
            ..PUBLISHED
        }]
    }

    #[rustfmt::skip]
    pub const SAMPLES: &[Expected] = &[
        ("shipstation-v2-track.json", "sha256:YwKlQkoe5v57VKKV8SrwWdpqFqoaQOQdxnNqKBJail4", "API_TRACK", "API_TRACK", None, Some(1_767_777_120_000), "tracking/1Z999AA10123456784"),
    ];

    /// A key set with the key of RFC 7515, appendix A.2.
    const SET: &str = r#"{"keys":[
        {"kty":"EC","kid":"other","crv":"P-256","x":"AQ","y":"AQ"},
        {"kty":"RSA","kid":"of the RFC","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}
    ]}"#;

    #[test]
    fn unfetched_key_error_names_the_key_url() {
        let headers = [(KEY, "of the RFC"), (TIME, "2026-01-05T14:00:01Z"), (SIGNATURE, "AAAA")].into_iter().collect();
        let request = Request { headers: &headers, body: b"{}" };
        let verified = Published::verify(&ShipStationV2, request, &[], &NoKeys, Timestamp::from_secs(1_767_621_601));
        let wanted = "the sender's key at https://api.shipengine.com/jwks was not fetched";
        assert_eq!(verified.map_err(|reason| reason.to_string()), Err(wanted.to_owned()));
    }

    #[test]
    fn key_set_entry_is_found_by_id() {
        let found = key(SET.as_bytes(), "of the RFC").unwrap();
        let (modulus, exponent) = found.numbers();
        assert_eq!((&modulus[..2], modulus.len(), exponent), (&[0xa1, 0xf8][..], 256, &[1, 0, 1][..]));
        for (set, id) in [(SET, "other"), (SET, "none"), ("{}", "other"), ("", ""), (r#"{"keys":[{"kid":"a"}]}"#, "a")]
        {
            assert_eq!(key(set.as_bytes(), id), None, "{id}");
        }
    }
}
