//! Compares the fields' descriptions with the parser and the schema.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use webhook_serializer::providers::webhook_senders;
use webhook_serializer::sources::{
    Sources,
    reference::{Absent, FieldForm, ReferenceField, ReferenceTable, source, tables},
};

use super::*;

use crate::starter::{Language, StarterChoices, StarterHandler, starter};

mod validator;

use validator::Validator;

/// Returns values that neither the parser nor the schema accepts in `field`.
fn refused(field: &ReferenceField) -> Vec<String> {
    let texts = |refused: &[&str]| refused.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>();
    let fixed = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
    match field.form {
        FieldForm::Text(pattern) => [texts(pattern.refused), fixed(&["7"])].concat(),
        FieldForm::OneOrMore(pattern) => {
            let lists = pattern.refused.iter().map(|text| format!("[{text:?}]")).collect();
            let empty = fixed(if matches!(field.absent, Absent::Required) { &["[]"] } else { &[] });
            [texts(pattern.refused), lists, empty, fixed(&["7", "[7]"])].concat()
        }
        FieldForm::Word(words) => [texts(&["no such word", &words[0].to_uppercase()]), fixed(&["true", "7"])].concat(),
        FieldForm::WordOrMost(_, name, most) => {
            let tables = ["1", &(most + 1).to_string(), "'3'"].map(|value| format!("{{ {name} = {value} }}"));
            [fixed(&["3", "\"no such word\"", "{ no_such_field = 3 }"]), tables.to_vec()].concat()
        }
        FieldForm::Count => fixed(&["0", "-1", "\"3\"", "1.5"]),
        FieldForm::Flag => fixed(&["\"yes\"", "1"]),
        FieldForm::Filter => {
            let values = ["{ y = 1 }", "[]", "[[1]]", "1.5"].map(|value| format!("{{ '/x' = {value} }}"));
            [fixed(&["7", "'/x'", "['/x']", "{ x = 1 }", "{ '/~2' = 1 }"]), values.to_vec()].concat()
        }
        FieldForm::Table(table) => {
            let lacks = table()
                .fields
                .iter()
                .any(|field| matches!(field.absent, Absent::Required | Absent::RequiredWithout(_)));
            [fixed(&["7", "\"text\"", "{ no_such_field = 1 }"]), fixed(if lacks { &["{}"] } else { &[] })].concat()
        }
    }
}

/// Returns the lines of a table in which `field` has `value` or is omitted, with the fields that are needed then.
fn lines(table: &ReferenceTable, field: &str, value: Option<&str>) -> Vec<String> {
    let is_required = |other: &&ReferenceField| match other.absent {
        Absent::RequiredWithout(by) => !by.contains(&field) || value.is_none(),
        absent => matches!(absent, Absent::Required),
    };
    let required = table.fields.iter().filter(is_required);
    let mut values: BTreeMap<&str, &str> = required.map(|other| (other.name, other.example)).collect();
    match value {
        None => _ = values.remove(field),
        Some(value) => {
            let described = table.fields.iter().find(|other| other.name == field);
            values.extend(described.iter().flat_map(|field| field.needs).copied());
            if let Some(Absent::RequiredBy(other, needed)) = described.map(|field| field.absent) {
                values.insert(other, needed[0]);
            }
            values.insert(field, value);
        }
    }
    for other in &table.fields {
        if let Absent::RequiredBy(by, needed) | Absent::MeansUnless(_, by, needed) = other.absent
            && values.get(by).is_some_and(|value| needed.contains(value))
        {
            values.entry(other.name).or_insert(other.example);
        }
    }
    values.into_iter().map(|(name, value)| format!("{name} = {value}")).collect()
}

