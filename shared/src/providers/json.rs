//! Reads single values from a JSON text without building a document.
//!
//! A number is returned as the digits that were sent, so that an id above 2^53 or 2^64 stays exact. No function of this
//! module panics or recurses, whatever its input.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

/// Returns the scalar at `pointer` (RFC 6901) in the JSON text `body`, as text. A number keeps the
/// digits that were sent. If an object has a key twice, the last value counts. Returns `None` for
/// null, objects, arrays, missing values, and invalid JSON.
pub fn pointer<'a>(body: &'a [u8], pointer: &str) -> Option<Cow<'a, str>> {
    scalar(json_text(body, pointer)?)
}

/// Returns the JSON text of the value at `pointer` (RFC 6901) in the JSON text `body`. If an object has a key twice, the
/// last value counts. Returns `None` for a missing value, and for invalid JSON.
pub fn json_text<'a>(body: &'a [u8], pointer: &str) -> Option<&'a str> {
    let mut text = std::str::from_utf8(body).ok()?;
    for token in tokens(pointer)? {
        text = child(text, &token?)?;
    }
    Some(text)
}

/// Returns the members of the JSON object `text` that are scalars, as [`pointer`] does. Empty for any other text.
pub(super) fn scalars(text: &str) -> Vec<(String, Cow<'_, str>)> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).unwrap_or_default();
    members.into_iter().filter_map(|(name, value)| Some((name, scalar(value.get())?))).collect()
}

/// Returns why no value of `body` can be read, or `None` if it is JSON. The text quotes nothing of the body.
pub fn unreadable(body: &[u8]) -> Option<String> {
    if let Some(encoding) = wide(body) {
        return Some(format!("the body is {encoding}, and JSON must be UTF-8"));
    }
    let reason = match body {
        b"" => "the body is empty",
        [0xef, 0xbb, 0xbf, ..] => "the body begins with a byte-order mark, which JSON does not allow",
        _ if body.trim_ascii_start().starts_with(b"<") => "the body is XML or HTML, not JSON",
        _ => {
            return match std::str::from_utf8(body) {
                Ok(text) => serde_json::from_str::<&RawValue>(text)
                    .err()
                    .map(|error| format!("the body is not JSON at line {}, column {}", error.line(), error.column())),
                Err(error) => Some(format!("the body is not UTF-8 at byte {}", error.valid_up_to() + 1)),
            };
        }
    };
    Some(reason.to_owned())
}

/// Returns the name of the encoding of `text`, if its characters have two or four bytes. A text begins with an ASCII
/// character, or with a byte-order mark.
pub fn wide(text: &[u8]) -> Option<&'static str> {
    match text {
        [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] | [0, 0, 0, _, ..] | [_, 0, 0, 0, ..] => Some("UTF-32"),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, ..] | [_, 0, ..] => Some("UTF-16"),
        _ => None,
    }
}

/// Returns whether a text in the JSON text `body` has half of a surrogate pair (`\ud800` to `\udfff`). No text in UTF-8
/// can hold one.
pub fn has_lone_surrogate(body: &[u8]) -> bool {
    let unit = |text: &[u8]| {
        let digits = std::str::from_utf8(text.strip_prefix(b"\\u")?.get(..4)?).ok()?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut rest = body;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = &rest[at..];
        let length = match unit(rest) {
            Some(0xd800..=0xdbff) => match rest.get(6..).and_then(unit) {
                Some(0xdc00..=0xdfff) => 12,
                _ => return true,
            },
            Some(0xdc00..=0xdfff) => return true,
            _ => 2,
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    false
}

pub fn is_pointer(text: &str) -> bool {
    tokens(text).is_some_and(|mut tokens| tokens.all(|token| token.is_some()))
}

/// Returns the pointer's unescaped tokens. A token with an invalid `~` is `None`. The whole result is
/// `None` if the pointer neither is empty nor begins with `/`.
fn tokens(pointer: &str) -> Option<impl Iterator<Item = Option<Cow<'_, str>>>> {
    let starts_well = pointer.is_empty() || pointer.starts_with('/');
    starts_well.then(|| pointer.split('/').skip(1).map(unescaped))
}

fn unescaped(token: &str) -> Option<Cow<'_, str>> {
    if !token.contains('~') {
        return Some(Cow::Borrowed(token));
    }
    let mut pieces = token.split('~');
    let mut text = pieces.next()?.to_owned();
    for piece in pieces {
        text.push(match piece.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        text.push_str(&piece[1..]);
    }
    Some(Cow::Owned(text))
}

fn child<'a>(text: &'a str, token: &str) -> Option<&'a str> {
    let mut json = serde_json::Deserializer::from_str(text);
    let found = json.deserialize_any(Child { token }).ok()?;
    json.end().ok()?;
    found.map(RawValue::get)
}

