//! The real functions in processes of their own, killed and frozen at random
//! moments, over a store and a queue on disk that are killed and restarted; at
//! the end the handler's own journal is audited. Longer by
//! `cargo run -p tests --bin chaos -- --minutes 10`.

use std::{path::Path, time::Duration};

use tests::chaos::{Breakers, FAILING, Loss, Plan, Receiver, Report, TEST, UNWELL, WorkerKind, run};
use tokio::sync::Semaphore;

/// What decides the faults; the machine decides the rest.
const SEED: u64 = 7;

/// What a machine has room for at a time: one run, or two in which little happens, or
/// little of which is asked.
static ROOM: Semaphore = Semaphore::const_new(2);

/// How many of the well end in four seconds, at the least, while others are unwell.
const GO_ON: usize = 3;

/// A run of so many seconds, with nothing but what every run has.
fn plan(seconds: u64) -> Plan {
    Plan {
        seed: SEED,
        time: Duration::from_secs(seconds),
        orders: 8,
        workers: 4,
        kind: WorkerKind::Own,
        outage: None,
        loss: None,
        unwell: None,
        tells: false,
    }
}

async fn report(plan: Plan, room: u32) -> Report {
    let _room = ROOM.acquire_many(room).await.expect("nobody closes it");
    let report = run(Path::new(env!("CARGO_BIN_EXE_chaos")), &plan).await.expect("it can be run");
    println!("{report}");
    report
}

/// By itself: what comes of it depends on the machine's being quick enough.
async fn report_of(plan: Plan) -> Report {
    report(plan, 2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_frozen_processes_lose_no_delivery() {
    let report = report_of(plan(25)).await;
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    // It is shown only if it could have gone wrong: the same effects, sent to one who ignores tokens, have.
    let mistakes = report.mistakes(Receiver::IgnoresTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("late effect")), "{mistakes:?}\n{report}");
}

/// For eight seconds what one source's handlers need is out of reach. A start that finds that out is
/// charged as any other: what keeps its deliveries is that most starts are never made. The control: the
/// handlers of another source fail meanwhile, and do not say why. As many attempts are too few for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn breakers_open_and_deliveries_keep_their_attempts() {
    let whole = report(Plan { orders: 2, unwell: Some(Duration::from_secs(8)), ..plan(11) }, 1).await;
    let [well, unwell, failing] = [TEST, UNWELL, FAILING].map(|source| whole.of(&[source]));
    let none = Vec::<String>::new();
    assert_eq!(unwell.mistakes(Receiver::RemembersTokens), none, "{unwell}");
    assert_eq!(well.mistakes(Receiver::RemembersTokens), none, "{well}");
    let Breakers { opened, closed } = whole.breakers();
    assert!(opened > 0 && closed > 0, "{whole}");
    assert_eq!(unwell.ended_meanwhile(), 0, "{unwell}");
    assert!(well.ended_in_second_half() >= GO_ON, "{} of the well: {well}", well.ended_in_second_half());
    assert_eq!(failing.mistakes_beside_set_aside(Receiver::RemembersTokens), none, "{failing}");
    assert!(failing.set_aside() > 0, "{failing}");
}

/// For ten seconds the store cannot be reached, and the queue can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_deferred_in_an_outage_commits_once() {
    let report = report_of(Plan { outage: Some(Duration::from_secs(10)), ..plan(25) }).await;
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    assert!(report.deferred() > 8, "{report}");
}

/// The copy is four seconds older; workers live through it, frozen. Senders send again
/// what was answered since, and what was set aside is put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_tables_lose_no_delivery_of_the_copy() {
    let report = report_of(Plan { loss: Some(Loss::Restored), ..plan(18) }).await;
    assert_eq!(report.mistakes(Receiver::RemembersTokens), Vec::<String>::new(), "{report}");
    assert!(report.again() > 8, "{report}");
    let put_back = report.put_back().expect("they were restored");
    assert_eq!(put_back.raised, 8, "each order's numbers: {report}");
    // When the copy was made no worker was at work, and each order had something waiting.
    assert!(put_back.set_aside >= 8 && put_back.deliveries == put_back.set_aside, "{report}");
}

/// The copy gives tokens and sequences out again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unrestored_copy_of_tables_is_caught() {
    let report = report(Plan { orders: 4, loss: Some(Loss::UsedAsCopied), ..plan(10) }, 1).await;
    let mistakes = report.mistakes(Receiver::RemembersTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("its effect was not taken")), "{mistakes:?}\n{report}");
    assert_eq!(report.put_back(), None);
}

/// Frozen beyond their lease, they go on where they were.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_ignore_their_token_are_caught() {
    let report = report_of(Plan { kind: WorkerKind::Careless, ..plan(25) }).await;
    let mistakes = report.mistakes(Receiver::RemembersTokens);
    assert!(mistakes.iter().any(|mistake| mistake.contains("was committed 2 times")), "{mistakes:?}\n{report}");
}
