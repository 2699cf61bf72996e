//! A store that refuses late effects, because it remembers the newest fencing token of each
//! key. Here the store is a map in memory.
//!
//! While `cargo run -- local --env-file .env.local` runs in another terminal:
//!
//! ```sh
//! (set -a; . ./.env.local; cargo run --example fenced_write)
//! ```

use std::{collections::BTreeMap, time::Duration};

use webhook_serializer::{EntityKey, FencingToken, Lease, Leases, Terms};

/// A store with compare-and-set, such as a row in SQL or an object with a precondition. In
/// SQL: `UPDATE … SET token = $1, … WHERE key = $2 AND token <= $1`.
#[derive(Default)]
struct Outside(BTreeMap<String, (FencingToken, String)>);

impl Outside {
    fn write(&mut self, key: &EntityKey, token: FencingToken, value: &str) -> Result<(), String> {
        match self.0.get(key.as_str()) {
            Some((newest, _)) if *newest > token => Err(format!("token {token} is older than {newest}")),
            _ => {
                self.0.insert(key.to_string(), (token, value.to_owned()));
                Ok(())
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let leases = Leases::from_env().await?.held_by("a script");
    let stock = EntityKey::parse("stock/SKU-1")?;
    let mut outside = Outside::default();

    // This holder is frozen: it does not renew its lease of one second.
    let slow = leases.acquire(&stock, Terms::default().lease(Duration::from_secs(1))).await?;
    let token_of_slow = slow.lease().token();
    let write = async |lease: Lease| outside.write(&stock, lease.token(), "written by its successor");
    leases.run(&stock, Terms::default(), write).await?;
    // The frozen holder continues, and writes under its older token.
    match outside.write(&stock, token_of_slow, "written late") {
        Ok(()) => println!("a late effect landed"),
        Err(refusal) => println!("refused: {refusal}"),
    }
    println!("{:?} when it lets go", slow.release().await.unwrap_err());
    Ok(())
}
