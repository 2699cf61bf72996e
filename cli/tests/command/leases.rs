//! `serializer lease`.

use std::process::Output;

use crate::running::{Local, complained, folder, printed, serializer};

const KEY: &str = "invoice_gen/SUB-1234";

fn run_under_lease(local: &Local, options: &[&str], script: &str) -> Output {
    let this = env!("CARGO_BIN_EXE_serializer");
    let script = script.replace("serializer", this).replace("{key}", KEY).replace("{target}", &local.target);
    let mut command = vec!["lease", "run", KEY];
    command.extend(options);
    command.extend(["--", "sh", "-c", &script]);
    local.ran(&command)
}

#[test]
fn a_program_has_the_lease_while_it_runs_and_its_exit_code_is_passed_on() {
    let local = Local::start(&[]);
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
fn a_program_is_not_started_while_somebody_else_has_the_lease() {
    let local = Local::start(&[]);
    let done = run_under_lease(&local, &[], "serializer lease run --wait 0 {target} {key} -- echo started");
    assert_eq!(done.status.code(), Some(75), "{done:?}");
    assert!(complained(&done).contains("held by sh until ") && !printed(&done).contains("started"), "{done:?}");
}

/// By a deploy, a closed terminal: the program may have something to put away,
/// and nobody else is let in before it has.
#[test]
fn a_signal_is_the_programs_which_ends_under_its_lease() {
    let local = Local::start(&[]);
    for (signal, code) in [("TERM", 15), ("HUP", 16)] {
        let script = format!(
            "trap 'serializer lease get {{target}} {{key}} >/dev/null && exit {code}; exit 1' {signal}; \
             kill -{signal} $PPID; while true; do sleep 0.1; done"
        );
        let done = run_under_lease(&local, &[], &script);
        assert_eq!(done.status.code(), Some(code), "{signal}: {done:?}");
        assert_eq!(local.ran(&["lease", "get", KEY]).status.code(), Some(1), "{signal}: it is released");
    }
}

#[test]
fn a_program_whose_lease_is_lost_is_killed() {
    let local = Local::start(&[]);
    // Nothing but the loss ends it.
    let script = "serializer lease release {target} {key} --why 'it hangs' && exec sleep 100000";
    let done = run_under_lease(&local, &["--lease", "1"], script);
    assert_eq!(done.status.code(), Some(76), "{done:?}");
    assert!(complained(&done).contains("the lease was lost"), "{done:?}");
}

#[test]
fn what_is_printed_in_a_keys_place_names_its_lease() {
    let folder = folder();
    let file = folder.path().join("environment");
    let local = Local::start(&["--env-file", file.to_str().unwrap()]);
    // After the line that says that it serves: a command tells whether all of it is there.
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
