//! Reconstructs bodies that were rewritten in transit.

use std::ops::Range;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::IgnoredAny;
use webhook_serializer::functions::ingest;

/// The size in bytes above which only some forms of a body are tried.
const LARGE: usize = 1 << 18;

pub(super) fn variants(body: &[u8]) -> Vec<(Vec<u8>, String)> {
    let mut found: Vec<(Vec<u8>, String)> = Vec::new();
    let mut push = |other: Vec<u8>, what: &str| {
        if other != body && found.iter().all(|(held, _)| *held != other) {
            found.push((other, what.to_owned()));
        }
    };
    let end = "the body ends with a newline that was not signed: an editor or `echo` adds one, `printf %s` does not";
    if let Some(shorter) = body.strip_suffix(b"\n") {
        push(shorter.to_vec(), end);
        push(shorter.strip_suffix(b"\r").unwrap_or(shorter).to_vec(), end);
    }
    push(body.trim_ascii().to_vec(), "the white space around the body was not signed: remove it");
    let cut = "the body lacks its final newline, which was signed: `$(…)` in a shell or a trim removes it";
    push([body, b"\n"].concat(), cut);
    push([body, b"\r\n"].concat(), cut);
    if let Some(bare) = body.strip_prefix(b"\xef\xbb\xbf") {
        push(bare.to_vec(), "the body begins with a byte order mark that was not signed: remove it");
    }
    if let Ok(text) = std::str::from_utf8(body) {
        let unix = text.replace("\r\n", "\n");
        push(
            unix.replace('\n', "\r\n").into(),
            "the sender signed the body with lines that end in CR LF: keep its bytes as received",
        );
        push(unix.into(), "the sender signed the body with lines that end in LF: keep its bytes as received");
        if let Some(bytes) = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect() {
            push(bytes, "the body was read as Latin-1 and written as UTF-8: keep its bytes as received");
        }
        if let Ok(inner) = serde_json::from_str::<String>(text) {
            push(inner.into(), "the body is JSON inside a JSON string: it was serialised twice");
        }
        if let Ok(event) = serde_json::from_str::<ingest::HttpRequest>(text)
            && event.body.is_some()
            && let Some(inner) = event.bytes()
        {
            push(inner.into_owned(), "this is a function's event: the signed body is its field `body`");
        }
    }
    if let Ok(decoded) = STANDARD.decode(body.trim_ascii()) {
        push(decoded, "the body is in base64, as functions get it with `isBase64Encoded`: decode it first");
    }
    for (other, how) in rewritten(body) {
        push(
            other,
            &format!(
                "the body was parsed and serialised again: the sender signed the same JSON {how}. Verify the bytes as \
                 received, before anything parses them"
            ),
        );
    }
    found
}

fn rewritten(body: &[u8]) -> Vec<(Vec<u8>, String)> {
    let Ok(text) = std::str::from_utf8(body) else { return Vec::new() };
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for spacing in Spacing::ALL {
        for escapes in Escapes::all(body.len() > LARGE) {
            let other = rewrite(text, spacing, escapes);
            let how = format!("{}{}", spacing.in_words(), escapes.in_words());
            for ending in ["", "\n"] {
                let ended = if ending.is_empty() { "" } else { ", with a newline at its end" };
                found.push((format!("{other}{ending}").into_bytes(), format!("{how}{ended}")));
            }
        }
    }
    found
}

/// The largest number of groups of numbers that are rewritten independently of each other.
const MOST_GROUPS: usize = 7;

/// Returns the body with its numbers written as another serialiser writes them, such as 136.0 for 136. Numbers with
/// the same member's name and the same form change together.
pub(super) fn renumbered(body: &[u8]) -> impl Iterator<Item = (Vec<u8>, String)> {
    let text = std::str::from_utf8(body).ok().filter(|text| text.len() <= LARGE);
    let text = text.filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok()).unwrap_or_default();
    let ways: [fn(&str) -> Option<String>; 3] = [
        |number| match number.split_once('.') {
            None => Some(format!("{number}.0")),
            Some((_, decimals)) => (decimals.len() == 1).then(|| format!("{number}0")),
        },
        |number| (!number.contains('.')).then(|| format!("{number}.00")),
        |number| {
            number
                .strip_suffix(".0")
                .or_else(|| number.strip_suffix('0'))
                .filter(|_| number.contains('.'))
                .map(str::to_owned)
        },
    ];
    ways.into_iter().flat_map(move |way| {
        let numbers = numbers(text).filter_map(|(range, name)| Some((way(&text[range.clone()])?, range, name)));
        let numbers: Vec<_> = numbers.collect();
        let group = |range: &Range<usize>, name: &str| (name.to_owned(), text[range.clone()].contains('.'));
        let mut groups: Vec<_> = numbers.iter().map(|(_, range, name)| group(range, name)).collect();
        groups.sort_unstable();
        groups.dedup();
        let count = groups.len();
        let subsets: Vec<u128> = match count {
            0 => Vec::new(),
            1..=MOST_GROUPS => (1..1 << count).collect(),
            _ => (0..count.min(127)).map(|one| 1 << one).chain([u128::MAX]).collect(),
        };
        let rewrite_group = move |subset: u128| {
            let is_changed = |range: &Range<usize>, name: &str| {
                let at = groups.binary_search(&group(range, name)).unwrap_or_default();
                subset & (1_u128.checked_shl(at as u32).unwrap_or_default()) != 0 || subset == u128::MAX
            };
            let mut other = String::new();
            let mut from = 0;
            for (number, range, _) in numbers.iter().filter(|(_, range, name)| is_changed(range, name)) {
                other.push_str(&text[from..range.start]);
                other.push_str(number);
                from = range.end;
            }
            other + &text[from..]
        };
        let others: Vec<String> = subsets.into_iter().map(rewrite_group).collect();
        others.into_iter().flat_map(|other| {
            Spacing::ALL.map(|spacing| {
                const KEPT: Escapes = Escapes { slash: None, unicode: None, html: None };
                let how = format!(
                    "the body was parsed and serialised again: the sender signed the same JSON {}, and with some \
                     numbers written otherwise, such as 136.0 for 136. Verify the bytes as received, before anything \
                     parses them",
                    spacing.in_words()
                );
                (rewrite(&other, spacing, KEPT).into_bytes(), how)
            })
        })
    })
}

