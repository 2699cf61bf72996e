//! The worker function's binary, with the handlers that come ready.

use shared::{
    config::{Environment, Variables},
    handlers::{Handlers, orders::Orders},
};

fn main() -> Result<(), worker::Error> {
    worker::run_with(|parts| {
        let orders_table = Environment.value("ORDERS_TABLE").ok_or("ORDERS_TABLE: is not set")?;
        Ok(Handlers::new().with("orders", Orders::new(parts.store.table().clone(), orders_table)))
    })
}
