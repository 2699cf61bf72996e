//! Compares the fields of the reference with the parser and the schema.

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;
use webhook_serializer::sources::Sources;

use super::{
    fields::{FORWARD, GENERIC, INVOKE, ORIGIN, RETRY, SOURCE, TABLES, TOPICS},
    *,
};

mod validator;

use validator::Validator;

#[rustfmt::skip]
const REFUSED: &[(&ReferenceTable, &str, &[&str])] = &[
    (&SOURCE, "provider", &["\"Shopify\"", "7"]),
    (&SOURCE, "secrets", &["\"\"", "[\"\"]", "[7]", "7"]),
    (&SOURCE, "webhook_id", &["\"\"", "[\"\"]", "7"]),
    (&SOURCE, "client_id", &["\"\"", "[\"\"]", "7"]),
    (&SOURCE, "tolerance", &["300", "\"soon\""]),
    (&SOURCE, "entity", &["\"{order}\"", "\"orders\"", "7"]),
    (&SOURCE, "url", &["\"\"", "7"]),
    (&SOURCE, "handler", &["7"]),
    (&SOURCE, "handler_timeout", &["30", "\"soon\""]),
    (&SOURCE, "topics", &["7", "\"orders/*\"", "{ takes = \"orders/*\" }"]),
    (&TOPICS, "take", &["7", "\"\"", "[\"orders/* \"]"]),
    (&TOPICS, "ignore", &["7", "\"\"", "\" orders/*\""]),
    (&SOURCE, "retry", &["3", "{ often = true }"]),
    (&SOURCE, "on_failure", &["\"ignore\""]),
    (&SOURCE, "on_outage", &["\"ignore\"", "true"]),
    (&SOURCE, "rate", &["5", "\"5\"", "\"0/s\"", "\"1001/s\"", "\"5/day\""]),
    (&SOURCE, "deliver", &["3", "\"all\"", "{ up_to = 1 }", "{ up_to = 26 }", "{ up_to = '3' }", "{ most = 3 }"]),
    (&SOURCE, "linger", &["2", "\"soon\""]),
    (&SOURCE, "stale", &["\"ignore\"", "true"]),
    (&SOURCE, "paused", &["\"yes\"", "1"]),
    (&SOURCE, "generic", &["true", "{ header = \"x-acme-signature\" }"]),
    (&SOURCE, "forward", &["true", "\"https://example.com/\"", "{ url = \"https://example.com/\" }"]),
    (&SOURCE, "invoke", &["true", "\"orders\"", "{ qualifier = \"live\" }"]),
    (&INVOKE, "function", &["\"two words\"", "\"orders:live\"", "7"]),
    (&INVOKE, "qualifier", &["\"\"", "\"$OLDEST\"", "7"]),
    (&RETRY, "attempts", &["0", "-1", "\"3\"", "1.5"]),
    (&RETRY, "first", &["1"]),
    (&RETRY, "longest", &["300"]),
    (&RETRY, "for", &["3", "\"soon\""]),
    (&RETRY, "unanswered_for", &["3", "\"soon\""]),
    (&RETRY, "unavailable_for", &["3", "\"soon\""]),
    (&GENERIC, "header", &["\"\"", "\"x y\"", "7"]),
    (&GENERIC, "hash", &["\"md5\"", "\"SHA256\""]),
    (&GENERIC, "encoding", &["\"base32\""]),
    (&GENERIC, "prefix", &["7"]),
    (&GENERIC, "separator", &["\"\""]),
    (&GENERIC, "signed", &["\"\"", "\"{timestamp}\""]),
    (&GENERIC, "timestamp_header", &["\"x y\""]),
    (&GENERIC, "timestamp_prefix", &["\"\""]),
    (&GENERIC, "delivery_id", &["\"x y\"", "7"]),
    (&GENERIC, "retried_for", &["3", "\"soon\""]),
    (&GENERIC, "topic", &["\"event/type\""]),
    (&GENERIC, "account", &["\"x shop\""]),
    (&GENERIC, "entity", &["\"order id\""]),
    (&GENERIC, "entity_kind", &["\"\""]),
    (&GENERIC, "event_time", &["\"updated at\""]),
    (&FORWARD, "url", &["\"example.com\"", "\"ftp://example.com/\"", "7"]),
    (&FORWARD, "secret", &["\"secret\"", "[]", "[\"secret\"]"]),
    (&FORWARD, "allow_private", &["\"yes\"", "1"]),
    (&FORWARD, "commit", &["\"a b\"", "[\"\"]", "7"]),
    (&ORIGIN, "secret", &["\"short\"", "[]", "[\"short\"]", "7"]),
];

