//! Finds stored keys that are similar to a mistyped one.

use webhook_serializer::{
    nearest,
    operator::Operator,
    protocol::{
        entity::EntityKey,
        format::attribute as a,
        table::{Row, TableName},
    },
};

const SHOWN: usize = 3;

/// Returns the stored keys that are similar to `order`, the most similar first. The function reads only one page of the
/// orders' table: at most 500 rows or 1 MB, for at most 128 read units. A larger table may hold other similar keys.
pub async fn keys(order: &EntityKey, operator: &Operator) -> Vec<String> {
    let operator = operator.clone().in_one_part();
    // A failed read only loses the hint, so it is not reported.
    let page = operator.pass(TableName::Entities).page().await.ok().flatten().unwrap_or_default();
    let keys = page.iter().filter_map(|row: &Row| row.text(a::ENTITY));
    nearest::ranked(order.as_str(), keys).into_iter().take(SHOWN).map(str::to_owned).collect()
}
