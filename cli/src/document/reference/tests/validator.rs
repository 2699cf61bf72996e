//! Validates the part of JSON Schema that the schemas in `docs/` use. An unknown keyword panics, so that no keyword is
//! ignored. A crate for all of JSON Schema would add about fifty other crates.

use regex_lite::Regex;
use serde_json::{Map, Value};

pub struct Validator(Value);

impl Validator {
    pub fn new(schema: &str) -> Self {
        Self(serde_json::from_str(schema).expect("JSON"))
    }

    pub fn objections(&self, value: &Value) -> Vec<String> {
        let mut objections = Vec::new();
        check(&self.0, value, "", &mut objections);
        objections
    }
}

fn is_valid(schema: &Value, value: &Value) -> bool {
    let mut objections = Vec::new();
    check(schema, value, "", &mut objections);
    objections.is_empty()
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("no type {other}"),
    }
}

fn check(schema: &Value, value: &Value, at: &str, objections: &mut Vec<String>) {
    let keywords = match schema {
        Value::Bool(true) => return,
        Value::Bool(false) => return objections.push(format!("{at}: it must not be there")),
        schema => schema.as_object().expect("a schema is an object or a boolean"),
    };
    let none = Map::new();
    let fields = value.as_object().unwrap_or(&none);
    for (keyword, wanted) in keywords {
        let list = || wanted.as_array().expect("a list");
        let number = || wanted.as_u64().expect("a number");
        let is_met = match keyword.as_str() {
            "$schema" | "title" | "description" | "default" | "then" | "else" | "definitions" => true,
            "type" => match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind.as_str().expect("a type"), value)),
                kind => is_of(kind.as_str().expect("a type"), value),
            },
            "const" => value == wanted,
            "enum" => list().contains(value),
            "pattern" => {
                let pattern = Regex::new(wanted.as_str().expect("a text")).expect("a pattern");
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "minimum" => value.as_f64().is_none_or(|value| value >= number() as f64),
            "maximum" => value.as_i64().is_none_or(|value| value <= number() as i64),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= number()),
            "minProperties" => !value.is_object() || fields.len() as u64 >= number(),
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(wanted, item, &format!("{at}.{number}"), objections);
                }
                true
            }
            "anyOf" => list().iter().any(|schema| is_valid(schema, value)),
            "allOf" => {
                list().iter().for_each(|schema| check(schema, value, at, objections));
                true
            }
            "if" => {
                let branch = if is_valid(wanted, value) { "then" } else { "else" };
                check(&keywords[branch], value, at, objections);
                true
            }
            "required" => list().iter().all(|name| !value.is_object() || fields.contains_key(name.as_str().unwrap())),
            "propertyNames" => fields.keys().all(|name| is_valid(wanted, &name.as_str().into())),
            "properties" => {
                for (name, schema) in wanted.as_object().expect("properties") {
                    if let Some(value) = fields.get(name) {
                        check(schema, value, &format!("{at}.{name}"), objections);
                    }
                }
                true
            }
            "additionalProperties" => {
                let named = keywords.get("properties").and_then(Value::as_object).unwrap_or(&none);
                for (name, value) in fields.iter().filter(|(name, _)| !named.contains_key(*name)) {
                    match wanted {
                        Value::Bool(false) => {
                            objections.push(format!("{}: unknown field `{name}`", at.trim_start_matches('.')));
                        }
                        schema => check(schema, value, &format!("{at}.{name}"), objections),
                    }
                }
                true
            }
            other => panic!("no keyword {other}"),
        };
        if !is_met {
            objections.push(format!("{}: {keyword} {wanted}", at.trim_start_matches('.')));
        }
    }
}
