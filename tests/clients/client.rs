//! A client as a separate process. It reads commands from its standard input, and prints the result of each.

use std::{path::Path, process::Stdio};

use serde_json::{Value, json};
use serializer::local::Engines;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLanguage {
    Rust,
    TypeScript,
    Python,
    /// Python too, with `AsyncLeases`.
    Asyncio,
}

impl ClientLanguage {
    pub const ALL: [Self; 4] = [Self::Rust, Self::TypeScript, Self::Python, Self::Asyncio];
}

pub const SUITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/clients/suite");

/// Returns the path of a program that `.ci/client` has built.
pub fn built(name: &str) -> String {
    let path = format!("{SUITE}/dist/{name}");
    assert!(Path::new(&path).is_file(), "{path} is missing: run .ci/client");
    path
}

/// Returns the command of a program in `tests/clients`, or of the Rust client.
pub fn program(language: ClientLanguage, name: &str) -> Command {
    match language {
        ClientLanguage::Rust => Command::new(env!("CARGO_BIN_EXE_lease_client")),
        ClientLanguage::TypeScript => {
            let mut command = Command::new(std::env::var("NODE").unwrap_or_else(|_| "node".into()));
            command.arg(built(&format!("{name}.js")));
            command
        }
        ClientLanguage::Python | ClientLanguage::Asyncio => {
            let target = format!("{}/../target", env!("CARGO_MANIFEST_DIR"));
            let installed = format!("{target}/clients/python");
            assert!(Path::new(&installed).is_dir(), "{installed} is missing: run .ci/client-python");
            let mut command = Command::new(format!("{target}/tools/client-python/bin/python"));
            command.arg(format!("clients/{name}.py")).env("PYTHONPATH", installed);
            if language == ClientLanguage::Asyncio {
                command.arg("asyncio");
            }
            command
        }
    }
}

/// Sets the variables that tell a program how to reach `engines`, with `store` as the store's address.
pub fn connect(command: &mut Command, engines: &Engines, store: &str) {
    let config = engines.config();
    command
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "local")
        .env("AWS_SECRET_ACCESS_KEY", "local")
        .env("AWS_ENDPOINT_URL_DYNAMODB", store)
        .env("AWS_ENDPOINT_URL_SQS", engines.queue_endpoint())
        .env("ENTITIES_TABLE", &config.entities_table)
        .env("INBOX_TABLE", &config.inbox_table)
        .env("QUEUE_URL", &config.queue_url)
        .env_remove("RETENTION_DAYS");
}

/// A running client. Dropping it kills the process.
pub struct Client {
    process: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    /// Starts a client of `engines`, whose store it reaches at `store`.
    pub fn start(language: ClientLanguage, engines: &Engines, store: &str) -> Self {
        let mut command = program(language, "client");
        connect(&mut command, engines, store);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the interpreter was found");
        let input = process.stdin.take().expect("it is piped");
        let lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        Self { process, input, lines }
    }

    pub async fn send(&mut self, command: &Value) {
        self.input.write_all(format!("{command}\n").as_bytes()).await.expect("it still runs");
    }

    pub async fn answer(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("it still runs");
        serde_json::from_str(&line).unwrap()
    }

    /// Runs a command for `key`, with `more` members.
    pub async fn run(&mut self, operation: &str, key: &str, more: Value) -> Value {
        let mut command = json!({ "op": operation, "key": key });
        command.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send(&command).await;
        self.answer().await
    }

    /// Runs a command that succeeds.
    pub async fn succeeds(&mut self, operation: &str, key: &str, more: Value) -> Value {
        let answer = self.run(operation, key, more).await;
        assert_eq!(answer.get("error"), None, "{operation}: {answer}");
        answer
    }

    /// Runs a command that fails with the error `kind`. Returns the error's text.
    pub async fn fails(&mut self, kind: &str, operation: &str, key: &str, more: Value) -> String {
        let answer = self.run(operation, key, more).await;
        assert_eq!(answer["error"], kind, "{operation}: {answer}");
        answer["message"].as_str().unwrap().to_owned()
    }

    pub async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }
}