/// Returns the places of all plain numbers in the JSON `text`, each with the name of the nearest member around it.
fn numbers(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let mut at = 0;
    let mut name = "";
    std::iter::from_fn(move || {
        while let Some(c) = text[at..].chars().next() {
            let from = at;
            match c {
                '"' => {
                    at += end_of_text(&text[at..]);
                    if text[at..].trim_start().starts_with(':') {
                        name = &text[from..at];
                    }
                }
                '-' | '0'..='9' => {
                    at += text[at..].find([',', '}', ']', ' ', '\t', '\r', '\n']).unwrap_or(text.len() - at);
                    if !text[from..at].contains(['e', 'E']) {
                        return Some((from..at, name));
                    }
                }
                _ => at += c.len_utf8(),
            }
        }
        None
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spacing {
    Unchanged,
    None,
    Python,
    Indented(usize),
}

impl Spacing {
    const ALL: [Self; 5] = [Self::Unchanged, Self::None, Self::Python, Self::Indented(2), Self::Indented(4)];

    fn in_words(self) -> String {
        match self {
            Self::Unchanged => "with the same white space".to_owned(),
            Self::None => "without white space between its tokens".to_owned(),
            Self::Python => "with a space after each comma and colon".to_owned(),
            Self::Indented(by) => format!("indented by {by}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Escapes {
    /// How `/` is written: as `\/` if true, as PHP does, and as `/` if false. `None` leaves each `/` as it is.
    slash: Option<bool>,
    /// How characters outside ASCII are written: as `\u…` if true, and unescaped if false. `None` leaves them as they
    /// are.
    unicode: Option<bool>,
    /// How `&`, `<` and `>` are written: as `\u…` if true, as Go and Rails do, and unescaped if false. `None` leaves
    /// them as they are.
    html: Option<bool>,
}

impl Escapes {
    /// Returns all combinations of escapes. A large body gets only one, because each combination takes time.
    fn all(is_large: bool) -> Vec<Self> {
        let ways: &[Option<bool>] = if is_large { &[None] } else { &[None, Some(true), Some(false)] };
        let mut all = Vec::new();
        for slash in ways {
            for unicode in ways {
                all.extend(ways.iter().map(|html| Self { slash: *slash, unicode: *unicode, html: *html }));
            }
        }
        all
    }

    fn in_words(self) -> String {
        let said = |way: Option<bool>, yes: &str, no: &str| match way {
            None => String::new(),
            Some(true) => format!(", {yes}"),
            Some(false) => format!(", {no}"),
        };
        said(self.slash, r"`/` written as `\/`", "`/` written plainly")
            + &said(
                self.unicode,
                r"characters outside ASCII written as `\u…`",
                "characters outside ASCII written plainly",
            )
            + &said(self.html, r"`&`, `<` and `>` written as `\u…`", "`&`, `<` and `>` written plainly")
    }
}

/// Rewrites the JSON `text` with this spacing and these escapes. The numbers and the order of members stay unchanged.
fn rewrite(text: &str, spacing: Spacing, escapes: Escapes) -> String {
    let mut out = String::with_capacity(text.len());
    let mut depth = 0;
    let mut rest = text;
    let line = |out: &mut String, depth: usize| {
        if let Spacing::Indented(by) = spacing {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', by * depth));
        }
    };
    while let Some(c) = rest.chars().next() {
        let mut behind = &rest[c.len_utf8()..];
        match c {
            '"' => {
                let end = end_of_text(rest);
                write_text(&mut out, &rest[1..end - 1], escapes);
                behind = &rest[end..];
            }
            _ if spacing == Spacing::Unchanged => out.push(c),
            ' ' | '\t' | '\r' | '\n' => {}
            '{' | '[' => {
                out.push(c);
                let inside = behind.trim_start();
                if inside.starts_with(['}', ']']) {
                    out.push(if c == '{' { '}' } else { ']' });
                    behind = &inside[1..];
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                out.push_str(if spacing == Spacing::Python { " " } else { "" });
                line(&mut out, depth);
            }
            ':' => out.push_str(if spacing == Spacing::None { ":" } else { ": " }),
            _ => out.push(c),
        }
        rest = behind;
    }
    out
}

fn end_of_text(json: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    json.len()
}

/// Writes a string literal with these escapes. `inside` is the literal's source text without its quotes.
fn write_text(out: &mut String, inside: &str, escapes: Escapes) {
    out.push('"');
    let mut rest = inside;
    while let Some(c) = rest.chars().next() {
        let (written, meant) = token(rest);
        rest = &rest[written.len()..];
        let is_html = meant.is_some_and(|c| "&<>".contains(c));
        let escaped = match meant {
            Some('/') => escapes.slash,
            _ if is_html => escapes.html,
            Some(c) if !c.is_ascii() => escapes.unicode,
            _ => None,
        };
        match (escaped, meant) {
            (Some(true), Some('/')) => out.push_str("\\/"),
            (Some(true), Some(meant)) => {
                let mut units = [0; 2];
                for unit in meant.encode_utf16(&mut units) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            (Some(false), Some(meant)) => out.push(meant),
            _ => out.push_str(written),
        }
        debug_assert!(!written.is_empty(), "{c}");
    }
    out.push('"');
}

/// Splits off the first character of a JSON string literal: its text as written, and the character that the text
/// means. The character is `None` for escapes that stay as they are, such as `\n`.
fn token(inside: &str) -> (&str, Option<char>) {
    let first = inside.chars().next().unwrap_or_default();
    if first != '\\' {
        return (&inside[..first.len_utf8()], Some(first));
    }
    if inside[1..].starts_with('/') {
        return (&inside[..2], Some('/'));
    }
    let unit = |at: usize| {
        let digits = inside.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let units: Vec<u16> = [unit(0), unit(6)].into_iter().map_while(|unit| unit).collect();
    match char::decode_utf16(units.iter().copied()).next() {
        Some(Ok(c)) => (&inside[..6 * c.len_utf16()], Some(c)),
        Some(Err(_)) => (&inside[..6], None),
        None => (&inside[..inside.char_indices().nth(2).map_or(inside.len(), |(at, _)| at)], None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: Escapes = Escapes { slash: None, unicode: None, html: None };

    #[test]
    fn rewriting_json_spacing_changes_no_key_or_value() {
        let text = "{\"a\" :[1.10,  {}, []],\n\"b c\":\"x , : \\\" y\"}";
        let written = |spacing| rewrite(text, spacing, KEPT);
        assert_eq!(written(Spacing::None), r#"{"a":[1.10,{},[]],"b c":"x , : \" y"}"#);
        assert_eq!(written(Spacing::Python), r#"{"a": [1.10, {}, []], "b c": "x , : \" y"}"#);
        let indented = "{\n  \"a\": [\n    1.10,\n    {},\n    []\n  ],\n  \"b c\": \"x , : \\\" y\"\n}";
        assert_eq!(written(Spacing::Indented(2)), indented);
        assert_eq!(written(Spacing::Unchanged), text);
    }

    #[test]
    fn json_rewriting_adds_removes_or_keeps_escapes_as_requested() {
        let text = r#""a\/é\u00fc😀\ud83d\ude00&\u003c\n\ud83d""#;
        let written = |way| rewrite(text, Spacing::Unchanged, Escapes { slash: way, unicode: way, html: way });
        assert_eq!(written(Some(true)), r#""a\/\u00e9\u00fc\ud83d\ude00\ud83d\ude00\u0026\u003c\n\ud83d""#);
        assert_eq!(written(Some(false)), r#""a/éü😀😀&<\n\ud83d""#);
        assert_eq!(written(None), text);
    }

    #[test]
    fn rewritten_bodies_include_compact_and_pretty_serde_json() {
        let value: serde_json::Value = serde_json::from_str(r#"{"a":[1,{"b":"é/"}],"c":{}}"#).unwrap();
        let compact = serde_json::to_string(&value).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        for (at_hand, signed) in [(&compact, &pretty), (&pretty, &compact)] {
            let ways = rewritten(at_hand.as_bytes());
            assert!(ways.iter().any(|(body, _)| body == signed.as_bytes()), "{signed}");
        }
    }

    #[test]
    fn malformed_json_causes_no_panic() {
        for text in ["", "\"", "{\"", "\"\\", "\"\\u12\"", "]", "\"\\é\"", "{\"a\":\"\\ud83d\\u\"}"] {
            assert!(variants(text.as_bytes()).iter().all(|(body, _)| body != text.as_bytes()), "{text}");
        }
    }
}
