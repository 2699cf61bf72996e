//! Operators' bulk work: finding a delivery anywhere, redriving many, discarding one, scanning a table.

use tests::prelude::*;
use webhook_serializer::{
    StoreError,
    operator::{Content, Estimate},
    protocol::{inbox::Park, keys::parked_row, maintain::KeepForever},
};

const PATIENCE: Duration = Duration::from_secs(5);

fn late() -> impl Handler + Clone {
    answering(|delivery, _| match delivery.redrive() {
        0 => Outcome::Reject("not now".into()),
        _ => Outcome::Done,
    })
}

async fn works(world: &TestWorld) {
    world.work(&[world.drainer(late())]).await;
}

async fn parked() -> TestWorld {
    let world = TestWorld::new();
    for (entity, id) in [("test/a", "a1"), ("test/b", "b1"), ("test/a", "a2"), ("test/a", "a3"), ("test/b", "b2")] {
        world.append(entity, id).await;
    }
    works(&world).await;
    world
}

async fn list(operator: &Operator) -> Vec<(EntityKey, Sequence)> {
    let parked = operator.all_parked().await.expect("memory answers");
    parked.iter().map(|one| (one.delivery().entity().clone(), one.sequence)).collect()
}

fn in_order(applied: &[String]) {
    for entity in ["a", "b"] {
        let of_one: Vec<_> = applied.iter().filter(|id| id.starts_with(entity)).collect();
        assert!(of_one.is_sorted_by(|left, right| left < right), "each once, in order: {applied:?}");
    }
    assert_eq!(applied.len(), 5, "{applied:?}");
}