const FORWARDED: &str = "{ url = 'https://example.com/', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY' }";

fn document(table: &ReferenceTable, field: &str, value: Option<&str>) -> String {
    let line = |name: &str, value: &str| format!("{name} = {value}\n");
    let needed: &[(&str, &str)] = match (table.path, field) {
        ("[sources.NAME.generic]", "timestamp_header") => &[("signed", "'{timestamp}.{body}'")],
        ("[sources.NAME.generic]", "timestamp_prefix") => &[("signed", "'{timestamp}.{body}'"), ("separator", "','")],
        ("[sources.NAME]", "linger") => &[("deliver", "'latest'")],
        _ => &[],
    };
    let required = table.fields.iter().filter(|other| matches!(other.absent, Absent::Required));
    // If `field` is omitted, so are the fields that it needs.
    let needed = needed.iter().copied().filter(|_| value.is_some());
    let others = required.map(|other| (other.name, other.example)).chain(needed).filter(|(name, _)| *name != field);
    let mut body: String = others.map(|(name, value)| line(name, value)).collect();
    if let Some(value) = value {
        body += &line(field, value);
    }
    match table.path {
        "[sources.NAME]" => {
            // If a value requires a table, that table is added.
            let tables = match (field, value) {
                ("generic", Some(_)) => body.replace("provider = \"shopify\"", "provider = \"generic\""),
                ("forward", Some(_)) => body.replace("handler = \"log\"", "handler = \"forward\""),
                ("invoke", Some(_)) => body.replace("handler = \"log\"", "handler = \"invoke\""),
                ("webhook_id", Some(_)) => body.replace("\"shopify\"", "\"paypal\""),
                ("client_id", Some(_)) => body.replace("\"shopify\"", "\"adobe-io-events\""),
                ("url", Some(_)) => body.replace("provider = \"shopify\"", "provider = \"square\""),
                ("provider", Some("\"square\"")) => body + &line("url", SOURCE.example_of("url")),
                ("provider", Some("\"generic\"")) => body + &line("generic", SOURCE.example_of("generic")),
                ("handler", Some("\"invoke\"")) => body + &line("invoke", SOURCE.example_of("invoke")),
                ("handler", Some("\"forward\"")) => body + &line("forward", FORWARDED),
                _ => body,
            };
            format!("[sources.shop]\n{tables}")
        }
        "[sources.NAME.topics]" => {
            format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\n[sources.shop.topics]\n{body}")
        }
        "[sources.NAME.retry]" => {
            format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'log'\n[sources.shop.retry]\n{body}")
        }
        "[sources.NAME.generic]" => {
            format!("[sources.shop]\nprovider = 'generic'\nhandler = 'log'\n[sources.shop.generic]\n{body}")
        }
        "[sources.NAME.forward]" => {
            format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'forward'\n[sources.shop.forward]\n{body}")
        }
        "[sources.NAME.invoke]" => {
            format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'invoke'\n[sources.shop.invoke]\n{body}")
        }
        "[origin]" => format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'orders'\n[origin]\n{body}"),
        other => panic!("{other}"),
    }
}

impl ReferenceTable {
    fn example_of(&self, field: &str) -> &'static str {
        self.fields.iter().find(|other| other.name == field).expect("a field").example
    }
}

fn value(document: &str) -> Value {
    toml::from_str(document).unwrap_or_else(|error| panic!("{error}: {document}"))
}

fn read(document: &str) -> Result<String, String> {
    let sources = Sources::parse(document).map_err(|error| error.to_string())?;
    Ok(format!("{sources:?}"))
}

fn every_field() -> impl Iterator<Item = (&'static ReferenceTable, &'static ReferenceField)> {
    TABLES.into_iter().flat_map(|table| table.fields.iter().map(move |field| (table, field)))
}

