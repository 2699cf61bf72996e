//! Handlers that overrun their timeout or kill their process.

use tests::{prelude::*, world::VISIBILITY};

/// A receiver that remembers each order's newest token and refuses older ones.
#[derive(Clone, Default)]
struct FencedReceiver(Arc<Mutex<RecordedEffects>>);

#[derive(Clone, Default)]
struct RecordedEffects {
    newest: BTreeMap<EntityKey, FencingToken>,
    taken: Vec<String>,
    refused: Vec<String>,
}

impl FencedReceiver {
    fn take(&self, delivery: &Delivery, token: FencingToken, effect: String) {
        let RecordedEffects { newest, taken, refused } = &mut *self.0.lock().expect("no panic under the lock");
        let newest = newest.entry(delivery.entity().clone()).or_insert(token);
        if token < *newest {
            refused.push(effect);
        } else {
            *newest = token;
            taken.push(effect);
        }
    }
}

/// Returns a handler whose first attempt at `late` outlives its timeout, and writes once `goes_on` is set.
fn late(receiver: FencedReceiver, goes_on: tokio::sync::watch::Receiver<bool>) -> impl Handler + Clone {
    Scripted(move |delivery: &Delivery, context: &Context| {
        let receiver = receiver.clone();
        let mut goes_on = goes_on.clone();
        let delivery = delivery.clone();
        let token = context.token();
        let effect = format!("{}, attempt {}", delivery.delivery_id(), delivery.attempt());
        async move {
            if delivery.delivery_id().as_str() == "late" && delivery.attempt() == 1 {
                tokio::spawn(async move {
                    let _ = goes_on.wait_for(|goes_on| *goes_on).await;
                    receiver.take(&delivery, token, effect);
                });
                return std::future::pending().await;
            }
            receiver.take(&delivery, token, effect);
            Ok(Outcome::Done)
        }
    })
}

/// Promise: a receiver that remembers the newest token refuses late effects.
#[tokio::test(start_paused = true)]
async fn late_effect_of_timed_out_handler_is_refused() {
    let world = TestWorld::with("test/a", ["late", "next"]).await;
    let (go_on, goes_on) = tokio::sync::watch::channel(false);
    let receiver = FencedReceiver::default();
    world.work(&[world.drainer(late(receiver.clone(), goes_on))]).await;
    assert_eq!(world.started(), ["late", "late", "next"]);
    let runs = world.journal.runs();
    assert_eq!(runs[0].ending, RunEnd::Dropped);
    assert_eq!(runs[0].ended - runs[0].started, Duration::from_secs(5), "the source's handler_timeout");
    go_on.send_replace(true);
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    let RecordedEffects { taken, refused, .. } = receiver.0.lock().unwrap().clone();
    assert_eq!(taken, ["late, attempt 2", "next, attempt 1"]);
    assert_eq!(refused, ["late, attempt 1"]);
}

/// The commit arrives long after its lease expired and another worker applied both deliveries.
///
/// Promise: writes through `commit` land only under the newest token.
#[tokio::test(start_paused = true)]
async fn former_holders_commit_after_take_over_does_not_land() {
    let mut world = TestWorld::with("test/a", ["1", "2"]).await;
    let commits = |who: &'static str| {
        answering(move |delivery, _| {
            let key = Key::named("effects", "id", delivery.delivery_id().as_str());
            let effect = vec![Change::set("by", who), Change::add("n", 1)];
            Outcome::Commit(vec![Write::update(key, effect)])
        })
    };
    let quick = world.drainer(commits("quick"));
    let is_commit = |call: &TableCall<'_>| call.writes.len() > 1;
    let table = world.fail(Fault::Late(Duration::from_secs(40)), move |call| is_commit(call));
    let slow = world.drainer(commits("slow"));
    assert_eq!(world.process(&slow, "test/a").await, Acknowledgement::Delete);
    world.work(&[quick]).await;
    assert_eq!(table.late(), (0, 0), "nothing has arrived yet");
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::task::yield_now().await;
    let (landed, refused) = table.late();
    assert!(landed == 0 && refused > 0, "{landed} landed late, {refused} were refused");
    let effects = world.memory.rows(&TableName::Named("effects".into()));
    let seen: Vec<_> = effects.iter().map(|row| (row.text("id"), row.text("by"), row.number("n"))).collect();
    let once = |id| (Some(id), Some("quick"), Some(1));
    assert_eq!(seen, [once("1"), once("2")]);
    assert_eq!(world.events.taken_over(), 1);
}

/// One batch runs in one process: `killer` ends the process each time, the others only the first time.
#[tokio::test(start_paused = true)]
async fn crash_counts_only_for_the_running_suspect() {
    let world = TestWorld::new();
    for (entity, id) in [("test/a", "killer"), ("test/a", "after"), ("test/b", "b"), ("test/c", "c")] {
        world.append(entity, id).await;
    }
    let died = Arc::new(tokio::sync::Notify::new());
    let dies = died.clone();
    let at_work = Arc::new(tokio::sync::Barrier::new(3));
    let handler = Scripted(move |delivery: &Delivery, _: &Context| {
        let id = delivery.delivery_id().to_string();
        let attempt = delivery.attempt();
        let dies = dies.clone();
        let at_work = at_work.clone();
        async move {
            if attempt == 1 && id != "after" {
                at_work.wait().await;
            }
            match (&*id, attempt) {
                ("killer", _) => {
                    dies.notify_one();
                    std::future::pending().await
                }
                ("b" | "c", 1) => std::future::pending().await,
                _ => Ok(Outcome::Done),
            }
        }
    });
    let worker = world.worker(handler);
    let mut deaths = 0;
    loop {
        let batch =
            SqsEvent { records: ["test/a", "test/b", "test/c"].map(|entity| record(entity, entity, "1")).into() };
        let deadline = world.env.now() + world.function_time;
        tokio::select! {
            biased;
            () = died.notified() => deaths += 1,
            response = worker.process(batch, deadline) => {
                assert!(response.batch_item_failures.is_empty());
                let states = join_all(["test/a", "test/b", "test/c"].map(|entity| world.state(entity))).await;
                if states.iter().all(EntityState::is_empty) {
                    break;
                }
                continue;
            }
        }
        tokio::time::advance(VISIBILITY).await;
        for entity in ["test/b", "test/c"] {
            // Ten vanished holders in a row would block the order.
            assert!(world.state(entity).await.suspect <= 1, "{entity}: counted by the end of another");
        }
    }
    assert_eq!(deaths, 4, "as often as its source says, behind one that was not written");
    for id in ["b", "c"] {
        let runs = world.journal.runs().into_iter().filter(|run| run.delivery_id == id);
        assert_eq!(runs.map(|run| run.attempt).collect::<Vec<_>>(), [1, 2], "{id}");
    }
    assert_eq!(world.applied(), ["b", "c", "after"]);
    for (entity, expected) in [("test/a", 1), ("test/b", 0), ("test/c", 0)] {
        let parked = world.operator().parked(&key(entity)).await.unwrap();
        assert_eq!(parked.len(), expected, "{entity}");
    }
}
