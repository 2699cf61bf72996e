//! Edits a TOML document, and keeps its comments, its layout and the order of its entries.

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value as Json;
use toml_edit::{Array, DocumentMut, InlineTable, Item, RawString, Table, TableLike, Value};

use crate::{output::this_command, starter};

const SOURCES: &str = "sources";

#[derive(Debug, Clone)]
pub struct DocumentText(pub(super) DocumentMut, Layout);

/// The properties of a file that its parsed document lacks.
#[derive(Debug, Clone, Copy)]
struct Layout {
    has_byte_order_mark: bool,
    ends_lines_with_cr_lf: bool,
}

const MARK: char = '\u{feff}';

impl DocumentText {
    /// Parses a TOML document. An error message contains no part of the document, because the document has secrets.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start_matches(MARK).trim_start().starts_with('{') {
            bail!(
                "the document is JSON, and this command edits only TOML: edit it by hand, then run `{} check FILE`",
                this_command()
            );
        }
        let first_end = text.find('\n').and_then(|end| end.checked_sub(1)).map(|before| text.as_bytes()[before]);
        let layout =
            Layout { has_byte_order_mark: text.starts_with(MARK), ends_lines_with_cr_lf: first_end == Some(b'\r') };
        let document = text.parse().map_err(|_| anyhow!("the document is not TOML"))?;
        Ok(Self(document, layout))
    }

    pub fn has(&self, source: &str) -> bool {
        let sources = self.0.get(SOURCES).and_then(Item::as_table_like);
        sources.is_some_and(|sources| sources.contains_key(source))
    }

    pub fn insert(&mut self, source: &str, fields: &[(String, Json)]) -> Result<()> {
        let is_first = self.0.is_empty();
        let sources = self.0.entry(SOURCES).or_insert_with(|| {
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
        let sources = sources.as_table_mut().context("`sources` is not a table")?;
        sources.insert(source, Item::Table(table));
        Ok(())
    }

    /// Removes a source and the comments above the source, but not the file's header.
    pub fn remove(&mut self, source: &str) -> Result<()> {
        let before = self.0.to_string();
        let sources = self.0.get_mut(SOURCES).and_then(Item::as_table_like_mut);
        sources.and_then(|sources| sources.remove(source)).with_context(|| unknown(source))?;
        let header = header(&before);
        let after = self.0.to_string();
        if !after.starts_with(header) {
            let after = if header.ends_with("\n\n") { after.trim_start_matches('\n') } else { &after };
            self.0 = format!("{header}{after}").parse()?;
        }
        Ok(())
    }

    pub fn texts(&self, source: &str, field: &str) -> Vec<String> {
        let entry = self.0.get(SOURCES).and_then(Item::as_table_like).and_then(|all| all.get(source));
        match entry.and_then(Item::as_table_like).and_then(|entry| entry.get(field)).and_then(Item::as_value) {
            Some(Value::String(text)) => vec![text.value().clone()],
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        }
    }

    pub fn put_first(&mut self, source: &str, field: &str, text: &str) -> Result<()> {
        let texts = self.texts(source, field);
        let entry = self.entry(source)?;
        if entry.get(field).is_none() {
            entry.insert(field, Item::Value(Value::Array(Array::new())));
        }
        let value = entry.get_mut(field).and_then(Item::as_value_mut).with_context(|| not_texts(field))?;
        if !value.is_array() {
            let decor = value.decor().clone();
            *value = Value::Array(texts.iter().collect());
            *value.decor_mut() = decor;
        }
        let list = value.as_array_mut().with_context(|| not_texts(field))?;
        // The new text gets a line of its own if the first text has one.
        let space = list.get(0).and_then(|first| first.decor().prefix()?.as_str()).unwrap_or_default();
        let space = space.rfind('\n').map_or("", |line| &space[line..]).to_owned();
        if let (Some(first), true) = (list.get_mut(0), space.is_empty()) {
            first.decor_mut().set_prefix(" ");
        }
        list.insert_formatted(0, Value::from(text).decorated(space, ""));
        Ok(())
    }

    pub fn flag(&mut self, source: &str, field: &str, is_set: bool) -> Result<()> {
        let entry = self.entry(source)?;
        match is_set {
            true => entry.insert(field, Item::Value(Value::from(true))),
            false => entry.remove(field),
        };
        Ok(())
    }

    pub fn take_out(&mut self, source: &str, field: &str, index: usize) -> Result<()> {
        let list = self.entry(source)?.get_mut(field).and_then(Item::as_array_mut);
        let list = list.with_context(|| not_texts(field))?;
        ensure!(index < list.len(), "`{field}` has no entry {}", index + 1);
        let space = list.get(0).and_then(|first| first.decor().prefix()?.as_str().map(str::to_owned));
        list.remove(index);
        if let (Some(left), Some(space)) = (list.get_mut(0), space) {
            left.decor_mut().set_prefix(space);
        }
        // The development secret, which `init` marks, is replaced.
        let comment = list.decor().suffix().and_then(RawString::as_str);
        if comment.is_some_and(|comment| comment.trim() == starter::REPLACE) {
            list.decor_mut().set_suffix("");
        }
        Ok(())
    }

    fn entry(&mut self, source: &str) -> Result<&mut dyn TableLike> {
        let sources = self.0.get_mut(SOURCES).and_then(Item::as_table_like_mut);
        let entry = sources.and_then(|sources| sources.get_mut(source)).and_then(Item::as_table_like_mut);
        entry.with_context(|| unknown(source))
    }
}

impl std::fmt::Display for DocumentText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(document, layout) = self;
        let text = document.to_string();
        if layout.has_byte_order_mark {
            write!(f, "{MARK}")?;
        }
        match layout.ends_lines_with_cr_lf {
            true => f.write_str(&text.replace("\r\n", "\n").replace('\n', "\r\n")),
            false => f.write_str(&text),
        }
    }
}

