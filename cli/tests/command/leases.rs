//! `serializer lease`.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Output, Stdio},
};

use crate::running::{LocalProcess, complained, file, folder, printed, serializer};

const KEY: &str = "invoice_gen/SUB-1234";

fn run_under_lease(local: &LocalProcess, options: &[&str], script: &str) -> Output {
    let this = env!("CARGO_BIN_EXE_serializer");
    let script = script.replace("serializer", this).replace("{key}", KEY).replace("{target}", &local.target);
    let mut command = vec!["lease", "run", KEY];
    command.extend(options);
    command.extend(["--", "sh", "-c", &script]);
    local.ran(&command)
}

/// Promise: `lease run` passes on signals and exit code, lets its program read the terminal, kills it if the lease is
/// lost.
#[test]
fn program_runs_under_lease_and_its_exit_code_is_returned() {
    let local = LocalProcess::start(&[]);
    let script = "serializer lease get {target} {key}; echo under $SERIALIZER_TOKEN of $SERIALIZER_KEY; exit 7";
    let done = run_under_lease(&local, &[], script);
    let said = printed(&done);
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    let row = said.lines().find(|line| line.starts_with(KEY)).expect("a local run shows keys as they are");
    assert!(row.contains("exclusive") && row.contains(" in 1") && row.contains(" sh "), "{row}");
    let token = row.split_whitespace().rev().nth(1).expect("a token");
    assert!(said.contains(&format!("under {token} of {KEY}")), "{said}");
    assert_eq!(local.ran(&["lease", "get", KEY]).status.code(), Some(1), "it is released");
}

#[test]
fn program_does_not_start_while_another_holds_lease() {
    let local = LocalProcess::start(&[]);
    let done = run_under_lease(&local, &[], "serializer lease run --wait 0 {target} {key} -- echo started");
    assert_eq!(done.status.code(), Some(75), "{done:?}");
    assert!(complained(&done).contains("held by sh until ") && !printed(&done).contains("started"), "{done:?}");
}

#[test]
fn lease_run_of_unstartable_program_exits_with_126_or_127() {
    let local = LocalProcess::start(&[]);
    let folder = folder();
    let file = file(&folder, "file", "not a program");
    for (program, code) in [("no-such-program", 127), (file.to_str().unwrap(), 126)] {
        let done = local.ran(&["lease", "run", KEY, "--", program]);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        assert!(complained(&done).contains("cannot be started"), "{done:?}");
        assert_eq!(local.ran(&["lease", "get", KEY]).status.code(), Some(1), "{program}: the lease is released");
    }
}

/// A deploy or a closed terminal sends a signal: the program may have to clean up, and nobody else gets the
/// lease before it has.
#[test]
fn signal_is_passed_to_program_under_lease() {
    let local = LocalProcess::start(&[]);
    let signals = [
        "INT",
        "TERM",
        "HUP",
        "QUIT",
        "USR1",
        "USR2",
        "ALRM",
        "XCPU",
        #[cfg(target_os = "linux")]
        "PWR",
    ];
    for (signal, code) in signals.into_iter().zip(14..) {
        let script = format!(
            "trap 'serializer lease get {{target}} {{key}} >/dev/null && exit {code}; exit 1' {signal}; \
             kill -{signal} $PPID; for _ in $(seq 300); do sleep 0.1; done"
        );
        let done = run_under_lease(&local, &[], &script);
        assert_eq!(done.status.code(), Some(code), "{signal}: {done:?}");
        assert_eq!(local.ran(&["lease", "get", KEY]).status.code(), Some(1), "{signal}: it is released");
    }
}

