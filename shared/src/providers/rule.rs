//! A provider's own rule for the entity of an event, as a table: it is what
//! finds the entity, and what the documentation and `serializer check` show.

use super::describe;

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
        let kind = match line.kind {
            Kind::Named(kind) => Some(kind.to_owned()),
            Kind::Family => describe::is_known(family).then(|| family.to_owned()),
            Kind::At(place) => Some(describe::first(body, &[place])?),
        };
        Some(Found { kind, id })
    })
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
    fn an_id_of_an_event_without_a_topic_is_no_entity() {
        let topic = describe::topic(None);
        let found = find(LINES, describe::family(&topic), br#"{"id":1}"#).unwrap();
        assert_eq!((found.entity(), found.id.as_str()), (None, "1"));
    }
}
