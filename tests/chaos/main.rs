//! The real functions in processes of their own, killed and frozen at random
//! moments, over a store and a queue on disk that are killed and restarted; at
//! the end the handler's own journal is audited. Longer by
//! `cargo run -p tests --bin chaos -- --minutes 10`.

use std::{path::Path, time::Duration};

use tests::chaos::{Plan, Receiver, run};

/// What decides the faults; the machine decides the rest.
const SEED: u64 = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_frozen_processes_lose_repeat_and_reorder_nothing() {
    let plan = Plan { seed: SEED, time: Duration::from_secs(25), orders: 8, workers: 4, tells: false };
    let report = run(Path::new(env!("CARGO_BIN_EXE_chaos")), &plan).await.expect("it can be run");
    println!("{report}");
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    // It is shown only if it could have gone wrong: the same effects, sent to one who ignores tokens, have.
    let mistakes = report.mistakes(Receiver::IgnoresTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("late effect")), "{mistakes:?}\n{report}");
}