fn document(table: &ReferenceTable, field: &str, value: Option<&str>) -> String {
    let lines = lines(table, field, value);
    match table.path {
        "[sources.NAME]" => {
            let parent = match lines.iter().any(|line| line.starts_with("from = ")) {
                true => "[sources.shopify]\nprovider = 'shopify'\nhandler = 'fan-out'\n",
                false => "",
            };
            format!("[sources.shop]\n{}\n{parent}", lines.join("\n"))
        }
        own @ ("[origin]" | "[alerts]") => {
            format!("{}{own}\n{}\n", document(&source(), "handler", Some("'log'")), lines.join("\n"))
        }
        path => {
            let name = path.trim_start_matches("[sources.NAME.").trim_end_matches(']');
            document(&source(), name, Some(&format!("{{ {} }}", lines.join(", "))))
        }
    }
}

fn check_every_field(mut check: impl FnMut(&ReferenceTable, &ReferenceField)) {
    tables().iter().for_each(|table| table.fields.iter().for_each(|field| check(table, field)));
}

fn table_at(path: &str) -> ReferenceTable {
    tables().into_iter().find(|table| table.path == path).expect("the page has this table")
}

fn value(document: &str) -> Value {
    toml::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
}

fn read(document: &str) -> Result<String, String> {
    let sources = Sources::parse(document).map_err(|error| error.to_string())?;
    Ok(format!("{sources:?}"))
}

#[test]
fn missing_field_is_refused_only_if_required() {
    check_every_field(|table, field| {
        let without = read(&document(table, field.name, None));
        match field.absent {
            Absent::Required | Absent::RequiredWithout(_) => {
                let refused = without.unwrap_err();
                assert!(refused.contains(&format!("missing field `{}`", field.name)), "{}: {refused}", table.path);
            }
            _ => assert!(without.is_ok(), "{} {}: {without:?}", table.path, field.name),
        }
    });
}

#[test]
fn explicit_default_equals_absent_field() {
    let mut defaults = 0;
    check_every_field(|table, field| {
        let Absent::Is(default) = field.absent else { return };
        let (without, with) = (document(table, field.name, None), document(table, field.name, Some(default)));
        assert_eq!(read(&without), read(&with), "{} {}", table.path, field.name);
        let changed = read(&document(table, field.name, Some(field.example)));
        assert_ne!(read(&without), changed, "{} {}: the example is another value", table.path, field.name);
        defaults += 1;
    });
    assert!(defaults >= 7, "{defaults}");
}

/// Promise: the reference has every field, default and limit; the schema accepts what the functions accept.
#[test]
fn parser_and_schema_agree_on_values() {
    let schema = Validator::new(&schema());
    check_every_field(|table, field| {
        let words: &[&str] = if let FieldForm::Word(words) = field.form { words } else { &[] };
        for taken in words.iter().map(|word| format!("{word:?}")).chain([field.example.to_owned()]) {
            let document = document(table, field.name, Some(&taken));
            assert!(read(&document).is_ok(), "{document}: {:?}", read(&document));
            assert_eq!(schema.objections(&value(&document)), [""; 0], "{document}");
        }
        for refused in refused(field) {
            let document = document(table, field.name, Some(&refused));
            assert!(read(&document).is_err(), "{document}");
            assert_ne!(schema.objections(&value(&document)), [""; 0], "{document}");
        }
    });
}

#[test]
fn schema_rejects_documents_that_parser_refuses() {
    let schema = Validator::new(&schema());
    let source = |rest: &str| format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\n{rest}");
    for wrong in [
        String::new(),
        "[sources]\n".into(),
        source("").replace("shop]", "Shop]"),
        source("on_failures = 'park'"),
        source("retry = { attempt = 3 }"),
        source("generic = { header = 'x', hash = 'sha1', encoding = 'hex' }"),
        source("forward = { url = 'https://example.com/', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY' }"),
        source("url = 'https://example.com/'"),
        source("").replace("'shopify'", "'square'"),
        source("").replace("'shopify'", "'generic'"),
        source("").replace("'log'", "'forward'"),
        source("[other]"),
    ] {
        assert!(read(&wrong).is_err(), "{wrong}");
        assert_ne!(schema.objections(&value(&wrong)), [""; 0], "{wrong}");
    }
    let unknown = schema.objections(&value(&source("on_failures = 'park'")));
    assert_eq!(unknown, ["sources.shop: unknown field `on_failures`"]);
}

