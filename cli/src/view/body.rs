//! Renders the JSON body of a delivery and compares two bodies. Numbers stay as they were sent, and personal data is
//! hidden.

mod diff;
mod redact;
mod search;

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

pub use diff::{ChangedValue, diff};
pub use redact::{REDACTED, Redacted, redacted};
pub use search::Searched;

use crate::output::{one_line, visible};

/// The deepest level of nesting that is parsed. A deeper value is shown as one text.
const DEEPEST: usize = 64;

/// A JSON value. Numbers stay text, so that numbers beyond 2^53 stay exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyNode {
    /// The object's members, in the order in which the body has them.
    Object(Vec<(String, BodyNode)>),
    Array(Vec<BodyNode>),
    Leaf(String),
    /// The JSON text of an object or array that is nested too deeply to be parsed.
    Deep(String),
}

struct ObjectMembers<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for ObjectMembers<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = ObjectMembers<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ObjectMembers<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(ObjectMembers(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl BodyNode {
    pub fn parse(body: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(body).ok()?;
        Self::of(serde_json::from_str::<&RawValue>(text).ok()?.get(), 0)
    }

    fn of(text: &str, depth: usize) -> Option<Self> {
        Some(match text.as_bytes().first()? {
            b'{' | b'[' if depth == DEEPEST => BodyNode::Deep(shown(text)),
            b'{' => {
                let ObjectMembers(members) = serde_json::from_str(text).ok()?;
                let member = |(key, value): (String, &RawValue)| Some((key, Self::of(value.get(), depth + 1)?));
                BodyNode::Object(members.into_iter().map(member).collect::<Option<_>>()?)
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                BodyNode::Array(items.into_iter().map(|item| Self::of(item.get(), depth + 1)).collect::<Option<_>>()?)
            }
            // Texts that differ only in their escapes compare as equal.
            b'"' => match serde_json::from_str::<String>(text) {
                Ok(plain) => BodyNode::Leaf(quoted(&plain)),
                Err(_) => BodyNode::Leaf(shown(text)),
            },
            _ => BodyNode::Leaf(text.to_owned()),
        })
    }

    /// Returns the value at a JSON pointer (RFC 6901).
    pub fn at(&self, pointer: &str) -> Option<&Self> {
        pointer.split('/').skip(1).try_fold(self, |node, step| match node {
            BodyNode::Object(members) => {
                let name = step.replace("~1", "/").replace("~0", "~");
                // If several members have this name, the last one counts, as in most JSON parsers.
                members.iter().rfind(|(key, _)| *key == name).map(|(_, value)| value)
            }
            BodyNode::Array(items) => {
                let index: usize = step.parse().ok().filter(|index: &usize| index.to_string() == step)?;
                items.get(index)
            }
            BodyNode::Leaf(_) | BodyNode::Deep(_) => None,
        })
    }

    pub fn text(&self) -> Option<String> {
        match self {
            BodyNode::Leaf(text) if text.starts_with('"') => serde_json::from_str(text).ok(),
            _ => None,
        }
    }

    fn write(&self, f: &mut impl fmt::Write, indent: Option<usize>) -> fmt::Result {
        let (open, close, items): (_, _, Vec<(Option<&str>, &BodyNode)>) = match self {
            BodyNode::Leaf(text) | BodyNode::Deep(text) => return f.write_str(text),
            BodyNode::Object(members) => ('{', '}', members.iter().map(|(key, value)| (Some(&**key), value)).collect()),
            BodyNode::Array(items) => ('[', ']', items.iter().map(|item| (None, item)).collect()),
        };
        f.write_char(open)?;
        let inner = indent.map(|indent| indent + 2);
        let line = |f: &mut dyn fmt::Write, indent: Option<usize>| match indent {
            Some(indent) => write!(f, "\n{:indent$}", ""),
            None => Ok(()),
        };
        for (number, (key, value)) in items.iter().enumerate() {
            if number > 0 {
                f.write_char(',')?;
            }
            line(f, inner)?;
            if let Some(key) = key {
                write!(f, "{}:{}", quoted(key), if indent.is_some() { " " } else { "" })?;
            }
            value.write(f, inner)?;
        }
        if !items.is_empty() {
            line(f, indent)?;
        }
        f.write_char(close)
    }

    pub fn compact(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, None);
        text
    }
}

impl fmt::Display for BodyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, Some(0))
    }
}

fn quoted(text: &str) -> String {
    shown(&serde_json::Value::from(text).to_string())
}

fn shown(json: &str) -> String {
    // Outside a string, a carriage return is white space.
    visible(&json.replace('\r', " ")).into_owned()
}

/// Escapes a key as one token of a JSON pointer.
fn token(key: &str) -> String {
    one_line(&key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> BodyNode {
        BodyNode::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn json_numbers_are_shown_as_sent() {
        let text = r#"{"id":9007199254740993,"huge":123456789012345678901234567890,"price":48.20,"e":1E400}"#;
        assert_eq!(node(text).compact(), text);
    }

    #[test]
    fn json_objects_keep_member_order_and_duplicates() {
        let text = r#"{"b":[1,{"x":null},[]],"a":{},"b":true}"#;
        assert_eq!(node(text).compact(), text);
        assert_eq!(node(text).to_string().lines().nth(3), Some("    {"));
    }

    /// Promise: no sender's text controls a terminal; raw output in a pipe is exact.
    #[test]
    fn control_characters_of_bodies_are_escaped() {
        let shown = node("{\"\u{9b}2J\":\"\\u001b[2J\u{9b}\u{7f}\u{202e}\"}").compact();
        assert_eq!(shown, r#"{"\u009b2J":"\u001b[2J\u009b\u007f\u202e"}"#);
    }

    #[test]
    fn deep_json_is_parsed_and_invalid_json_refused() {
        assert_eq!(BodyNode::parse(b"id=1&name=x"), None);
        assert_eq!(BodyNode::parse(b"\xff"), None);
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let read = node(&deep);
        assert_eq!(read.compact(), deep);
    }
}
