//! The worker function's handler. It runs for each delivery, one order's deliveries
//! one after the other.

use webhook_serializer::{Age, Context, Delivery, Handler, HandlerError, Key, Outcome, Row, Write, worker};

/// Logs each order's newest total, and stores it in `table`, if that is set.
#[derive(Debug)]
pub struct Totals {
    /// A DynamoDB table whose key is the attribute `order`.
    pub table: Option<String>,
}

impl Handler for Totals {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        println!("{} {} under token {}", delivery.entity(), delivery.topic(), context.token());
        // Providers may deliver events out of order.
        if delivery.age() == Age::Older {
            return Ok(Outcome::Done);
        }
        let body: serde_json::Value = delivery.json()?;
        // Shopify sends `total_price`, WooCommerce `total`. Refunds, parcels and payments have neither.
        let Some(total) = body["total_price"].as_str().or(body["total"].as_str()) else {
            return Ok(Outcome::Done);
        };
        println!("{} costs {total}", delivery.entity());
        let Some(table) = &self.table else { return Ok(Outcome::Done) };
        // This write lands exactly once, in the transaction that settles the delivery.
        let key = Key::named(table.as_str(), "order", delivery.entity().as_str());
        Ok(Outcome::commit([Write::put(key, Row::new().with("total", total).with("topic", delivery.topic()))]))
    }
}

/// Runs the worker function, in Lambda and under `serializer local`.
///
/// # Errors
///
/// A setting is missing or wrong.
pub fn run() -> Result<(), worker::Error> {
    worker::run(Totals { table: std::env::var("TOTALS_TABLE").ok() })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use webhook_serializer::{
        Action, DeliveryId, EntityKey, Env, FencingToken, Identity, Incoming, Sequence, SourceName, Timestamp,
        testing::{Event, Scenario},
    };

    use super::*;

    async fn handled(topic: &str, body: &str) -> Outcome {
        let source = SourceName::parse("shop").expect("a name");
        let incoming = Incoming {
            entity: EntityKey::parse("shop/order/1").expect("a key"),
            identity: Identity { source, delivery_id: DeliveryId::new("a delivery"), redrive: 0 },
            provider: Some("shopify".into()),
            topic: topic.into(),
            family: "orders".into(),
            event_time: None,
            received_at: Timestamp::from_secs(1_767_225_600),
            content_type: Some("application/json".into()),
            body: body.to_owned().into(),
        };
        let context = Context::detached(FencingToken(1), Duration::from_secs(5), Env::system());
        let totals = Totals { table: Some("totals".into()) };
        totals.handle(&Delivery::detached(incoming, Sequence(1)), &context).await.expect("it is handled")
    }

    #[tokio::test]
    async fn worker_template_commits_the_orders_total() {
        for body in [r#"{"total_price":"48.20"}"#, r#"{"total":"48.20"}"#] {
            let Outcome::Commit(writes) = handled("orders/paid", body).await else { panic!("nothing is written") };
            let [write] = writes.as_slice() else { panic!("not one write: {writes:?}") };
            let Action::Put(row) = &write.action else { panic!("{write:?}") };
            assert_eq!(*row, Row::new().with("total", "48.20").with("topic", "orders/paid"));
        }
    }

    #[tokio::test]
    async fn refund_event_without_order_total_writes_nothing() {
        assert_eq!(handled("refunds/create", r#"{"order_id":1}"#).await, Outcome::Done);
    }

    #[test]
    fn order_total_is_correct_despite_faults_and_reordering() {
        let events = [("orders/create", "48.20"), ("orders/paid", "48.20"), ("orders/updated", "40.00")];
        let events =
            events.map(|(topic, total)| Event::new(topic, serde_json::json!({ "total_price": total }).to_string()));
        let scenario =
            Scenario::new("shop/order/1").deliver(events).twice(0).crash_after(1).stale_token(2).out_of_order();
        scenario.run(|_| Totals { table: Some("totals".into()) }).assert_right();
    }
}
