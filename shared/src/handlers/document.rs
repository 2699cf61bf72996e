//! Parses the JSON document in a handler's answer. A name that stands twice in one object is refused: the first of two
//! lists of writes would be lost.

use std::{cell::RefCell, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::nearest;

/// A reason for refusing an answer's document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum DocumentMistake {
    #[error("it is empty")]
    Empty,
    #[error("it is null")]
    Null,
    #[error("it is not an object")]
    NotAnObject,
    #[error("it is not JSON")]
    NotJson,
    #[error("it has the field `{0}` twice")]
    Doubled(String),
}

/// Returns the fields of an answer.
pub(super) fn fields(body: &[u8]) -> Result<Map<String, Value>, DocumentMistake> {
    if body.is_empty() {
        return Err(DocumentMistake::Empty);
    }
    let doubled = RefCell::new(None);
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = Unique { doubled: &doubled }.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    match (parsed, doubled.into_inner()) {
        (_, Some(name)) => Err(DocumentMistake::Doubled(name)),
        (Ok(Value::Object(fields)), _) => Ok(fields),
        (Ok(Value::Null), _) => Err(DocumentMistake::Null),
        (Ok(_), _) => Err(DocumentMistake::NotAnObject),
        (Err(_), _) => Err(DocumentMistake::NotJson),
    }
}

/// Returns the first of `fields` that was probably meant to be `commit`.
pub(super) fn misspelt_commit(fields: &Map<String, Value>) -> Option<String> {
    let is_meant = |name: &str| {
        let lower = name.to_ascii_lowercase();
        name != "commit" && (["commit", "transactitems"].contains(&&*lower) || nearest::is_slip(&lower, "commit"))
    };
    let name = fields.keys().find(|name| is_meant(name))?;
    Some(format!("unknown field `{}` (did you mean `commit`?)", super::commit::short(name)))
}

/// Reads any JSON, and notes the first name that stands twice in one object.
#[derive(Clone, Copy)]
struct Unique<'a> {
    doubled: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self)? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = object.next_key::<String>()? {
            if fields.contains_key(&name) {
                self.doubled.borrow_mut().get_or_insert_with(|| super::commit::short(&name));
            }
            fields.insert(name, object.next_value_seed(self)?);
        }
        Ok(fields.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_stands_twice_is_refused() {
        for (body, reason) in [
            (r#"{"outcome":"done","commit":[],"commit":[]}"#, "it has the field `commit` twice"),
            (r#"{"commit":[{"Delete":{"Key":1}},{"Delete":{},"Delete":{}}]}"#, "it has the field `Delete` twice"),
            (r#"{"a":{"b":1,"c":[{"b":1}],"b":2}}"#, "it has the field `b` twice"),
            ("{", "it is not JSON"),
            ("[]", "it is not an object"),
            ("null", "it is null"),
            ("", "it is empty"),
        ] {
            assert_eq!(fields(body.as_bytes()).unwrap_err().to_string(), reason, "{body}");
        }
        let body = r#"{"a":[1,-2,0.5,"x",null,true,{"a":{"a":{}}}],"b":"\n"}"#;
        assert_eq!(Value::Object(fields(body.as_bytes()).unwrap()), serde_json::from_str::<Value>(body).unwrap());
    }

    #[test]
    fn misspelt_commit_is_found() {
        let of = |name: &str| misspelt_commit(&Map::from_iter([(name.to_owned(), Value::Null)]));
        for name in ["commits", "Commit", "COMMIT", "comit", "commmit", "TransactItems", "transactItems"] {
            assert!(of(name).is_some(), "{name}");
        }
        for name in ["commit", "comment", "outcome", "more", "error", ""] {
            assert_eq!(of(name), None, "{name}");
        }
    }
}