/// Promise: no signal to `lease run` lets its program continue without a lease; on Linux, SIGKILL neither.
#[test]
fn program_ends_with_any_signal_to_lease_run() {
    let local = LocalProcess::start(&[]);
    for (signal, code) in [("QUIT", 131), ("USR1", 138), ("ALRM", 142), ("XCPU", 152), ("VTALRM", 154)] {
        let done = run_under_lease(&local, &[], &format!("kill -{signal} $PPID; exec sleep 100000"));
        assert_eq!(done.status.code(), Some(code), "{signal}: {done:?}");
        assert_eq!(local.ran(&["lease", "get", KEY]).status.code(), Some(1), "{signal}: it is released");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn program_ends_with_killed_lease_run() {
    let local = LocalProcess::start(&[]);
    let run = ["lease", "run", KEY, &local.target, "--", "sh", "-c", "echo $$; exec sleep 100000"];
    let mut child = serializer(&run).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut program = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut program).expect("it prints its process");
    child.kill().expect("it is our child");
    child.wait().expect("it ends");
    assert_ends(program.trim());
}

/// Waits until a process has ended: the kernel delivers a signal with a delay.
fn assert_ends(process: &str) {
    let stat = format!("/proc/{process}/stat");
    let has_ended = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
    assert!((0..1_000_000).any(|_| has_ended()), "it still runs");
}

#[test]
fn program_is_killed_when_lease_is_lost() {
    let local = LocalProcess::start(&[]);
    // Only the loss of the lease ends the program.
    let script = "serializer lease release {target} {key} --why 'it hangs' && exec sleep 100000";
    let done = run_under_lease(&local, &["--lease", "1"], script);
    assert_eq!(done.status.code(), Some(76), "{done:?}");
    assert!(complained(&done).contains("the lease was lost"), "{done:?}");
}

#[test]
fn lost_lease_kills_child_processes_of_program() {
    let local = LocalProcess::start(&[]);
    let script = "sleep 100000 >/dev/null 2>&1 & echo $!; serializer lease release {target} {key} --why 'it hangs' \
                  >/dev/null; wait";
    let done = run_under_lease(&local, &["--lease", "1"], script);
    assert_eq!(done.status.code(), Some(76), "{done:?}");
    assert_ends(printed(&done).trim());
}

#[test]
fn shell_can_read_terminal_after_lease_run_ends() {
    let local = LocalProcess::start(&[]);
    let script = format!(
        "{} lease run {} {KEY} -- sh -c 'read first; echo program: $first'; read second; echo shell: $second",
        env!("CARGO_BIN_EXE_serializer"),
        local.target
    );
    let mut command = Command::new("script");
    command.args(["-qec", &script, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut terminal) = command.spawn() else {
        // Writes past the test harness's output capture.
        let _ = writeln!(std::io::stderr(), "not run: shell_can_read_terminal_after_lease_run_ends: no `script`");
        return;
    };
    let mut input = terminal.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(terminal.stdout.take().expect("it is piped")).lines();
    input.write_all(b"one\ntwo\n").expect("it reads");
    for line in ["program: one", "shell: two"] {
        assert!(lines.any(|said| said.expect("it can be read").trim_end() == line), "{line}");
    }
    drop(input);
    terminal.wait().expect("it ends");
}

/// Promise: `get` and `release` accept hashed keys; `lease list` hashes names without `--raw`.
#[test]
fn key_hash_from_lease_list_finds_the_lease() {
    let folder = folder();
    let file = folder.path().join("environment");
    let local = LocalProcess::start(&["--env-file", file.to_str().unwrap()]);
    // The environment file is complete once a command gets its answer, not when the run says that it serves.
    assert!(local.ran(&["lease", "run", KEY, "--", "true"]).status.success());
    let environment = std::fs::read_to_string(&file).expect("it is written, with functions too");
    let in_aws = |arguments: &[&str]| {
        let mut command = serializer(arguments);
        command.envs(environment.lines().filter_map(|line| line.split_once('=')));
        command.output().expect("it can be run")
    };
    let listed = in_aws(&["lease", "list", "--all"]);
    let listed = printed(&listed);
    let hash = listed.split_whitespace().find(|word| word.starts_with("invoice_gen/#")).expect("hashed");
    assert!(!listed.contains(KEY), "{listed}");
    assert!(printed(&in_aws(&["lease", "get", hash])).contains(hash));
    let raw = printed(&in_aws(&["lease", "get", "--raw", hash]));
    assert!(raw.contains(KEY), "{raw}");
}
