//! The real functions in processes of their own, killed and frozen at random
//! moments, over a store and a queue on disk that are killed and restarted; at
//! the end the handler's own journal is audited. Longer by
//! `cargo run -p tests --bin chaos -- --minutes 10`.

use std::{path::Path, time::Duration};

use tests::chaos::{Plan, Receiver, Report, WorkerKind, run};
use tokio::sync::Mutex;

/// What decides the faults; the machine decides the rest.
const SEED: u64 = 7;

/// A machine has room for one run at a time.
static TURN: Mutex<()> = Mutex::const_new(());

async fn report(kind: WorkerKind) -> Report {
    let _turn = TURN.lock().await;
    let plan = Plan { seed: SEED, time: Duration::from_secs(25), orders: 8, workers: 4, kind, tells: false };
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

/// Frozen beyond their lease, they go on where they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_ignore_their_token_are_caught() {
    let report = report(WorkerKind::Careless).await;
    let mistakes = report.mistakes(Receiver::RemembersTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("was committed 2 times")), "{mistakes:?}\n{report}");
}
