//! The worker function's binary, with the handlers that come ready.

use shared::{
    config::{Environment, Variables},
    handlers::{Handlers, forward::Forward, orders::Orders},
};

fn main() -> Result<(), worker::Error> {
    worker::run_with(|parts, sources| {
        let handlers = Handlers::new().with("forward", Forward::configured(sources, &Environment)?);
        if !sources.names_handler("orders") {
            return Ok(handlers);
        }
        let orders_table =
            Environment.value("ORDERS_TABLE").ok_or("ORDERS_TABLE: is not set, and a source's handler is `orders`")?;
        Ok(handlers.with("orders", Orders::new(parts.store.table().clone(), orders_table)))
    })
}
