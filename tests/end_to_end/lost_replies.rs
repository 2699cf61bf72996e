//! One call at a time fails: its reply is lost, or it is refused. Each run then ends like a run without
//! faults. It takes at most three more requests, and waits for no lease to expire.
//!
//! Commits also run on the embedded DynamoDB, which has to recognise a repeated transaction.

use tests::{handlers::FailsFirst, prelude::*};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
};
use webhook_serializer::{
    aws::{
        Account,
        dynamo::{DynamoTable, TableNames},
    },
    engine::store::Store,
    protocol::{entity::IdentityHash, inbox::Unblock, lease::RequestYield, table::Transacted},
};

const PATIENCE: Duration = Duration::from_secs(5);

/// Results that faults must not change.
#[derive(Debug, PartialEq, Eq)]
struct Outcomes {
    started: Vec<String>,
    applied: Vec<String>,
    settled: Vec<(Option<IdentityHash>, &'static str)>,
    parked: usize,
    blocked: Option<BlockReason>,
    waiting: u64,
    held: bool,
    committed: u64,
}

#[derive(Debug)]
struct Ran {
    outcomes: Outcomes,
    requests: u64,
    writes: u64,
    reads: u64,
    sends: u64,
    elapsed: Duration,
}

async fn run(
    scenario: &impl AsyncFn(&mut TestWorld),
    plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static,
    queue_plan: impl Fn(u64) -> Fault + Send + Sync + 'static,
) -> Ran {
    let mut world = TestWorld::new();
    let table = world.break_table(plan);
    let queue = world.break_queue(queue_plan);
    let before = world.env.monotonic();
    scenario(&mut world).await;
    // Measures until the last handler's end. A spare wake-up may arrive a lease later and find nothing.
    let last = world.journal.runs().iter().map(|run| run.ended).max().unwrap_or(before);
    let elapsed = last.saturating_sub(before);
    assert_eq!((world.events.taken_over(), world.events.lost()), (0, 0), "leases taken over, lost");
    assert!(world.messages.is_empty());
    let requests = table.requests();
    let writes = table.writes();
    let reads = table.reads();
    let sends = queue.sends();
    world.table = world.memory.clone();
    let inspected = world.operator().inspect(&entity()).await.expect("memory answers");
    let state = inspected.state.expect("there is such an entity");
    let receipts = world.operator().receipts(&entity()).await.expect("memory answers");
    let settled = receipts.iter();
    let outcomes = Outcomes {
        started: world.started(),
        applied: world.applied(),
        settled: settled.map(|receipt| (receipt.identity, receipt.settlement.as_str())).collect(),
        parked: inspected.parked.len(),
        blocked: state.blocked,
        waiting: state.waiting(),
        held: state.held.is_some(),
        committed: world
            .memory
            .rows(&TableName::Named("totals".into()))
            .first()
            .and_then(|row| row.number("n"))
            .unwrap_or_default(),
    };
    Ran { outcomes, requests, writes, reads, sends, elapsed }
}

/// Fails each write, read and send in each way.
async fn every_fault_is_absorbed(scenario: impl AsyncFn(&mut TestWorld)) -> Outcomes {
    let clean = run(&scenario, |_| Fault::None, |_| Fault::None).await;
    assert!(clean.writes > 3 && clean.reads > 0 && clean.sends > 0, "there is something to lose: {clean:?}");
    let check = |ran: Ran, allowed: u64, what: String| {
        assert_eq!(ran.outcomes, clean.outcomes, "{what}");
        let clean_calls = clean.requests + clean.sends;
        let calls = ran.requests + ran.sends;
        assert!(calls <= clean_calls + allowed, "{what}: {calls} requests, {clean_calls} without it");
        let late = ran.elapsed.saturating_sub(clean.elapsed);
        assert!(late < Duration::from_secs(5), "{what}: {late:?} later, as if a lease of 15 s was waited for");
    };
    let conflict = Fault::Before(TableError::Conflict);
    let throttled = Fault::Before(TableError::Throttled);
    let silent = Fault::Before(TableError::Unknown("the request was lost".into()));
    for fault in [Fault::ReplyLost, Fault::SilentAfter, silent, conflict, throttled] {
        // A wake-up that was sent again is one too many. It may be requeued once, and is processed.
        for (kind, count, allowed) in [("write", clean.writes, 3), ("read", clean.reads, 3), ("send", clean.sends, 4)] {
            for n in 1..=count {
                let what = format!("{kind} {n} of {count}: {fault:?}");
                let fault = fault.clone();
                let fault_at = move |hits: bool| if hits { fault.clone() } else { Fault::None };
                let on_queue = fault_at.clone();
                let table = move |call: &TableCall<'_>| {
                    fault_at([("write", call.write), ("read", call.read)].contains(&(kind, n)))
                };
                let queue = move |send| on_queue(("send", send) == (kind, n));
                check(run(&scenario, table, queue).await, allowed, what);
            }
        }
    }
    clean.outcomes
}

