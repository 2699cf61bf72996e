//! The message for an unknown order, with similar keys that are stored.

use serializer::view::similar;
use webhook_serializer::protocol::entity::EntityKey;

use super::target::Deployment;

pub async fn unknown(order: &EntityKey, deployment: &Deployment) -> String {
    let keys = similar::keys(order, &deployment.operator()).await;
    let next = match keys.as_slice() {
        [] => format!("`{}` lists orders", deployment.line("list", &[])),
        keys => format!("Similar keys: {}", keys.join(", ")),
    };
    format!(
        "there is no order {order}: no webhook has arrived for this key, or the order has expired or was erased. {next}"
    )
}
