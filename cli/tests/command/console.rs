//! `serializer console`, and the console that `serializer local` serves.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Command, Stdio},
};

use serde_json::Value;
use serializer::local::samples::SOURCES;

use crate::running::{LocalProcess, complained, file, folder, printed, ran, serializer};

/// Requests a URL. Returns the connection, from which the response can be read.
fn requested(url: &str, cookie: &str) -> TcpStream {
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

fn answered(url: &str, cookie: &str) -> String {
    let mut answer = String::new();
    requested(url, cookie).read_to_string(&mut answer).expect("it answers");
    answer
}

/// Returns the page at the printed URL.
fn page(url: &str) -> String {
    page_at(url, "")
}

/// Returns a page of the console at the printed URL.
pub fn page_at(url: &str, path: &str) -> String {
    let (url, cookie) = entered(url, path);
    answered(&url, &cookie)
}

/// Opens the printed URL. Returns the URL of `path` in this console, and the cookie that opens it.
fn entered(url: &str, path: &str) -> (String, String) {
    let entered = answered(url, "");
    let set = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let (base, _) = url.split_once("?token=").expect("a token in it");
    (format!("{base}{path}"), set.split(';').next().expect("a value").to_owned())
}

/// Returns the first update of the lanes at the printed URL.
pub fn first_update(url: &str) -> String {
    let (url, cookie) = entered(url, "live");
    let mut lines = BufReader::new(requested(&url, &cookie)).lines().map(|line| line.expect("it answers"));
    lines.find(|line| line.starts_with("data: ")).expect("an update")
}

/// Runs `command`, a console with `--json`, while `looks` uses its printed URL.
pub fn while_it_serves<T>(mut command: Command, looks: impl FnOnce(&str) -> T) -> T {
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.expect("it can be started");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    lines.read_line(&mut line).expect("it says where it serves");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    let seen = looks(said["console"].as_str().expect("an address"));
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    seen
}

#[test]
fn separate_console_process_shows_local_orders() {
    let local = LocalProcess::with_order();
    let own = page(&local.console);
    assert!(own.contains("No order is stopped or failing") && own.contains(&local.url), "{own}");
    let other = while_it_serves(serializer(&["console", "--json", local.target.as_str()]), page);
    assert!(other.contains("No order is stopped or failing") && other.contains(&local.url), "{other}");
}

#[test]
fn console_error_names_missing_deployment_or_taken_port() {
    let nothing = ran(&["console"]);
    assert!(!nothing.status.success());
    assert!(complained(&nothing).contains("name the deployment: --local"), "{}", complained(&nothing));
    let local = LocalProcess::start(&[]);
    let port = local.url.rsplit(':').next().expect("a port").to_owned();
    let taken = local.ran(&["console", "--port", &port]);
    assert!(complained(&taken).contains("is taken; choose another with --port"), "{}", complained(&taken));
}

#[test]
fn order_is_read_again_by_itself() {
    let folder = folder();
    let paused = SOURCES.replacen("[sources.shopify]", "[sources.shopify]\npaused = true", 1);
    let sources = file(&folder, "sources.toml", &paused);
    let mut local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    assert!(local.send(&["shopify-orders-create.json", "stripe-charge-refunded.json"]).status.success());
    let settled = local.until(|told| told["what"] == "settled");
    let order = |key: &str| page_at(&local.console, &format!("order?key={key}"));
    let [waits, rests] = [order("shopify/order/450789469"), order(settled["entity"].as_str().unwrap())];
    assert!(waits.contains("1 delivery waits") && waits.contains(r#"data-again="1000""#), "{waits}");
    assert!(rests.contains("All deliveries are settled") && rests.contains(r#"data-again="1000""#), "{rests}");
    assert!(rests.contains("Read at <time"), "{rests}");
    assert!(local.ran(&["hold", "shopify/order/ends with a space ", "--why", "a test"]).status.success());
    let held = order("shopify/order/ends%20with%20a%20space%20");
    assert!(held.contains("on hold"), "{held}");
}

#[test]
fn pages_follow_the_sources_document() {
    const ORDER: &str = "shopify/order/450789469";
    let folder = folder();
    let paused = SOURCES.replacen("[sources.shopify]", "[sources.shopify]\npaused = true", 1);
    let sources = file(&folder, "sources.toml", &paused);
    let local = LocalProcess::start(&["--sources", sources.to_str().unwrap()]);
    assert!(local.send(&["shopify-orders-create.json"]).status.success());
    let shown = printed(&local.ran(&["show", ORDER, "--json"]));
    let sequence = serde_json::from_str::<Value>(&shown).expect("JSON")["state"]["tail"].to_string();
    let order = format!("order?key={ORDER}");
    let delivery = format!("delivery?key={ORDER}&sequence={sequence}");
    let is_paused = |console: &str| {
        let now = page(console);
        assert!(now.contains("The source <strong>shopify</strong> is paused"), "{now}");
        for path in ["", &order, &delivery] {
            let page = page_at(console, path);
            // Before a worker has seen the pause, and after.
            let is_named = page.contains("pauses the source shopify") || page.contains("The source shopify is paused");
            assert!(is_named && page.contains("source resume"), "{page}");
        }
    };
    is_paused(&local.console);
    while_it_serves(serializer(&["console", "--json", local.target.as_str()]), |console| {
        is_paused(console);
        file(&folder, "sources.toml", &SOURCES.replace("[sources.shopify]", "[sources.another]"));
        let removed = page_at(console, &order);
        assert!(removed.contains("The source shopify is not in the sources document"), "{removed}");
        file(&folder, "sources.toml", "this is no TOML");
        let unknown = page_at(console, &order);
        assert!(unknown.contains("1 delivery waits") && !unknown.contains("The source"), "{unknown}");
        let now = page(console);
        assert!(now.contains("Paused and removed sources are not known: "), "{now}");
    });
}
