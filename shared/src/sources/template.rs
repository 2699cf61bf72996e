//! Templates of entity keys: texts with fields in braces.

use std::borrow::Cow;

use super::topics;
use crate::{
    nearest,
    protocol::entity::{EntityKey, InvalidEntityKey, JOBS, SourceName},
    providers::{FORM, QUERY},
};

/// A template of entity keys, such as `order/{/metadata/order_id}`.
///
/// Its fields are `source`, `provider`, `topic`, `account` (the shop, store or account that
/// the provider names), `entity` (the entity by the provider's own rule), JSON pointers into
/// the body (`/id`), headers (`header:x-order-id`), fields of a form (`form:id`) and parameters of the URL
/// (`query:order`). A pattern in front of a field limits it
/// to some topics (`refunds/*:/order_id`). A template without fields is the key of one entity
/// for all deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<TemplateSegment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplateSegment {
    Text(String),
    Field {
        name: String,
        /// A pattern of the topics for which the field is used. `None` for all topics.
        topics: Option<String>,
    },
}

const HEADER: &str = "header";

const FIELDS: [&str; 5] = ["source", "provider", "topic", "account", "entity"];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    #[error("a brace is not closed, or closed without being opened")]
    Brace,
    #[error(
        "there is no field {{{0}}}{hint}; the fields are {{source}}, {{provider}}, {{topic}}, {{account}}, {{entity}}, JSON pointers such as {{/id}}, {{header:name}}, {{form:name}} and {{query:name}}; for some topics only, write {{refunds/*:/order_id}}",
        hint = nearest::hint(.0, FIELDS)
    )]
    Field(String),
    #[error("{{header:{}}}: this is not a valid name of a header", .0.escape_debug())]
    Header(String),
    #[error("its text around the fields cannot be in a key: {0}")]
    Text(InvalidEntityKey),
    #[error("the template has no field that differs between events, so it must be a valid key itself: {0}")]
    Constant(#[from] InvalidEntityKey),
    #[error("the key begins with `cron/`, which is reserved for jobs")]
    Reserved,
}

