//! Real function processes, killed and frozen at random moments. Store and queue are on disk, and are killed
//! and restarted too. At the end, the handlers' own journal is audited. For longer runs:
//! `cargo run -p tests --bin chaos -- --minutes 10`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use serializer::view::audit::Sent;
use tests::chaos::{ChaosPlan, ChaosReport, CommittedEffect, ReceiverKind, run_plan};
use tokio::sync::Mutex;
use webhook_serializer::protocol::entity::EntityKey;

/// Allows one run at a time: a verdict needs a machine that is quick enough.
static MACHINE: Mutex<()> = Mutex::const_new(());

async fn report(outage: Option<Duration>) -> ChaosReport {
    let _alone = MACHINE.lock().await;
    let time = Duration::from_secs(25);
    let plan = ChaosPlan { seed: 7, time, orders: 8, workers: 4, outage, shows_progress: false };
    let report = run_plan(Path::new(env!("CARGO_BIN_EXE_chaos")), &plan).await.expect("the run ends");
    println!("{report}");
    report
}

/// Promise: no loss; a dead worker's order continues within twenty seconds, whatever `WorkerTimeout` is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_frozen_processes_lose_no_delivery() {
    let report = report(None).await;
    assert_eq!(report.mistakes(ReceiverKind::RemembersTokens), Vec::<String>::new(), "{report}");
    // Negative control: a receiver that ignores tokens accepts late effects of the same run.
    let mistakes = report.mistakes(ReceiverKind::IgnoresTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("late effect")), "{mistakes:?}\n{report}");
}

/// The store is unreachable for ten seconds; the queue is not.
///
/// Promise: no deferred delivery is lost or delays other orders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_deferred_in_an_outage_commits_once() {
    let report = report(Some(Duration::from_secs(10))).await;
    assert_eq!(report.mistakes(ReceiverKind::RemembersTokens), Vec::<String>::new(), "{report}");
    assert!(report.deferred() > 8, "{report}");
}

#[test]
fn auditor_reports_lost_and_repeated_commits() {
    let entity = EntityKey::parse("test/1").unwrap();
    let sent = Sent { entity, delivery_id: "1".into(), sent: Duration::ZERO, answered: Some(Duration::ZERO) };
    let journal = |times: Option<u64>| ChaosReport {
        seed: 0,
        sent: vec![sent.clone()],
        deferred: BTreeSet::new(),
        lines: Vec::new(),
        committed: times.map(|times| ("1".into(), CommittedEffect { times, token: 1 })).into_iter().collect(),
        receipts: BTreeMap::new(),
        faults: String::new(),
    };
    for (times, expected) in [(None, "1 was answered and is lost"), (Some(2), "1 was committed 2 times")] {
        let mistakes = journal(times).mistakes(ReceiverKind::RemembersTokens);
        assert!(mistakes.iter().any(|mistake| mistake == expected), "{mistakes:?}");
    }
}
