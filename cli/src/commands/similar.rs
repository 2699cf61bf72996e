use webhook_serializer::{
    nearest,
    protocol::{
        entity::EntityKey,
        format::attribute as a,
        table::{Row, TableName},
    },
};

use super::target::Deployment;

const SHOWN: usize = 3;

/// Returns the stored keys that are similar to `order`, the most similar first. The function reads only one page of the
/// orders' table: at most 500 rows or 1 MB, for at most 128 read units. A larger table may hold other similar keys.
pub async fn keys(order: &EntityKey, deployment: &Deployment) -> Vec<String> {
    let operator = deployment.operator().in_one_part();
    // A failed read only loses the hint, so it is not reported.
    let page = operator.pass(TableName::Entities).page().await.ok().flatten().unwrap_or_default();
    let keys = page.iter().filter_map(|row: &Row| row.text(a::ENTITY));
    nearest::ranked(order.as_str(), keys).into_iter().take(SHOWN).map(str::to_owned).collect()
}

pub async fn unknown(order: &EntityKey, deployment: &Deployment) -> String {
    let keys = keys(order, deployment).await;
    let next = match keys.as_slice() {
        [] => format!("`{}` lists orders", deployment.line("list", &[])),
        keys => format!("Similar keys: {}", keys.join(", ")),
    };
    format!("there is no order {order}: no webhook has arrived for this key, or it has expired or was erased. {next}")
}
