//! The worker function's binary, with the handlers that come ready.

use webhook_serializer::{
    config::{Environment, Variables},
    handlers::{Handlers, forward::Forward, orders::Orders},
};

fn main() -> Result<(), worker::Error> {
    worker::run_with(|parts, sources| {
        let handlers = Handlers::new().with("forward", Forward::configured(sources, &Environment)?);
        match Environment.value("ORDERS_TABLE") {
            // Also where no source names it yet: one may, while this runs.
            Some(table) => Ok(handlers.with("orders", Orders::new(parts.store.table().clone(), table))),
            None if sources.current().names_handler("orders") => {
                Err("ORDERS_TABLE: is not set, and a source's handler is `orders`".into())
            }
            None => Ok(handlers),
        }
    })
}
