//! Topics, topic families and lookups of values, shared by the providers.

use std::borrow::Cow;

use super::{Request, json::pointer};
use crate::protocol::entity::DeliveryId;

/// The topic of a delivery whose sender gave none.
const UNKNOWN: &str = "unknown";

/// The place of a field in a form, such as `form:id`.
pub(crate) const FORM: &str = "form";
/// The place of a parameter in the URL's query, such as `query:order_id`.
pub(crate) const QUERY: &str = "query";

/// Removes control characters from the topic that the sender gave, and cuts it to 128 characters.
/// Returns `unknown` if nothing is left. Most senders put the topic into a header that is not signed,
/// so a forger can choose it.
pub(super) fn topic(sent: Option<&str>) -> String {
    let topic: String = sent.unwrap_or_default().trim().chars().filter(|c| !c.is_control()).take(128).collect();
    if topic.is_empty() { UNKNOWN.to_owned() } else { topic }
}

pub(super) const BETWEEN_WORDS: &[char] = &['/', '.', ':'];

/// Returns the topic family: the topic without its last word. For example, `orders/create` has the
/// family `orders`, and `charge.dispute.created` has `charge.dispute`. A topic of one word is its own
/// family.
pub(super) fn family(topic: &str) -> &str {
    family_by(topic, BETWEEN_WORDS)
}

pub(super) fn family_by<'a>(topic: &'a str, between: &[char]) -> &'a str {
    match topic.rsplit_once(between) {
        Some((family, _)) if !family.is_empty() => family,
        _ => topic,
    }
}

/// Returns whether the sender gave the topic whose text or family is `named`.
pub fn is_known(named: &str) -> bool {
    named != UNKNOWN
}

/// Returns the first value at `places` that can be an id.
pub(super) fn first(request: Request<'_>, places: &[&str]) -> Option<String> {
    places.iter().find_map(|place| value(request, place).filter(|value| can_name(value))).map(String::from)
}

/// Returns whether `value` can be an id: it is neither blank nor a boolean.
fn can_name(value: &str) -> bool {
    !matches!(value.trim(), "" | "true" | "false")
}

/// Returns whether `value` can be a delivery's id. Senders that have no id give such values as `0` or `null` to all of
/// their deliveries, and all but the first would be repeats.
fn can_name_delivery(value: &str) -> bool {
    let is_nothing =
        ["null", "undefined", "none", "nil", "-1"].iter().any(|word| value.trim().eq_ignore_ascii_case(word));
    can_name(value) && !is_nothing && value.chars().any(|c| !c.is_control() && !" 0-".contains(c))
}

/// Returns the first non-empty value at `places`. A place that begins with a slash is a JSON pointer into the body, and
/// one in braces a [`parameter`]; any other is the name of a header in lower case.
pub(super) fn found<'a>(request: Request<'a>, places: &[impl AsRef<str>]) -> Option<Cow<'a, str>> {
    places.iter().find_map(|place| value(request, place.as_ref()))
}

/// Returns a delivery's id like [`found`], without values that name no delivery.
///
/// If the header came with several different values, adds the body's hash to the first one: the comma may also be part
/// of the id, and then another id may begin with the same text.
pub(super) fn found_id<'a>(request: Request<'a>, places: &[impl AsRef<str>]) -> Option<Cow<'a, str>> {
    let id = |place: &str| {
        let first = value(request, place).filter(|value| can_name_delivery(value))?;
        let all = request.headers.get(place).unwrap_or(&first);
        let is_one = all.split(',').all(|other| other.trim() == first || other.trim().is_empty());
        Some(if is_one { first } else { format!("{first}/{}", DeliveryId::from_body(request.body)).into() })
    };
    places.iter().find_map(|place| id(place.as_ref()))
}

fn value<'a>(request: Request<'a>, place: &str) -> Option<Cow<'a, str>> {
    let value = match place.as_bytes().first()? {
        b'/' => pointer(request.body, place),
        b'{' => parameter(request, place.strip_prefix('{')?.strip_suffix('}')?),
        _ => request.headers.first(place).map(Cow::Borrowed),
    };
    value.filter(|value| !value.is_empty())
}

/// Returns the parameter `place` of a request: `form:NAME` of a body that is a form, or `query:NAME` of the URL. If the
/// name occurs several times, the first one counts. A value that is not UTF-8 counts as missing.
pub(crate) fn parameter<'a>(request: Request<'a>, place: &str) -> Option<Cow<'a, str>> {
    let (kind, name) = place.split_once(':')?;
    let text = match kind {
        FORM => request.body,
        QUERY => request.headers.query().as_bytes(),
        _ => return None,
    };
    let (_, value) = form_urlencoded::parse(text).find(|(held, _)| held == name)?;
    Some(value).filter(|value| !value.contains(char::REPLACEMENT_CHARACTER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Headers;

    #[test]
    fn topic_family_is_topic_without_last_word() {
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
    fn topic_is_truncated_printable_and_never_empty() {
        assert_eq!(topic(Some(" orders/create ")), "orders/create");
        assert_eq!(topic(Some("a\nb")), "ab");
        assert_eq!(topic(Some(&"é".repeat(200))), "é".repeat(128));
        for said in [None, Some(""), Some(" \t")] {
            assert_eq!(topic(said), "unknown");
        }
    }

    #[test]
    fn empty_or_null_json_value_is_skipped() {
        let first = |body: &[u8], places: &[&str]| first(Request { headers: &Headers::default(), body }, places);
        let body = br#"{"order_id":"","payment_intent":null,"id":7}"#;
        assert_eq!(first(body, &["/order_id", "/payment_intent", "/id"]).as_deref(), Some("7"));
        assert_eq!(first(body, &["/order_id"]), None);
        let body = br#"{"a":false,"b":" ","c":"true","id":0}"#;
        assert_eq!(first(body, &["/a", "/b", "/c", "/id"]).as_deref(), Some("0"));
    }

    #[test]
    fn parameter_is_read_from_form_and_query() {
        let headers = Headers::default().with_query("order_id=7&order_id=8&note=a%20b+c");
        let request = Request { headers: &headers, body: b"id=tr_7&note=%C3%A9&bad=%ff&empty=" };
        let read = |place: &str| found(request, &[place]).map(Cow::into_owned);
        assert_eq!(read("{form:id}").as_deref(), Some("tr_7"));
        assert_eq!(read("{form:note}").as_deref(), Some("\u{e9}"));
        assert_eq!(read("{query:order_id}").as_deref(), Some("7"), "the first one counts");
        assert_eq!(read("{query:note}").as_deref(), Some("a b c"));
        for missing in ["{form:order_id}", "{query:id}", "{form:bad}", "{form:empty}", "{cookie:id}", "{form:id"] {
            assert_eq!(read(missing), None, "{missing}");
        }
    }

    #[test]
    fn value_without_meaning_names_no_delivery() {
        for id in
            ["", " ", "\t", "\u{0}", "true", "false", "0", "000", "0-0", "-1", "null", "NULL", "undefined", "none"]
        {
            assert!(!can_name_delivery(id), "{id:?}");
        }
        for id in ["1", "10", "a", "-2", "nullable", "00000000-0000-0000-0000-000000000001"] {
            assert!(can_name_delivery(id), "{id:?}");
        }
    }
}
