//! What the providers' descriptions have in common: topics, their families,
//! and the first of several places that holds something.

use std::borrow::Cow;

use super::{
    Described, Request, event_time,
    facts::{IdPart, Reads},
    json::pointer,
    rule::{self, Line},
};
use crate::protocol::entity::DeliveryId;

/// What stands for a topic that the sender does not name.
const UNKNOWN: &str = "unknown";

/// The topic as the sender says it, fit to be kept: the header that most
/// senders put it in is not signed, so its length is nothing to rely on.
pub(super) fn topic(said: Option<&str>) -> String {
    let topic: String = said.unwrap_or_default().trim().chars().filter(|c| !c.is_control()).take(128).collect();
    if topic.is_empty() { UNKNOWN.to_owned() } else { topic }
}

/// What stands between the words of most providers' topics.
pub(super) const BETWEEN_WORDS: &[char] = &['/', '.', ':'];

/// The topic without its last word: `orders` of `orders/create`, `charge` of
/// `charge.refunded`, `charge.dispute` of `charge.dispute.created`. A topic of
/// one word is its own family.
pub(super) fn family(topic: &str) -> &str {
    family_by(topic, BETWEEN_WORDS)
}

fn family_by<'a>(topic: &'a str, between: &[char]) -> &'a str {
    match topic.rsplit_once(between) {
        Some((family, _)) if !family.is_empty() => family,
        _ => topic,
    }
}

/// Whether the sender said what kind of thing an event of `family` is about.
pub(super) fn is_known(family: &str) -> bool {
    family != UNKNOWN
}

/// The first value among `pointers` that is there and not empty.
pub(super) fn first(body: &[u8], pointers: &[&str]) -> Option<String> {
    pointers.iter().find_map(|at| pointer(body, at).filter(|value| !value.is_empty())).map(String::from)
}

/// The first value among `places`, headers or JSON pointers, that is there and
/// not empty.
pub(super) fn found<'a>(request: Request<'a>, places: &[&str]) -> Option<Cow<'a, str>> {
    let value = |place: &&str| match place.starts_with('/') {
        true => pointer(request.body, place),
        false => request.headers.get(place).map(|value| value.trim().into()),
    };
    places.iter().filter_map(value).find(|value| !value.is_empty())
}

/// What a request is about, by a provider's tables.
pub(super) fn by(reads: &Reads, lines: &[Line], request: Request<'_>) -> Described {
    let topic = topic(found(request, reads.topic).as_deref());
    let family = family_by(&topic, reads.between_words).to_owned();
    let account = found(request, reads.account).map(|account| account.trim_end_matches('/').to_owned());
    let event_time =
        reads.event_time.iter().find_map(|place| found(request, &[place]).and_then(|time| event_time::parse(&time)));
    Described {
        delivery_id: delivery_id(reads.delivery_id, account.as_deref(), &topic, request),
        entity: rule::find(lines, &family, request.body).and_then(|found| found.entity()),
        topic,
        family,
        account,
        event_time,
    }
}

/// The parts of a delivery's id, with slashes between them. A value that is
/// not there is replaced by the hash of the body.
fn delivery_id(parts: &[IdPart], account: Option<&str>, topic: &str, request: Request<'_>) -> DeliveryId {
    let hash = || DeliveryId::from_body(request.body).to_string();
    let part = |part: &IdPart| match part {
        IdPart::Account => account.unwrap_or_default().to_owned(),
        IdPart::Topic => topic.to_owned(),
        IdPart::At(places) => found(request, places).map_or_else(hash, Cow::into_owned),
        IdPart::Maybe(places) => found(request, places).unwrap_or_default().into_owned(),
        IdPart::Body => hash(),
    };
    DeliveryId::new(parts.iter().map(part).collect::<Vec<_>>().join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_the_topic_without_its_last_word() {
        for (topic, expected) in [
            ("orders/create", "orders"),
            ("payment_intent.succeeded", "payment_intent"),
            ("charge.dispute.created", "charge.dispute"),
            ("order:updated", "order"),
            ("order", "order"),
            ("/create", "/create"),
        ] {
            assert_eq!(family(topic), expected);
        }
    }

    #[test]
    fn a_topic_is_short_printable_and_never_empty() {
        assert_eq!(topic(Some(" orders/create ")), "orders/create");
        assert_eq!(topic(Some("a\nb")), "ab");
        assert_eq!(topic(Some(&"é".repeat(200))), "é".repeat(128));
        for said in [None, Some(""), Some(" \t")] {
            assert_eq!(topic(said), "unknown");
        }
    }

    #[test]
    fn an_empty_value_is_passed_over() {
        let body = br#"{"order_id":"","payment_intent":null,"id":7}"#;
        assert_eq!(first(body, &["/order_id", "/payment_intent", "/id"]).as_deref(), Some("7"));
        assert_eq!(first(body, &["/order_id"]), None);
    }
}
