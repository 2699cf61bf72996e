//! A process that freezes beyond the end of its lease: its writes after the thaw are refused.

use std::process::Stdio;

use tests::prelude::*;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::signal;

#[tokio::test]
async fn write_of_frozen_lease_holder_is_refused() {
    let testbed = TestBed::start().await;
    let config = testbed.engines.config();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_lease_holder"))
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .env("AWS_ENDPOINT_URL_DYNAMODB", testbed.engines.dynamodb_url())
        .env("AWS_ENDPOINT_URL_SQS", testbed.engines.queue_endpoint())
        .env("ENTITIES_TABLE", &config.entities_table)
        .env("INBOX_TABLE", &config.inbox_table)
        .env("QUEUE_URL", &config.queue_url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let process = u64::from(holder.id().expect("it runs"));
    let mut said = BufReader::new(holder.stdout.take().expect("piped")).lines();
    let mut line = async || said.next_line().await.expect("it can be read").expect("it says something");
    let granted = line().await;
    let token: u64 = granted.strip_prefix("granted ").expect("granted").parse().expect("a token");

    signal("-STOP", process);
    let store = testbed.parts().store;
    let leases = Leases::new(store.clone(), "the successor");
    let note = EntityKey::parse("test/note").expect("a key");
    let successor = leases
        .commit(&EntityKey::parse("test/frozen").expect("a key"), Terms::default(), async |lease| {
            let changes = vec![Change::set("note", "the successor's")];
            let write = Write { key: entity_row(&note), condition: Condition::Always, action: Action::Update(changes) };
            Ok::<_, Infallible>((lease.token(), vec![write]))
        })
        .await
        .expect("the lease runs out");
    assert!(successor > FencingToken(token));
    signal("-CONT", process);

    holder.stdin.take().expect("piped").write_all(b"go on\n").await.expect("it continues");
    assert_eq!(line().await, "transaction refused");
    assert_eq!(line().await, "commit lost");
    let row = store.get(&entity_row(&note), Duration::from_secs(5)).await.expect("the store answers").expect("a row");
    assert_eq!(row.text("note"), Some("the successor's"));
}
