//! What a change shows: the lines that differ, without a secret. A comment may
//! hold one too, such as the one before last.

use serde_json::Value as Json;
use toml_edit::{Item, TableLike, Value};

use super::Text;

/// What is written for a secret.
const HIDDEN: &str = "…";

/// The lines that differ, those of `before` behind a `-`, those of `after`
/// behind a `+`.
pub fn difference(before: &Text, after: &Text) -> Vec<String> {
    let (before, after) = (lines(before), lines(after));
    let same = before.iter().zip(&after).take_while(|(left, right)| left == right).count();
    let (before, after) = (&before[same..], &after[same..]);
    let same = before.iter().rev().zip(after.iter().rev()).take_while(|(left, right)| left == right).count();
    let (before, after) = (&before[..before.len() - same], &after[..after.len() - same]);
    let behind = |sign: char| move |line: &String| format!("{sign} {line}");
    let told = before.iter().map(behind('-')).chain(after.iter().map(behind('+')));
    told.filter(|line| line.len() > 2).collect()
}

fn lines(text: &Text) -> Vec<String> {
    let hidden = match text {
        Text::Toml(document) => {
            let mut document = document.clone();
            hide(document.as_table_mut(), "");
            document.to_string()
        }
        Text::Json(document) => {
            let mut value = serde_json::to_value(document).unwrap_or_default();
            hide_json(&mut value, "", "");
            serde_json::to_string_pretty(&value).unwrap_or_default()
        }
    };
    let shown = |line: &str| match line.trim_start().starts_with('#') {
        true => format!("# {HIDDEN}"),
        false => line.trim_end().to_owned(),
    };
    hidden.lines().map(shown).collect()
}

fn is_secret(field: &str) -> bool {
    matches!(field, "secrets" | "secret")
}

/// A destination's path and query can be secrets too.
fn address(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let path = if rest.len() > host.len() { format!("/{HIDDEN}") } else { String::new() };
    format!("{scheme}://{host}{path}")
}

fn hide(table: &mut dyn TableLike, name: &str) {
    for (field, item) in table.iter_mut() {
        let field = field.get().to_owned();
        match item {
            Item::Value(Value::InlineTable(inner)) => hide(inner, &field),
            Item::Table(inner) => {
                inner.decor_mut().set_suffix("");
                hide(inner, &field);
            }
            Item::Value(value) => {
                if is_secret(&field) {
                    hide_texts(value);
                } else if (name, field.as_str()) == ("forward", "url")
                    && let Some(url) = value.as_str()
                {
                    *value = address(url).into();
                }
                let suffix = value.decor().suffix().and_then(|suffix| suffix.as_str()).unwrap_or_default();
                if suffix.contains('#') {
                    value.decor_mut().set_suffix("");
                }
            }
            _ => {}
        }
    }
}

fn hide_texts(value: &mut Value) {
    match value {
        Value::Array(list) => *list = list.iter().map(|_| HIDDEN).collect(),
        value => {
            let decor = value.decor().clone();
            *value = HIDDEN.into();
            *value.decor_mut() = decor;
        }
    }
}

fn hide_json(value: &mut Json, name: &str, field: &str) {
    match value {
        Json::Object(members) => {
            members.iter_mut().for_each(|(inner, value)| hide_json(value, field, inner));
        }
        Json::Array(list) if is_secret(field) => list.iter_mut().for_each(|one| *one = HIDDEN.into()),
        Json::String(url) if (name, field) == ("forward", "url") => *url = address(url),
        value if is_secret(field) => *value = HIDDEN.into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        difference(&Text::parse(before).unwrap(), &Text::parse(after).unwrap())
    }

    #[test]
    fn only_what_differs_is_shown_and_no_secret_wherever_one_may_stand() {
        let toml = "# hidden\n[sources.a] # hidden\nprovider = 'x' # hidden\nsecrets = ['hidden', # hidden\n'hidden']\n\
                    handler = 'forward'\nforward = { url = 'https://u.example/hidden?k=hidden', secret = ['hidden'] }\n\
                    [sources.a.other]\nsecret = 'hidden'\n[sources.b.forward]\nurl = 'https://u.example/hidden'\n";
        let json = r#"{"sources":{"a":{"secrets":["hidden"],"forward":{"url":"https://u.example/hidden","secret":"hidden"}}}}"#;
        for text in [toml, json] {
            for (before, after) in [("", text), (text, "")] {
                let lines = shown(before, after);
                assert!(lines.len() > 5 && !lines.concat().contains("hidden"), "{lines:#?}");
                assert!(lines.concat().contains("https://u.example/…"), "{lines:#?}");
            }
            assert_eq!(shown(text, text), [""; 0]);
        }
        let two = "a = 1\nsecrets = 'x'\nb = 2\n";
        let lines = shown(two, &two.replace("'x'", "['x', 'y']"));
        assert_eq!(lines, ["- secrets = \"…\"", "+ secrets = [\"…\", \"…\"]"]);
    }
}
