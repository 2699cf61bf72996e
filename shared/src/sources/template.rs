//! Entity key templates: text with fields in braces.

use std::borrow::Cow;

use super::topics;
use crate::protocol::entity::{EntityKey, InvalidEntityKey, JOBS, SourceName};

/// A parsed template, such as `order/{/metadata/order_id}`.
///
/// Fields: `source`, `provider`, `topic`, `account` (the shop, store or account
/// that the provider names), `entity` (the provider's own rule), a JSON pointer
/// into the body (`/id`), a header (`header:x-order-id`); and each of them for
/// some topics only, behind a pattern of those (`refunds/*:/order_id`). One
/// without fields is the key of the one entity that all deliveries are of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field {
        name: String,
        /// Of which topics it has a value; `None`: of all.
        topics: Option<String>,
    },
}

/// Why a text is no template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A brace without its other half.
    #[error("a brace is not closed, or closed without being opened")]
    Brace,
    /// A field that does not exist.
    #[error(
        "there is no field {{{0}}}; there are {{source}}, {{provider}}, {{topic}}, {{account}}, {{entity}}, JSON pointers such as {{/id}}, and {{header:name}}; each may stand behind topics that it is for, as in {{refunds/*:/order_id}}"
    )]
    Field(String),
    /// It has no field that differs from event to event, and is no key either.
    #[error("no field in it differs from event to event, so it must be an entity key as it stands: {0}")]
    Constant(#[from] InvalidEntityKey),
    /// Its deliveries would be jobs'.
    #[error("it begins with `cron/`, which is reserved: entities under it are jobs")]
    Reserved,
}

impl Piece {
    /// What stands between two braces; `None`: there is no such field.
    fn field(text: &str) -> Option<Self> {
        let all = |name: String| Some(Self::Field { name, topics: None });
        if matches!(text, "source" | "provider" | "topic" | "account" | "entity")
            || (text.starts_with('/') && text.len() > 1)
        {
            return all(text.to_owned());
        }
        match text.split_once(':')? {
            ("header", "") | ("", _) => None,
            ("header", name) => all(format!("header:{}", name.to_ascii_lowercase())),
            (topics, field) => match Self::field(field)? {
                Self::Field { name, topics: None } => Some(Self::Field { name, topics: Some(topics.to_owned()) }),
                _ => None,
            },
        }
    }
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
            let piece = Piece::field(field).ok_or_else(|| {
                if field.contains('{') { InvalidTemplate::Brace } else { InvalidTemplate::Field(field.to_owned()) }
            })?;
            pieces.push(piece);
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
        self.fill("", |field| match field {
            "source" => Some(source.as_str().into()),
            "provider" => Some(provider.into()),
            _ => None,
        })
    }

    /// Whether every delivery has a value for each field.
    pub fn always_has_a_value(&self) -> bool {
        self.0.iter().all(|piece| match piece {
            Piece::Text(_) => true,
            Piece::Field { name, topics } => {
                matches!(name.as_str(), "source" | "provider" | "topic")
                    && topics.as_deref().is_none_or(|topics| topics.bytes().all(|byte| byte == b'*'))
            }
        })
    }

    /// The text with each field's value in place; `None` when one has none or
    /// an empty one, or is not for `topic`.
    pub fn fill<'a>(&self, topic: &str, value: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(piece) => text.push_str(piece),
                Piece::Field { topics: Some(topics), .. } if !topics::fits(topics, topic) => return None,
                Piece::Field { name, .. } => text.push_str(&value(name).filter(|value| !value.is_empty())?),
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
            Piece::Field { name, topics: None } => write!(f, "{{{name}}}"),
            Piece::Field { name, topics: Some(topics) } => write!(f, "{{{topics}:{name}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_fields_are_filled_in_place() {
        let template = Template::parse("order/{/a/b}-{header:X-Shop}!").unwrap();
        let filled = template.fill("a topic", |field| Some(format!("<{field}>").into()));
        assert_eq!(filled.as_deref(), Some("order/</a/b>-<header:x-shop>!"));
        assert_eq!(template.to_string(), "order/{/a/b}-{header:x-shop}!");
    }

    #[test]
    fn field_without_value_yields_no_key() {
        let template = Template::parse("order/{/id}").unwrap();
        assert_eq!(template.fill("a topic", |_| None), None);
        assert_eq!(template.fill("a topic", |_| Some("".into())), None);
    }

    #[test]
    fn template_without_fields_is_constant() {
        let template = Template::parse("chat/notifications").unwrap();
        assert_eq!(template.fill("a topic", |_| None).as_deref(), Some("chat/notifications"));
    }

    #[test]
    fn field_with_topics_applies_only_to_them() {
        let filled = |text: &str, topic: &str| {
            let template = Template::parse(text).unwrap();
            template.fill(topic, |field| Some(format!("<{field}>").into()))
        };
        let by_topic = "order/{orders/*:/id}";
        assert_eq!(filled(by_topic, "orders/create").as_deref(), Some("order/</id>"));
        assert_eq!(filled(by_topic, "refunds/create"), None);
        assert_eq!(filled("{*:/a:b}", "x").as_deref(), Some("</a:b>"), "behind the first colon");
        assert_eq!(filled("{a.*:header:X-Order}", "a.b").as_deref(), Some("<header:x-order>"));
        assert_eq!(filled("{a.*:source}/{/id}", "b.b"), None, "one field is enough to say no");
        assert!(!Template::parse("{source}/{a.*:topic}").unwrap().always_has_a_value());
        assert!(Template::parse("{source}/{*:topic}").unwrap().always_has_a_value());
    }

    #[test]
    fn invalid_template_is_refused() {
        assert_eq!(Template::parse("order/{/id"), Err(InvalidTemplate::Brace));
        assert_eq!(Template::parse("order/}"), Err(InvalidTemplate::Brace));
        assert_eq!(Template::parse("order/{id}"), Err(InvalidTemplate::Field("id".into())));
        assert_eq!(Template::parse("order/{header:}"), Err(InvalidTemplate::Field("header:".into())));
        assert_eq!(Template::parse("order/{/}"), Err(InvalidTemplate::Field("/".into())));
        for field in [":/id", "orders/*:", "orders/*:id", "orders/*:header:", "a:b:/id", "header:"] {
            assert_eq!(Template::parse(&format!("order/{{{field}}}")), Err(InvalidTemplate::Field(field.into())));
        }
        for no_key in ["", "order", "order/", "order/\n"] {
            assert!(matches!(Template::parse(no_key), Err(InvalidTemplate::Constant(_))), "{no_key:?}");
        }
        assert_eq!(Template::parse("cron/report"), Err(InvalidTemplate::Reserved));
        assert_eq!(Template::parse("cron/{/id}"), Err(InvalidTemplate::Reserved));
        assert!(Template::parse("crontab/{/id}").is_ok());
    }
}
