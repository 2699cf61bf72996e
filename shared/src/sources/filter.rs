//! The values that a source takes. A delivery with other values is verified and answered, but not stored.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor},
};

use super::table::one_or_more;
use crate::providers;

/// Places in the body, by JSON pointer, each with the values that it may have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter(BTreeMap<String, Vec<FilterValue>>);

/// A number is a whole one, as its digits. A number with a fraction has several spellings, such as `1.5` and `1.50`, so
/// the parser refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterValue {
    Null,
    Flag(bool),
    Number(String),
    Text(String),
}

impl<'de> Deserialize<'de> for FilterValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ValueVisitor;

        impl Visitor<'_> for ValueVisitor {
            type Value = FilterValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a whole number, a boolean or null")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
                Ok(FilterValue::Flag(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
                Ok(FilterValue::Number(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
                Ok(FilterValue::Number(number.to_string()))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(FilterValue::Text(text.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(FilterValue::Null)
            }
        }

        deserializer.deserialize_any(ValueVisitor)
    }
}

one_or_more!(
    FilterValues(FilterValue),
    "a value in `filter` is a text, a whole number, `true`, `false`, or `null` in JSON; several are a list"
);

/// The field of a source that excludes a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IgnoredBy {
    Topics,
    /// `filter`, which does not take the value at this JSON pointer.
    Filter(String),
}

impl IgnoredBy {
    /// Returns the JSON pointer to the value that the filter does not take.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::Topics => None,
            Self::Filter(place) => Some(place),
        }
    }
}

impl Filter {
    /// Returns each place, by JSON pointer, with the values that it may have.
    pub fn places(&self) -> impl Iterator<Item = (&str, &[FilterValue])> {
        self.0.iter().map(|(place, values)| (place.as_str(), values.as_slice()))
    }

    /// Returns the first place whose value the filter does not take. Returns `None` if the filter takes `body`, and if
    /// `body` cannot be read: nothing is lost because it is damaged.
    pub fn refusing(&self, body: &[u8]) -> Option<&str> {
        let fits = |pointer: &str, values: &[FilterValue]| {
            providers::json_text(body, pointer).is_some_and(|json| values.iter().any(|value| value.equals(json)))
        };
        let refusing = self.0.iter().find(|(pointer, values)| !fits(pointer, values))?.0;
        let is_readable = providers::unreadable(body).is_none() && !providers::has_lone_surrogate(body);
        is_readable.then_some(refusing)
    }

    /// Returns why the filter takes no webhook, or `None` if it can take one.
    pub(super) fn objection(&self) -> Option<String> {
        self.0.iter().find_map(|(pointer, values)| match pointer {
            // The text may be a misplaced secret.
            place if place.is_empty() || !providers::is_pointer(place) => {
                Some("`filter`: a place in the body is a JSON pointer, such as `/source_name`".to_owned())
            }
            place if values.is_empty() => {
                Some(format!("`filter`: the list for `{place}` is empty, so no webhook is taken"))
            }
            _ => None,
        })
    }
}

impl FilterValue {
    /// Returns whether a value is this one, by its JSON text. Numbers are compared by their digits: `1.0` is not `1`.
    fn equals(&self, json: &str) -> bool {
        match self {
            Self::Null => json == "null",
            Self::Flag(flag) => json == if *flag { "true" } else { "false" },
            Self::Number(digits) => json == digits,
            Self::Text(text) => {
                json.starts_with('"') && serde_json::from_str::<Cow<'_, str>>(json).is_ok_and(|value| value == *text)
            }
        }
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FilterVisitor;

        impl<'de> Visitor<'de> for FilterVisitor {
            type Value = Filter;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut places = BTreeMap::new();
                while let Some((place, values)) = map.next_entry::<String, FilterValues>()? {
                    if places.insert(place, values.into()).is_some() {
                        return Err(A::Error::custom("`filter` has a place twice"));
                    }
                }
                Ok(Filter(places))
            }
        }