async fn works(world: &TestWorld, source: &str, ids: &[&str], handler: impl Handler) {
    world.append_all_from(source, "test/a", ids).await;
    world.work(&[world.drainer(handler)]).await;
}

#[tokio::test(start_paused = true)]
async fn deliveries_apply_once_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| works(world, "test", &["1", "2", "3"], Done).await).await;
    assert_eq!(outcomes.started, ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn repeat_is_recognised_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| works(world, "test", &["1", "2", "1", "2"], Done).await).await;
    assert_eq!(outcomes.started, ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn failed_delivery_is_retried_once_despite_a_failed_aws_call() {
    let fails = FailsFirst(Duration::from_millis(20));
    let outcomes = every_fault_is_absorbed(async |world| works(world, "test", &["a-1", "a-2"], fails).await).await;
    assert_eq!(outcomes.started, ["a-1", "a-1", "a-2"]);
}

/// Promise: `Outcome::Reject` parks at once.
#[tokio::test(start_paused = true)]
async fn parked_delivery_is_redriven_once_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        works(world, "test", &["1", "2", "3"], rejecting("2")).await;
        let parked = world.operator().parked(&entity()).await.expect("it is answered");
        world.operator().redrive(&parked[0], None).await.expect("it is redriven");
        world.work(&[world.drainer(rejecting("2"))]).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "2", "3", "2"]);
    assert_eq!(outcomes.parked, 0);
}

/// The last receipts do not fit the entity's row.
#[tokio::test(start_paused = true)]
async fn spilled_receipts_recognise_repeats_despite_a_failed_aws_call() {
    let ids: Vec<String> = (0..Recent::capacity(&entity()) + 3).map(|number| format!("{number:02}")).collect();
    let all: Vec<String> = ids.iter().chain(&ids[..2]).cloned().collect();
    let outcomes = every_fault_is_absorbed(async |world| {
        world.append_all("test/a", &all).await;
        world.work(&[world.drainer(Done)]).await;
    })
    .await;
    assert_eq!(outcomes.started, ids);
}

#[tokio::test(start_paused = true)]
async fn erase_is_complete_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        works(world, "test", &["1", "2"], rejecting("2")).await;
        let erased = world.operator().erase(&entity()).await;
        assert_eq!(erased, Ok(Erased::Numbers { rows: 4 }));
    })
    .await;
    assert_eq!((outcomes.settled, outcomes.parked, outcomes.waiting), (Vec::new(), 0, 0));
}

#[tokio::test(start_paused = true)]
async fn order_is_unblocked_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        works(world, "block", &["1", "2"], failing()).await;
        assert_eq!(world.started().len(), 2);
        world.operator().unblock(&entity()).await.expect("it is unblocked");
        world.work(&[world.drainer(Done)]).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "1", "1", "2"]);
    assert_eq!(outcomes.blocked, None);
}

#[tokio::test(start_paused = true)]
async fn hold_and_skip_land_once_despite_a_failed_aws_call() {
    let reason = Reason::new("ada", "to see it");
    let outcomes = every_fault_is_absorbed(async |world| {
        let operator = world.operator().because(reason.clone());
        world.append_all_from("block", "test/a", ["1", "2"]).await;
        operator.hold(&entity()).await.expect("it is on hold");
        world.work(&[world.drainer(Done)]).await;
        operator.resume(&entity()).await.expect("it is resumed");
        let fails = answering(|delivery, _| match delivery.delivery_id().as_str() {
            "1" => Outcome::retry("not now"),
            _ => Outcome::Done,
        });
        world.work(&[world.drainer(fails)]).await;
        let state = world.state("test/a").await;
        assert_eq!(state.blocked, Some(BlockReason::Attempts));
        operator.skip(&entity(), state.next()).await.expect("it is skipped");
        world.work(&[world.drainer(Done)]).await;
    })
    .await;
    assert_eq!((outcomes.started, outcomes.parked), (["1", "1", "2"].map(str::to_owned).to_vec(), 1));
    assert_eq!((outcomes.blocked, outcomes.waiting, outcomes.held), (None, 0, false));
}