#[test]
fn schema_accepts_every_spelling_the_parser_accepts() {
    let schema = Validator::new(&schema());
    let texts = [
        "1s",
        " 1 s ",
        "1h30m",
        "1h 30m",
        "1.5s",
        ".5 s",
        "0",
        "2 weeks",
        "0s",
        "5/s",
        "5 / s",
        " 1000/min",
        "007/h",
        "+5/h",
        "1",
    ];
    let mut taken = 0;
    for text in texts {
        for (table, field) in
            [("[sources.NAME]", "handler_timeout"), ("[sources.NAME.retry]", "longest"), ("[sources.NAME]", "rate")]
        {
            let document = document(&table_at(table), field, Some(&format!("\"{text}\"")));
            if read(&document).is_ok() {
                assert_eq!(schema.objections(&value(&document)), [""; 0], "{document}");
                taken += 1;
            }
        }
    }
    assert!(taken >= 12, "{taken}");
    for (table, field, more) in [
        ("[sources.NAME]", "entity", "[]"),
        ("[sources.NAME]", "entity", "[\"chat/{/a~1b}\", \"one/{header:X-Id}!\", \"chat/one\"]"),
        ("[sources.NAME]", "secrets", "[]"),
        ("[sources.NAME.generic]", "delivery_id", "[]"),
        ("[sources.NAME.forward]", "url", "\"HTTPS://example.com\""),
    ] {
        let document = document(&table_at(table), field, Some(more));
        assert!(read(&document).is_ok(), "{document}: {:?}", read(&document));
        assert_eq!(schema.objections(&value(&document)), [""; 0], "{document}");
    }
    let samples = crate::local::samples::SOURCES;
    assert_eq!(schema.objections(&value(samples)), [""; 0]);
    let commented = samples.split("# [sources.elsewhere]").nth(1).expect("the example of a forward");
    let elsewhere = format!("[sources.elsewhere]{}", commented.replace("\n# ", "\n"));
    assert!(read(&elsewhere).is_ok(), "{elsewhere}");
    assert_eq!(schema.objections(&value(&elsewhere)), [""; 0]);
    let mut json: Value = value(samples);
    json["$schema"] = "docs/sources.schema.json".into();
    assert!(read(&json.to_string()).is_ok());
    assert_eq!(schema.objections(&json), [""; 0]);
}

fn stored(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn schema_accepts_each_document_of_init() {
    let schema = Validator::new(&schema());
    let forward = StarterHandler::Forward { url: "http://127.0.0.1:8080/webhooks".to_owned() };
    let invoke = StarterHandler::Invoke { function: "orders".to_owned(), qualifier: Some("live".to_owned()) };
    let names: Vec<String> = webhook_senders().map(str::to_owned).collect();
    let alone: Vec<_> = names.iter().map(|name| vec![name.clone()]).collect();
    for providers in alone.into_iter().chain([names]) {
        for handler in [StarterHandler::Log, forward.clone(), invoke.clone()] {
            let choices = StarterChoices {
                providers: providers.clone(),
                key: "shop".to_owned(),
                handler,
                language: Language::Python,
                secret: "whsec_Zk93bTR6S2dRcTdUaHBY".to_owned(),
                command: "serializer".to_owned(),
            };
            let files = starter(&choices).unwrap().files;
            let document = &files.iter().find(|file| file.path == "sources.toml").unwrap().text;
            assert_eq!(schema.objections(&value(document)), [""; 0], "{document}");
        }
    }
}

#[test]
fn generated_pages_are_up_to_date() {
    let pages = [
        ("docs/sources-reference.md", page()),
        ("docs/providers.md", providers()),
        ("docs/sources.schema.json", schema()),
    ];
    let stale: Vec<&str> = pages.iter().filter(|(path, made)| stored(path) != *made).map(|(path, _)| *path).collect();
    assert!(stale.is_empty(), "`just generate` writes {}", stale.join(", "));
}