fn scalar(text: &str) -> Option<Cow<'_, str>> {
    let text = serde_json::from_str::<&RawValue>(text).ok()?.get();
    match text.as_bytes().first()? {
        b'n' | b'{' | b'[' => None,
        b'"' if text.contains('\\') => serde_json::from_str(text).ok().map(Cow::Owned),
        b'"' => text.get(1..text.len() - 1).map(Cow::Borrowed),
        _ => Some(Cow::Borrowed(text)),
    }
}

struct Child<'t> {
    token: &'t str,
}

impl Child<'_> {
    /// Returns the token as an array index. A leading zero or a sign makes it invalid.
    fn index(&self) -> Option<usize> {
        let digits = self.token.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = self.token == "0" || !self.token.starts_with('0');
        self.token.parse().ok().filter(|_| digits && canonical)
    }
}

impl<'de> Visitor<'de> for Child<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or an array")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_it) = members.next_key_seed(KeyMatch(self.token))? {
            if is_it {
                found = Some(members.next_value()?);
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let index = self.index();
        let mut found = None;
        let mut at = 0;
        while let Some(element) = elements.next_element()? {
            if Some(at) == index {
                found = Some(element);
            }
            at += 1;
        }
        Ok(found)
    }
}

/// A deserializer for one key of an object. It returns whether the key equals the token, without
/// allocating.
struct KeyMatch<'t>(&'t str);

