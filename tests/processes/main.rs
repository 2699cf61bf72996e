//! The runtime API, and the processes that use it. The tests use a real function binary
//! (`helpers/test_function.rs`).

mod frozen_holder;
mod handlers;
mod isolation;
mod memory;

use std::{num::NonZeroUsize, path::PathBuf};

use serde_json::{Value, json};
use serializer::local::{function_pool::FunctionPool, runtime_api::InvokeError};
use tests::prelude::*;

/// A generous time limit for calls that succeed, even on slow machines.
const AMPLE: Duration = Duration::from_secs(60);
/// A time limit for calls that time out.
const SHORT: Duration = Duration::from_secs(1);

fn settings(timeout: Duration) -> FunctionSettings {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_test_function"));
    FunctionSettings {
        name: "test-function".to_owned(),
        program,
        timeout,
        memory_mb: 128,
        environment: vec![("SETTING".to_owned(), "given".to_owned())],
        logs: ProcessLogs::Discarded,
    }
}

fn event(deed: &str) -> Vec<u8> {
    json!({ "do": deed }).to_string().into_bytes()
}

async fn answer_of(process: &mut FunctionProcess) -> Value {
    let answer = process.invoke(event("answer")).await.expect("it answers");
    serde_json::from_slice(&answer).expect("it answers in JSON")
}

fn signal(signal: &str, process_id: u64) {
    let status = std::process::Command::new("kill").args([signal, &process_id.to_string()]).status();
    assert!(status.expect("kill exists").success(), "{signal} to {process_id}");
}

/// Waits for a killed process to end.
fn until_ended(process_id: u64) {
    let stat = format!("/proc/{process_id}/stat");
    for _ in 0..10_000_000 {
        if std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{process_id} still lives");
}

#[tokio::test]
async fn function_process_is_reused_after_an_answer() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let first = answer_of(&mut process).await;
    let second = answer_of(&mut process).await;
    assert_eq!(first["process_id"], second["process_id"]);
    assert_ne!(first["request_id"], second["request_id"]);
    assert_eq!(first["function_arn"], "arn:aws:lambda:us-east-1:000000000000:function:test-function");
    assert!(first["deadline"].as_u64() > Some(1_700_000_000_000), "{first}");
}

#[tokio::test]
async fn function_process_does_not_inherit_the_environment() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let answer = answer_of(&mut process).await;
    assert_eq!(answer["setting"], "given");
    let names: Vec<_> = answer["environment"].as_array().expect("names").iter().filter_map(Value::as_str).collect();
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo sets it for tests");
    assert!(!names.contains(&"CARGO_MANIFEST_DIR"), "{names:?}");
}

#[tokio::test]
async fn function_process_is_reused_after_error_or_panic() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let before = answer_of(&mut process).await;
    for (deed, expected) in [("fail", "the order is not known"), ("panic", "lost the thread")] {
        match process.invoke(event(deed)).await {
            Err(InvokeError::Function { kind, message }) => {
                assert!(message.contains(expected), "{deed}: {message}");
                assert!(!kind.is_empty(), "{deed} has an error type");
            }
            other => panic!("{deed}: {other:?}"),
        }
    }
    assert_eq!(before["process_id"], answer_of(&mut process).await["process_id"]);
}

#[tokio::test]
async fn response_over_six_megabytes_is_an_error() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    match process.invoke(event("talk too much")).await {
        Err(InvokeError::Function { kind, .. }) => assert_eq!(kind, "Function.ResponseSizeTooLarge"),
        other => panic!("{:?}", other.map(|answer| answer.len())),
    }
}

#[tokio::test]
async fn function_process_that_exits_is_replaced() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    for (deed, expected) in [("exit", "7"), ("abort", "signal")] {
        let before = answer_of(&mut process).await;
        match process.invoke(event(deed)).await {
            Err(InvokeError::Exited { how }) => assert!(how.contains(expected), "{deed}: {how}"),
            other => panic!("{deed}: {other:?}"),
        }
        assert_ne!(before["process_id"], answer_of(&mut process).await["process_id"]);
    }
}

#[tokio::test]
async fn killed_process_fails_the_event_immediately() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let mut ids = process.process_ids();
    let (outcome, ()) = tokio::join!(process.invoke(event("hang")), async {
        let id = *ids.wait_for(|ids| !ids.is_empty()).await.expect("it starts").first().expect("one");
        signal("-KILL", id.into());
    });
    assert!(matches!(outcome, Err(InvokeError::Exited { .. })), "{outcome:?}");
}

#[tokio::test]
async fn process_killed_while_idle_is_replaced_before_next_event() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let before = answer_of(&mut process).await;
    let killed = before["process_id"].as_u64().expect("a number");
    signal("-KILL", killed);
    until_ended(killed);
    assert_ne!(before["process_id"], answer_of(&mut process).await["process_id"]);
}