        deserializer.deserialize_map(FilterVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::sources::{Sources, shop};

    fn filter(fields: &str) -> Filter {
        shop(&format!("filter = {{ {fields} }}")).unwrap().filter.clone()
    }

    #[test]
    fn filter_takes_body_whose_places_all_have_a_listed_value() {
        let web = filter(r#""/source_name" = ["web", "pos"], "/test" = false, "/customer/id" = 7"#);
        let body = |source: &str, test: &str, id: &str| {
            format!(r#"{{"source_name":{source},"test":{test},"customer":{{"id":{id}}}}}"#)
        };
        for source in [r#""web""#, r#""\u0077eb""#, r#""pos""#] {
            assert_eq!(web.refusing(body(source, "false", "7").as_bytes()), None);
        }
        for (source, test, id, refusing) in [
            (r#""draft""#, "false", "7", "/source_name"),
            ("null", "false", "7", "/source_name"),
            (r#"["web"]"#, "false", "7", "/source_name"),
            (r#""web""#, r#""false""#, "7", "/test"),
            (r#""web""#, "false", "7.0", "/customer/id"),
            (r#""web""#, "false", r#""7""#, "/customer/id"),
        ] {
            assert_eq!(web.refusing(body(source, test, id).as_bytes()), Some(refusing), "{source} {test} {id}");
        }
        for missing in ["{}", "[]", "7", r#"{"source_name":"web","test":false,"customer":7}"#] {
            assert!(web.refusing(missing.as_bytes()).is_some(), "{missing}");
        }
        assert_eq!(filter("").refusing(b"{}"), None);
    }

    #[test]
    fn unreadable_body_is_never_filtered_out() {
        let web = filter(r#""/source_name" = "web""#);
        let bodies: [&[u8]; 8] = [
            b"",
            b"source_name=pos",
            b"<order/>",
            b"{\"source_name\":\"pos\"",
            b"\xef\xbb\xbf{\"source_name\":\"pos\"}",
            b"{\"source_name\":\"p\xf6s\"}",
            br#"{"source_name":"\ud800"}"#,
            br#"{"\udc00":1,"source_name":"pos"}"#,
        ];
        for body in bodies {
            assert_eq!(web.refusing(body), None, "{}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn filter_that_takes_nothing_is_refused() {
        const PLACE: &str = "source `shop`: `filter`: a place in the body is a JSON pointer, such as `/source_name`";
        let refused = |fields: &str| shop(&format!("filter = {{ {fields} }}")).unwrap_err();
        for place in ["hush", "", "/~2", "hush/x"] {
            assert_eq!(refused(&format!("'{place}' = 1")), PLACE, "{place}");
        }
        assert_eq!(refused("'/a' = []"), "source `shop`: `filter`: the list for `/a` is empty, so no webhook is taken");
        for value in ["{ b = 'hush' }", "[{ b = 1 }]", "[['hush']]", "1.0", "1e3", "[1, 2.5]", "1979-05-27"] {
            let error = refused(&format!("'/a' = {value}"));
            assert!(
                error.contains("a value in `filter` is a text, a whole number") && !error.contains("hush"),
                "{error}"
            );
        }
        let error = shop("filter = ['hush']").unwrap_err();
        assert!(
            error.ends_with("`filter` is a list, but must be a table, such as [sources.shopify.filter]"),
            "{error}"
        );
        let twice = r#"{"sources":{"shop":{"provider":"shopify","handler":"h","filter":{"/a":1,"/a":2}}}}"#;
        assert!(Sources::parse(twice).unwrap_err().to_string().contains("`filter` has a place twice"));
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (0..3_u8).prop_map(Value::from),
            "[a-c\"\\\\é/]{0,2}".prop_map(Value::from),
        ]
    }

    proptest! {
        #[test]
        fn filter_agrees_with_serde_json(
            body in prop::collection::btree_map("[ab~/]{1,2}", scalar(), 0..4),
            wanted in prop::collection::btree_map("[ab~/]{1,2}", prop::collection::vec(scalar(), 1..4), 1..3),
            pretty in any::<bool>(),
        ) {
            let pointer = |key: &String| format!("/{}", key.replace('~', "~0").replace('/', "~1"));
            let places: BTreeMap<String, &Vec<Value>> = wanted.iter().map(|(key, values)| (pointer(key), values)).collect();
            let source = json!({ "provider": "shopify", "handler": "h", "filter": places });
            let document = json!({ "sources": { "shop": source } }).to_string();
            let filter = Sources::parse(&document).unwrap().get("shop").unwrap().filter.clone();
            let text = if pretty { serde_json::to_string_pretty(&body) } else { serde_json::to_string(&body) }.unwrap();
            let is_taken = wanted.iter().all(|(key, values)| body.get(key).is_some_and(|value| values.contains(value)));
            prop_assert_eq!(filter.refusing(text.as_bytes()).is_none(), is_taken, "{} {}", document, text);
        }

        #[test]
        fn filter_never_panics_or_loses_unreadable_bytes(body in any::<Vec<u8>>()) {
            let web = filter(r#""/a" = "web""#);
            let is_json = serde_json::from_slice::<Value>(&body).is_ok();
            prop_assert!(is_json || web.refusing(&body).is_none());
        }
    }
}
