//! Shows the difference between two sources documents, and hides their secrets. Comments are hidden too, because a
//! comment may contain an old secret.

use toml_edit::{Item, TableLike, Value};
use webhook_serializer::sources::reference::tables;

use super::DocumentText;

const HIDDEN: &str = "…";

pub fn difference(before: &DocumentText, after: &DocumentText) -> Vec<String> {
    let before = lines(before);
    let after = lines(after);
    let same = before.iter().zip(&after).take_while(|(left, right)| left == right).count();
    let before = &before[same..];
    let after = &after[same..];
    let same = before.iter().rev().zip(after.iter().rev()).take_while(|(left, right)| left == right).count();
    let before = &before[..before.len() - same];
    let after = &after[..after.len() - same];
    let marked = |sign: char| move |line: &String| format!("{sign} {line}");
    let lines = before.iter().map(marked('-')).chain(after.iter().map(marked('+')));
    lines.filter(|line| line.len() > 2).collect()
}

fn lines(text: &DocumentText) -> Vec<String> {
    let mut hidden = text.0.clone();
    hide(hidden.as_table_mut(), "");
    let shown = |line: &str| match line.trim_start().starts_with('#') {
        true => format!("# {HIDDEN}"),
        false => line.trim_end().to_owned(),
    };
    hidden.to_string().lines().map(shown).collect()
}

fn is_secret(name: &str) -> bool {
    tables()
        .iter()
        .flat_map(|table| &table.fields)
        .any(|field| field.name == name && field.pattern().is_some_and(|pattern| pattern.is_secret))
}

/// Hides the path and query of a destination's URL, because both can contain secrets.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(before: &str, after: &str) -> Vec<String> {
        difference(&DocumentText::parse(before).unwrap(), &DocumentText::parse(after).unwrap())
    }

    #[test]
    fn document_difference_is_shown_without_secrets() {
        let toml = "# hidden\n[sources.a] # hidden\nprovider = 'x' # hidden\nsecrets = ['hidden', # hidden\n'hidden']\n\
                    handler = 'forward'\nforward = { url = 'https://u.example/hidden?k=hidden', secret = ['hidden'] }\n\
                    [sources.a.other]\nsecret = 'hidden'\n[sources.b.forward]\nurl = 'https://u.example/hidden'\n";
        for (before, after) in [("", toml), (toml, "")] {
            let lines = shown(before, after);
            assert!(lines.len() > 5 && !lines.concat().contains("hidden"), "{lines:#?}");
            assert!(lines.concat().contains("https://u.example/…"), "{lines:#?}");
        }
        assert_eq!(shown(toml, toml), [""; 0]);
        let two = "a = 1\nsecrets = 'x'\nb = 2\n";
        let lines = shown(two, &two.replace("'x'", "['x', 'y']"));
        assert_eq!(lines, ["- secrets = \"…\"", "+ secrets = [\"…\", \"…\"]"]);
    }
}
