//! ShipStation's V1 API does not sign its requests. A request is accepted if its URL holds the
//! source's secret, `?token=…`. Register that URL with ShipStation and keep it confidential.
//!
//! The payload is a URL that returns the orders or shipments of one import or one batch of
//! labels. So the entity is that import or batch.

use super::{
    Described, Provider, Request, Secret, Unverified, Verified,
    facts::{Facts, IdPart, Payload, Reads, Signed},
    rule::{Example, Kind, Line, Rule},
    tables, token,
};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct ShipStationV1;

const LINES: &[Line] = &[Line {
    families: &[],
    places: &["/resource_url"],
    kind: Kind::Inside { word: "batch", marks: &["importBatch=", "batchId="] },
}];

pub(super) const RULE: Rule = Rule {
    lines: LINES,
    examples: &[
        Example::new(
            r#"{"resource_url":"https://ssapi.shipstation.com/shipments?storeID=1&batchId=7&includeShipmentItems=False","resource_type":"SHIP_NOTIFY"}"#,
            "batch/7",
        ),
        Example::new(
            r#"{"resource_url":"https://ssapi.shipstation.com/shipments?storeID=1&batchId=7&includeShipmentItems=True","resource_type":"ITEM_SHIP_NOTIFY"}"#,
            "batch/7",
        ),
        Example::new(
            r#"{"resource_url":"https://ssapi.shipstation.com/orders?storeID=1&importBatch=8","resource_type":"ORDER_NOTIFY"}"#,
            "batch/8",
        ),
    ],
    reads: READS,
    facts: FACTS,
};

const READS: Reads = Reads {
    delivery_id: &[IdPart::Topic, IdPart::At(&["/resource_url"])],
    topic: &["/resource_type"],
    between_words: &['_'],
    account: &[],
    event_time: &[],
    horizon: None,
};

const FACTS: Facts = Facts {
    secret: "a token of your own in the URL, `…/webhooks/NAME?token=…`",
    signature: "none; the token in the URL",
    signed: Signed { body: false, ..Signed::BODY },
    payload: Payload::Reference,
    resolution: None,
    deadline: None,
    retries: None,
    switches_off: "not documented",
    checks: "none",
    care: "Anybody who learns the URL can send anything: keep it out of logs and tickets. The payload names a URL. \
           Fetch it from ShipStation's own host only, with your own credentials. One webhook covers all orders of an \
           import, or a batch of labels. For new integrations, use V2, which signs.",
    sources: &[
        "https://docs.shipstation.com/apis/shipstation-v1/docs/models/webhook",
        "https://help.shipstation.com/hc/en-us/articles/360025856252-ShipStation-Webhooks",
    ],
};

impl Provider for ShipStationV1 {
    fn verify(&self, request: Request<'_>, secrets: &[Secret], _now: Timestamp) -> Result<Verified, Unverified> {
        token::check(request.headers, secrets).map(|()| Verified::Delivery)
    }

    fn describe(&self, request: Request<'_>) -> Described {
        tables::describe(&READS, LINES, request)
    }

    fn query(&self, secret: &Secret) -> Option<String> {
        token::query(secret)
    }
}
