//! Makes the JSON schema of the sources document.

use serde_json::{Map, Value, json};

use webhook_serializer::sources::reference::{
    Absent, FieldForm, FieldPattern, NAME, ReferenceField, ReferenceTable, alerts, origin, source,
};

/// Returns the JSON Schema of the sources document, for editors. It accepts every document that the parser accepts, and
/// perhaps others.
pub fn schema() -> String {
    let source = table(&source());
    let mut origin = table(&origin());
    origin["description"] = "The proxy that webhooks come through.".into();
    let mut alerts = table(&alerts());
    alerts["description"] = "Where alerts that name the orders in trouble are sent.".into();
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "The sources of a webhook serializer",
        "type": "object",
        "required": ["sources"],
        "additionalProperties": false,
        "properties": {
            "$schema": { "type": "string", "description": "This schema, for editors." },
            "origin": origin,
            "alerts": alerts,
            "sources": {
                "type": "object",
                "description": "The sources, by their names.",
                "minProperties": 1,
                "propertyNames": { "pattern": NAME },
                "additionalProperties": source,
            },
        },
    });
    let mut text = serde_json::to_string_pretty(&schema).expect("it is a value");
    text.push('\n');
    text
}

/// Returns a condition in JSON Schema: the field is required if another has a certain value, or is absent. Otherwise it is
/// forbidden, if its absence has no meaning.
fn goes_with(field: &ReferenceField) -> Option<Value> {
    let required = json!({ "required": [field.name] });
    let forbidden = json!({ "properties": { field.name: false } });
    let has_value = |other: &str, values: &[&str]| {
        let value = |text: &&str| serde_json::from_str::<Value>(text).expect("it is a text");
        let values: Vec<Value> = values.iter().map(value).collect();
        json!({ "properties": { other: { "enum": values } }, "required": [other] })
    };
    match field.absent {
        Absent::RequiredBy(other, values) => {
            Some(json!({ "if": has_value(other, values), "then": required, "else": forbidden }))
        }
        Absent::MeansUnless(_, other, values) => {
            Some(json!({ "if": has_value(other, values), "then": required, "else": {} }))
        }
        Absent::RequiredWithout(others) => Some(json!({ "if": has_one(others), "then": forbidden, "else": required })),
        _ => None,
    }
}

fn has_one<'a>(fields: impl IntoIterator<Item = &'a &'static str>) -> Value {
    let present: Vec<Value> = fields.into_iter().map(|field| json!({ "required": [field] })).collect();
    json!({ "anyOf": present })
}

/// Returns a condition of the table around that of `field`: the field also depends on a field of the table around.
fn depends_on_outer(outer: &ReferenceTable, inner: &ReferenceField, field: &ReferenceField) -> Option<Value> {
    let Absent::RequiredWithout(others) = field.absent else { return None };
    let is_outer = |name: &&&'static str| outer.fields.iter().any(|field| field.name == **name);
    let (around, beside): (Vec<_>, Vec<_>) = others.iter().partition(is_outer);
    if around.is_empty() {
        return None;
    }
    let required = json!({ "required": [field.name] });
    let forbidden = json!({ "properties": { field.name: false } });
    let without = json!({ "if": has_one(beside), "then": forbidden, "else": required });
    let within = |condition: Value| json!({ "properties": { inner.name: condition } });
    Some(json!({ "if": has_one(around), "then": within(forbidden), "else": within(without) }))
}

fn table(table: &ReferenceTable) -> Value {
    let is_required = |field: &&ReferenceField| matches!(field.absent, Absent::Required);
    let required: Vec<&str> = table.fields.iter().filter(is_required).map(|field| field.name).collect();
    let properties: Map<String, Value> = table.fields.iter().map(|field| (field.name.to_owned(), of(field))).collect();
    let mut schema =
        json!({ "type": "object", "required": required, "additionalProperties": false, "properties": properties });
    let is_here = |name: &&str| table.fields.iter().any(|field| field.name == *name);
    let depends_here = |field: &&ReferenceField| match field.absent {
        Absent::RequiredWithout(others) => others.iter().all(is_here),
        _ => true,
    };
    let inner = table.fields.iter().filter_map(|field| Some((field, field.table()?)));
    let of_inner = inner.flat_map(|(inner, fields)| {
        let conditions = fields.fields.iter().filter_map(|field| depends_on_outer(table, inner, field));
        conditions.collect::<Vec<_>>()
    });
    let conditions: Vec<Value> =
        table.fields.iter().filter(depends_here).filter_map(goes_with).chain(of_inner).collect();
    if !conditions.is_empty() {
        schema["allOf"] = conditions.into();
    }
    schema
}

fn of(field: &ReferenceField) -> Value {
    let mut schema = match field.form {
        FieldForm::Text(pattern) => text(pattern),
        FieldForm::OneOrMore(pattern) => {
            // An empty list of an optional field means the same as omitting it.
            let least = usize::from(matches!(field.absent, Absent::Required));
            json!({ "anyOf": [text(pattern), { "type": "array", "items": text(pattern), "minItems": least }] })
        }
        FieldForm::Word(words) => json!({ "enum": words }),
        FieldForm::WordOrMost(words, field, most) => json!({ "anyOf": [
            { "enum": words },
            {
                "type": "object",
                "required": [field],
                "additionalProperties": false,
                "properties": { field: { "type": "integer", "minimum": 2, "maximum": most } },
            },
        ] }),
        FieldForm::Count => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        FieldForm::Flag => json!({ "type": "boolean" }),
        FieldForm::Filter => {
            let value = json!({ "type": ["string", "integer", "boolean", "null"] });
            let list = json!({ "type": "array", "items": value, "minItems": 1 });
            json!({
                "type": "object",
                "propertyNames": { "pattern": "^(/([^~]|~[01])*)+$" },
                "additionalProperties": { "anyOf": [value, list] },
            })
        }
        FieldForm::Table(inner) => table(&inner()),
    };
    schema["description"] = field.about.into();
    if let Absent::Is(value) = field.absent
        && let Ok(value) = serde_json::from_str::<Value>(value)
    {
        schema["default"] = value;
    }
    schema
}

fn text(pattern: FieldPattern) -> Value {
    match pattern.regex {
        "" => json!({ "type": "string" }),
        regex => json!({ "type": "string", "pattern": regex }),
    }
}
