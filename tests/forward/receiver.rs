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
    let mut command = Command::new(interpreter().await?);
    command.arg(example(name));
    Ok(command)
}

async fn interpreter() -> Result<String, String> {
    let program = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    version(&program).await.ok_or_else(|| format!("{program} is not installed"))?;
    Ok(program)
}

/// The frameworks of `tests/clients/receiver.ts` and `receiver.py`.
pub const FRAMEWORKS: [&str; 4] = ["express", "hono", "fastapi", "flask"];

/// Returns the command of a package's receiver behind `framework`, or why it cannot be run. Unless variables name a
/// database, it remembers in memory.
pub async fn packaged(framework: &str) -> Result<Command, String> {
    let mut command = match framework {
        "express" | "hono" => in_suite("receiver").await?,
        _ => python_with_package(["clients/receiver.py"])?,
    };
    command.env("FRAMEWORK", framework);
    Ok(command)
}

/// Returns the command that serves the FastAPI application `app` of a file, or why it cannot be run.
pub fn fastapi(file: &str, port: u16) -> Result<Command, String> {
    let (folder, name) = file.rsplit_once('/').expect("it is in a folder");
    let app = format!("{}:app", name.trim_end_matches(".py"));
    python_with_package([
        "-m",
        "uvicorn",
        "--log-level=warning",
        "--port",
        &port.to_string(),
        "--app-dir",
        folder,
        &app,
    ])
}

/// Returns the command of Python with the PyPI package, or why it cannot be run.
pub fn python_with_package<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Command, String> {
    let target = concat!(env!("CARGO_MANIFEST_DIR"), "/../target");
    let package = format!("{target}/clients/python");
    let program = format!("{target}/tools/client-python/bin/python");
    if !Path::new(&package).is_dir() || !Path::new(&program).is_file() {
        return Err("target/clients/python is missing; run .ci/client-python".to_owned());
    }
    let mut command = Command::new(program);
    command.args(arguments).env("PYTHONPATH", package);
    Ok(command)
}

/// Returns the command that serves a file in PHP, or why it cannot be run. It displays errors, as on a developer's
/// machine: PHP's status is then 200 unless the file has set another.
pub async fn php(file: &str, port: u16) -> Result<Command, String> {
    version("php").await.ok_or("PHP is not installed; run .ci/receiver")?;
    let mut command = Command::new("php");
    command.args(["-q", "-d", "display_errors=1", "-S", &format!("127.0.0.1:{port}"), file]).stderr(Stdio::null());
    Ok(command)
}

/// Returns the command that calls the function `handler` of a file in Python as Lambda would, or why it cannot be run.
pub async fn stand_in_for_lambda(file: &str) -> Result<Command, String> {
    let text = "import sys, runpy\nsys.path.insert(0, sys.argv[1])\nimport invoke_handler\n\
                invoke_handler.handler = runpy.run_path(sys.argv[2])['handler']\ninvoke_handler.main()";
    let mut command = Command::new(interpreter().await?);
    let example = example("invoke_handler.py");
    command.args(["-c", text, example.trim_end_matches("/invoke_handler.py"), file]).env("TOTALS_TABLE", "");
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
pub async fn node_on(path: &str) -> Result<Command, String> {
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
