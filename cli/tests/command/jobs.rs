//! `serializer jobs once`.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::running::{LocalProcess, complained, folder, printed, serializer};

/// A tick may begin while the calls run, so the calls may run two ticks, but each once.
///
/// Promise: `jobs once` runs a program once for a tick, records its failure, and passes its exit code on.
#[test]
fn program_runs_once_for_a_tick_whoever_calls() {
    let local = LocalProcess::start(&[]);
    let folder = folder();
    let runs = folder.path().join("runs");
    let script = format!("echo $SERIALIZER_JOB $SERIALIZER_TICK >> {}", runs.display());
    let call = ["jobs", "once", "nightly", &local.target, "--schedule", "* * * * *", "--", "sh", "-c", &script];
    let calls: Vec<_> = (0..6).map(|_| serializer(&call).spawn().expect("it starts")).collect();
    for call in calls {
        let done = call.wait_with_output().expect("it ends");
        assert!(done.status.success(), "{done:?}");
    }
    let runs = fs::read_to_string(runs).expect("one of them ran it");
    let ticks: BTreeSet<&str> = runs.lines().collect();
    assert_eq!(runs.lines().count(), ticks.len(), "{runs}");
    assert!(ticks.len() <= 2 && ticks.iter().all(|tick| tick.starts_with("nightly 20")), "{runs}");
    let listed = printed(&local.ran(&["jobs"]));
    assert!(listed.contains("nightly") && listed.contains("done"), "{listed}");
}

#[test]
fn failure_of_the_program_is_recorded_and_its_exit_code_returned() {
    let local = LocalProcess::start(&[]);
    for (name, program, code) in [("fails", &["sh", "-c", "exit 3"][..], 3), ("missing", &["no-such-program"], 127)] {
        let call = [&["jobs", "once", name, "--schedule", "every minute", "--"][..], program].concat();
        let done = local.ran(&call);
        assert_eq!(done.status.code(), Some(code), "{done:?}");
        let listed = printed(&local.ran(&["jobs"]));
        let row = listed.lines().find(|line| line.starts_with(name)).expect("it is listed");
        assert!(row.contains(&format!("exit code {code}")), "{row}");
    }
}

/// A host that shuts down ends the program by a signal, or the program ends itself with an exit code.
#[test]
fn tick_of_a_killed_program_is_not_recorded() {
    let local = LocalProcess::start(&[]);
    let waits = "for _ in $(seq 300); do sleep 0.1; done";
    let by_itself = format!("trap 'exit 143' TERM; kill -TERM $PPID; {waits}");
    for (name, script) in [("killed", "kill -TERM $$"), ("asked", &by_itself)] {
        let call = ["jobs", "once", name, "--schedule", "* * * * *", "--", "sh", "-c"];
        let done = local.ran(&[&call[..], &[script]].concat());
        assert_eq!(done.status.code(), Some(143), "{name}: {done:?}");
        assert!(complained(&done).contains("so the tick counts as crashed"), "{name}: {done:?}");
        let listed = printed(&local.ran(&["jobs", "--json"]));
        let jobs = listed.lines().map(|line| serde_json::from_str::<Value>(line).expect("a job"));
        let job = jobs.into_iter().find(|job| job["job"] == name).expect("it is listed");
        assert_eq!((&job["result"], &job["starts"]), (&Value::Null, &1.into()), "{job}");
        let next = printed(&local.ran(&[&call[..], &["echo started"]].concat()));
        assert!(next.contains(&format!("{name} is held by sh")) && !next.contains("started"), "{next}");
    }
}

#[test]
fn name_of_the_sweep_is_refused() {
    let local = LocalProcess::start(&[]);
    let refused = local.ran(&["jobs", "once", "sweep", "--schedule", "* * * * *", "--", "echo", "started"]);
    assert!(complained(&refused).contains("`sweep` is the scheduler's own job"), "{refused:?}");
    assert!(!refused.status.success() && !printed(&refused).contains("started"), "{refused:?}");
}

#[test]
fn other_schedule_is_refused_while_a_job_is_in_use() {
    let local = LocalProcess::start(&[]);
    let call = |schedule| local.ran(&["jobs", "once", "nightly", "--schedule", schedule, "--", "echo", "started"]);
    assert!(printed(&call("* * * * *")).contains("started"));
    let refused = call("0 3 * * *");
    assert!(complained(&refused).contains("use the same schedule on all hosts, or another name"), "{refused:?}");
    assert!(!refused.status.success() && !printed(&refused).contains("started"), "{refused:?}");
}

#[test]
fn program_that_is_not_due_is_not_started() {
    let local = LocalProcess::start(&[]);
    let done = local.ran(&["jobs", "once", "yearly", "--schedule", "0 0 29 2 *", "--", "echo", "started"]);
    let said = printed(&done);
    assert!(done.status.success() && said.contains("yearly has nothing to run; next 20"), "{done:?}");
    assert!(!said.contains("started"), "{said}");
    let refused = complained(&local.ran(&["jobs", "once", "a", "--schedule", "*/7 * * * *", "--", "true"]));
    assert_eq!(refused.matches("Write `every 7 minutes`").count(), 1, "{refused}");
}
