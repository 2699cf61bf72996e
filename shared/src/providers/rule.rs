//! Tables that say where a provider's events name their entity. The documentation shows them too.

use super::{
    Request, describe,
    facts::{Facts, Reads},
    json::pointer,
};

/// One line of a provider's rule: where events of some topic families hold the entity's id.
///
/// The lines of a rule are tried in order. The first line that applies to the event's topic family
/// and finds a non-empty value names the entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleLine {
    /// The topic families that the line applies to. An empty list means all topic families.
    pub families: &'static [&'static str],
    pub places: &'static [&'static str],
    pub kind: EntityKind,
}

/// The kind of an entity, which precedes its id in the entity key: `order` in `order/450789469`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityKind {
    Named(&'static str),
    Family,
    /// The kind is the value at this JSON pointer. If the value is empty, the line does not
    /// apply.
    At(&'static str),
    /// The kind is a fixed word, and the id is a path segment or parameter of a URL. The id begins after
    /// a marker and ends before the next `/`, `?`, `&` or `#`. A URL without a marker names no entity.
    Inside {
        word: &'static str,
        /// The markers that may precede the id, such as `/receipts/`. Of those that the URL contains, the first in
        /// this list counts. Of several URLs, the first one with a marker counts.
        marks: &'static [&'static str],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    pub header: Option<(&'static str, &'static str)>,
    pub body: &'static str,
    /// The entity key without the source's prefix.
    pub entity: &'static str,
}

impl Example {
    pub(super) const fn new(body: &'static str, entity: &'static str) -> Self {
        Self { header: None, body, entity }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Example events. Several have the same entity, and some an entity of another kind with the same
    /// number. The list is empty for providers whose senders differ too much.
    pub examples: &'static [Example],
    pub reads: Reads,
    pub facts: Facts,
}

pub(super) struct FoundEntity {
    pub(super) kind: Option<String>,
    pub(super) id: String,
}

impl FoundEntity {
    pub(super) fn entity(&self) -> Option<String> {
        Some(format!("{}/{}", self.kind.as_deref()?, self.id))
    }
}

pub(super) fn find(lines: &[RuleLine], family: &str, request: Request<'_>) -> Option<FoundEntity> {
    let is_for = |line: &&RuleLine| line.families.is_empty() || line.families.contains(&family);
    lines.iter().filter(is_for).find_map(|line| {
        let id = || describe::first(request, line.places);
        let (kind, id) = match line.kind {
            EntityKind::Named(kind) => (Some(kind.to_owned()), id()?),
            EntityKind::Family => (describe::is_known(family).then(|| family.to_owned()), id()?),
            EntityKind::At(place) => (Some(describe::first(request, &[place])?), id()?),
            EntityKind::Inside { word, marks } => {
                let id = |place: &&str| Some(inside(&pointer(request.body, place)?, marks)?.to_owned());
                (Some(word.to_owned()), line.places.iter().find_map(id)?)
            }
        };
        Some(FoundEntity { kind, id })
    })
}

fn inside<'a>(url: &'a str, marks: &[&str]) -> Option<&'a str> {
    let (_, behind) = marks.iter().find_map(|mark| url.split_once(mark))?;
    behind.split(['/', '?', '&', '#']).next().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::Headers;

    const LINES: &[RuleLine] = &[
        RuleLine {
            families: &["refunds", "returns"],
            places: &["/order_id", "/order/id"],
            kind: EntityKind::Named("order"),
        },
        RuleLine { families: &[], places: &["/object/id"], kind: EntityKind::At("/object/kind") },
        RuleLine { families: &[], places: &["/id"], kind: EntityKind::Family },
    ];

    fn entity(family: &str, body: &str) -> Option<String> {
        find(LINES, family, Request { headers: &Headers::default(), body: body.as_bytes() })?.entity()
    }

    #[test]
    fn first_entity_rule_line_with_value_names_the_entity() {
        for (family, body, expected) in [
            ("refunds", r#"{"id":1,"order_id":7}"#, "order/7"),
            ("returns", r#"{"id":1,"order_id":"","order":{"id":7}}"#, "order/7"),
            ("orders", r#"{"id":1,"order_id":7}"#, "orders/1"),
            ("refunds", r#"{"id":1,"object":{"kind":"pot","id":3}}"#, "pot/3"),
            ("refunds", r#"{"id":1,"object":{"id":3}}"#, "refunds/1"),
        ] {
            assert_eq!(entity(family, body).as_deref(), Some(expected), "{family} {body}");
        }
        assert_eq!(entity("refunds", "{}"), None);
    }

    #[test]
    fn id_in_url_ends_at_the_next_separator() {
        const MARKS: &[&str] = &["batch=", "/orders/"];
        for (url, expected) in [
            ("https://example.com/orders/7", Some("7")),
            ("https://example.com/orders/7/lines?batch=", None),
            ("https://example.com/orders/7?batch=b-1&x=2", Some("b-1")),
            ("https://example.com/orders/7#top", Some("7")),
            ("https://example.com/orders/", None),
            ("https://example.com/", None),
        ] {
            assert_eq!(inside(url, MARKS), expected, "{url}");
        }
    }

    #[test]
    fn event_without_topic_has_no_entity() {
        let topic = describe::topic(None);
        let request = Request { headers: &Headers::default(), body: br#"{"id":1}"# };
        let found = find(LINES, describe::family(&topic), request).unwrap();
        assert_eq!((found.entity(), found.id.as_str()), (None, "1"));
    }
}
