//! The row that a handler keeps of an order, in the table of the handler `orders`.

use std::fmt;

use serde_json::json;
use webhook_serializer::{
    handlers::orders::{KEY_ATTRIBUTE, Order, OrderError, Orders},
    protocol::{
        entity::EntityKey,
        table::{Key, Row, Table, Value},
    },
};

/// In every row of the handler `orders`.
const FORMAT_ATTRIBUTE: &str = "v";

#[derive(Debug)]
pub enum Kept {
    Order(Box<Order>),
    /// Another handler's row, which has the table to itself: in a local run, one of the user's.
    Row(Row),
}

impl Kept {
    /// Reads the row of `order` in the table `name`.
    ///
    /// # Errors
    ///
    /// The store did not answer, or a newer version wrote the row.
    pub async fn read(
        table: &std::sync::Arc<dyn Table>,
        name: &str,
        order: &EntityKey,
    ) -> Result<Option<Self>, OrderError> {
        let error = match Orders::new(table.clone(), name).order(order).await {
            Err(error @ OrderError::Corrupt(_)) => error,
            read => return Ok(read?.map(|order| Self::Order(Box::new(order)))),
        };
        match table.get(&Key::named(name, KEY_ATTRIBUTE, order.as_str())).await? {
            Some(row) if row.get(FORMAT_ATTRIBUTE).is_none() => Ok(Some(Self::Row(row))),
            _ => Err(error),
        }
    }

    pub fn as_json(&self) -> serde_json::Value {
        match self {
            Self::Order(order) => json!({
                "state": order.state().as_str(), "revision": order.revision(),
                "total": order.total().map(ToString::to_string), "paid": order.paid().to_string(),
                "refunded": order.refunded().to_string(),
            }),
            Self::Row(row) => attributes(row).map(|(name, value)| (name.to_owned(), value_as_json(value))).collect(),
        }
    }
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order(order) => write!(f, "kept by the handler `orders`: {order}"),
            Self::Row(row) => {
                let attributes = attributes(row).map(|(name, value)| match value {
                    Value::S(text) => format!("{name} {text}"),
                    value => format!("{name} {}", value_as_json(value)),
                });
                write!(f, "kept by another handler: {}", attributes.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn attributes(row: &Row) -> impl Iterator<Item = (&str, &Value)> {
    row.iter().map(|(name, value)| (name.as_ref(), value)).filter(|(name, _)| *name != KEY_ATTRIBUTE)
}

fn value_as_json(value: &Value) -> serde_json::Value {
    match value {
        Value::S(text) | Value::Decimal(text) => json!(text),
        Value::N(number) => json!(number),
        Value::Bool(truth) => json!(truth),
        Value::Null => serde_json::Value::Null,
        Value::B(bytes) => json!(format!("{} bytes", bytes.len())),
        Value::L(list) => list.iter().map(value_as_json).collect(),
        Value::M(map) => map.iter().map(|(name, value)| (name.clone(), value_as_json(value))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use webhook_serializer::protocol::{
        memory::MemoryTable,
        table::{Action, Condition, Write},
    };

    use super::*;

    #[tokio::test]
    async fn a_row_of_another_handler_is_shown_as_it_is() {
        let table: Arc<dyn Table> = Arc::new(MemoryTable::default());
        let order = EntityKey::parse("shop/order/1").unwrap();
        let put = async |row: Row| {
            let key = Key::named("orders", KEY_ATTRIBUTE, order.as_str());
            table.write(&Write { key, condition: Condition::Always, action: Action::Put(row) }).await.unwrap();
        };
        assert!(Kept::read(&table, "orders", &order).await.unwrap().is_none());
        put(Row::new().with("deliveries", 2).with("total", "48.20")).await;
        let kept = Kept::read(&table, "orders", &order).await.unwrap().unwrap();
        assert_eq!(kept.to_string(), "kept by another handler: deliveries 2, total 48.20");
        assert_eq!(kept.as_json(), json!({ "deliveries": 2, "total": "48.20" }));
        put(Row::new().with(FORMAT_ATTRIBUTE, 99)).await;
        let newer = Kept::read(&table, "orders", &order).await.unwrap_err();
        assert!(newer.to_string().contains("deploy the newer version"), "{newer}");
    }
}
