//! Runs the command as a shell does, and a deployment for it to work on.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio},
};

use serde_json::Value;
use serializer::view::tone::Word;
use webhook_serializer::protocol::entity::Sequence;

/// Returns the command, without a stack's variables in its environment.
pub fn serializer(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_serializer"));
    command.args(arguments).env_remove("RUST_BACKTRACE");
    // A killed process leaves its temporary folder behind.
    command.env("TMPDIR", env!("CARGO_TARGET_TMPDIR"));
    for name in [
        "ENTITIES_TABLE",
        "FAIR_QUEUE",
        "INBOX_TABLE",
        "QUEUE_URL",
        "RETENTION_DAYS",
        "SERIALIZER_COMMAND",
        "SERIALIZER_LOCAL",
        "SOURCES",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs the command to its end.
pub fn ran(arguments: &[&str]) -> Output {
    serializer(arguments).output().expect("it can be run")
}

pub fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn complained(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Formats a delivery's position as the command shows it: `#7011`.
pub fn position(sequence: u64) -> String {
    serializer::view::position::marked(Sequence(sequence))
}

/// Returns a word as the command prints it with colours.
pub fn coloured(word: impl Into<Word>) -> String {
    let word = word.into();
    word.style().force_styling(true).apply_to(word.text).to_string()
}

/// Returns the path of a sample in `events/`.
pub fn event(name: &str) -> String {
    let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("events");
    events.join(name).to_str().expect("a path in UTF-8").to_owned()
}

/// Returns a new folder for one test.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder can be made")
}

/// Writes a file with this text and returns its path.
pub fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path
}

/// Sends SIGINT, like Ctrl-C.
pub fn interrupt(child: &Child) {
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill can be run").success());
}

/// A `serializer local` that runs until it is dropped.
pub struct LocalProcess {
    pub child: Child,
    /// The URL of the webhook endpoint.
    pub url: String,
    /// The URL of its console, including the token.
    pub console: String,
    /// `--local=` with its URL.
    pub target: String,
    /// The URL of its queue.
    pub queue: String,
    lines: BufReader<ChildStdout>,
    pub errors: BufReader<ChildStderr>,
}

impl LocalProcess {
    /// Starts a run on a free port that prints its events as JSON.
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(serializer(&[&["local", "--port", "0", "--json"], arguments].concat()))
    }

    /// Starts `command`, a run that prints its events as JSON.
    pub fn spawn(mut command: Command) -> Self {
        let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = started.expect("it can be started");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let errors = BufReader::new(child.stderr.take().expect("it is piped"));
        let [url, console, target, queue] = [const { String::new() }; 4];
        let mut local = Self { child, url, console, target, queue, lines, errors };
        let serving = local.until(|told| told["what"] == "serving");
        local.url = serving["webhooks"].as_str().expect("it says where it serves").to_owned();
        local.console = serving["console"].as_str().unwrap_or_default().to_owned();
        local.target = format!("--local={}", local.url);
        local.queue = serving["queue"].as_str().expect("it says where").to_owned();
        local
    }

    /// Starts a run that has applied the first delivery of a sample order.
    pub fn with_order() -> Self {
        let mut local = Self::start(&[]);
        local.apply_sample();
        local
    }

    /// Sends the first delivery of a sample order, and waits until it is settled.
    pub fn apply_sample(&mut self) {
        assert!(self.send(&["shopify-orders-create.json"]).status.success());
        self.until(|told| told["what"] == "settled");
    }

    /// Reads events until one matches, and returns it.
    pub fn until(&mut self, mut is_it: impl FnMut(&Value) -> bool) -> Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).expect("its output can be read");
            assert!(read > 0, "it ended before it told of that");
            let told: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if is_it(&told) {
                return told;
            }
        }
    }

    /// Posts samples to the run.
    pub fn send(&self, events: &[&str]) -> Output {
        let events: Vec<String> = events.iter().map(|name| event(name)).collect();
        let mut arguments = vec!["send", "--to", &self.url];
        arguments.extend(events.iter().map(String::as_str));
        ran(&arguments)
    }

    /// Runs a command on this run.
    pub fn ran(&self, command: &[&str]) -> Output {
        self.command(command).output().expect("it can be run")
    }

    /// Returns what a command prints with colours, as on a terminal.
    pub fn coloured(&self, command: &[&str]) -> String {
        printed(&self.command(command).env("CLICOLOR_FORCE", "1").output().expect("it can be run"))
    }

    fn command(&self, command: &[&str]) -> Command {
        let mut arguments = command.to_vec();
        // The option goes before the arguments of a program.
        let at = arguments.iter().position(|argument| *argument == "--").unwrap_or(arguments.len());
        arguments.insert(at, &self.target);
        serializer(&arguments)
    }

    /// Sends SIGINT, like Ctrl-C.
    pub fn interrupt(&self) {
        interrupt(&self.child);
    }
}

impl Drop for LocalProcess {
    fn drop(&mut self) {
        // The process may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
