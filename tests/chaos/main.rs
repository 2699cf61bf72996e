//! The real functions in processes of their own, killed and frozen at random
//! moments, over a store and a queue on disk that are killed and restarted; at
//! the end the handler's own journal is audited. Longer by
//! `cargo run -p tests --bin chaos -- --minutes 10`.

use std::{path::Path, time::Duration};

use tests::chaos::{Loss, Plan, Receiver, Report, WorkerKind, run};
use tokio::sync::Mutex;

/// What decides the faults; the machine decides the rest.
const SEED: u64 = 7;

/// A machine has room for one run at a time.
static TURN: Mutex<()> = Mutex::const_new(());

async fn report(kind: WorkerKind) -> Report {
    report_of(kind, 25, None, None).await
}

async fn report_of(kind: WorkerKind, seconds: u64, outage: Option<Duration>, loss: Option<Loss>) -> Report {
    let _turn = TURN.lock().await;
    let time = Duration::from_secs(seconds);
    let plan = Plan { seed: SEED, time, orders: 8, workers: 4, kind, outage, loss, tells: false };
    let report = run(Path::new(env!("CARGO_BIN_EXE_chaos")), &plan).await.expect("it can be run");
    println!("{report}");
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_frozen_processes_lose_repeat_and_reorder_nothing() {
    let report = report(WorkerKind::Own).await;
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    // It is shown only if it could have gone wrong: the same effects, sent to one who ignores tokens, have.
    let mistakes = report.mistakes(Receiver::IgnoresTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("late effect")), "{mistakes:?}\n{report}");
}

/// For ten seconds the store cannot be reached, and the queue can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_answered_202_while_the_store_cannot_be_reached_is_committed_once() {
    let report = report_of(WorkerKind::Own, 25, Some(Duration::from_secs(10)), None).await;
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    assert!(report.deferred() > 8, "{report}");
}

/// The copy is four seconds older; workers live through it, frozen. Senders send again
/// what was answered since, and what was set aside is put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_lost_and_restored_from_a_copy_lose_repeat_and_reorder_nothing_that_is_in_them() {
    let report = report_of(WorkerKind::Own, 18, None, Some(Loss::Restored)).await;
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    assert!(report.again() > 8, "{report}");
}

/// Frozen beyond their lease, they go on where they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_ignore_their_token_are_caught() {
    let report = report(WorkerKind::Careless).await;
    let mistakes = report.mistakes(Receiver::RemembersTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("was committed 2 times")), "{mistakes:?}\n{report}");
}
