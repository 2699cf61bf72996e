//! Converts rows to the client's attribute values, and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};

use crate::protocol::table::{Attribute, Row, Value};

/// Returns an item of DynamoDB with the attributes of a row or of several.
pub(super) fn attributes<'a>(row: impl Iterator<Item = (&'a Attribute, &'a Value)>) -> HashMap<String, AttributeValue> {
    row.map(|(name, value)| (name.to_string(), attribute(value))).collect()
}

pub(super) fn row_of(attributes: HashMap<String, AttributeValue>) -> Row {
    attributes.into_iter().map(|(name, attribute)| (name.into(), value_of(attribute))).collect()
}

pub(super) fn attribute(value: &Value) -> AttributeValue {
    match value {
        Value::S(text) => AttributeValue::S(text.clone()),
        Value::N(number) => AttributeValue::N(number.to_string()),
        Value::Decimal(text) => AttributeValue::N(text.clone()),
        Value::B(bytes) => AttributeValue::B(Blob::new(bytes.as_ref())),
        Value::Bool(truth) => AttributeValue::Bool(*truth),
        Value::Null => AttributeValue::Null(true),
        Value::L(items) => AttributeValue::L(items.iter().map(attribute).collect()),
        Value::M(items) => {
            AttributeValue::M(items.iter().map(|(name, item)| (name.clone(), attribute(item))).collect())
        }
    }
}

fn value_of(attribute: AttributeValue) -> Value {
    match attribute {
        AttributeValue::S(text) => Value::S(text),
        AttributeValue::N(text) => text.parse().map(Value::N).unwrap_or(Value::Decimal(text)),
        AttributeValue::B(blob) => Value::B(blob.into_inner().into()),
        AttributeValue::Bool(truth) => Value::Bool(truth),
        AttributeValue::L(items) => Value::L(items.into_iter().map(value_of).collect()),
        AttributeValue::M(items) => Value::M(items.into_iter().map(|(name, item)| (name, value_of(item))).collect()),
        AttributeValue::Ss(texts) => Value::L(texts.into_iter().map(Value::S).collect()),
        AttributeValue::Ns(texts) => Value::L(texts.into_iter().map(Value::Decimal).collect()),
        AttributeValue::Bs(blobs) => {
            Value::L(blobs.into_iter().map(|blob| Value::B(blob.into_inner().into())).collect())
        }
        // DynamoDB's null, and types that DynamoDB may add later.
        _ => Value::Null,
    }
}
