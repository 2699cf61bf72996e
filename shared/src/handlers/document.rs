//! Parses the JSON document in a handler's answer. A name that stands twice in one object is refused: the first of two
//! lists of writes would be lost.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};

use crate::nearest;

/// Returns the fields of an answer, or what is wrong with it.
pub(super) fn fields(body: &[u8]) -> Result<Map<String, Value>, String> {
    if body.is_empty() {
        return Err("it is empty".into());
    }
    match serde_json::from_slice(body) {
        Ok(Unique(Value::Object(fields))) => Ok(fields),
        Ok(Unique(Value::Null)) => Err("it is null".into()),
        Ok(Unique(_)) => Err("it is not an object".into()),
        Err(error) if error.is_data() => Err(without_place(&error)),
        Err(_) => Err("it is not JSON".into()),
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

fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
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
        while let Some(Unique(item)) = list.next_element()? {
            items.push(item);
        }
        Ok(items.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some((name, Unique(value))) = object.next_entry::<String, _>()? {
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("`{}` is in it twice", super::commit::short(&name))));
            }
            fields.insert(name, value);
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
            (r#"{"outcome":"done","commit":[],"commit":[]}"#, "`commit` is in it twice"),
            (r#"{"commit":[{"Delete":{"Key":1}},{"Delete":{},"Delete":{}}]}"#, "`Delete` is in it twice"),
            (r#"{"a":{"b":1,"c":[{"b":1}],"b":2}}"#, "`b` is in it twice"),
            ("{", "it is not JSON"),
            ("[]", "it is not an object"),
            ("null", "it is null"),
            ("", "it is empty"),
        ] {
            assert_eq!(fields(body.as_bytes()), Err(reason.to_owned()), "{body}");
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
