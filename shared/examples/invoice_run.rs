//! An invoice run of which only one process at a time may handle a subscription. Another
//! process skips the subscription.
//!
//! While `cargo run -- local --env-file .env.local` runs in another terminal:
//!
//! ```sh
//! (set -a; . ./.env.local; cargo run --example invoice_run)
//! ```

use std::time::Duration;

use webhook_serializer::{EntityKey, Env, Leases, Terms};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let env = Env::system();
    let leases = Leases::from_env().await?.held_by("the invoice run");
    let subscription = EntityKey::parse("invoice_gen/SUB-1234")?;

    let run = async |name: &str| {
        let draw_up = async |_lease| {
            env.sleep(Duration::from_millis(300)).await;
            Ok::<_, std::convert::Infallible>(format!("{name} drew the invoice up"))
        };
        leases.run_unless_held(&subscription, Terms::default(), draw_up).await
    };
    let (one, other) = tokio::join!(run("one"), run("the other"));
    for done in [one?, other?] {
        println!("{}", done.unwrap_or_else(|| "skipped: another run holds the lease".into()));
    }
    Ok(())
}