#[tokio::test]
async fn hanging_or_suspended_process_is_killed_at_its_timeout() {
    let mut process = FunctionProcess::new(settings(SHORT));
    let ids = process.process_ids();
    assert_eq!(process.invoke(event("hang")).await, Err(InvokeError::TimedOut));
    assert!(ids.borrow().is_empty(), "the process is gone");

    let stopped = answer_of(&mut process).await["process_id"].as_u64().expect("a number");
    signal("-STOP", stopped);
    assert_eq!(process.invoke(event("answer")).await, Err(InvokeError::TimedOut));
    assert!(ids.borrow().is_empty(), "the stopped process is gone");
    assert_ne!(answer_of(&mut process).await["process_id"].as_u64(), Some(stopped));
}

#[tokio::test]
async fn function_that_cannot_start_fails_the_event() {
    let mut failing = settings(AMPLE);
    failing.environment.push(("FAIL_TO_START".to_owned(), "1".to_owned()));
    let outcome = FunctionProcess::new(failing).invoke(event("answer")).await;
    assert!(matches!(&outcome, Err(InvokeError::Exited { how }) if how.contains('3')), "{outcome:?}");

    let missing = FunctionSettings { program: "no-such-program".into(), ..settings(AMPLE) };
    let outcome = FunctionProcess::new(missing).invoke(event("answer")).await;
    assert!(matches!(&outcome, Err(InvokeError::NotStarted { why }) if why.contains("no-such-program")), "{outcome:?}");
}

#[tokio::test]
async fn failed_process_start_is_reported_with_its_output() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    process.start().await.expect("it asks for an event");
    let ids = process.process_ids().borrow().clone();
    let answer = answer_of(&mut process).await;
    assert_eq!(ids.into_iter().map(u64::from).collect::<Vec<_>>(), [answer["process_id"].as_u64().expect("its id")]);

    let (lines, mut printed) = tokio::sync::mpsc::unbounded_channel();
    let mut failing = FunctionSettings { logs: ProcessLogs::Lines(lines), ..settings(AMPLE) };
    failing.environment.push(("FAIL_TO_START".to_owned(), "1".to_owned()));
    let outcome = FunctionProcess::new(failing).start().await;
    assert!(matches!(&outcome, Err(InvokeError::Exited { how }) if how.contains('3')), "{outcome:?}");
    assert_eq!(printed.try_recv().as_deref(), Ok("no settings"));
}

#[tokio::test]
async fn terminal_interrupt_does_not_reach_a_function() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let id = answer_of(&mut process).await["process_id"].as_u64().expect("its id");
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it lives");
    let (_, behind_its_name) = stat.rsplit_once(") ").expect("a name");
    // The fields are the state, the parent and the process group.
    assert_eq!(behind_its_name.split(' ').nth(2), Some(id.to_string().as_str()));
}

#[tokio::test]
async fn cancelled_invocation_ends_the_process() {
    let mut process = FunctionProcess::new(settings(AMPLE));
    let mut ids = process.process_ids();
    let started = async { ids.wait_for(|ids| !ids.is_empty()).await.expect("it starts").clone() };
    let given_up = tokio::select! {
        outcome = process.invoke(event("hang")) => Err(outcome),
        ids = started => Ok(ids),
    };
    let given_up = given_up.expect("it hangs");
    let fresh = answer_of(&mut process).await["process_id"].as_u64().expect("a number");
    assert!(!given_up.contains(&(fresh as u32)), "{fresh} is not of {given_up:?}");
}

#[tokio::test]
async fn process_pool_limits_concurrent_invocations() {
    let pool = FunctionPool::new(settings(AMPLE), NonZeroUsize::new(2).expect("not zero"));
    let mut ids = pool.process_ids();
    let (first, second, third, ()) =
        tokio::join!(pool.invoke(event("hang")), pool.invoke(event("hang")), pool.invoke(event("answer")), async {
            let both = ids.wait_for(|ids| ids.len() == 2).await.expect("two start").clone();
            signal("-KILL", (*both.first().expect("two")).into());
            // The third invocation starts and ends before the second process is killed, so three never ran at
            // once.
            ids.wait_for(|ids| ids.len() == 2 && *ids != both).await.expect("a fresh one starts");
            signal("-KILL", (*both.last().expect("two")).into());
        },);
    assert!(matches!(first, Err(InvokeError::Exited { .. })), "{first:?}");
    assert!(matches!(second, Err(InvokeError::Exited { .. })), "{second:?}");
    third.expect("it has its turn");
}

#[tokio::test]
async fn process_pool_reuses_an_idle_process() {
    let pool = FunctionPool::new(settings(AMPLE), NonZeroUsize::new(4).expect("not zero"));
    for _ in 0..5 {
        pool.invoke(event("answer")).await.expect("it answers");
    }
    assert_eq!(pool.process_ids().borrow().len(), 1);
}
