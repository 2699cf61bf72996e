//! Generates types in other languages from `docs/invoke.schema.json`: the event and the answer of a function
//! that the handler `invoke` calls.

use std::fmt::Write;

use serde_json::Value;

const MADE: &str = "Made from docs/invoke.schema.json by `cargo run -p tests --bin invoke-types`.";

/// An object of the schema that has a title.
struct Class<'a> {
    name: &'a str,
    about: &'a str,
    /// The fields; required ones come first.
    fields: Vec<SchemaField<'a>>,
}

struct SchemaField<'a> {
    name: &'a str,
    about: &'a str,
    is_required: bool,
    schema: &'a Value,
}

/// Returns all classes, inner ones first.
fn classes(schema: &Value) -> Vec<Class<'_>> {
    let inside = |part: &str| schema[part].as_object().into_iter().flatten().map(|(_, schema)| schema);
    let mut found: Vec<Class> = inside("properties").chain(schema.get("items")).flat_map(classes).collect();
    if let Some(name) = schema["title"].as_str() {
        found.push(Class { name, about: about(schema), fields: fields(schema) });
    }
    found.extend(inside("definitions").flat_map(classes));
    found
}

fn fields(schema: &Value) -> Vec<SchemaField<'_>> {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let place = |name: &str| required.iter().position(|other| *other == name);
    let all = schema["properties"].as_object().expect("a class has fields");
    let mut fields: Vec<_> = all
        .iter()
        .map(|(name, schema)| SchemaField { name, about: about(schema), is_required: place(name).is_some(), schema })
        .collect();
    fields.sort_by_key(|field| place(field.name).unwrap_or(usize::MAX));
    fields
}

fn about(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// How a language writes types.
struct Notation {
    kind: fn(&str) -> &'static str,
    list: fn(String) -> String,
    literals: fn(&[String]) -> String,
    or: &'static str,
}

fn kind(schema: &Value, notation: &Notation) -> String {
    let literal = |value: &Value| value.to_string();
    if let Some(one) = schema.get("const") {
        return (notation.literals)(&[literal(one)]);
    }
    if let Some(all) = schema["enum"].as_array() {
        return (notation.literals)(&all.iter().map(literal).collect::<Vec<_>>());
    }
    if let Some(name) = schema["title"].as_str() {
        return name.to_owned();
    }
    match &schema["type"] {
        Value::Array(kinds) => {
            let kinds: Vec<_> = kinds.iter().filter_map(Value::as_str).map(notation.kind).collect();
            kinds.join(notation.or)
        }
        Value::String(list) if list == "array" => (notation.list)(kind(&schema["items"], notation)),
        Value::String(one) => (notation.kind)(one).to_owned(),
        other => panic!("no type {other}"),
    }
}

/// Generates TypeScript.
pub fn typescript(schema: &Value) -> String {
    let notation = Notation {
        kind: |kind| match kind {
            "string" => "string",
            "integer" | "number" => "number",
            "boolean" => "boolean",
            "null" => "null",
            "object" => "Record<string, unknown>",
            other => panic!("no type {other}"),
        },
        list: |of| format!("{of}[]"),
        literals: |all| all.join(" | "),
        or: " | ",
    };
    let mut text = format!("// {MADE}\n");
    for Class { name, about, fields } in classes(schema) {
        write!(text, "\n/** {about} */\nexport interface {name} {{\n").expect("writing to a string cannot fail");
        for field in fields {
            let SchemaField { name, about, is_required, schema } = field;
            if !about.is_empty() {
                writeln!(text, "  /** {about} */").expect("writing to a string cannot fail");
            }
            let maybe = if is_required { "" } else { "?" };
            writeln!(text, "  {name}{maybe}: {};", kind(schema, &notation)).expect("writing to a string cannot fail");
        }
        text += "}\n";
    }
    text
}

/// Generates Python, for 3.11 and later.
pub fn python(schema: &Value) -> String {
    let notation = Notation {
        kind: |kind| match kind {
            "string" => "str",
            "integer" => "int",
            "number" => "float",
            "boolean" => "bool",
            "null" => "None",
            "object" => "dict[str, object]",
            other => panic!("no type {other}"),
        },
        list: |of| format!("list[{of}]"),
        literals: |all| format!("Literal[{}]", all.join(", ")),
        or: " | ",
    };
    let mut text = format!("# {MADE}\n\nfrom typing import Literal, NotRequired, TypedDict\n");
    for Class { name, about, fields } in classes(schema) {
        write!(text, "\n\nclass {name}(TypedDict):\n    \"\"\"{about}\"\"\"\n\n")
            .expect("writing to a string cannot fail");
        for SchemaField { name, about, is_required, schema } in fields {
            if !about.is_empty() {
                writeln!(text, "    # {about}").expect("writing to a string cannot fail");
            }
            let kind = kind(schema, &notation);
            let kind = if is_required { kind } else { format!("NotRequired[{kind}]") };
            writeln!(text, "    {name}: {kind}").expect("writing to a string cannot fail");
        }
    }
    text
}
