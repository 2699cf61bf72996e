//! Rewrites the errors of the document's parsers: hides values and adds the nearest valid
//! name.

use crate::{
    nearest::{hint, nearest},
    protocol::entity::SourceName,
};

/// Returns the message of an error in a TOML document.
pub(super) fn of_toml(text: &str, error: &toml::de::Error) -> String {
    let span = error.span().unwrap_or_default();
    let (before, from) = text.split_at(span.start);
    let key = match before.trim_end().strip_suffix('=') {
        Some(key) => Some(key),
        None => from.strip_prefix('[').and_then(|header| header.split_once(']')).map(|(key, _)| key),
    };
    let key = key.and_then(last_word);
    let message = match error.message() {
        // The parser does not say what it found instead of a word such as `park`.
        "wanted string or table" if from.starts_with('[') => "invalid type: sequence, expected a string".to_owned(),
        "wanted string or table" => format!("invalid type: `{}`, expected a string", &text[span]),
        // The full text of the error quotes the line, which may hold a secret.
        message => without_values(message),
    };
    let message = in_words(&message, key);
    let example = match key {
        _ if !message.ends_with("must be a table") => String::new(),
        Some(key @ ("origin" | "alerts")) => format!(", such as [{key}]"),
        Some(key @ ("topics" | "filter" | "retry" | "generic" | "forward" | "invoke")) => {
            format!(", such as [sources.shopify.{key}]")
        }
        _ => ", such as [sources.shopify]".to_owned(),
    };
    format!("line {}: {message}{example}", before.matches('\n').count() + 1)
}

/// Returns the message of an error in a JSON document.
pub(super) fn of_json(text: &str, error: &serde_json::Error) -> String {
    let lines = text.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = lines.map(str::len).sum::<usize>() + error.column();
    let before = &text[..text.floor_char_boundary(at)];
    let key = before.rsplit_once(':').filter(|(key, _)| key.trim_end().ends_with('"'));
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = without_values(&error.to_string());
    match message.strip_suffix(&place) {
        Some(message) => in_words(message, key.and_then(|(key, _)| last_word(key))) + &place,
        None => message,
    }
}

/// Returns the last word of `text`, without quotes.
fn last_word(text: &str) -> Option<&str> {
    let text = text.trim_end().trim_end_matches(['"', '\'']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    text.rsplit(|c| !is_part(c)).next().filter(|word| !word.is_empty())
}

/// Rewrites a parser's message about the value of `key` in the document's terms, such as list instead of
/// sequence.
fn in_words(message: &str, key: Option<&str>) -> String {
    let name = key.map_or_else(|| "a value".to_owned(), |key| format!("`{key}`"));
    let mismatch = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, expected)) = mismatch.and_then(|rest| rest.split_once(", expected ")) else {
        return message.to_owned();
    };
    let is = match found {
        "sequence" => "is a list, but ".to_owned(),
        "map" => "is a table, but ".to_owned(),
        _ if !found.starts_with("string") => format!("is {}, but ", &found[found.find('`').unwrap_or(0)..]),
        _ if message.starts_with("invalid type") => "is a text, but ".to_owned(),
        _ => String::new(),
    };
    let expected = match expected {
        "a string" => "a text",
        "a boolean" => "`true` or `false`",
        "u32" => "a positive whole number",
        "a map" => "a table",
        expected => expected,
    };
    format!("{name} {is}must be {expected}")
}

/// Removes the document's values from a parser's error text, because a value may
/// be a secret. Parsers quote values in double quotes or, after `unknown variant`,
/// in backquotes. Other backquoted text is kept: field names, and the examples in
/// our own errors, which therefore must not use double quotes.
///
/// After an unknown name, adds the most similar expected name.
fn without_values(message: &str) -> String {
    // An escaped quote is part of a value and does not end it.
    let message = with_hint(&message.replace("\\\"", ""));
    let mut kept = String::new();
    for (number, piece) in message.split('"').enumerate() {
        kept.push_str(if number % 2 == 0 { piece } else { "\"…\"" });
    }
    kept
}

fn with_hint(message: &str) -> String {
    const FIELD: &str = "unknown field `";
    const VARIANT: &str = "unknown variant `";
    const EXPECTED: &str = "`, expected";
    if let Some((before, rest)) = message.split_once(VARIANT) {
        let (value, behind) = rest.rsplit_once(EXPECTED).unwrap_or_default();
        let near = nearest(value, names(behind)).filter(|_| !value.contains('"'));
        let (shown, hint) = near.map_or(("…", String::new()), |_| (value, hint(value, names(behind))));
        return format!("{before}{VARIANT}{shown}`{hint}, expected{behind}");
    }
    if let Some((before, rest)) = message.split_once(FIELD)
        && let Some((field, behind)) = rest.split_once(EXPECTED)
    {
        let hint = match hint(field, names(behind)) {
            // The document has `[shop]` instead of `[sources.shop]`.
            none if none.is_empty() && is_missing_prefix(field, behind) => {
                format!(" (did you mean `sources.{field}`?)")
            }
            hint => hint,
        };
        return format!("{before}{FIELD}{field}`{hint}, expected{behind}");
    }
    message.to_owned()
}

/// Returns the backquoted names of a list such as `` `park` or `block` ``.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split('`').skip(1).step_by(2)
}

fn is_missing_prefix(field: &str, expected: &str) -> bool {
    names(expected).any(|name| name == "sources") && SourceName::parse(field).is_ok()
}

#[cfg(test)]
mod tests {
    use crate::sources::Sources;

    fn refused(document: &str) -> String {
        Sources::parse(document).unwrap_err().to_string()
    }

