//! Parses JSON bodies into types. Errors name the invalid field and quote no value of the body.

use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

/// The reason why a body cannot be parsed. The message names the invalid field and the expected
/// type, and quotes no value of the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBody(String);

pub(super) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, InvalidBody> {
    serde_json::from_slice(body).map_err(|error| {
        // Tracking the path costs time, so the body is parsed again only after an error.
        let located = serde_path_to_error::deserialize::<_, T>(&mut serde_json::Deserializer::from_slice(body));
        match located.err().filter(|_| error.classify() == Category::Data) {
            Some(located) => InvalidBody(described(located.path(), &error)),
            None => InvalidBody(format!("the body is not JSON: {error}")),
        }
    })
}

fn described(path: &Path, error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text: &str = match text.rsplit_once(" at line ") {
        Some((text, _)) if error.line() > 0 => text,
        _ => &text,
    };
    let path = shown(path);
    if let Some(field) = text.strip_prefix("missing field `") {
        let dot = if path.is_empty() { "" } else { "." };
        return format!("the body has no `{path}{dot}{}`", field.trim_end_matches('`'));
    }
    let place = if path.is_empty() { "the body".to_owned() } else { format!("the body's `{path}`") };
    // The expectation comes from the type and can be shown. The text before it may quote the body.
    match text.rsplit_once(", expected ") {
        Some((found, expected)) => format!("{place}: expected {expected}, found {}", kind(found)),
        None if text.starts_with("data did not match any variant") => format!("{place}: {text}"),
        None => format!("{place} is invalid"),
    }
}

/// Returns the kind of a JSON value. The parameter `text` is serde's description of the value.
fn kind(text: &str) -> &'static str {
    let kinds = [
        ("invalid type: null", "null"),
        ("invalid type: boolean", "a boolean"),
        ("invalid type: integer", "an integer"),
        ("invalid type: floating point", "a number"),
        ("invalid type: string", "a string"),
        ("invalid type: sequence", "a list"),
        ("invalid type: map", "an object"),
        ("invalid length", "a list of another length"),
        ("unknown field", "an unknown field"),
    ];
    kinds.into_iter().find(|(begins, _)| text.starts_with(begins)).map_or("another value", |(_, kind)| kind)
}

/// Returns the path as text, such as `line_items[2].price`. A key that does not look like a field's
/// name may be data, and is shown as `…`.
fn shown(path: &Path) -> String {
    let mut text = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => text.push_str(&format!("[{index}]")),
            Segment::Map { key } | Segment::Enum { variant: key } => {
                text.push_str(if text.is_empty() { "" } else { "." });
                text.push_str(if is_name(key) { key } else { "…" });
            }
            Segment::Unknown => {}
        }
    }
    text
}

/// The longest key, in bytes, that is shown as a field's name.
const LONGEST: usize = 40;

fn is_name(key: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    key.len() <= LONGEST && key.bytes().all(is_word) && !key.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ShopOrder {
        #[serde(rename = "id")]
        _id: u64,
        #[serde(rename = "line_items")]
        _line_items: Vec<ShopOrderLine>,
        #[serde(default, rename = "state")]
        _state: Option<ShopOrderState>,
        #[serde(default, rename = "totals")]
        _totals: BTreeMap<String, u64>,
    }

    #[derive(Debug, Deserialize)]
    struct ShopOrderLine {
        #[serde(rename = "price")]
        _price: String,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum ShopOrderState {
        Open,
        Paid,
    }

    fn refused(body: &str) -> String {
        parse::<ShopOrder>(body.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn error_of_invalid_body_names_field_and_expected_type() {
        parse::<ShopOrder>(br#"{"id": 1, "line_items": [{"price": "5.00"}], "state": "paid"}"#).unwrap();
        for (body, expected) in [
            (
                r#"{"id": 1, "line_items": [{"price": "5"}, {"price": "5"}, {"price": null}]}"#,
                "the body's `line_items[2].price`: expected a string, found null",
            ),
            (r#"{"id": "hush", "line_items": []}"#, "the body's `id`: expected u64, found a string"),
            (r#"{"id": -4711, "line_items": []}"#, "the body's `id`: expected u64, found another value"),
            (r#"{"id": 1, "line_items": {}}"#, "the body's `line_items`: expected a sequence, found an object"),
            (r#"{"id": 1, "line_items": [{}]}"#, "the body has no `line_items[0].price`"),
            (r#"{"line_items": []}"#, "the body has no `id`"),
            ("7", "the body: expected struct ShopOrder, found an integer"),
        ] {
            assert_eq!(refused(body), expected, "{body}");
        }
    }

    #[test]
    fn invalid_body_is_not_quoted() {
        for body in [
            r#"{"id": 1, "line_items": [], "state": "hush"}"#,
            r#"{"id": 1, "line_items": [], "state": "hush, expected hush"}"#,
            r#"{"id": 1, "line_items": [{"price": ["hush"]}]}"#,
            r#"{"id": "hush, expected `hush` at line 1", "line_items": []}"#,
            r#"{"id": 1, "line_items": [], "hush@example.com": 7}"#,
            r#"{"id": 1, "line_items": [], "totals": {"hush@example.com": "hush"}}"#,
            r#"{"id": 1, "line_items": [], "totals": {"4711 0815 hush": {}}}"#,
            "hush",
            r#"{"id": 1, "line_items": []} hush"#,
            r#"{"id": 1, "line_items": ["hush"#,
        ] {
            let refused = refused(body);
            assert!(refused.starts_with("the body") && !refused.contains("hush"), "{body}: {refused}");
        }
    }

    #[test]
    fn json_error_in_body_names_line_and_column() {
        assert_eq!(refused("{\"id\": 1,\n x}"), "the body is not JSON: key must be a string at line 2 column 2");
        assert!(refused("").starts_with("the body is not JSON: EOF while parsing a value"), "{}", refused(""));
    }
}