impl TemplateSegment {
    fn field(text: &str) -> Option<Self> {
        let all = |name: String| Some(Self::Field { name, topics: None });
        if FIELDS.contains(&text) || (text.starts_with('/') && text.len() > 1) {
            return all(text.to_owned());
        }
        match text.split_once(':')? {
            (HEADER | FORM | QUERY, "") | ("", _) => None,
            (HEADER, name) => all(format!("{HEADER}:{}", name.to_ascii_lowercase())),
            (FORM | QUERY, _) => all(text.to_owned()),
            (topics, field) => match Self::field(field)? {
                Self::Field { name, topics: None } => Some(Self::Field { name, topics: Some(topics.to_owned()) }),
                _ => None,
            },
        }
    }
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, InvalidTemplate> {
        let mut segments = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            if at > 0 {
                segments.push(TemplateSegment::Text(rest[..at].to_owned()));
            }
            let inside = rest[at..].strip_prefix('{').ok_or(InvalidTemplate::Brace)?;
            let (field, behind) = inside.split_once('}').ok_or(InvalidTemplate::Brace)?;
            let segment = TemplateSegment::field(field).ok_or_else(|| {
                if field.contains('{') { InvalidTemplate::Brace } else { InvalidTemplate::Field(field.to_owned()) }
            })?;
            segments.push(segment);
            rest = behind;
        }
        if !rest.is_empty() {
            segments.push(TemplateSegment::Text(rest.to_owned()));
        }
        if matches!(segments.first(), Some(TemplateSegment::Text(text)) if text.starts_with(JOBS)) {
            return Err(InvalidTemplate::Reserved);
        }
        if segments.iter().all(|segment| matches!(segment, TemplateSegment::Text(_))) {
            EntityKey::parse(text)?;
        }
        let template = Self(segments);
        template.objection().map_or(Ok(template), Err)
    }

    /// Returns why no delivery gets a key from the template, or `None` if one can.
    fn objection(&self) -> Option<InvalidTemplate> {
        self.0.iter().find_map(|segment| match segment {
            // A key with one letter on each side is as valid as the text.
            TemplateSegment::Text(text) => match EntityKey::parse(&format!("a/{text}a")) {
                Ok(_) | Err(InvalidEntityKey::Unnamed | InvalidEntityKey::TooLong(_)) => None,
                Err(error) => Some(InvalidTemplate::Text(error)),
            },
            TemplateSegment::Field { name, .. } => {
                let header = name.strip_prefix(HEADER)?.strip_prefix(':')?;
                http::HeaderName::try_from(header).err().map(|_| InvalidTemplate::Header(header.to_owned()))
            }
        })
    }

    /// Returns the entity key, if all deliveries of `source` have the same one. Returns `None` if the template
    /// has a field that differs between deliveries.
    pub fn constant(&self, source: &SourceName, provider: &str) -> Option<String> {
        self.fill("", |field| match field {
            "source" => Some(source.as_str().into()),
            "provider" => Some(provider.into()),
            _ => None,
        })
    }

    /// Returns the part in front of the first slash, which all keys of the source have. If values of the deliveries
    /// decide it, returns the text with which the keys begin as an error.
    pub(super) fn first_part(&self, source: &SourceName, provider: &str) -> Result<String, String> {
        let mut first = String::new();
        for segment in &self.0 {
            match segment {
                TemplateSegment::Text(text) => first.push_str(text),
                TemplateSegment::Field { name, .. } if name == "source" => first.push_str(source.as_str()),
                TemplateSegment::Field { name, .. } if name == "provider" => first.push_str(provider),
                TemplateSegment::Field { .. } => return Err(first),
            }
            if let Some((part, _)) = first.split_once('/') {
                return Ok(part.to_owned());
            }
        }
        Ok(first)
    }

    /// Returns why the template cannot make keys of copies, which have neither headers nor the provider's own key. Their
    /// keys begin with their source's name, so that no other source has the same keys.
    pub(super) fn objection_of_copies(&self) -> Option<String> {
        let own_name = TemplateSegment::Field { name: "source".to_owned(), topics: None };
        let begins_well = match self.0.as_slice() {
            [first, TemplateSegment::Text(text), ..] => *first == own_name && text.starts_with('/'),
            _ => false,
        };
        if !begins_well {
            return Some("with `from`, it must begin with `{source}/`".to_owned());
        }
        self.0.iter().find_map(|segment| match segment {
            TemplateSegment::Field { name, .. }
                if !name.starts_with('/') && !matches!(name.as_str(), "source" | "provider" | "topic") =>
            {
                Some(format!(
                    "{{{name}}} cannot be read from a stored delivery; with `from`, the fields are {{source}}, \
                     {{provider}}, {{topic}} and JSON pointers such as {{/id}}"
                ))
            }
            _ => None,
        })
    }

    pub fn always_has_a_value(&self) -> bool {
        self.0.iter().all(|segment| match segment {
            TemplateSegment::Text(_) => true,
            TemplateSegment::Field { name, topics } => {
                matches!(name.as_str(), "source" | "provider" | "topic")
                    && topics.as_deref().is_none_or(|topics| topics.bytes().all(|byte| byte == b'*'))
            }
        })
    }

    /// Replaces each field by its value. Returns `None` if a value is missing or blank, or if a field is not
    /// used for `topic`.
    pub fn fill<'a>(&self, topic: &str, value: impl Fn(&str) -> Option<Cow<'a, str>>) -> Option<String> {
        let mut text = String::new();
        for segment in &self.0 {
            match segment {
                TemplateSegment::Text(literal) => text.push_str(literal),
                TemplateSegment::Field { topics: Some(topics), .. } if !topics::fits(topics, topic) => return None,
                TemplateSegment::Field { name, .. } => {
                    text.push_str(&value(name).filter(|value| !value.trim().is_empty())?);
                }
            }
        }
        Some(text)
    }
}