    #[test]
    fn unknown_name_error_suggests_nearest_and_lists_names() {
        const SHOP: &str = "[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\n";
        for (document, expected) in [
            (
                format!("{SHOP}secret = 'hush'"),
                "line 4: unknown field `secret` (did you mean `secrets`?), expected one of `provider`, `from`, `queue`, `secrets`",
            ),
            (format!("{SHOP}colour = 'hush'"), "line 4: unknown field `colour`, expected one of `provider`"),
            (
                format!("{SHOP}retry = {{ atempts = 3 }}"),
                "unknown field `atempts` (did you mean `attempts`?), expected",
            ),
            (
                "[shopify]\nprovider = 'shopify'".to_owned(),
                "line 1: unknown field `shopify` (did you mean `sources.shopify`?), expected one of `$schema`",
            ),
            ("['My Shop']".to_owned(), "line 1: unknown field `My Shop`, expected one of `$schema`"),
            ("[source.shop]".to_owned(), "unknown field `source` (did you mean `sources`?), expected one of"),
            (
                r#"{"shopify": {"provider": "shopify"}}"#.to_owned(),
                "unknown field `shopify` (did you mean `sources.shopify`?), expected one of `$schema`",
            ),
            (
                format!("{SHOP}on_failure = 'prak'"),
                "line 4: unknown variant `prak` (did you mean `park`?), expected `park` or `block`",
            ),
            (
                "[sources.shop]\nprovider = 'shopfiy'".to_owned() + "\nhandler = 'log'",
                "there is no provider `shopfiy`; did you mean `shopify`? The providers are adobe-commerce, ",
            ),
            (
                "[sources.shop]\nprovider = 'genric'\nhandler = 'log'\n\
                 generic = { header = 'x', hash = 'sha1', encoding = 'hex' }"
                    .to_owned(),
                "there is no provider `genric`; did you mean `generic`?",
            ),
        ] {
            let refused = refused(&document);
            assert!(refused.contains(expected) && !refused.contains("hush"), "{document}: {refused}");
        }
    }

    #[test]
    fn type_error_names_key_and_both_types() {
        const SHOP: &str = "[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\n";
        for (field, expected) in [
            (
                "topics = ['hush', 'hush']",
                "line 4: `topics` is a list, but must be a table, such as [sources.shopify.topics]",
            ),
            ("retry = [3]", "line 4: `retry` is a list, but must be a table, such as [sources.shopify.retry]"),
            ("retry = 3", "line 4: `retry` is `3`, but must be a table, such as [sources.shopify.retry]"),
            ("retry.attempts = '3'", "line 4: `attempts` is a text, but must be a positive whole number"),
            ("retry = { attempts = -3 }", "line 4: `attempts` is `-3`, but must be a positive whole number"),
            (
                "generic = ['x', 'sha1', 'hex']",
                "line 4: `generic` is a list, but must be a table, such as [sources.shopify.generic]",
            ),
            (
                "forward = ['hush', 'hush']",
                "line 4: `forward` is a list, but must be a table, such as [sources.shopify.forward]",
            ),
            ("invoke = ['hush']", "line 4: `invoke` is a list, but must be a table, such as [sources.shopify.invoke]"),
            ("invoke = { function = 3 }", "line 4: `function` is `3`, but must be a text"),
            ("rate = ['hush']", "line 4: `rate` is a list, but must be a text"),
            ("rate = { hush = 1 }", "line 4: `rate` is a table, but must be a text"),
            ("[sources.shop.rate]\nhush = 1", "line 4: `rate` is a table, but must be a text"),
            ("on_failure = true", "line 4: `on_failure` is `true`, but must be a text"),
            ("on_failure = ['hush']", "line 4: `on_failure` is a list, but must be a text"),
            ("\"paused\" = 'hush'", "line 4: `paused` is a text, but must be `true` or `false`"),
            (
                "[sources]\nother = ['hush', [], 'log']",
                "line 5: `other` is a list, but must be a table, such as [sources.shopify]",
            ),
        ] {
            assert_eq!(
                refused(&format!("{SHOP}{field}")),
                format!("the sources document cannot be read: {expected}"),
                "{field}"
            );
        }
        for (document, expected) in [
            (
                "[[sources]]\nprovider = 'hush'",
                "line 1: `sources` is a list, but must be a table, such as [sources.shopify]",
            ),
            (
                "sources.shop = ['hush', 'hush']",
                "line 1: `shop` is a list, but must be a table, such as [sources.shopify]",
            ),
            ("origin = ['hush']", "line 1: `origin` is a list, but must be a table, such as [origin]"),
            (r#"{"sources": [{"provider": "hush"}]}"#, "`sources` is a list, but must be a table at line 1 column 12"),
            (r#"{"sources": {"shop": {"retry": 3}}}"#, "`retry` is `3`, but must be a table at line 1 column 32"),
            (
                "{\"sources\":\n {\"shop\": {\"paused\": \"hush\"}}}",
                "`paused` is a text, but must be `true` or `false` at line 2 column 27",
            ),
            (
                r#"{"sources": {"shop": {"paused": "é hush: \"hush\":"}}}"#,
                "a value is a text, but must be `true` or `false` at line 1 column 52",
            ),
        ] {
            assert_eq!(refused(document), format!("the sources document cannot be read: {expected}"), "{document}");
        }
    }

    #[test]
    fn unrecognised_value_is_hidden_in_the_error() {
        for document in [
            "[sources.shop]\nprovider = 'hush-a-secret'\nhandler = 'log'",
            "[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\non_failure = 'hush'",
        ] {
            assert!(!refused(document).contains("hush"), "{}", refused(document));
        }
    }
}
