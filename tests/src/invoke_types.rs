//! `docs/invoke.schema.json` as types of other languages: what a function that
//! the handler `invoke` calls is given, and what it answers.

use std::fmt::Write;

use serde_json::Value;

const MADE: &str = "Made from docs/invoke.schema.json by `cargo run -p tests --bin invoke-types`.";

/// An object in the schema that has a title.
struct Class<'a> {
    name: &'a str,
    about: &'a str,
    /// Those that are required first, in their order.
    fields: Vec<Field<'a>>,
}

struct Field<'a> {
    name: &'a str,
    about: &'a str,
    is_required: bool,
    schema: &'a Value,
}

/// All of them, those inside first.
fn classes(schema: &Value) -> Vec<Class<'_>> {
    let inside = |part: &str| schema[part].as_object().into_iter().flatten().map(|(_, schema)| schema);
    let mut found: Vec<Class> = inside("properties").chain(schema.get("items")).flat_map(classes).collect();
    if let Some(name) = schema["title"].as_str() {
        found.push(Class { name, about: about(schema), fields: fields(schema) });
    }
    found.extend(inside("definitions").flat_map(classes));
    found
}

fn fields(schema: &Value) -> Vec<Field<'_>> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let place = |name: &str| required.iter().position(|other| *other == name);
    let all = schema["properties"].as_object().expect("a class has fields");
    let mut fields: Vec<_> = all
        .iter()
        .map(|(name, schema)| Field { name, about: about(schema), is_required: place(name).is_some(), schema })
        .collect();
    fields.sort_by_key(|field| place(field.name).unwrap_or(usize::MAX));
    fields
}

fn about(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// What a language calls the schema's types.
struct Words {
    kind: fn(&str) -> &'static str,
    list: fn(String) -> String,
    literals: fn(&[String]) -> String,
    or: &'static str,
}

fn kind(schema: &Value, words: &Words) -> String {
    let literal = |value: &Value| value.to_string();
    if let Some(one) = schema.get("const") {
        return (words.literals)(&[literal(one)]);
    }
    if let Some(all) = schema["enum"].as_array() {
        return (words.literals)(&all.iter().map(literal).collect::<Vec<_>>());
    }
    if let Some(name) = schema["title"].as_str() {
        return name.to_owned();
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).map(words.kind).collect();
            kinds.join(words.or)
        }
        Value::String(list) if list == "array" => (words.list)(kind(&schema["items"], words)),
        Value::String(one) => (words.kind)(one).to_owned(),
        other => panic!("no type {other}"),
    }
}

/// The types in TypeScript.
pub fn typescript(schema: &Value) -> String {
    let words = Words {
        kind: |kind| match kind {
            "string" => "string",
            "integer" | "number" => "number",
            "boolean" => "boolean",
            "null" => "null",
            other => panic!("no type {other}"),
        },
        list: |of| format!("{of}[]"),
        literals: |all| all.join(" | "),
        or: " | ",
    };
    let mut text = format!("// {MADE}\n");
    for Class { name, about, fields } in classes(schema) {
        write!(text, "\n/** {about} */\nexport interface {name} {{\n").expect("a text takes any text");
        for field in fields {
            let Field { name, about, is_required, schema } = field;
            if !about.is_empty() {
                writeln!(text, "  /** {about} */").expect("the same");
            }
            let maybe = if is_required { "" } else { "?" };
            writeln!(text, "  {name}{maybe}: {};", kind(schema, &words)).expect("the same");
        }
        text += "}\n";
    }
    text
}

/// The types in Python, from 3.11 on.
pub fn python(schema: &Value) -> String {
    let words = Words {
        kind: |kind| match kind {
            "string" => "str",
            "integer" => "int",
            "number" => "float",
            "boolean" => "bool",
            "null" => "None",
            other => panic!("no type {other}"),
        },
        list: |of| format!("list[{of}]"),
        literals: |all| format!("Literal[{}]", all.join(", ")),
        or: " | ",
    };
    let mut text = format!("# {MADE}\n\nfrom typing import Literal, NotRequired, TypedDict\n");
    for Class { name, about, fields } in classes(schema) {
        write!(text, "\n\nclass {name}(TypedDict):\n    \"\"\"{about}\"\"\"\n\n").expect("a text takes any text");
        for Field { name, about, is_required, schema } in fields {
            if !about.is_empty() {
                writeln!(text, "    # {about}").expect("the same");
            }
            let kind = kind(schema, &words);
            let kind = if is_required { kind } else { format!("NotRequired[{kind}]") };
            writeln!(text, "    {name}: {kind}").expect("the same");
        }
    }
    text
}