#[tokio::test(start_paused = true)]
async fn repeated_partial_bulk_redrives_keep_arrival_order() {
    for stops_after in 1..=5 {
        let world = parked().await;
        let operator = world.operator();
        loop {
            let list = list(&operator).await;
            if list.is_empty() {
                break;
            }
            let mut done = 0;
            let tell = |_: &EntityKey, _, became: &Redriven| {
                assert!(became.is_ok(), "{became:?}");
                done += 1;
                done < stops_after
            };
            operator.redrive_all(&list, tell).await.expect("memory answers");
            assert_eq!(done, stops_after.min(list.len()), "it stops at its limit");
        }
        works(&world).await;
        in_order(&world.applied());
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_delivery_stops_no_bulk_redrive() {
    let world = parked().await;
    let list = list(&world.operator()).await;
    let broken = &list[1];
    let intact = list.len() - 1;
    let change = Action::Update(vec![Change::remove(a::NONCE)]);
    let broken_row = parked_row(&broken.0, broken.1);
    let cut = Write { key: broken_row, condition: Condition::exists(a::ERROR), action: change };
    world.memory.write(&cut).await.expect("memory answers");
    let mut became = Vec::new();
    let tell = |entity: &EntityKey, sequence, redriven: &Redriven| {
        became.push(((entity.clone(), sequence), redriven.clone()));
        true
    };
    world.operator().redrive_all(&list, tell).await.expect("the others are redriven");
    let stays: Vec<_> = became.iter().filter(|(_, became)| became.is_err()).collect();
    assert!(
        matches!(&stays[..], [(one, Err(OperatorError::Store(StoreError::Corrupt(_))))] if one == broken),
        "{became:?}"
    );
    assert_eq!(became.iter().filter(|(_, became)| became.is_ok()).count(), intact);
}

#[tokio::test(start_paused = true)]
async fn killed_bulk_redrive_continues_without_repeats() {
    for answered in 0.. {
        let mut world = parked().await;
        let all = list(&world.operator()).await;
        world.fail(Fault::Before(TableError::Invalid("gone".into())), move |call| call.request > answered);
        let ended = world.operator().redrive_all(&all, |_, _, _| true).await;
        world.table = world.memory.clone();
        if ended.is_err() {
            let left = list(&world.operator()).await;
            world.operator().redrive_all(&left, |_, _, _| true).await.expect("it continues");
        }
        works(&world).await;
        in_order(&world.applied());
        assert!(list(&world.operator()).await.is_empty(), "cut off after {answered} calls");
        if ended.is_ok() {
            assert!(answered > 25, "{answered}");
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn concurrent_bulk_redrives_append_each_delivery_once() {
    let world = parked().await;
    let list = list(&world.operator()).await;
    let one = world.operator();
    let other = world.operator();
    let (one, other) = tokio::join!(one.redrive_all(&list, |_, _, _| true), other.redrive_all(&list, |_, _, _| true));
    assert!(one.is_ok() && other.is_ok());
    works(&world).await;
    in_order(&world.applied());
}

fn is_part(row: &Row) -> bool {
    row.text(a::ENTITY).is_some_and(|partition| partition.contains('\u{1f}'))
}

/// Parks the delivery at `tail`, as a worker does that then dies before it settles.
async fn park_unsettled(world: &TestWorld, entity: &str) -> Sequence {
    let sequence = world.state(entity).await.tail;
    let row = world.memory.get(&delivery_row(&key(entity), sequence)).await.expect("memory answers");
    let mut row = row.expect("the row exists").with(a::ERROR, "not now").with(a::PARKED_AT, 1_u64);
    row.remove(a::PURGE_AT);
    let entity = key(entity);
    for part in world.memory.rows(&TableName::Inbox).iter().filter(|row| is_part(row)) {
        let part = key_of(&TableName::Inbox, part).expect("a row has a key");
        world.store().run(&KeepForever { part }, PATIENCE).await.expect("it is kept");
    }
    world.store().run(&Park { entity: &entity, sequence, row: &row }, PATIENCE).await.expect("it is parked");
    sequence
}

#[tokio::test(start_paused = true)]
async fn bulk_redrive_stops_at_delivery_parked_but_not_settled() {
    let world = parked().await;
    let operator = world.operator();
    let mut all = list(&operator).await;
    world.append("test/a", "a4").await;
    world.messages.clear();
    let undecided = park_unsettled(&world, "test/a").await;
    all.insert(0, (key("test/a"), undecided));
    let mut became = Vec::new();
    let done = operator.redrive_all(&all, |entity, _, what| {
        became.push((entity.to_string(), matches!(what, Err(OperatorError::Undecided | OperatorError::Behind))));
        true
    });
    done.await.expect("memory answers");
    let of = |entity: &str| became.iter().filter(|(of, _)| of == entity).map(|(_, stays)| *stays).collect::<Vec<_>>();
    assert_eq!((of("test/a"), of("test/b")), (vec![true; 4], vec![false; 2]));
    assert_eq!(operator.parked(&key("test/a")).await.unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn discarded_delivery_stays_settled() {
    let world = TestWorld::new();
    let long = world.append_noise("test/a", "long", 1_000_000).await;
    works(&world).await;
    let operator = world.operator();
    let place = world.state("test/a").await.head;
    let parked = operator.parked_at(&key("test/a"), place).await.unwrap().expect("it is parked");
    assert_eq!(operator.discard(&parked).await, Ok(()));
    assert_eq!(operator.discard(&parked).await, Err(OperatorError::NotParked), "a second one finds nothing");
    assert!(operator.parked_at(&key("test/a"), place).await.unwrap().is_none());
    let kept = world.memory.rows(&TableName::Inbox).into_iter().filter(|row| row.get(a::PURGE_AT).is_none()).count();
    assert_eq!(kept, 0, "no part of it is left for good");
    assert!(matches!(operator.redrive(&parked, None).await, Err(OperatorError::NotParked | OperatorError::Store(_))));
    world.inbox().append(&long).await.expect("it is appended");
    works(&world).await;
    assert_eq!(world.started(), ["long"]);
    let single = operator.single(&key("test/a"), place).await.unwrap();
    assert!(matches!(single.content, Content::Bodiless(_)) && single.parked.is_none(), "{single:?}");
}

#[tokio::test(start_paused = true)]
async fn discard_before_settle_of_parked_delivery_is_refused() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.messages.clear();
    let place = park_unsettled(&world, "test/a").await;
    let operator = world.operator();
    let parked = operator.parked_at(&key("test/a"), place).await.unwrap().expect("it is parked");
    assert_eq!(operator.discard(&parked).await, Err(OperatorError::Undecided));
    assert!(operator.parked_at(&key("test/a"), place).await.unwrap().is_some());
    operator.unblock(&key("test/a")).await.expect("it is woken");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(operator.discard(&parked).await, Err(OperatorError::DecidedOtherwise(Settlement::Applied)));
    assert!(operator.parked_at(&key("test/a"), place).await.unwrap().is_none(), "the left-over goes");
}

/// A discard runs at each moment of a redrive. Exactly one of the two says that it is done.
#[tokio::test(start_paused = true)]
async fn discard_and_redrive_at_once_have_one_winner() {
    for during in 1.. {
        let mut world = TestWorld::with("test/a", ["1"]).await;
        works(&world).await;
        let discarding = world.operator();
        let pause = Duration::from_millis(500);
        let (redriving, calls) = world.failing_operator(Fault::Slow(pause), move |call| call.request == during);
        let parked = discarding.all_parked().await.unwrap().swap_remove(0);
        let discard = async {
            world.env.sleep(pause / 2).await;
            discarding.discard(&parked).await
        };
        let (redriven, discarded) = tokio::join!(redriving.redrive(&parked, None), discard);
        works(&world).await;
        let runs = world.started().iter().filter(|id| *id == "1").count();
        assert_eq!(redriven.is_ok(), runs == 2, "during call {during}: {redriven:?}");
        assert_ne!(redriven.is_ok(), discarded.is_ok(), "during call {during}: {redriven:?}, {discarded:?}");
        if calls.requests() < during {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn delivery_of_a_broken_redrive_is_not_discarded() {
    let mut world = TestWorld::with("test/a", ["1"]).await;
    works(&world).await;
    let operator = world.operator();
    let parked = operator.all_parked().await.unwrap().swap_remove(0);
    let mut refused = 0;
    for dies_at in 1..10 {
        let (breaks, _) = world.failing_operator(Fault::SilentAfter, move |call| call.request >= dies_at);
        let _ = world.env.within(Duration::from_secs(1), breaks.redrive(&parked, None)).await;
        let is_appended = !world.state("test/a").await.is_empty();
        if is_appended {
            break;
        }
        let row = world.memory.get(&parked_row(&key("test/a"), parked.sequence)).await.unwrap();
        if row.is_some_and(|row| row.get(a::REDRIVEN_AT).is_some()) {
            refused += 1;
            assert_eq!(operator.discard(&parked).await, Err(OperatorError::Redriven));
        }
    }
    assert!(refused > 0, "it died between its mark and its append");
    operator.redrive(&parked, None).await.expect("it is finished");
    works(&world).await;
    assert_eq!(world.applied(), ["1"]);
}

#[tokio::test(start_paused = true)]
async fn redrive_into_a_job_is_refused() {
    let world = parked().await;
    let operator = world.operator();
    let job = key("cron/nightly");
    let parked = operator.all_parked().await.unwrap().swap_remove(0);
    assert_eq!(operator.redrive(&parked, Some(&job)).await.unwrap_err(), OperatorError::IsAJob);
    assert_eq!(operator.all_parked().await.unwrap().len(), 5, "it stays parked");
    assert!(operator.inspect(&job).await.unwrap().state.is_none());
}

/// One worker parked the delivery and lost its lease; another worker applied it.
///
/// Promise: `redrive` appends at the end, may be repeated, keeps an applied delivery's body, and refuses a job's key.
#[tokio::test(start_paused = true)]
async fn removing_parked_copy_keeps_applied_delivery_readable() {
    for is_discarded in [false, true] {
        let world = TestWorld::new();
        let long = world.append_noise("test/a", "long", 1_000_000).await;
        let place = park_unsettled(&world, "test/a").await;
        world.work(&[world.drainer(Done)]).await;
        let operator = world.operator();
        let parked = operator.parked_at(&key("test/a"), place).await.unwrap().expect("it is parked");
        let removed = match is_discarded {
            true => operator.discard(&parked).await,
            false => operator.redrive(&parked, None).await.map(|_| ()),
        };
        assert_eq!(removed, Err(OperatorError::DecidedOtherwise(Settlement::Applied)));
        assert!(operator.parked_at(&key("test/a"), place).await.unwrap().is_none());
        let endless = |row: &Row| is_part(row) && row.get(a::PURGE_AT).is_none();
        assert!(!world.memory.rows(&TableName::Inbox).iter().any(endless), "each part expires again");
        let kept = operator.single(&key("test/a"), place).await.unwrap();
        let Content::Delivery(kept) = kept.content else { panic!("{kept:?}") };
        assert_eq!(kept.body(), &long.body);
        operator.rewind(&key("test/a"), place).await.expect("it goes back");
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.applied(), ["long"; 2]);
    }
}

/// Promise: `show` shows any delivery, with exact numbers, hiding personal data.
#[tokio::test(start_paused = true)]
async fn delivery_is_found_by_sequence_with_body() {
    let world = TestWorld::new();
    let long = world.append_noise("test/a", "long", 1_000_000).await;
    works(&world).await;
    world.inbox().append(&long).await.expect("it is appended");
    works(&world).await;
    let nonce = world.env.nonce();
    let entity = key("test/a");
    let now = world.env.now();
    // Claims a sequence that is never filled; a delivery waits behind it.
    world.store().run(&Claim { entity: &entity, nonce: &nonce, now }, PATIENCE).await.expect("it is claimed");
    world.append("test/a", "waits").await;
    let operator = world.operator();
    let state = world.state("test/a").await;
    let at = |place: u64| operator.single(&entity, Sequence(place));
    let last = state.tail.0;
    let body = |content: &Content| match content {
        Content::Delivery(delivery) => Some(delivery.body().clone()),
        _ => None,
    };

    let waits = at(last).await.unwrap();
    assert!(waits.receipt.is_none() && body(&waits.content).is_some());
    assert!(matches!(at(last - 1).await.unwrap().content, Content::Nothing));
    let repeat = at(last - 2).await.unwrap();
    assert_eq!(repeat.receipt.map(|receipt| receipt.settlement), Some(Settlement::Repeat));
    let first = at(last - 3).await.unwrap();
    assert_eq!(first.receipt.map(|receipt| receipt.settlement), Some(Settlement::Parked));
    assert_eq!((body(&first.content), first.parked.is_some()), (Some(long.body.clone()), true));
    assert!(matches!(at(last + 1).await.unwrap().content, Content::Nothing));

    let waiting = waits.content.delivery().expect("it waits");
    let before = operator.before(waiting).await.unwrap().expect("there is one");
    assert_eq!((before.sequence(), before.body()), (Sequence(last - 2), &long.body));
    // A parked delivery is kept when expiry deletes its inbox row.
    world.memory.purge(&TableName::Inbox, |row| row.get(a::PURGE_AT).is_some() && row.get(a::PARTS).is_some());
    let kept = at(last - 3).await.unwrap();
    assert_eq!((body(&kept.content), kept.parked.is_some()), (Some(long.body), true));
    let mut other = world.incoming("test/a", "other");
    other.topic = "other".to_owned();
    let appended = world.inbox().append(&other).await.expect("it is appended");
    let other = operator.single(&entity, appended.sequence).await.unwrap();
    let before = operator.before(other.content.delivery().expect("it waits")).await.unwrap();
    assert!(before.is_none(), "it has another topic: {before:?}");
}

#[tokio::test(start_paused = true)]
async fn table_scan_reads_each_row_once() {
    let world = TestWorld::new();
    for number in 0..1200 {
        world.append(&format!("test/{number}"), "1").await;
    }
    let operator = world.operator();
    let mut pass = operator.pass(TableName::Entities);
    let mut keys = Vec::new();
    let mut halfway = None;
    while let Some(rows) = pass.page().await.unwrap() {
        keys.extend(rows.iter().filter_map(|row| row.text(a::ENTITY).map(str::to_owned)));
        if pass.read().parts == pass.read().of / 2 {
            halfway = halfway.or(Some(pass.read().estimate()));
        }
    }
    keys.sort_unstable();
    keys.dedup();
    let read = pass.read();
    assert_eq!((keys.len(), read.rows), (1200, 1200));
    let Some(Estimate::About(units)) = halfway else { panic!("{halfway:?}") };
    assert!((read.units() * 3 / 4..=read.units() * 5 / 4).contains(&units), "{units} of {}", read.units());
}

#[tokio::test(start_paused = true)]
async fn unsegmented_table_scan_reports_its_read_cost() {
    let world = TestWorld::new();
    for number in 0..1200 {
        world.append(&format!("test/{number}"), "1").await;
    }
    let operator = world.operator().in_one_part();
    let mut pass = operator.pass(TableName::Entities);
    pass.page().await.unwrap().expect("a first page, and not the last");
    assert_eq!(pass.read().estimate(), Estimate::Over(pass.read().units()));
    while pass.page().await.unwrap().is_some() {}
    let read = pass.read();
    assert_eq!((read.rows, read.parts, read.of), (1200, 1, 1));
    assert_eq!(read.estimate(), Estimate::About(read.units()));
}
