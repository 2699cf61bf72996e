//! Converts a transaction's items in DynamoDB's own form.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    primitives::Blob,
    types::{
        AttributeValue, ConditionCheck, Delete, Put, TransactWriteItem, Update, builders::TransactWriteItemBuilder,
    },
};
use bytes::Bytes;

use super::Item;
use crate::protocol::native::{Native, NativeKind, NativeRow, NativeValue};

/// Converts an item in DynamoDB's own form. Its reader has checked that every required member is set.
pub(super) fn item(native: &Native, table: String) -> TransactWriteItemBuilder {
    macro_rules! with_expressions {
        ($item:expr) => {
            $item
                .table_name(table)
                .set_condition_expression(native.condition.clone())
                .set_expression_attribute_names(Some(native.names.clone().into_iter().collect()).filter(is_filled))
                .set_expression_attribute_values(Some(attributes(&native.values)).filter(is_filled))
                .build()
                .expect("every required member is set")
        };
    }
    let row = Some(attributes(&native.item));
    let item = TransactWriteItem::builder();
    match &native.kind {
        NativeKind::Put => item.put(with_expressions!(Put::builder().set_item(row))),
        NativeKind::Update(update) => {
            item.update(with_expressions!(Update::builder().set_key(row).update_expression(update)))
        }
        NativeKind::Delete => item.delete(with_expressions!(Delete::builder().set_key(row))),
        NativeKind::Check => item.condition_check(with_expressions!(ConditionCheck::builder().set_key(row))),
    }
}

/// DynamoDB refuses maps without entries.
fn is_filled<V>(map: &HashMap<String, V>) -> bool {
    !map.is_empty()
}

fn attributes(row: &NativeRow) -> Item {
    row.iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

fn attribute(value: &NativeValue) -> AttributeValue {
    let blob = |bytes: &Bytes| Blob::new(bytes.to_vec());
    match value {
        NativeValue::S(text) => AttributeValue::S(text.clone()),
        NativeValue::N(text) => AttributeValue::N(text.clone()),
        NativeValue::B(bytes) => AttributeValue::B(blob(bytes)),
        NativeValue::Ss(texts) => AttributeValue::Ss(texts.clone()),
        NativeValue::Ns(texts) => AttributeValue::Ns(texts.clone()),
        NativeValue::Bs(all) => AttributeValue::Bs(all.iter().map(blob).collect()),
        NativeValue::Bool(value) => AttributeValue::Bool(*value),
        NativeValue::Null => AttributeValue::Null(true),
        NativeValue::L(items) => AttributeValue::L(items.iter().map(attribute).collect()),
        NativeValue::M(fields) => AttributeValue::M(attributes(fields)),
    }
}