#[tokio::test(start_paused = true)]
async fn rewind_runs_deliveries_once_despite_a_failed_aws_call() {
    let reason = Reason::new("ada", "to see it");
    let outcomes = every_fault_is_absorbed(async |world| {
        let operator = world.operator().because(reason.clone());
        works(world, "test", &["1", "2", "3"], Done).await;
        let first = Sequence(world.state("test/a").await.head.0 - 2);
        let rewound = operator.rewind(&entity(), first.next()).await.expect("it is set back");
        assert!(matches!(rewound, RewindOutcome::Done(_)), "{rewound:?}");
        world.work(&[world.drainer(Done)]).await;
        operator.hold(&entity()).await.expect("it is on hold");
        operator.rewind(&entity(), first).await.expect("it is set back");
        let ended = operator.end_rewind(&entity()).await.expect("it is ended");
        assert!(matches!(ended, RewindOutcome::Done(_)), "{ended:?}");
        operator.resume(&entity()).await.expect("it is resumed");
        world.work(&[world.drainer(Done)]).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "2", "3", "2", "3"]);
    assert_eq!((outcomes.blocked, outcomes.waiting, outcomes.held), (None, 0, false));
}

#[tokio::test(start_paused = true)]
async fn failing_order_is_blocked_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| works(world, "block", &["1", "2"], failing()).await).await;
    assert_eq!((outcomes.blocked, outcomes.waiting), (Some(BlockReason::Attempts), 2));
}

/// Promise: effects through `commit` happen exactly once.
#[tokio::test(start_paused = true)]
async fn commit_lands_once_despite_a_failed_aws_call() {
    let outcomes =
        every_fault_is_absorbed(async |world| works(world, "test", &["1", "2", "3"], answering(counting)).await).await;
    assert_eq!((outcomes.started.len(), outcomes.committed), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn drain_is_handed_over_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        world.function_time = Duration::from_secs(10);
        works(world, "test", &["1", "2", "3"], Slow(Duration::from_secs(4))).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn drain_yields_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        let store = world.store();
        let asking = Scripted(move |delivery: &Delivery, context: &Context| {
            let store = store.clone();
            let env = context.env().clone();
            let first = delivery.delivery_id().as_str() == "1";
            async move {
                if first {
                    let now = env.now();
                    let ask = RequestYield { entity: &entity(), now, until: now + Duration::from_secs(4) };
                    store.run(&ask, PATIENCE).await?;
                }
                Ok(Outcome::Done)
            }
        });
        works(world, "test", &["1", "2", "3"], asking).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn gap_is_filled_once_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        world.append("test/a", "1").await;
        // An ingest claims a sequence and dies.
        world.claim("test/a").await;
        works(world, "test", &["3"], Done).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "3"]);
}

#[tokio::test(start_paused = true)]
async fn large_delivery_is_parked_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        world.append_noise("test/a", "1", 1_000_000).await;
        works(
            world,
            "test",
            &["2"],
            answering(|delivery, _| match delivery.body().len() {
                1_000_000 => Outcome::Reject("too long".into()),
                _ => Outcome::Done,
            }),
        )
        .await;
    })
    .await;
    assert_eq!((outcomes.applied.as_slice(), outcomes.parked), (["2".to_owned()].as_slice(), 1));
}

