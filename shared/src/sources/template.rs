//! Entity key templates: text with fields in braces.

use std::borrow::Cow;

use crate::protocol::entity::{EntityKey, InvalidEntityKey, JOBS, SourceName};

/// A parsed template, such as `order/{/metadata/order_id}`.
///
/// Fields: `source`, `provider`, `topic`, `account` (the shop, store or account
/// that the provider names), `entity` (the provider's own rule), a JSON pointer
/// into the body (`/id`), a header (`header:x-order-id`). One
/// without fields is the key of the one entity that all deliveries are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field(String),
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A brace without its other half.
    #[error("a brace is not closed, or closed without being opened")]
    Brace,
    /// A field that does not exist.
    #[error(
        "there is no field {{{0}}}; there are {{source}}, {{provider}}, {{topic}}, {{account}}, {{entity}}, JSON pointers such as {{/id}}, and {{header:name}}"
    )]
    Field(String),
    /// It has no field that differs from event to event, and is no key either.
    #[error("no field in it differs from event to event, so it must be an entity key as it stands: {0}")]
    Constant(#[from] InvalidEntityKey),
    /// Its deliveries would be jobs'.
    #[error("it begins with `cron/`, which is reserved: entities under it are jobs")]
    Reserved,
}

impl Template {
    /// Parses a template.
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            if at > 0 {
                pieces.push(Piece::Text(rest[..at].to_owned()));
            }
            let inside = rest[at..].strip_prefix('{').ok_or(InvalidTemplate::Brace)?;
            let (field, behind) = inside.split_once('}').ok_or(InvalidTemplate::Brace)?;
            let known = matches!(field, "source" | "provider" | "topic" | "account" | "entity")
                || (field.starts_with('/') && field.len() > 1)
                || field.strip_prefix("header:").is_some_and(|name| !name.is_empty());
            if !known {
                return Err(if field.contains('{') {
                    InvalidTemplate::Brace
                } else {
                    InvalidTemplate::Field(field.to_owned())
                });
            }
            pieces.push(Piece::Field(match field.strip_prefix("header:") {
                Some(name) => format!("header:{}", name.to_ascii_lowercase()),
                None => field.to_owned(),
            }));
            rest = behind;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        if matches!(pieces.first(), Some(Piece::Text(text)) if text.starts_with(JOBS)) {
            return Err(InvalidTemplate::Reserved);
        }
        if pieces.iter().all(|piece| matches!(piece, Piece::Text(_))) {
            EntityKey::parse(text)?;
        }
        Ok(Self(pieces))
    }

    /// The key of all deliveries, where no field differs from one to the next.
    pub fn constant(&self, source: &SourceName, provider: &str) -> Option<String> {
        self.fill(|field| match field {
            "source" => Some(source.as_str().into()),
            "provider" => Some(provider.into()),
            _ => None,
        })
    }

    /// Whether every delivery has a value for each field.
    pub fn always_has_a_value(&self) -> bool {
        let always = |field: &str| matches!(field, "source" | "provider" | "topic");
        self.0
            .iter()
            .all(|piece| matches!(piece, Piece::Text(_)) || matches!(piece, Piece::Field(field) if always(field)))
    }

    /// The text with each field's value in place; `None` when one has none or
    /// an empty one.
    pub fn fill<'a>(&self, value: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Field(field) => text.push_str(&value(field).filter(|value| !value.is_empty())?),
            }
        }
        Some(text)
    }
}

/// As it is written; a header's name in lower case.
impl std::fmt::Display for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Field(field) => write!(f, "{{{field}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_filled_in_place() {
        let template = Template::parse("order/{/a/b}-{header:X-Shop}!").unwrap();
        let filled = template.fill(|field| Some(format!("<{field}>").into()));
        assert_eq!(filled.as_deref(), Some("order/</a/b>-<header:x-shop>!"));
        assert_eq!(template.to_string(), "order/{/a/b}-{header:x-shop}!");
    }

    #[test]
    fn a_field_without_value_fills_nothing() {
        let template = Template::parse("order/{/id}").unwrap();
        assert_eq!(template.fill(|_| None), None);
        assert_eq!(template.fill(|_| Some("".into())), None);
    }

    #[test]
    fn a_template_without_fields_is_the_key_of_all_deliveries() {
        let template = Template::parse("chat/notifications").unwrap();
        assert_eq!(template.fill(|_| None).as_deref(), Some("chat/notifications"));
    }

    #[test]
    fn what_cannot_be_a_template_is_named() {
        assert_eq!(Template::parse("order/{/id"), Err(InvalidTemplate::Brace));
        assert_eq!(Template::parse("order/}"), Err(InvalidTemplate::Brace));
        assert_eq!(Template::parse("order/{id}"), Err(InvalidTemplate::Field("id".into())));
        assert_eq!(Template::parse("order/{header:}"), Err(InvalidTemplate::Field("header:".into())));
        assert_eq!(Template::parse("order/{/}"), Err(InvalidTemplate::Field("/".into())));
        for no_key in ["", "order", "order/", "order/\n"] {
            assert!(matches!(Template::parse(no_key), Err(InvalidTemplate::Constant(_))), "{no_key:?}");
        }
        assert_eq!(Template::parse("cron/report"), Err(InvalidTemplate::Reserved));
        assert_eq!(Template::parse("cron/{/id}"), Err(InvalidTemplate::Reserved));
        assert!(Template::parse("crontab/{/id}").is_ok());
    }
}