/// Returns the first valid key. Otherwise, the error says why the first text is invalid, or is `None` without texts.
pub(super) fn first_key(texts: impl Iterator<Item = String>) -> Result<EntityKey, Option<String>> {
    let mut invalid = None;
    for text in texts {
        let error = match EntityKey::parse(&text) {
            // The sender controls the fields, and must not reach a job's key under `cron/`.
            Ok(key) if key.is_kept_forever() => InvalidTemplate::Reserved.to_string(),
            Ok(key) => return Ok(key),
            Err(error) => error.to_string(),
        };
        invalid.get_or_insert(error);
    }
    Err(invalid.map(|error| format!("the order's key is invalid: {error}")))
}

/// Writes the template as it was given, with header names in lower case.
impl std::fmt::Display for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            TemplateSegment::Text(text) => f.write_str(text),
            TemplateSegment::Field { name, topics: None } => write!(f, "{{{name}}}"),
            TemplateSegment::Field { name, topics: Some(topics) } => write!(f, "{{{topics}:{name}}}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_fields_are_replaced_by_their_values() {
        let template = Template::parse("order/{/a/b}-{header:X-Shop}!").unwrap();
        let filled = template.fill("a topic", |field| Some(format!("<{field}>").into()));
        assert_eq!(filled.as_deref(), Some("order/</a/b>-<header:x-shop>!"));
        assert_eq!(template.to_string(), "order/{/a/b}-{header:x-shop}!");
        let template = Template::parse("order/{form:Id}{a.*:query:o}").unwrap();
        assert_eq!(
            template.fill("a.b", |field| Some(format!("<{field}>").into())).as_deref(),
            Some("order/<form:Id><query:o>")
        );
    }

    #[test]
    fn template_field_without_value_yields_no_key() {
        let template = Template::parse("order/{/id}").unwrap();
        assert_eq!(template.fill("a topic", |_| None), None);
        for blank in ["", " \t"] {
            assert_eq!(template.fill("a topic", |_| Some(blank.into())), None);
        }
    }

    #[test]
    fn template_without_fields_is_constant() {
        let template = Template::parse("chat/notifications").unwrap();
        assert_eq!(template.fill("a topic", |_| None).as_deref(), Some("chat/notifications"));
    }

    /// Promise: templates fill their fields, also by topic.
    #[test]
    fn template_field_applies_only_to_listed_topics() {
        let filled = |text: &str, topic: &str| {
            let template = Template::parse(text).unwrap();
            template.fill(topic, |field| Some(format!("<{field}>").into()))
        };
        let by_topic = "order/{orders/*:/id}";
        assert_eq!(filled(by_topic, "orders/create").as_deref(), Some("order/</id>"));
        assert_eq!(filled(by_topic, "refunds/create"), None);
        assert_eq!(filled("{*:/a:b}", "x").as_deref(), Some("</a:b>"), "the topic ends at the first colon");
        assert_eq!(filled("{a.*:header:X-Order}", "a.b").as_deref(), Some("<header:x-order>"));
        assert_eq!(filled("{a.*:source}/{/id}", "b.b"), None, "one field that does not apply is enough");
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
        for field in [":/id", "orders/*:", "orders/*:id", "orders/*:header:", "a:b:/id", "header:", "form:", "query:"] {
            assert_eq!(Template::parse(&format!("order/{{{field}}}")), Err(InvalidTemplate::Field(field.into())));
        }
        for no_key in ["", "order", "order/", "order/\n"] {
            assert!(matches!(Template::parse(no_key), Err(InvalidTemplate::Constant(_))), "{no_key:?}");
        }
        for control in ["a/{/id}\n", "a\u{0}/{/id}", "{/id}/\u{fffe}"] {
            assert!(matches!(Template::parse(control), Err(InvalidTemplate::Text(_))), "{control:?}");
        }
        for name in ["x y", " x", "x\n", "x:y"] {
            let refused = Err(InvalidTemplate::Header(name.into()));
            assert_eq!(Template::parse(&format!("order/{{header:{name}}}")), refused);
            assert_eq!(Template::parse(&format!("order/{{orders/*:header:{name}}}")), refused);
        }
        assert_eq!(Template::parse("cron/report"), Err(InvalidTemplate::Reserved));
        assert_eq!(Template::parse("cron/{/id}"), Err(InvalidTemplate::Reserved));
        assert!(Template::parse("crontab/{/id}").is_ok());
    }
}
