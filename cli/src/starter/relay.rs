//! The relay for a sender whose webhooks do not name the order: the receiver asks ShipStation for the shipments, and
//! posts an event for each to the source [`SOURCE`], which takes the order's key from it.

use std::fmt::Write;

use super::{
    StarterChoices, StarterFile, StarterHandler,
    document::{REPLACE, handler, sample_secret, shop},
    programs::template,
};

/// The source of the relayed events.
const SOURCE: &str = "parcels";

/// The provider of webhooks that are relayed. Its source has this name too.
const PROVIDER: &str = "shipstation-v1";

const MODULE: [(&str, &str); 2] = [template!("shipstation.mts"), template!("shipstation.py")];

const MARKS: [&str; 2] = [" // RELAY", " # RELAY"];

/// The answer of a stand-in for ShipStation.
const SHIPMENTS: &str = "shipments.json";

/// Returns whether the provider's webhooks are relayed. ShipStation has the order's number, which is the id in
/// WooCommerce alone.
pub(super) fn is_relayed(choices: &StarterChoices, provider: &str) -> bool {
    provider == PROVIDER && is_used(choices)
}

pub(super) fn is_used(choices: &StarterChoices) -> bool {
    choices.handler != StarterHandler::Log
        && choices.providers.iter().any(|provider| provider == PROVIDER)
        && shop(choices) == Some("woocommerce")
}

/// Returns the comment on the key of a source that is relayed.
pub(super) fn key_comment() -> String {
    format!("its own; its events name no order. The receiver posts an event for each shipment to [sources.{SOURCE}]")
}

/// Writes the source of the relayed events.
pub(super) fn source(choices: &StarterChoices, text: &mut String) {
    let secret = sample_secret("standard-webhooks").unwrap_or_default();
    let key = &choices.key;
    let _ = write!(
        text,
        r#"
[sources.{SOURCE}]
provider = "standard-webhooks"
# Secret: the receiver's PARCELS_SECRET: `whsec_` and 24 random bytes or more, in base64.
secrets = [{secret}] {REPLACE}
# Key: {key}/order/ID, with ShipStation's number of the order: WooCommerce's id, unless a plugin numbers the orders.
entity = "{key}/order/{{/data/orderNumber}}"
"#
    );
    handler(choices, text);
}

/// Returns a program without the lines that call the relay, or with them if it is used. [`MARKS`] end these lines.
pub(super) fn program(text: &str, choices: &StarterChoices) -> String {
    let is_used = is_used(choices);
    let line = |line: &str| {
        let call = MARKS.iter().find_map(|mark| line.strip_suffix(mark));
        (call.is_none() || is_used).then(|| format!("{}\n", call.unwrap_or(line)))
    };
    text.lines().filter_map(line).collect()
}

/// Returns the relay, and a page of ShipStation's shipments with a parcel of the order.
pub(super) fn files(choices: &StarterChoices, order_id: &str) -> Vec<StarterFile> {
    let (name, text) = choices.language.of(MODULE);
    let shipment =
        serde_json::json!({ "shipmentId": 33_974_374, "orderNumber": order_id, "trackingNumber": "782758401696" });
    let page = serde_json::json!({ "shipments": [shipment], "total": 1, "page": 1, "pages": 1 });
    vec![StarterFile::new(name, text), StarterFile::new(SHIPMENTS, format!("{page:#}\n"))]
}

/// Returns the variables that the relay reads, for a shell line.
pub(super) fn variables() -> String {
    let secret = sample_secret("standard-webhooks").unwrap_or_default();
    let secret = secret.trim_matches('"');
    format!("PARCELS_URL=http://127.0.0.1:9000/webhooks/{SOURCE} PARCELS_SECRET={secret} SHIPMENTS={SHIPMENTS} ")
}
