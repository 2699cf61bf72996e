//! `serializer console`, and the console that `serializer local` serves.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Stdio,
};

use serde_json::Value;

use crate::running::{Local, complained, ran, serializer};

/// Returns the raw response at a URL.
fn answered(url: &str, cookie: &str) -> String {
    let (address, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// Returns the page at the printed URL.
fn page(url: &str) -> String {
    page_at(url, "")
}

/// Returns a page of the console at the printed URL.
pub fn page_at(url: &str, path: &str) -> String {
    let entered = answered(url, "");
    let set = entered.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let (base, _) = url.split_once("?token=").expect("a token in it");
    answered(&format!("{base}{path}"), set.split(';').next().expect("a value"))
}

#[test]
fn separate_console_process_shows_local_orders() {
    let local = Local::with_order();
    let own = page(&local.console);
    assert!(own.contains("No order is stopped or failing") && own.contains(&local.url), "{own}");
    let arguments = ["console", "--json", local.target.as_str()];
    let started = serializer(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = started.expect("it can be started");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    lines.read_line(&mut line).expect("it says where it serves");
    let said: Value = serde_json::from_str(&line).expect("JSON");
    let other = page(said["console"].as_str().expect("an address"));
    assert!(other.contains("No order is stopped or failing") && other.contains(&local.url), "{other}");
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

#[test]
fn console_error_names_missing_deployment_or_taken_port() {
    let nothing = ran(&["console"]);
    assert!(!nothing.status.success());
    assert!(complained(&nothing).contains("name the deployment: --local"), "{}", complained(&nothing));
    let local = Local::start(&[]);
    let port = local.url.rsplit(':').next().expect("a port").to_owned();
    let taken = local.ran(&["console", "--port", &port]);
    assert!(complained(&taken).contains("is taken; choose another for the console"), "{}", complained(&taken));
}
