//! Describes a request by its provider's tables.

use std::borrow::Cow;

use super::{
    Described, Request, describe, event_time,
    facts::{IdPart, Reads},
    rule,
};
use crate::protocol::entity::DeliveryId;

pub(super) fn describe(reads: &Reads, request: Request<'_>) -> Described {
    describe_by(reads, |topic| describe::family_by(topic, reads.between_words), request)
}

/// Describes a request as the table `reads` says. The parameter `family` maps a topic to
/// its topic family.
pub(super) fn describe_by(
    reads: &Reads,
    family: impl for<'a> Fn(&'a str) -> &'a str,
    request: Request<'_>,
) -> Described {
    let topic = describe::topic(describe::found(request, reads.topic).as_deref());
    let family = family(&topic).to_owned();
    let account = describe::found(request, reads.account).map(|account| account.trim_end_matches('/').to_owned());
    let event_time = reads
        .event_time
        .iter()
        .find_map(|place| describe::found(request, &[place]).and_then(|time| event_time::parse(&time)));
    let (delivery_id, is_named_by_body) = delivery_id(reads.delivery_id, account.as_deref(), &topic, request);
    Described {
        delivery_id,
        repeated_within: is_named_by_body.then(|| reads.retried_for()),
        entity: rule::find(reads.lines, &family, request).and_then(|found| found.entity()),
        topic,
        family,
        account,
        event_time,
    }
}

/// Joins the parts of a delivery's id with slashes. The flag is true if the sender gave no id, so
/// that only the body distinguishes the delivery from others.
fn delivery_id(parts: &[IdPart], account: Option<&str>, topic: &str, request: Request<'_>) -> (DeliveryId, bool) {
    let hash = || DeliveryId::from_body(request.body).to_string();
    let mut has_own = false;
    let part = |part: &IdPart| match part {
        IdPart::Account => account.unwrap_or_default().to_owned(),
        IdPart::Topic => topic.to_owned(),
        IdPart::At(places) => {
            let own = describe::found_id(request, places);
            has_own |= own.is_some();
            own.map_or_else(hash, Cow::into_owned)
        }
        IdPart::Maybe(places) => describe::found(request, places).unwrap_or_default().into_owned(),
        IdPart::Body | IdPart::Request => hash(),
    };
    let id = parts.iter().map(part).collect::<Vec<_>>().join("/");
    (DeliveryId::new(id), !has_own)
}