/// Returns the comments about the whole file, such as the directive `#:schema`. A last paragraph directly above the
/// first line of content is left out, because such a paragraph is about that content.
fn header(text: &str) -> &str {
    let lines = |is_header: fn(&str) -> bool| {
        text.split_inclusive('\n').take_while(|line| is_header(line)).map(str::len).sum::<usize>()
    };
    let comments = &text[..lines(|line| line.starts_with('#') || line.trim().is_empty())];
    match comments.rfind("\n\n") {
        Some(at) => &comments[..at + 2],
        None => &text[..lines(|line| line.starts_with("#:"))],
    }
}

fn unknown(source: &str) -> String {
    format!("there is no source `{source}`")
}

fn not_texts(field: &str) -> String {
    format!("`{field}` is not a list of texts")
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

    fn edited(text: &str, edit: impl FnOnce(&mut DocumentText) -> Result<()>) -> String {
        let mut document = DocumentText::parse(text).unwrap();
        edit(&mut document).unwrap();
        let text = document.to_string();
        Sources::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        text
    }

    /// Promise: `source` keeps comments, layout, key, tier and type, hides secrets, undoes no concurrent edit.
    #[test]
    fn edit_leaves_rest_of_document_unchanged() {
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
    fn removed_secret_takes_the_mark_of_development_along() {
        let marked = "[sources.shop]\nprovider = \"shopify\"\nhandler = \"h\"\nsecrets = [\"old\"] # REPLACE\n";
        let both = edited(marked, |text| text.put_first("shop", "secrets", "new"));
        assert_eq!(both, marked.replace("\"old\"", "\"new\", \"old\""));
        let finished = edited(&both, |text| text.take_out("shop", "secrets", 1));
        assert_eq!(finished, marked.replace("\"old\"] # REPLACE", "\"new\"]"));
    }

    #[test]
    fn removing_first_source_keeps_the_file_header() {
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
    fn source_and_secret_are_added_to_empty_document() {
        let fields = [("provider".to_owned(), json!("shopify")), ("handler".to_owned(), json!("h"))];
        let first = edited("", |text| text.insert("shop", &fields));
        assert_eq!(first, "[sources.shop]\nprovider = \"shopify\"\nhandler = \"h\"\n");
        let with = edited(&first, |text| text.put_first("shop", "secrets", "s"));
        assert_eq!(with, format!("{first}secrets = [\"s\"]\n"));
    }

    #[test]
    fn inline_and_dotted_toml_sources_are_edited() {
        for text in [
            "sources = { shop = { provider = 'shopify', handler = 'h', secrets = ['old'] } }\n",
            "sources.shop = { provider = 'shopify', handler = 'h', secrets = 'old' }\n",
            "[sources]\nshop.provider = 'shopify'\nshop.handler = 'h'\nshop.secrets = ['old']\n",
        ] {
            let fields = [("provider".to_owned(), json!("stripe")), ("handler".to_owned(), json!("h"))];
            let with = edited(text, |text| {
                text.put_first("shop", "secrets", "new")?;
                text.insert("second", &fields)
            });
            let document = DocumentText::parse(&with).unwrap();
            assert_eq!(document.texts("shop", "secrets"), ["new", "old"], "{with}");
            assert!(document.has("second") && !document.has("third"), "{with}");
            let without = edited(&with, |text| {
                text.take_out("shop", "secrets", 0)?;
                text.remove("second")
            });
            assert_eq!(DocumentText::parse(&without).unwrap().texts("shop", "secrets"), ["old"], "{without}");
        }
    }

    #[test]
    fn edit_keeps_line_ends_and_byte_order_mark() {
        let fields = [("provider".to_owned(), json!("shopify")), ("handler".to_owned(), json!("h"))];
        for mark in ["", "\u{feff}"] {
            let windows = format!("{mark}{}", TOML.replace('\n', "\r\n"));
            let with = edited(&windows, |text| {
                text.put_first("shop", "secrets", "new")?;
                text.insert("second", &fields)
            });
            let expected = format!("{TOML}\n[sources.second]\nprovider = \"shopify\"\nhandler = \"h\"\n")
                .replace("    # of May\n", "    \"new\",\n    # of May\n");
            assert_eq!(with, format!("{mark}{}", expected.replace('\n', "\r\n")));
            assert_eq!(edited(&with, |text| text.remove("second")), with.split("\r\n[sources.second]").next().unwrap());
        }
        assert!(!edited(TOML, |text| text.insert("second", &fields)).contains('\r'));
    }

    #[test]
    fn editing_a_json_document_is_refused() {
        let refused = DocumentText::parse(r#"{"sources":{}}"#).unwrap_err().to_string();
        assert!(refused.contains("edit it by hand") && refused.contains("serializer check"), "{refused}");
    }
}