fn expected(error: &str) -> BTreeSet<String> {
    let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn reference_and_parser_have_the_same_fields() {
    for table in TABLES {
        let refused = read(&document(table, "no_such_field", Some("1"))).unwrap_err();
        let described: BTreeSet<String> = table.fields.iter().map(|field| field.name.to_owned()).collect();
        assert!(refused.contains("unknown field `no_such_field`"), "{}: {refused}", table.path);
        assert_eq!(expected(&refused), described, "{}", table.path);
    }
    let outside = read("[source.shop]\n").unwrap_err();
    assert_eq!(expected(&outside), ["$schema", "origin", "sources"].map(str::to_owned).into());
}

#[test]
fn missing_field_is_refused_only_if_required() {
    for (table, field) in every_field() {
        let without = read(&document(table, field.name, None));
        match field.absent {
            Absent::Required => {
                let refused = without.unwrap_err();
                assert!(refused.contains(&format!("missing field `{}`", field.name)), "{}: {refused}", table.path);
            }
            _ => assert!(without.is_ok(), "{} {}: {without:?}", table.path, field.name),
        }
    }
}

#[test]
fn explicit_default_equals_absent_field() {
    let mut defaults = 0;
    for (table, field) in every_field() {
        let Absent::Is(default) = field.absent else { continue };
        let (without, with) = (document(table, field.name, None), document(table, field.name, Some(default)));
        assert_eq!(read(&without), read(&with), "{} {}", table.path, field.name);
        let changed = read(&document(table, field.name, Some(field.example)));
        assert_ne!(read(&without), changed, "{} {}: the example is another value", table.path, field.name);
        defaults += 1;
    }
    assert!(defaults >= 7, "{defaults}");
}

#[test]
fn parser_and_schema_agree_on_values() {
    let schema = Validator::new(&schema());
    for (table, field) in every_field() {
        let words: Vec<String> = match field.form {
            FieldForm::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
            _ => Vec::new(),
        };
        for taken in words.iter().map(String::as_str).chain([field.example]) {
            let document = document(table, field.name, Some(taken));
            assert!(read(&document).is_ok(), "{document}: {:?}", read(&document));
            assert_eq!(schema.objections(&value(&document)), [""; 0], "{document}");
        }
        let is_it = |(of, name, _): &&(&ReferenceTable, &str, _)| of.path == table.path && *name == field.name;
        let (_, _, refused) = REFUSED.iter().find(is_it).unwrap_or_else(|| panic!("{}", field.name));
        for refused in *refused {
            let document = document(table, field.name, Some(refused));
            assert!(read(&document).is_err(), "{document}");
            assert_ne!(schema.objections(&value(&document)), [""; 0], "{document}");
        }
        if let FieldForm::Word(words) = field.form {
            let refused = read(&document(table, field.name, Some("\"no such word\""))).unwrap_err();
            let known: Vec<String> = if field.name == "provider" {
                refused.rsplit_once("the providers are ").unwrap().1.split(", ").map(str::to_owned).collect()
            } else {
                expected(&refused).into_iter().collect()
            };
            let mut described = words.to_vec();
            described.sort_unstable();
            assert_eq!(known, described, "{} {}", table.path, field.name);
        }
    }
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
        source(&format!("forward = {FORWARDED}")),
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
        for (table, field) in [(&SOURCE, "handler_timeout"), (&RETRY, "longest"), (&SOURCE, "rate")] {
            let document = document(table, field, Some(&format!("\"{text}\"")));
            if read(&document).is_ok() {
                assert_eq!(schema.objections(&value(&document)), [""; 0], "{document}");
                taken += 1;
            }
        }
    }
    assert!(taken >= 12, "{taken}");
    for (table, field, more) in [
        (&SOURCE, "entity", "[]"),
        (&SOURCE, "entity", "[\"chat/{/a~1b}\", \"one/{header:X-Id}!\", \"chat/one\"]"),
        (&SOURCE, "secrets", "[]"),
        (&GENERIC, "delivery_id", "[]"),
        (&FORWARD, "url", "\"HTTPS://example.com\""),
    ] {
        let document = document(table, field, Some(more));
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
fn generated_pages_are_up_to_date() {
    assert!(stored("docs/sources-reference.md") == page(), "`just generate` writes it");
    assert!(stored("docs/providers.md") == providers(), "`just generate` writes it");
    assert!(stored("docs/sources.schema.json") == schema(), "`just generate` writes it");
}
