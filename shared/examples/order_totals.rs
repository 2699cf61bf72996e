//! A handler that writes to a table of its own, exactly once for each delivery. The table
//! holds an order's newest total, and how many deliveries were counted. Try it:
//!
//! ```sh
//! cargo build --example order_totals
//! cargo run -- local --worker target/debug/examples/order_totals
//! ```

use webhook_serializer::{Age, Change, Context, Delivery, Handler, HandlerError, Key, Outcome, Write, worker};

/// Keeps totals in the table of this name, whose key is the attribute `order`.
pub struct Totals(pub String);

impl Handler for Totals {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let order: serde_json::Value = delivery.json()?;
        let Some(total) = order["total_price"].as_str() else {
            return Ok(Outcome::Reject("the order has no total_price".into()));
        };
        let mut changes = vec![Change::add("deliveries", 1)];
        // Providers may deliver events out of order.
        if delivery.age() != Age::Older {
            changes.push(Change::set("total", total));
        }
        // A request to another system would carry this token, so that its receiver can refuse a late one.
        println!("{} costs {total}, under token {}", delivery.entity(), context.token());
        let row = Key::named(self.0.as_str(), "order", delivery.entity().as_str());
        Ok(Outcome::commit([Write::update(row, changes)]))
    }
}

fn main() -> Result<(), worker::Error> {
    let table = std::env::var("TOTALS_TABLE").map_err(|_| "TOTALS_TABLE is not set")?;
    worker::run(Totals(table))
}
