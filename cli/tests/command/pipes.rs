//! `serializer … | head`: the reader leaves before the end.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use crate::running::{LocalProcess, event, serializer};

/// Runs the command with a standard output that nobody reads any more.
fn unread(arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let mut command = serializer(arguments);
    command.stdout(writer).stderr(Stdio::piped());
    let ended = command.spawn().and_then(|child| child.wait_with_output()).expect("it can be run");
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn closed_stdout_ends_command_quietly() {
    let local = LocalProcess::with_order();
    let target = local.target.clone();
    let url = local.url.clone();
    let sample = event("shopify-orders-paid.json");
    let sources = event("sources.toml");
    let commands: [&[&str]; 8] = [
        &["check", &sources],
        &["send", "--curl", &sample],
        &["send", "--to", &url, &sample],
        &["show", &target, "shopify/order/450789469"],
        &["show", &target, "--json", "shopify/order/450789469"],
        &["lease", "list", "--all", &target],
        &["audit", &target],
        &["local", "--demo", "--plain", "--act", "five"],
    ];
    for command in commands {
        assert_eq!(unread(command), (Some(0), String::new()), "{command:?}");
    }
}

#[test]
fn closed_stderr_keeps_exit_code() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let ended = serializer(&["check", "no-such-file"]).stderr(writer).status().expect("it can be run");
    assert_eq!(ended.code(), Some(1));
}

/// Returns a standard error that nobody reads any more.
fn closed() -> std::io::PipeWriter {
    std::io::pipe().expect("a pipe can be made").1
}

#[test]
fn command_with_closed_stderr_does_not_panic() {
    let local = LocalProcess::start(&[]);
    let target = local.target.as_str();
    let url = local.url.as_str();
    let no_webhook = event("schedule.json");
    let commands: [(&[&str], i32); 4] = [
        (&["lease", "get", target, "a/b"], 1),
        (&["lease", "list", target], 0),
        (&["lease", "run", target, "a/b", "--", "no-such-program"], 127),
        (&["send", "--to", url, &no_webhook], 1),
    ];
    for (command, code) in commands {
        let ended = serializer(command).stderr(closed()).status().expect("it can be run");
        assert_eq!(ended.code(), Some(code), "{command:?}");
    }
}

#[test]
fn local_run_with_closed_stderr_stops_cleanly() {
    let started = serializer(&["local", "--port", "0", "--json"]).stdout(Stdio::piped()).stderr(closed()).spawn();
    let mut child = started.expect("it can be started");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    lines.read_line(&mut line).expect("it says where it serves");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill can be run").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn unwritable_stdout_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("there is one");
    let done = serializer(&["check", "--reference"]).stdout(full).output().expect("it can be run");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: standard output cannot be written to: No space"), "{said}");
}
