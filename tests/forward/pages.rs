//! The receivers and functions that the pages print, run as printed.

use std::{fs, net::TcpListener, path::Path, sync::Arc, time::Duration};

use serializer::local::TOTALS_TABLE;
use tests::{not_run::not_run, settle_counter::SettleCounter, testbed::TestBed};
use tokio::{net::TcpStream, process::Command};
use webhook_serializer::{Key, handler::Handler, handlers::forward::Forward, protocol::delivery::Incoming, time::Env};

use crate::{
    SECRETS, incoming, invoke,
    postgres::Postgres,
    receiver::{ReceiverProcess, fastapi, in_suite, php, stand_in_for_lambda},
    sources,
};

/// Returns a page's blocks in a language.
pub fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("{}/../{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let begin = format!("```{language}\n");
    let found = text.split(&begin).skip(1).map(|rest| rest.split_once("```\n").expect("the block ends").0.to_owned());
    found.collect()
}

/// Writes a page's only block in Python with `part` to a file. Returns its path.
fn python_file(folder: &Path, page: &str, part: &str) -> String {
    let mut found = blocks(page, "python");
    found.retain(|block| block.contains(part));
    let [block] = &found[..] else { panic!("{page} has {} such blocks", found.len()) };
    let path = folder.join("page.py");
    fs::write(&path, block).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Writes the blocks of docs/php.md to files, whose names are in their first lines. Returns the path of one.
pub fn php_file(folder: &Path, name: &str) -> String {
    for block in blocks("docs/php.md", "php") {
        let name = block.lines().next().unwrap().trim_start_matches("<?php // ");
        fs::write(folder.join(name), &block).unwrap();
    }
    folder.join(name).to_str().unwrap().to_owned()
}

/// A page's receiver. It prints no address, so it listens where the test says.
pub struct PageReceiver {
    pub url: String,
    /// The folder of its files, unless the test keeps it.
    pub files: Option<tempfile::TempDir>,
    _process: tokio::process::Child,
}

impl PageReceiver {
    pub async fn start(mut command: Command, port: u16) -> Self {
        command.env("SECRET", SECRETS.split(' ').nth(1).unwrap()).env("PORT", port.to_string()).kill_on_drop(true);
        let mut process = command.spawn().expect("the interpreter was found");
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert_eq!(process.try_wait().unwrap(), None, "it still runs");
            Env::system().sleep(Duration::from_millis(20)).await;
        }
        Self { url: format!("http://127.0.0.1:{port}/webhooks"), files: None, _process: process }
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Sends deliveries, one of them twice, and waits until each is applied.
pub async fn deliver(testbed: &mut TestBed, handler: impl Handler) {
    let settled = SettleCounter::default();
    let parts = testbed.parts();
    testbed.feed(testbed.drainer_on(parts.store, parts.waker, handler, Arc::new(settled.clone())));
    let inbox = testbed.inbox();
    for id in ["1", "2", "2", "3"] {
        let incoming = incoming("shop", "shop/order/1", id, "orders/paid", testbed.env());
        let body = format!(r#"{{ "id": "{id}", "total_price": "10.00" }}"#).into();
        inbox.append(&Incoming { body, ..incoming }).await.unwrap();
    }
    settled.until(3).await;
    testbed.rest().await;
    let parked = testbed.operator().all_parked().await.unwrap();
    assert_eq!(parked.iter().map(|parked| parked.error.as_str()).collect::<Vec<_>>(), [""; 0]);
}

async fn counted(testbed: &TestBed) -> Option<u64> {
    let key = Key::named(TOTALS_TABLE, "order", "shop/order/1");
    testbed.parts().store.get(&key, Duration::from_secs(5)).await.unwrap()?.number("deliveries")
}

/// Counts deliveries by a receiver's answers with writes.
async fn answers_count_once(receiver: PageReceiver) {
    let commit = "allow_private = true, commit = ['totals']";
    let mut testbed = TestBed::start_for(&sources(&receiver.url).replace("allow_private = true", commit)).await;
    let forward = Forward::new(testbed.sources());
    deliver(&mut testbed, forward).await;
    assert_eq!(counted(&testbed).await, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_of_pages_count_each_delivery_once() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let python = python_file(folder.path(), "docs/handlers.md", "answer_with");
    let php = php(&php_file(folder.path(), "count.php"), port).await;
    for command in [in_suite("handlers_1").await, fastapi(&python, port), php] {
        match command {
            Ok(command) => answers_count_once(PageReceiver::start(command, port).await).await,
            Err(reason) => not_run(&reason),
        }
    }
}

/// Promise: the pages' receivers in TypeScript, Python and PHP apply each delivery once; writes in their answers, and
/// in a Lambda function's, land once.
#[tokio::test(flavor = "multi_thread")]
async fn receivers_of_pages_apply_each_delivery_once() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let python = python_file(folder.path(), "docs/forward.md", "apply_once");
    let php = php(&php_file(folder.path(), "apply.php"), port).await;
    for command in [in_suite("forward_1").await, fastapi(&python, port), php] {
        match on_postgres(command, port).await {
            Ok((postgres, receiver)) => applies_once(&postgres, &receiver).await,
            Err(reason) => not_run(&reason),
        }
    }
}

/// Starts a page's receiver on a new Postgres server.
async fn on_postgres(command: Result<Command, String>, port: u16) -> Result<(Postgres, PageReceiver), String> {
    let mut command = command?;
    let postgres = Postgres::start().await?;
    let tables = "CREATE TABLE payments (order_key text, total numeric); \
                  CREATE TABLE newest_token (entity_key text PRIMARY KEY, token bigint NOT NULL); \
                  CREATE TABLE applied (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())";
    postgres.psql(tables).await.unwrap();
    let socket = postgres.folder();
    command.env("DATABASE_URL", postgres.url()).env("PGHOST", socket).env("PGUSER", "receiver");
    command.env("PGDATABASE", "postgres");
    command.env("DSN", format!("pgsql:host={};dbname=postgres;user=receiver", socket.display()));
    let receiver = PageReceiver::start(command, port).await;
    Ok((postgres, receiver))
}

async fn applies_once(postgres: &Postgres, receiver: &PageReceiver) {
    let mut testbed = TestBed::start_for(&sources(&receiver.url)).await;
    let forward = Forward::new(testbed.sources());
    deliver(&mut testbed, forward).await;
    let paid = postgres.psql("SELECT order_key, count(*), sum(total) FROM payments GROUP BY order_key").await.unwrap();
    assert_eq!(paid, "shop/order/1|3|30.00");
    let known = "SELECT count(*), count(DISTINCT entity_key) FROM applied, newest_token";
    assert_eq!(postgres.psql(known).await.unwrap(), "3|1");
}

/// The function has no ids and no tokens.
#[tokio::test(flavor = "multi_thread")]
async fn lambda_function_of_page_counts_each_delivery_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = python_file(folder.path(), "docs/handlers.md", "def handler(event, context)");
    let command = match stand_in_for_lambda(&file).await {
        Ok(command) => command,
        Err(reason) => return not_run(&reason),
    };
    let function = ReceiverProcess::start(command, "").await;
    let mut testbed = TestBed::start_for(invoke::SOURCES).await;
    let invoke = invoke::handler(function.url(), testbed.sources());
    deliver(&mut testbed, invoke).await;
    assert_eq!(counted(&testbed).await, Some(3));
}
