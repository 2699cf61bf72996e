//! Takes the lease of `test/frozen` for one second and prints it. After a line on standard input, commits a
//! note under the lease, and writes another note in a separate transaction. Prints both results.

use std::time::Duration;

use webhook_serializer::{
    aws::{Account, Parts},
    config::{Environment, StoreConfig},
    leases::{LeaseError, Leases, Terms},
    protocol::{
        entity::EntityKey,
        table::{Action, Change, Condition, Key, TableName, Transacted, Write},
    },
    time::Env,
};

/// Returns a write of a note's row under the lease.
fn note(who: &str) -> Write {
    Write {
        key: Key { table: TableName::Entities, partition: ("entity".into(), "test/note".into()), sort: None },
        condition: Condition::Always,
        action: Action::Update(vec![Change::set("note", who)]),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let env = Env::system();
    let parts = Parts::connect(&Account::from_env()?, &StoreConfig::read(&Environment)?, &env, None);
    let leases = Leases::new(parts.store.clone(), "a process");
    let frozen = EntityKey::parse("test/frozen")?;
    let guard = leases.acquire(&frozen, Terms::default().lease(Duration::from_secs(1))).await?;
    println!("granted {}", guard.lease().token());
    // Blocks the only thread, so that nothing renews the lease.
    std::io::stdin().read_line(&mut String::new())?;
    let own = parts.store.transact(&[guard.lease().check(), note("late")], "late", Duration::from_secs(5)).await?;
    println!("transaction {}", if own == Transacted::Landed { "landed" } else { "refused" });
    match guard.commit(vec![note("late")]).await {
        Err(LeaseError::Lost) => println!("commit lost"),
        other => println!("commit {other:?}"),
    }
    Ok(())
}
