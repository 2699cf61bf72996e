//! A whole worker function. Try it:
//!
//! ```sh
//! cargo build --example my_worker
//! cargo run -- local --worker target/debug/examples/my_worker
//! ```

use webhook_serializer::{Context, Delivery, Handler, HandlerError, Outcome, worker};

struct Printer;

impl Handler for Printer {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        println!("{} {} under token {}", delivery.entity(), delivery.topic(), context.token());
        Ok(Outcome::Done)
    }
}

fn main() -> Result<(), worker::Error> {
    worker::run(Printer)
}
