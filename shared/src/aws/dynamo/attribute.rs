//! Converts rows to the client's attribute values, and back.

use std::collections::HashMap;

use aws_sdk_dynamodb::{primitives::Blob, types::AttributeValue};

use crate::protocol::{
    expression::Expression,
    table::{Row, Value},
};

/// Returns the values behind the placeholders of an expression.
pub(super) fn values(expression: &Expression) -> Option<HashMap<String, AttributeValue>> {
    let values = expression.values()?;
    Some(values.iter().map(|(placeholder, value)| (placeholder.clone(), attribute(value))).collect())
}

pub(super) fn attributes(row: &Row) -> HashMap<String, AttributeValue> {
    row.iter().map(|(name, value)| (name.to_string(), attribute(value))).collect()
}

pub(super) fn row_of(attributes: HashMap<String, AttributeValue>) -> Row {
    attributes.into_iter().map(|(name, attribute)| (name.into(), value_of(attribute))).collect()
}

fn attribute(value: &Value) -> AttributeValue {
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
