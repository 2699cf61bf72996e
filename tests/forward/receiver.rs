//! A receiver or function in another language, in a separate process.

use std::{path::Path, process::Stdio};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A running receiver. Dropping it kills the process.
pub struct ReceiverProcess {
    url: String,
    lines: Lines<BufReader<ChildStdout>>,
    _process: Child,
}

impl ReceiverProcess {
    pub async fn start(mut command: Command, secrets: &str) -> Self {
        command.env("SECRET", secrets).env("PORT", "0").stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the interpreter was found");
        let mut lines = BufReader::new(process.stdout.take().expect("it is piped")).lines();
        let url = lines.next_line().await.unwrap().expect("it says where it listens");
        Self { url, lines, _process: process }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the next line that the receiver prints.
    pub async fn line(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().expect("it still runs");
        serde_json::from_str(&line).unwrap()
    }
}

fn example(name: &str) -> String {
    let path = format!("{}/../shared/examples/receivers/{name}", env!("CARGO_MANIFEST_DIR"));
    assert!(Path::new(&path).is_file(), "{path}");
    path
}

async fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().await.ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the command of an example in Python, or why it cannot be run. The variable `PYTHON` replaces
/// `python3`.
pub async fn python(name: &str) -> Result<Command, String> {
    let path = example(name);
    let program = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    version(&program).await.ok_or_else(|| format!("{program} is not installed"))?;
    let mut command = Command::new(program);
    command.arg(path);
    Ok(command)
}

/// Returns the path of an example that `.ci/receiver` provides with its packages, or why there is none.
fn provided(example_folder: &str, name: &str, files: &[&str]) -> Result<String, String> {
    let built = format!("{}/../target/receivers/{name}", env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read(path).ok();
    let is_current =
        |file: &&str| read(&format!("{built}/{file}")) == read(&example(&format!("{example_folder}{file}")));
    match files.iter().all(is_current) {
        true => Ok(built),
        false => Err(format!("target/receivers/{name} is missing or outdated; run .ci/receiver")),
    }
}

/// Returns the command of the receiver on Postgres, or why it cannot be run.
pub async fn node_with_postgres(database: &str) -> Result<Command, String> {
    let built = provided("postgres/", "postgres", &["receiver.ts"])?;
    let program = std::env::var("NODE").unwrap_or_else(|_| "node".into());
    version(&program).await.ok_or_else(|| format!("{program} is not installed"))?;
    let mut command = Command::new(program);
    command.arg(format!("{built}/dist/receiver.js")).env("DATABASE_URL", database);
    Ok(command)
}

/// Returns the command of the npm package's receiver behind `framework`, or why it cannot be run. Without a database,
/// it remembers in memory.
pub async fn packaged(framework: &str, database: Option<&str>) -> Result<Command, String> {
    let mut command = in_suite("receiver").await?;
    command.env("FRAMEWORK", framework);
    if let Some(database) = database {
        command.env("DATABASE_URL", database);
    }
    Ok(command)
}

/// Returns the command of a program that `.ci/client` has built with the npm package, or why it cannot be run.
pub async fn in_suite(name: &str) -> Result<Command, String> {
    let built = format!("{}/../target/clients/suite/dist/{name}.js", env!("CARGO_MANIFEST_DIR"));
    if !Path::new(&built).is_file() {
        return Err("target/clients is missing; run .ci/client".to_owned());
    }
    let program = std::env::var("NODE").unwrap_or_else(|_| "node".into());
    version(&program).await.ok_or_else(|| format!("{program} is not installed"))?;
    let mut command = Command::new(program);
    command.arg(built);
    Ok(command)
}

/// Returns the command of an example in TypeScript, or why it cannot be run.
pub async fn node(name: &str) -> Result<Command, String> {
    node_on(&example(name)).await
}

/// Returns the command of a file in TypeScript, or why it cannot be run. The variable `NODE` replaces `node`.
async fn node_on(path: &str) -> Result<Command, String> {
    let program = std::env::var("NODE").unwrap_or_else(|_| "node".into());
    let version = version(&program).await.ok_or_else(|| format!("{program} is not installed"))?;
    let mut numbers = version.trim_start_matches('v').split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let major = numbers.next().unwrap_or(0);
    let minor = numbers.next().unwrap_or(0);
    if (major, minor) < (22, 6) {
        return Err(format!("{program} {version} cannot run TypeScript; install 22.6 or newer, or set NODE to it"));
    }
    let mut command = Command::new(program);
    command.args(["--experimental-strip-types", "--disable-warning=ExperimentalWarning", path]);
    Ok(command)
}
