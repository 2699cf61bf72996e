//! A scheduler with a job that asks a provider for its recent orders every 15 minutes, and
//! appends those whose webhooks did not arrive. Try it:
//!
//! ```sh
//! cargo build --release --example reconcile
//! cargo run --release -- local --scheduler target/release/examples/reconcile --jobs on
//! cargo run --release -- jobs run reconcile --local     # in another terminal; then `jobs --local`
//! ```
//!
//! The provider's API is replaced by a file with its answer.

use serde_json::Value;
use webhook_serializer::{
    DeliveryId, Deployment, EntityKey, Identity, Inbox, Incoming, SourceName, Timestamp,
    scheduler::{self, Context, Job, JobError, Jobs},
};

/// Returns the orders that changed in the last day. Each has the form of a webhook's body.
async fn recent_orders() -> Result<Vec<Value>, JobError> {
    Ok(serde_json::from_str(include_str!("orders.json"))?)
}

/// Converts an order to the delivery that its webhook would have been. The delivery id is made
/// of the order's id and time, so that appending the same state again is a repeat.
fn as_delivery(order: &Value, now: Timestamp) -> Result<Incoming, JobError> {
    let updated_at = order["updated_at"].as_str().ok_or("an order without a time")?;
    let time = humantime::parse_rfc3339(updated_at)?.duration_since(std::time::UNIX_EPOCH)?;
    let id = &order["id"];
    Ok(Incoming {
        entity: EntityKey::parse(&format!("shopify/order/{id}"))?,
        identity: Identity {
            source: SourceName::parse("shopify")?,
            delivery_id: DeliveryId::new(format!("reconcile/{id}/{updated_at}")),
            redrive: 0,
        },
        provider: Some("shopify".into()),
        topic: "orders/updated".into(),
        family: "orders".into(),
        event_time: Some(Timestamp::from_millis(u64::try_from(time.as_millis())?)),
        received_at: now,
        content_type: Some("application/json".into()),
        body: order.to_string().into(),
    })
}

async fn reconcile(context: Context, inbox: Inbox) -> Result<(), JobError> {
    for order in recent_orders().await? {
        let delivery = as_delivery(&order, context.env().now())?;
        let newest = inbox.newest_event_time(&delivery.entity, &delivery.family).await?;
        // If the order's event is not newer than the newest applied one, it is already
        // applied. If a newer one is on its way, the handler learns that this one is older.
        if newest < delivery.event_time {
            inbox.append(&delivery).await?;
            println!("{} was not up to date", delivery.entity);
        }
    }
    Ok(())
}

fn jobs(deployment: &Deployment) -> Result<Jobs, scheduler::Error> {
    let inbox = deployment.inbox();
    Ok(Jobs::new().add(Job::new("reconcile", "*/15 * * * *", move |context| reconcile(context, inbox.clone()))))
}

fn main() -> Result<(), scheduler::Error> {
    scheduler::run_with(jobs)
}