impl<'de> DeserializeSeed<'de> for KeyMatch<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyMatch<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn found(body: &str, at: &str) -> Option<String> {
        pointer(body.as_bytes(), at).map(Cow::into_owned)
    }

    #[test]
    fn json_numbers_are_returned_as_spelled() {
        for number in
            ["9007199254740993", "123456789012345678901234567890", "-0", "1.10", "1e400", "18446744073709551616"]
        {
            assert_eq!(found(&format!("{{\"id\": {number} }}"), "/id").as_deref(), Some(number));
            assert_eq!(found(&format!(" {number} "), "").as_deref(), Some(number));
        }
    }

    #[test]
    fn json_strings_are_unescaped() {
        let body = r#"{"plain":"a","escaped":"a\/\u00e9\n\ud83d\ude00","yes":true,"no":false,"empty":""}"#;
        assert_eq!(found(body, "/plain").as_deref(), Some("a"));
        assert_eq!(found(body, "/escaped").as_deref(), Some("a/é\n😀"));
        assert_eq!(found(body, "/yes").as_deref(), Some("true"));
        assert_eq!(found(body, "/no").as_deref(), Some("false"));
        assert_eq!(found(body, "/empty").as_deref(), Some(""));
    }

    #[test]
    fn pointer_to_missing_or_compound_value_finds_nothing() {
        let body = r#"{"null":null,"object":{},"array":[1],"string":"x"}"#;
        for at in
            ["", "/null", "/object", "/array", "/absent", "/string/x", "/array/-", "/array/1", "string", "/~", "/~2"]
        {
            assert_eq!(found(body, at), None, "{at}");
        }
    }

    #[test]
    fn json_pointer_examples_of_rfc_6901_are_found() {
        let body =
            r#"{"foo":["bar","baz"],"":0,"a/b":1,"c%d":2,"e^f":3,"g|h":4,"i\\j":5,"k\"l":6," ":7,"m~n":8,"~1":9}"#;
        let expected = [
            ("/foo/0", "bar"),
            ("/", "0"),
            ("/a~1b", "1"),
            ("/c%d", "2"),
            ("/e^f", "3"),
            ("/g|h", "4"),
            ("/i\\j", "5"),
            ("/k\"l", "6"),
            ("/ ", "7"),
            ("/m~0n", "8"),
            ("/~01", "9"),
        ];
        for (at, value) in expected {
            assert_eq!(found(body, at).as_deref(), Some(value), "{at}");
        }
    }

    #[test]
    fn signed_or_zero_padded_pointer_index_finds_nothing() {
        assert_eq!(found("[[1,2],{\"01\":3}]", "/0/1").as_deref(), Some("2"));
        assert_eq!(found("[[1,2],{\"01\":3}]", "/1/01").as_deref(), Some("3"));
        for at in ["/00", "/01", "/+1", "/-1", "/", "/18446744073709551616"] {
            assert_eq!(found("[1,2]", at), None, "{at}");
        }
    }

    #[test]
    fn last_of_duplicate_json_keys_is_used() {
        assert_eq!(found(r#"{"a":{"id":1},"a":{"id":2},"\u0061":{"id":3}}"#, "/a/id").as_deref(), Some("3"));
        assert_eq!(found(r#"{"a":{"id":1},"a":null}"#, "/a/id"), None);
    }

    #[test]
    fn pointer_into_invalid_json_finds_nothing() {
        for body in ["", "{", "{\"id\":1}x", "{\"id\":1,}", "{\"id\":01}", "{\"id\":1", "id=1", "{'id':1}"] {
            assert_eq!(found(body, "/id"), None, "{body}");
        }
        assert_eq!(pointer(b"{\"id\":1,\"x\":\"\xff\"}", "/id"), None);
    }

    #[test]
    fn deeply_nested_json_does_not_overflow_stack() {
        let deep = format!("{{\"deep\":{}{},\"id\":1}}", "[".repeat(500_000), "]".repeat(500_000));
        assert_eq!(found(&deep, "/id").as_deref(), Some("1"));
        assert_eq!(found(&deep, "/deep/0/0"), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let scalar = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        scalar.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a~/0\"\\\\é]{0,3}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn all_pointers(value: &Value, at: String, into: &mut Vec<(String, Option<String>)>) {
        let text = match value {
            Value::Null | Value::Array(_) | Value::Object(_) => None,
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        };
        match value {
            Value::Array(elements) => {
                elements
                    .iter()
                    .enumerate()
                    .for_each(|(index, inner)| all_pointers(inner, format!("{at}/{index}"), into));
            }
            Value::Object(members) => members.iter().for_each(|(key, inner)| {
                all_pointers(inner, format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), into);
            }),
            _ => {}
        }
        into.push((at, text));
    }

    proptest! {
        #[test]
        fn every_pointer_agrees_with_serde_json(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let mut pointers = Vec::new();
            all_pointers(&value, String::new(), &mut pointers);
            for (at, expected) in pointers {
                prop_assert!(is_pointer(&at));
                prop_assert!(value.pointer(&at).is_some());
                prop_assert_eq!(found(&text, &at), expected, "{} in {}", at, text);
            }
        }

        #[test]
        fn pointer_never_panics_on_arbitrary_bytes(body in any::<Vec<u8>>(), at in any::<String>()) {
            let _ = pointer(&body, &at);
        }

        #[test]
        fn pointer_never_panics_on_broken_json(body in r#"[{}\[\]",:\\u0-9ae tfn.-]{0,40}"#, at in "(/[a0~1-]{0,3}){0,3}") {
            let _ = pointer(body.as_bytes(), &at);
        }
    }

    #[test]
    fn half_of_a_surrogate_pair_is_found() {
        for body in [r#""\ud800""#, r#""\udc00\ud83d\ude00""#, r#""\ud83d\ud83d\ude00""#, r#""\ud83dx""#, r"\uD83D"] {
            assert!(has_lone_surrogate(body.as_bytes()), "{body}");
        }
        for body in [r#""\ud83d\ude00""#, r#""\\ud800""#, r#""\uD83D\uDE00\n\u00e9""#, "\"\\", r#""\u12""#, ""] {
            assert!(!has_lone_surrogate(body.as_bytes()), "{body}");
        }
    }
}
