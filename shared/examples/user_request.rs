//! A user's request that needs an order now, while its webhooks are being
//! worked off: the worker lets it in after the delivery that it is at.
//!
//! `cargo run --example user_request -- shopify/order/450789469`, while
//! `serializer local` runs.

use std::time::Duration;

use webhook_serializer::{
    aws::{Account, Parts},
    config::{Environment, StoreConfig},
    leases::{LeaseError, Leases, RunError, Terms},
    protocol::entity::EntityKey,
    time::Surroundings,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let surroundings = Surroundings::system();
    let parts = Parts::connect(&Account::from_env()?, &StoreConfig::read(&Environment)?, &surroundings, None);
    // With the queue, so that a worker goes on with the order at once afterwards.
    let leases = Leases::new(parts.store, "a user's request").waking(parts.waker);
    let order = EntityKey::parse(&std::env::args().nth(1).unwrap_or("shopify/order/450789469".into()))?;

    // A function would say here how much of its time is left.
    let terms = Terms::default().within(Duration::from_secs(10));
    let change_address = async |lease: webhook_serializer::protocol::lease::Lease| {
        println!("the order is ours, under token {}", lease.token());
        Ok::<_, std::convert::Infallible>("address changed")
    };
    match leases.run(&order, terms, change_address).await {
        Ok(done) => println!("200 {done}"),
        Err(RunError::Lease(error @ (LeaseError::Contended { .. } | LeaseError::Throttled))) => {
            println!("503 try again: {error}");
        }
        Err(error) => println!("500 {error}"),
    }
    Ok(())
}
