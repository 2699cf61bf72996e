//! The document's text, changed in place: comments, order and form of all that
//! is not changed stay. Of JSON, which has no comments, the order stays.

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value as Json;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::json::Object;

const SOURCES: &str = "sources";

/// A document that can be changed.
#[derive(Debug, Clone)]
pub enum Text {
    /// In TOML.
    Toml(Box<DocumentMut>),
    /// In JSON.
    #[expect(private_interfaces, reason = "whoever has a document asks for its text")]
    Json(Object),
}

impl Text {
    /// Takes a document that was read as sources, or an empty one.
    ///
    /// # Errors
    ///
    /// It is neither TOML nor JSON; without what stands in it.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map(Self::Json).map_err(|_| anyhow!("it is not JSON"));
        }
        let parsed: Result<DocumentMut, _> = text.parse();
        parsed.map(|document| Self::Toml(Box::new(document))).map_err(|_| anyhow!("it is not TOML"))
    }

    /// Whether it has a source of that name.
    pub fn has(&self, source: &str) -> bool {
        match self {
            Self::Toml(document) => {
                let sources = document.get(SOURCES).and_then(Item::as_table_like);
                sources.is_some_and(|sources| sources.contains_key(source))
            }
            Self::Json(document) => document.get::<Object>(SOURCES).is_some_and(|sources| sources.has(source)),
        }
    }

    /// Puts a source with these fields behind the others.
    ///
    /// # Errors
    ///
    /// `sources` is no table.
    pub fn insert(&mut self, source: &str, fields: &[(String, Json)]) -> Result<()> {
        match self {
            Self::Toml(document) => {
                let is_first = document.is_empty();
                let sources = document.entry(SOURCES).or_insert_with(|| {
                    let mut sources = Table::new();
                    sources.set_implicit(true);
                    Item::Table(sources)
                });
                if let Some(inline) = sources.as_inline_table_mut() {
                    let fields = fields.iter().map(|(name, value)| (name.as_str(), toml(value)));
                    inline.insert(source, Value::InlineTable(fields.collect()));
                    return Ok(());
                }
                let mut table = Table::new();
                for (name, value) in fields {
                    table.insert(name, Item::Value(toml(value)));
                }
                if !is_first {
                    table.decor_mut().set_prefix("\n");
                }
                let sources = sources.as_table_mut().context("`sources` is no table")?;
                sources.insert(source, Item::Table(table));
                Ok(())
            }
            Self::Json(document) => {
                let mut entry = Object::default();
                for (name, value) in fields {
                    entry.set(name, value)?;
                }
                let mut sources: Object = document.get(SOURCES).unwrap_or_default();
                sources.set(source, &entry)?;
                Ok(document.set(SOURCES, &sources)?)
            }
        }
    }

    /// Takes a source out, with the comments above it; those of the file's head stay.
    ///
    /// # Errors
    ///
    /// There is no such source.
    pub fn remove(&mut self, source: &str) -> Result<()> {
        match self {
            Self::Toml(document) => {
                let before = document.to_string();
                let sources = document.get_mut(SOURCES).and_then(Item::as_table_like_mut);
                sources.and_then(|sources| sources.remove(source)).with_context(|| none(source))?;
                let (head, after) = (head(&before), document.to_string());
                if !after.starts_with(head) {
                    let after = if head.ends_with("\n\n") { after.trim_start_matches('\n') } else { &after };
                    **document = format!("{head}{after}").parse()?;
                }
                Ok(())
            }
            Self::Json(document) => {
                let mut sources: Object = document.get(SOURCES).with_context(|| none(source))?;
                sources.remove(source);
                Ok(document.set(SOURCES, &sources)?)
            }
        }
    }

    /// The texts of a field that holds one or a list of them.
    pub fn texts(&self, source: &str, field: &str) -> Vec<String> {
        match self {
            Self::Toml(document) => {
                let entry = document.get(SOURCES).and_then(Item::as_table_like).and_then(|all| all.get(source));
                match entry.and_then(Item::as_table_like).and_then(|entry| entry.get(field)).and_then(Item::as_value) {
                    Some(Value::String(text)) => vec![text.value().clone()],
                    Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                    _ => Vec::new(),
                }
            }
            Self::Json(document) => {
                let entry = document.get::<Object>(SOURCES).and_then(|sources| sources.get::<Object>(source));
                match entry.and_then(|entry| entry.get(field)) {
                    Some(Json::String(text)) => vec![text],
                    Some(Json::Array(list)) => list.iter().filter_map(Json::as_str).map(str::to_owned).collect(),
                    _ => Vec::new(),
                }
            }
        }
    }

    /// Puts `text` in front of what a field holds, which is a list from then on
    /// if it holds anything yet.
    ///
    /// # Errors
    ///
    /// There is no such source.
    pub fn put_first(&mut self, source: &str, field: &str, text: &str) -> Result<()> {
        let texts = self.texts(source, field);
        self.with_entry(source, |entry| match entry {
            Entry::Toml(entry) => {
                if entry.get(field).is_none() {
                    entry.insert(field, Item::Value(Value::Array(Array::new())));
                }
                let value = entry.get_mut(field).and_then(Item::as_value_mut).context("it is no list of texts")?;
                if !value.is_array() {
                    let decor = value.decor().clone();
                    *value = Value::Array(texts.iter().collect());
                    *value.decor_mut() = decor;
                }
                let list = value.as_array_mut().context("it is no list of texts")?;
                // On a line of its own where the others have one.
                let space = list.get(0).and_then(|first| first.decor().prefix()?.as_str()).unwrap_or_default();
                let space = space.rfind('\n').map_or("", |line| &space[line..]).to_owned();
                if let (Some(first), true) = (list.get_mut(0), space.is_empty()) {
                    first.decor_mut().set_prefix(" ");
                }
                list.insert_formatted(0, Value::from(text).decorated(space, ""));
                Ok(())
            }
            Entry::Json(entry) => {
                let all: Vec<&str> = [text].into_iter().chain(texts.iter().map(String::as_str)).collect();
                Ok(entry.set(field, &all)?)
            }
        })
    }

    /// Says in a field that something is so, or nothing of it.
    ///
    /// # Errors
    ///
    /// There is no such source.
    pub fn flag(&mut self, source: &str, field: &str, is_so: bool) -> Result<()> {
        self.with_entry(source, |entry| match entry {
            Entry::Toml(entry) if is_so => {
                entry.insert(field, Item::Value(Value::from(true)));
                Ok(())
            }
            Entry::Toml(entry) => {
                entry.remove(field);
                Ok(())
            }
            Entry::Json(entry) if is_so => Ok(entry.set(field, &true)?),
            Entry::Json(entry) => {
                entry.remove(field);
                Ok(())
            }
        })
    }

    /// Takes one of a field's texts out, by its number from 0.
    ///
    /// # Errors
    ///
    /// There is no such source, or no such text.
    pub fn take_out(&mut self, source: &str, field: &str, number: usize) -> Result<()> {
        let mut texts = self.texts(source, field);
        ensure!(number < texts.len(), "there is no such text");
        texts.remove(number);
        self.with_entry(source, |entry| match entry {
            Entry::Toml(entry) => {
                let list = entry.get_mut(field).and_then(Item::as_array_mut).context("it is no list of texts")?;
                let space = list.get(0).and_then(|first| first.decor().prefix()?.as_str().map(str::to_owned));
                list.remove(number);
                if let (Some(left), Some(space)) = (list.get_mut(0), space) {
                    left.decor_mut().set_prefix(space);
                }
                Ok(())
            }
            Entry::Json(entry) => Ok(entry.set(field, &texts)?),
        })
    }

    fn with_entry(&mut self, source: &str, change: impl FnOnce(Entry<'_>) -> Result<()>) -> Result<()> {
        match self {
            Self::Toml(document) => {
                let sources = document.get_mut(SOURCES).and_then(Item::as_table_like_mut);
                let entry = sources.and_then(|sources| sources.get_mut(source)).and_then(Item::as_table_like_mut);
                change(Entry::Toml(entry.with_context(|| none(source))?))
            }
            Self::Json(document) => {
                let mut sources: Object = document.get(SOURCES).with_context(|| none(source))?;
                let mut entry: Object = sources.get(source).with_context(|| none(source))?;
                change(Entry::Json(&mut entry))?;
                sources.set(source, &entry)?;
                Ok(document.set(SOURCES, &sources)?)
            }
        }
    }
}