#[tokio::test(start_paused = true)]
async fn lease_is_renewed_despite_a_failed_aws_call() {
    let outcomes =
        every_fault_is_absorbed(async |world| works(world, "slow", &["1", "2"], Slow(Duration::from_secs(20))).await)
            .await;
    assert_eq!(outcomes.started, ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn deliveries_during_drain_apply_once_despite_a_failed_aws_call() {
    let outcomes = every_fault_is_absorbed(async |world| {
        let inbox = world.inbox();
        let env = world.env.clone();
        let number = Arc::new(AtomicU64::new(1));
        let trickling = Scripted(move |_: &Delivery, _: &Context| {
            let number = number.fetch_add(1, Relaxed) + 1;
            let inbox = inbox.clone();
            let incoming = tests::testbed::incoming("test", "test/a", &number.to_string(), env.now());
            async move {
                if number <= 3 {
                    inbox.append(&incoming).await?;
                }
                Ok(Outcome::Done)
            }
        });
        works(world, "test", &["1"], trickling).await;
    })
    .await;
    assert_eq!(outcomes.started, ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dynamodb_commit_lands_once_despite_a_lost_reply() {
    let testbed = TestBed::start().await;
    // Two claims, two puts, an acquire and two commits; then an acquire for the second wake-up.
    for n in 1..=9 {
        let mut world = TestWorld::by(testbed.env().clone());
        let plan = move |call: &TableCall<'_>| if call.write == n { Fault::ReplyLost } else { Fault::None };
        let table = Arc::new(FaultyTable::new(testbed.table(), testbed.env(), plan));
        world.table = table.clone();
        let order = format!("test/{n}");
        world.append_all(&order, ["1", "2"]).await;
        world.work(&[world.drainer(answering(counting))]).await;
        assert_eq!(world.applied(), ["1", "2"]);
        let key = Key::named("totals", "order", order);
        let row = testbed.table().get(&key).await.expect("the store answers").expect("there is such an order");
        assert_eq!(row.number("n"), Some(2), "write {n}");
        assert_eq!((world.events.taken_over(), world.events.lost()), (0, 0));
        // An acquire in doubt sends a spare wake-up, which costs one refused write.
        let most = if n <= 8 { 10 } else { 8 };
        assert!((8..=most).contains(&table.writes()), "write {n}: {} writes", table.writes());
    }
}

fn counting(delivery: &Delivery, _: &Context) -> Outcome {
    let key = Key::named("totals", "order", delivery.entity().as_str());
    Outcome::Commit(vec![Write::update(key, vec![Change::add("n", 1)])])
}

/// DynamoDB refuses a repeated client token whose request differs. It may compare the requests' bytes.
#[tokio::test]
async fn repeated_transaction_sends_the_same_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("it has an address"));
    let account = Account::local(url.clone(), url);
    let names = TableNames { entities: "entities".into(), inbox: "inbox".into() };
    let table = DynamoTable::new(account.dynamodb(&account.http_client()), names);
    let store = Store::new(Arc::new(table), Env::system());
    let attributes = || (0..20_u64).map(|n| (format!("a{n}").into(), Value::M([("b".into(), n.into())].into())));
    let key = Key::named("totals", "order", "7");
    let writes = [
        Write::put(key.clone(), attributes().collect()),
        Write::update(key, attributes().map(|(name, value)| Change::Set(name, value))),
    ];
    let answers = [(500, "InternalServerError"), (400, "TransactionInProgressException"), (200, "")];
    let (landed, bodies) =
        tokio::join!(store.transact(&writes, "token", PATIENCE), bodies_answered(&listener, &answers));
    assert_eq!(landed.expect("the last one lands"), Transacted::Landed);
    assert!(bodies[0].contains("token") && bodies.iter().all(|body| *body == bodies[0]), "{bodies:#?}");
}

/// Answers one request with each of these statuses and error types. Returns the requests' bodies.
async fn bodies_answered(listener: &TcpListener, answers: &[(u16, &str)]) -> Vec<String> {
    let mut bodies = Vec::new();
    for (status, error) in answers {
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let mut length = 0;
        while stream.read_line(&mut line).await.expect("a line") > 2 {
            let header = line.split_once(": ").filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            length = header.map_or(length, |(_, value)| value.trim().parse().expect("a number"));
            line.clear();
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.expect("a body");
        bodies.push(String::from_utf8(body).expect("JSON"));
        let answer = format!("{{\"__type\":\"com.amazonaws.dynamodb.v20120810#{error}\"}}");
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", answer.len());
        stream.write_all((head + &answer).as_bytes()).await.expect("it is sent");
    }
    bodies
}

/// The caller gave up the unblock and repeated it. If the first try landed late, it would lift a later block
/// without a wake-up.
#[tokio::test(start_paused = true)]
async fn unblock_write_landing_late_does_not_lift_a_later_block() {
    let world = TestWorld::new();
    let entity = key("test/a");
    world.append_from("block", "test/a", "1").await;
    let until_blocked = async || {
        world.work(&[world.drainer(failing())]).await;
        let state = world.state("test/a").await;
        assert_eq!(state.blocked, Some(BlockReason::Attempts));
        state
    };
    let seen = until_blocked().await.token;
    let first_try = Unblock { entity: &entity, seen }.write();
    world.operator().unblock(&entity).await.unwrap();
    until_blocked().await;
    let landed = world.table.write(&first_try).await.unwrap();
    assert!(matches!(landed, Written::Refused(_)), "{landed:?}");
    assert_eq!(world.state("test/a").await.blocked, Some(BlockReason::Attempts));
}
