//! A provider's own rule for the entity of an event, as a table: it is what
//! finds the entity, and what the documentation and `serializer check` show.

use super::{
    describe,
    facts::{Facts, Reads},
};

/// Where the id of an event's entity stands.
///
/// The lines of a rule are tried from the first to the last. The first one
/// that is for the event's family, and one of whose places holds something,
/// names the entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The families whose events it is for; none: it is for all.
    pub families: &'static [&'static str],
    /// JSON pointers to the id, tried in turn.
    pub places: &'static [&'static str],
    /// What stands in front of the id.
    pub kind: Kind,
}

/// What an entity is, in front of its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// This word.
    Named(&'static str),
    /// The event's family.
    Family,
    /// What this JSON pointer holds. Where that is nothing, the line does not
    /// count.
    At(&'static str),
    /// This word, for an id that stands inside a URL: behind the first of
    /// `marks` that is there, up to the next `/`, `?`, `&` or `#`. Where none
    /// is there, the line does not count.
    Inside {
        /// What the entity is.
        word: &'static str,
        /// What stands in front of its id, such as `/receipts/`.
        marks: &'static [&'static str],
    },
}

/// An event reduced to the fields that tell what it is about, with the entity
/// that the provider's own rule finds in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Example {
    /// Its headers.
    pub headers: &'static [(&'static str, &'static str)],
    /// Its body.
    pub body: &'static str,
    /// Its entity, without the source in front.
    pub entity: &'static str,
}

/// A provider's rule, for those who explain it.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The rule.
    pub lines: &'static [Line],
    /// Events of which several are about one thing, and others about another
    /// thing of the same number. Empty where senders differ too much.
    pub examples: &'static [Example],
    /// Where the rest of what an event says stands.
    pub reads: Reads,
    /// How the provider signs, sends and repeats.
    pub facts: Facts,
}

/// What a rule found.
pub(super) struct Found {
    /// What the entity is; `None`: nobody said what kind of thing it is.
    pub(super) kind: Option<String>,
    /// Its id, never empty.
    pub(super) id: String,
}

impl Found {
    /// The entity.
    pub(super) fn entity(&self) -> Option<String> {
        Some(format!("{}/{}", self.kind.as_deref()?, self.id))
    }
}

/// What the first fitting line of `lines` finds in an event of `family`.
pub(super) fn find(lines: &[Line], family: &str, body: &[u8]) -> Option<Found> {
    let is_for = |line: &&Line| line.families.is_empty() || line.families.contains(&family);
    lines.iter().filter(is_for).find_map(|line| {
        let id = describe::first(body, line.places)?;
        let (kind, id) = match line.kind {
            Kind::Named(kind) => (Some(kind.to_owned()), id),
            Kind::Family => (describe::is_known(family).then(|| family.to_owned()), id),
            Kind::At(place) => (Some(describe::first(body, &[place])?), id),
            Kind::Inside { word, marks } => (Some(word.to_owned()), inside(&id, marks)?.to_owned()),
        };
        Some(Found { kind, id })
    })
}

/// What stands in `url` behind the first of `marks` that is there.
fn inside<'a>(url: &'a str, marks: &[&str]) -> Option<&'a str> {
    let (_, behind) = marks.iter().find_map(|mark| url.split_once(mark))?;
    behind.split(['/', '?', '&', '#']).next().filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &[Line] = &[
        Line { families: &["refunds", "returns"], places: &["/order_id", "/order/id"], kind: Kind::Named("order") },
        Line { families: &[], places: &["/object/id"], kind: Kind::At("/object/kind") },
        Line { families: &[], places: &["/id"], kind: Kind::Family },
    ];

    fn entity(family: &str, body: &str) -> Option<String> {
        find(LINES, family, body.as_bytes())?.entity()
    }

    #[test]
    fn the_first_line_that_is_for_the_family_and_holds_something_names_the_entity() {
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
    fn an_id_inside_a_url_ends_where_its_part_of_the_url_does() {
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
    fn an_id_of_an_event_without_a_topic_is_no_entity() {
        let topic = describe::topic(None);
        let found = find(LINES, describe::family(&topic), br#"{"id":1}"#).unwrap();
        assert_eq!((found.entity(), found.id.as_str()), (None, "1"));
    }
}