/// The comments that are the whole file's: directives such as `#:schema` at its beginning, and every paragraph before
/// the one that stands above the first line of content.
fn head(text: &str) -> &str {
    let lines = |is_head: fn(&str) -> bool| {
        text.split_inclusive('\n').take_while(|line| is_head(line)).map(str::len).sum::<usize>()
    };
    let comments = &text[..lines(|line| line.starts_with('#') || line.trim().is_empty())];
    match comments.rfind("\n\n") {
        Some(at) => &comments[..at + 2],
        None => &text[..lines(|line| line.starts_with("#:"))],
    }
}

enum Entry<'a> {
    Toml(&'a mut dyn TableLike),
    Json(&'a mut Object),
}

fn none(source: &str) -> String {
    format!("there is no source `{source}`")
}

/// As it is to be stored.
impl std::fmt::Display for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Toml(document) => write!(f, "{document}"),
            Self::Json(document) => {
                let text = serde_json::to_string(document).map_err(|_| std::fmt::Error)?;
                writeln!(f, "{}", pretty(&text))
            }
        }
    }
}

/// JSON with a line for each member and element; what is inside texts stays.
fn pretty(json: &str) -> String {
    let (mut text, mut depth, mut in_text, mut escaped) = (String::new(), 0_usize, false, false);
    let mut letters = json.chars().peekable();
    while let Some(letter) = letters.next() {
        if in_text {
            text.push(letter);
            in_text = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
            continue;
        }
        match letter {
            '"' => {
                in_text = true;
                text.push(letter);
            }
            '{' | '[' => {
                text.push(letter);
                while letters.peek().is_some_and(|next| next.is_whitespace()) {
                    letters.next();
                }
                if letters.peek().is_some_and(|next| matches!(next, '}' | ']')) {
                    text.extend(letters.next());
                    continue;
                }
                depth += 1;
                line(&mut text, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut text, depth);
                text.push(letter);
            }
            ',' => {
                text.push(letter);
                line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            letter if letter.is_whitespace() => {}
            letter => text.push(letter),
        }
    }
    text
}

fn line(text: &mut String, depth: usize) {
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
}

fn toml(value: &Json) -> Value {
    match value {
        Json::String(text) => text.as_str().into(),
        Json::Bool(flag) => (*flag).into(),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, part) => part.unwrap_or_default().into(),
        },
        Json::Array(list) => list.iter().map(toml).collect::<Array>().into(),
        Json::Object(fields) => {
            fields.iter().map(|(name, value)| (name.as_str(), toml(value))).collect::<InlineTable>().into()
        }
        Json::Null => "".into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use webhook_serializer::sources::Sources;

    use super::*;

    const TOML: &str = "\
#:schema sources.schema.json
# The shop.
[sources.shop]
provider = \"shopify\" # theirs
secrets = [
    # of May
    \"old\", # soon gone
]
handler = \"orders\"

# Payments.
[sources.payments]
provider = 'stripe'
secrets = 'whsec_old'  # of June
handler = 'orders'
retry = { attempts = 3, first = \"2s\" }
";

    fn edited(text: &str, edit: impl FnOnce(&mut Text) -> Result<()>) -> String {
        let mut document = Text::parse(text).unwrap();
        edit(&mut document).unwrap();
        let text = document.to_string();
        Sources::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        text
    }

    #[test]
    fn what_is_not_changed_stays_to_the_letter() {
        let with = edited(TOML, |text| text.put_first("shop", "secrets", "new"));
        assert_eq!(with, TOML.replace("    # of May\n", "    \"new\",\n    # of May\n"));
        let with = edited(TOML, |text| text.put_first("payments", "secrets", "whsec_new"));
        assert_eq!(with, TOML.replace("'whsec_old'", "[\"whsec_new\", \"whsec_old\"]"));
        let without = edited(&with, |text| text.take_out("payments", "secrets", 1));
        assert_eq!(without, TOML.replace("'whsec_old'", "[\"whsec_new\"]"));
        let fields = [("provider".to_owned(), json!("shopify")), ("handler".to_owned(), json!("h"))];
        let with = edited(TOML, |text| text.insert("second", &fields));
        assert_eq!(with, format!("{TOML}\n[sources.second]\nprovider = \"shopify\"\nhandler = \"h\"\n"));
        assert_eq!(edited(&with, |text| text.remove("second")), TOML);
    }

    #[test]
    fn first_source_is_removed_without_file_header() {
        let without = |text: &str| edited(text, |text| text.remove("shop"));
        let (_, payments) = TOML.split_once("# Payments.").unwrap();
        assert_eq!(without(TOML), format!("#:schema sources.schema.json\n\n# Payments.{payments}"));
        let header = "#:schema sources.schema.json\n# Ask Ada before you change this.\n\n# Its secrets are ours.\n\n";
        let (_, sources) = TOML.split_once('\n').unwrap();
        assert_eq!(without(&format!("{header}{sources}")), format!("{header}# Payments.{payments}"));
        let only_last = edited(&format!("{header}{sources}"), |text| text.remove("payments"));
        assert_eq!(
            only_last,
            format!("{header}{}", sources.split_once("\n\n# Payments.").unwrap().0.to_owned() + "\n")
        );
    }

    #[test]
    fn a_secret_is_put_into_a_source_that_has_none_and_the_first_source_into_an_empty_document() {
        let fields = [("provider".to_owned(), json!("shopify")), ("handler".to_owned(), json!("h"))];
        let first = edited("", |text| text.insert("shop", &fields));
        assert_eq!(first, "[sources.shop]\nprovider = \"shopify\"\nhandler = \"h\"\n");
        let with = edited(&first, |text| text.put_first("shop", "secrets", "s"));
        assert_eq!(with, format!("{first}secrets = [\"s\"]\n"));
    }

    #[test]
    fn every_way_to_write_a_source_can_be_changed() {
        for text in [
            "sources = { shop = { provider = 'shopify', handler = 'h', secrets = ['old'] } }\n",
            "sources.shop = { provider = 'shopify', handler = 'h', secrets = 'old' }\n",
            "[sources]\nshop.provider = 'shopify'\nshop.handler = 'h'\nshop.secrets = ['old']\n",
            r#"{"sources":{"shop":{"provider":"shopify","handler":"h","secrets":"old"}}}"#,
        ] {
            let fields = [("provider".to_owned(), json!("stripe")), ("handler".to_owned(), json!("h"))];
            let with = edited(text, |text| {
                text.put_first("shop", "secrets", "new")?;
                text.insert("second", &fields)
            });
            let document = Text::parse(&with).unwrap();
            assert_eq!(document.texts("shop", "secrets"), ["new", "old"], "{with}");
            assert!(document.has("second") && !document.has("third"), "{with}");
            let without = edited(&with, |text| {
                text.take_out("shop", "secrets", 0)?;
                text.remove("second")
            });
            assert_eq!(Text::parse(&without).unwrap().texts("shop", "secrets"), ["old"], "{without}");
        }
    }

    #[test]
    fn json_keeps_its_order_and_what_its_texts_hold() {
        let text = r#"{"$schema":"x","sources":{"z":{"provider":"shopify","handler":"h","secrets":["a\"b\\: {,\u00e9"],"rate":"5/s"},"a":{"provider":"shopify","handler":"h"}}}"#;
        let with = edited(text, |text| text.put_first("z", "secrets", "new"));
        let places = ["$schema", "\"z\"", "\"provider\"", "\"handler\"", "\"secrets\"", "\"rate\"", "\"a\""];
        let found: Vec<usize> = places.iter().map(|place| with.find(place).unwrap()).collect();
        assert!(found.is_sorted(), "{with}");
        assert_eq!(Text::parse(&with).unwrap().texts("z", "secrets"), ["new", "a\"b\\: {,é"]);
        assert!(with.contains("      \"rate\": \"5/s\"\n"), "{with}");
    }
}
