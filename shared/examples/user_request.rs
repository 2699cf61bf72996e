//! A user's request that changes an order while its webhooks are being handled. The worker
//! yields the lease after its current delivery.
//!
//! While `cargo run -- local --env-file .env.local` runs in another terminal:
//!
//! ```sh
//! (set -a; . ./.env.local; cargo run --example user_request -- shopify/order/450789469)
//! ```

use std::time::Duration;

use webhook_serializer::{EntityKey, Lease, LeaseError, Leases, RunError, Terms};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leases = Leases::from_env().await?.held_by("a user's request");
    let order = EntityKey::parse(&std::env::args().nth(1).unwrap_or("shopify/order/450789469".into()))?;

    // A function would pass the time that is left to it.
    let terms = Terms::default().within(Duration::from_secs(10));
    let change_address = async |lease: Lease| {
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
