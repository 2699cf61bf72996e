//! Operators' actions, alone and two at once. An action pauses before one of its calls, each of them in turn,
//! and workers run in the meantime.

mod looking;
mod rewinding;
mod stopping;
mod unblocking;

use tests::prelude::*;
use webhook_serializer::{
    leases::KeyDisplay,
    operator::Past,
    protocol::{
        delivery::InboxItem,
        inbox::{Park, Spill},
        lease::{ForceRelease, Forced},
    },
};

const DAY: Duration = Duration::from_secs(86_400);
const PATIENCE: Duration = Duration::from_secs(5);

async fn parked() -> TestWorld {
    let world = TestWorld::with("test/a", ["1", "bad"]).await;
    world.work(&[world.drainer(rejecting("bad"))]).await;
    world
}

/// Returns a world in which `1` was applied, and then parked too by a holder that had lost its lease.
async fn parked_by_a_stale_holder() -> TestWorld {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.work(&[world.drainer(Done)]).await;
    park_by_hand(&world).await;
    world
}

/// Parks the delivery at `head`, as a holder does whose settle is then refused.
async fn park_by_hand(world: &TestWorld) {
    let sequence = world.state("test/a").await.head;
    let row = world.memory.get(&delivery_row(&entity(), sequence)).await.expect("memory answers");
    let mut row = row.expect("the row exists").with(a::ERROR, "not now").with(a::PARKED_AT, 1_u64);
    row.remove(a::PURGE_AT);
    world.store().run(&Park { entity: &entity(), sequence, row: &row }, PATIENCE).await.expect("it is parked");
}

fn rows(world: &TestWorld) -> Vec<Row> {
    [TableName::Entities, TableName::Inbox].iter().flat_map(|table| world.memory.rows(table)).collect()
}

/// Returns an operator that pauses before one of its calls.
fn stopping(world: &mut TestWorld, before: u64, pause: Duration) -> (Operator, Arc<FaultyTable>) {
    let (operator, table) = world.failing_operator(Fault::Slow(pause), move |call| call.request == before);
    (operator, table)
}

#[derive(Debug, Clone, Copy)]
struct Meeting {
    first: u64,
    second: u64,
}

/// Runs two operators, with every combination of a call before which each one pauses. `between` runs while
/// both pause.
async fn every_meeting<A, B>(
    stage: impl AsyncFn() -> TestWorld,
    first: impl AsyncFn(&Operator) -> A,
    second: impl AsyncFn(&Operator) -> B,
    between: impl AsyncFn(&TestWorld),
    check: impl AsyncFn(TestWorld, A, B, Meeting),
) {
    let after = Duration::from_millis;
    for one in 1.. {
        let mut first_stopped = false;
        for two in 1.. {
            let mut world = stage().await;
            let (a, calls) = stopping(&mut world, one, after(600));
            let (b, calls_of_second) = stopping(&mut world, two, after(700));
            let clock = world.env.clone();
            let begins_later = async {
                clock.sleep(after(100)).await;
                second(&b).await
            };
            let meanwhile = async {
                clock.sleep(after(300)).await;
                between(&world).await;
            };
            let (of_first, of_second, ()) = tokio::join!(first(&a), begins_later, meanwhile);
            check(world, of_first, of_second, Meeting { first: one, second: two }).await;
            first_stopped |= calls.requests() >= one;
            if calls_of_second.requests() < two {
                break;
            }
        }
        if !first_stopped {
            assert!(one > 2, "there is something to stop at: {one}");
            return;
        }
    }
}

async fn redrive_what_is_parked(operator: &Operator) -> Result<(), OperatorError> {
    match operator.parked(&entity()).await?.first() {
        Some(parked) => operator.redrive(parked, None).await.map(drop),
        None => Err(OperatorError::NotParked),
    }
}

async fn works(world: &TestWorld) {
    world.work(&[world.drainer(rejecting("bad"))]).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_redrives_append_a_delivery_once() {
    let check =
        async |world: TestWorld, first: Result<(), OperatorError>, second: Result<(), OperatorError>, at: Meeting| {
            works(&world).await;
            assert_eq!(world.applied(), ["1", "bad"], "{at:?}");
            let mut results = [&first, &second].into_iter();
            assert!(results.clone().any(Result::is_ok), "{at:?}: {first:?} {second:?}");
            assert!(
                results.all(|result| matches!(result, Ok(()) | Err(OperatorError::NotParked))),
                "{at:?}: {first:?} {second:?}"
            );
            assert!(world.operator().parked(&entity()).await.unwrap().is_empty(), "{at:?}");
            assert!(world.messages.is_empty());
        };
    every_meeting(parked, redrive_what_is_parked, redrive_what_is_parked, works, check).await;
}

async fn put_back_or_erased(
    world: TestWorld,
    redriven: Result<(), OperatorError>,
    erased: Result<Erased, OperatorError>,
    at: Meeting,
) {
    works(&world).await;
    let what = format!("{at:?}: {redriven:?} {erased:?}");
    match redriven {
        Ok(()) => assert_eq!(world.applied(), ["1", "bad"], "{what}"),
        Err(OperatorError::NotParked) => assert_eq!(world.applied(), ["1"], "{what}"),
        Err(_) => panic!("{what}"),
    }
    assert!(matches!(erased, Ok(_) | Err(OperatorError::InUse)), "{what}");
    assert!(world.operator().parked(&entity()).await.unwrap().is_empty(), "{what}");
    assert!(matches!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { .. })), "{what}");
    assert_eq!(rows(&world).len(), 1, "{what}");
}

async fn erase(operator: &Operator) -> Result<Erased, OperatorError> {
    operator.erase(&entity()).await
}

#[tokio::test(start_paused = true)]
async fn redrive_during_erase_appends_or_finds_nothing() {
    every_meeting(parked, redrive_what_is_parked, erase, works, put_back_or_erased).await;
    let check = async |world, erased, redriven, at| put_back_or_erased(world, redriven, erased, at).await;
    every_meeting(parked, erase, redrive_what_is_parked, works, check).await;
}

/// After the delivery's receipt is erased, a redrive from a stale list must not apply the delivery again.
#[tokio::test(start_paused = true)]
async fn redrive_during_erase_never_reapplies_applied_delivery() {
    let check = async |world: TestWorld,
                       redriven: Result<(), OperatorError>,
                       erased: Result<Erased, OperatorError>,
                       at: Meeting| {
        works(&world).await;
        assert_eq!(world.applied(), ["1"], "{at:?}: {redriven:?} {erased:?}");
        let known = [OperatorError::NotParked, OperatorError::DecidedOtherwise(Settlement::Applied)];
        assert!(redriven.is_err_and(|error| known.contains(&error)), "{at:?}");
        assert!(world.operator().parked(&entity()).await.unwrap().is_empty(), "{at:?}");
    };
    every_meeting(parked_by_a_stale_holder, redrive_what_is_parked, erase, works, &check).await;
    let turned = async |world, erased, redriven, at| check(world, redriven, erased, at).await;
    every_meeting(parked_by_a_stale_holder, erase, redrive_what_is_parked, works, turned).await;
}

#[tokio::test(start_paused = true)]
async fn delivery_applied_during_two_erases_keeps_its_receipt() {
    let again = async |world: &TestWorld| {
        world.append("test/a", "1").await;
        works(world).await;
    };
    let check = async |world: TestWorld,
                       first: Result<Erased, OperatorError>,
                       second: Result<Erased, OperatorError>,
                       at: Meeting| {
        let what = format!("{at:?}: {first:?} {second:?}");
        assert!(first.is_ok() && second.is_ok(), "{what}");
        // An erase may forget deliveries that were settled before it read the row.
        if at.first > 1 && at.second > 1 {
            let receipts = world.operator().receipts(&entity()).await.unwrap();
            let last = world.journal.runs().last().map(|run| run.sequence);
            let head = world.state("test/a").await.head;
            if last == Some(head) {
                assert_eq!(receipts.last().map(|receipt| receipt.sequence), last, "{what}");
            }
        }
        assert!(matches!(world.operator().erase(&entity()).await, Ok(Erased::Numbers { .. })), "{what}");
        assert_eq!(rows(&world).len(), 1, "{what}");
    };
    every_meeting(parked, erase, erase, again, check).await;
}

#[tokio::test(start_paused = true)]
async fn redrive_of_an_applied_delivery_is_refused() {
    for behind in [false, true] {
        let world = parked_by_a_stale_holder().await;
        if behind {
            world.append("test/a", "2").await;
            world.work(&[world.drainer(Done)]).await;
        }
        let result = redrive_what_is_parked(&world.operator()).await;
        assert_eq!(result, Err(OperatorError::DecidedOtherwise(Settlement::Applied)));
        assert!(world.operator().parked(&entity()).await.unwrap().is_empty());
        assert!(world.messages.is_empty(), "nothing was appended");
    }
}

#[tokio::test(start_paused = true)]
async fn redrive_before_settle_of_parked_delivery_is_refused() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.work(&[world.drainer(Done)]).await;
    world.append("test/a", "2").await;
    world.messages.clear();
    // The holder that parked the delivery died before it settled.
    let sequence = world.state("test/a").await.tail;
    let row = world.memory.get(&delivery_row(&entity(), sequence)).await.unwrap().unwrap();
    world.store().run(&Park { entity: &entity(), sequence, row: &row }, PATIENCE).await.unwrap();
    assert_eq!(redrive_what_is_parked(&world.operator()).await, Err(OperatorError::Undecided));
    assert_eq!(world.operator().parked(&entity()).await.unwrap().len(), 1, "it stays parked");
    assert_eq!(world.state("test/a").await.tail, sequence, "nothing was appended");
}

#[tokio::test(start_paused = true)]
async fn parked_delivery_without_receipt_can_be_redriven() {
    let world = parked().await;
    world.memory.purge(&TableName::Entities, |_| true);
    world.memory.purge(&TableName::Inbox, |row| row.text(a::ITEM).is_some_and(|item| !item.starts_with("p#")));
    tokio::time::advance(40 * DAY).await;
    assert_eq!(redrive_what_is_parked(&world.operator()).await, Ok(()));
    let waiting = world.operator().inspect(&entity()).await.unwrap().waiting;
    let [InboxItem::Delivery(redriven)] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!(redriven.head().received_at(), world.env.now(), "its time to be handled starts anew");
    works(&world).await;
    assert_eq!(world.applied(), ["1", "bad"]);
}

#[tokio::test(start_paused = true)]
async fn failed_redrive_leaves_the_delivery_parked() {
    for answered in 1.. {
        let mut world = parked().await;
        world.fail(Fault::Before(TableError::Invalid("gone".into())), move |call| call.request > answered);
        let result = redrive_what_is_parked(&world.operator()).await;
        world.table = world.memory.clone();
        works(&world).await;
        let back = world.applied().contains(&"bad".to_owned());
        let there = !world.operator().parked(&entity()).await.unwrap().is_empty();
        assert!(back || there, "cut off after {answered} calls it is gone");
        if result.is_ok() {
            assert!(answered > 5, "{answered}");
            break;
        }
        let _ = redrive_what_is_parked(&world.operator()).await;
        works(&world).await;
        assert_eq!(world.applied(), ["1", "bad"], "cut off after {answered} calls");
        assert!(world.operator().parked(&entity()).await.unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn redrive_to_another_order_moves_the_body() {
    let world = TestWorld::new();
    world.append_noise("test/unrouted", "lost", 1_000_000).await;
    works(&world).await;
    let operator = world.operator();
    let unrouted = key("test/unrouted");
    let parked = operator.parked(&unrouted).await.unwrap();
    let tail = world.state("test/unrouted").await.tail;
    operator.redrive(&parked[0], Some(&entity())).await.expect("it is redriven");
    works(&world).await;
    assert_eq!(world.applied(), ["lost"]);
    assert_eq!(world.state("test/unrouted").await.tail, tail);
    let kept = world.memory.rows(&TableName::Inbox).into_iter().filter(|row| row.get(a::PURGE_AT).is_none()).count();
    assert_eq!(kept, 0, "no part of it is left for good");
}

/// Promise: `list` is sorted by age with reason and next command; `--parked` is complete.
#[tokio::test(start_paused = true)]
async fn list_of_parked_deliveries_is_complete_and_sorted() {
    let world = TestWorld::new();
    for number in 0..120 {
        world.append(if number % 2 == 0 { "test/unrouted" } else { "block/unrouted" }, &number.to_string()).await;
    }
    world.append_all_from("block", "block/unrouted", (0..220).map(|number| format!("b{number}"))).await;
    works(&world).await;
    let operator = world.operator();
    let all = operator.all_parked().await.unwrap();
    let of_one = operator.parked(&key("block/unrouted")).await.unwrap();
    assert_eq!((all.len(), of_one.len()), (280, 220));
    assert!(all.is_sorted_by_key(|one| (one.delivery().entity().clone(), one.sequence)));
    assert!(of_one.is_sorted_by(|a, b| a.sequence < b.sequence), "each once");
    let receipts = operator.receipts(&key("block/unrouted")).await.unwrap();
    assert_eq!(receipts.len(), 280);
    let keys: Vec<String> = operator.entities().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(keys, ["block/unrouted", "test/unrouted"]);
}

#[tokio::test(start_paused = true)]
async fn order_inspection_lists_waiting_deliveries_in_sequence() {
    let world = parked().await;
    world.append_all("test/a", ["2", "3"]).await;
    let inspected = world.operator().inspect(&entity()).await.unwrap();
    let state = inspected.state.expect("it has a row");
    let waiting: Vec<_> = inspected.waiting.iter().map(InboxItem::sequence).collect();
    assert_eq!(waiting, [state.next(), state.tail]);
    let receipts = world.operator().receipts(&entity()).await.unwrap();
    assert!(receipts.is_sorted_by(|a, b| a.sequence < b.sequence));
}

#[tokio::test(start_paused = true)]
async fn forced_release_fences_holder_and_sends_wake_up() {
    let world = TestWorld::new();
    let leases = world.leases("somebody");
    let guard = leases.acquire(&entity(), Terms::at_once()).await.expect("it is free");
    world.append("test/a", "1").await;
    world.messages.clear();
    let seen = leases.look(&entity()).await.unwrap().expect("it has a row");
    let freed = leases.force_release(&seen, "anna", "hangs").await.unwrap().expect("it is that lease");
    assert!(!freed.is_held());
    assert_eq!(freed.token(), seen.token().next());
    let info = world.state("test/a").await.holder_info.expect("who and why stay");
    assert!(info.as_str().ends_with("anna: hangs"), "{info:?}");
    let [row] = &*world.memory.rows(&TableName::Entities) else { panic!("one row") };
    assert!([a::HOLDER, a::KIND, a::EXPIRES_AT].iter().all(|name| row.get(name).is_none()), "{row:?}");
    assert!(leases.force_release(&seen, "bert", "hangs").await.unwrap().is_none());
    assert!(guard.release().await.is_err(), "it was taken away");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied(), ["1"]);
    let _guard = leases.acquire(&entity(), Terms::at_once()).await.expect("it is free");
    let seen = leases.look(&entity()).await.unwrap().expect("it has a row");
    leases.force_release(&seen, "anna", "hangs").await.unwrap().expect("it is that lease");
    assert!(world.messages.is_empty());
    world.operator().erase(&entity()).await.expect("it is erased");
    assert_eq!(world.state("test/a").await.holder_info, None);
}

/// If a forced release finds another lease, another release or another operator's release, it does not take
/// that for its own first try.
#[tokio::test(start_paused = true)]
async fn forced_release_ends_only_the_lease_that_operator_saw() {
    let world = TestWorld::new();
    let leases = world.leases("somebody");
    let first = leases.acquire(&entity(), Terms::at_once()).await.expect("it is free");
    let seen = world.state("test/a").await;
    let force = |by: &str| ForceRelease { seen: &seen, record: HolderInfo::new(by) };
    let run = async |by: &str| world.store().run(&force(by), PATIENCE).await.expect("memory answers");
    first.release().await.expect("it is released");
    assert!(matches!(run("anna").await, Forced::Changed(Some(_))), "it had ended");
    assert_eq!(world.state("test/a").await.token, seen.token);
    let second = leases.acquire(&entity(), Terms::at_once()).await.expect("it is free");
    assert!(matches!(run("anna").await, Forced::Changed(Some(_))), "it is another's");
    assert!(world.state("test/a").await.held.is_some());
    second.release().await.expect("it is still that holder's");
    let third = leases.acquire(&entity(), Terms::at_once()).await.expect("it is free");
    let seen = world.state("test/a").await;
    let force = |by: &str| ForceRelease { seen: &seen, record: HolderInfo::new(by) };
    let run = async |by: &str| world.store().run(&force(by), PATIENCE).await.expect("memory answers");
    assert!(matches!(run("anna").await, Forced::Released(_)));
    assert!(matches!(run("anna").await, Forced::Released(_)), "one's own first try");
    assert!(matches!(run("bert").await, Forced::Changed(Some(_))), "somebody else's");
    drop(third);
    let fourth = leases.acquire(&entity(), Terms::at_once()).await.expect("it is free");
    let later = world.state("test/a").await;
    let again = ForceRelease { seen: &later, record: HolderInfo::new("anna") };
    assert!(matches!(world.store().run(&again, PATIENCE).await, Ok(Forced::Released(_))));
    assert!(matches!(run("anna").await, Forced::Changed(Some(_))), "of another lease, in the same words");
    drop(fourth);
}

#[tokio::test(start_paused = true)]
async fn parking_twice_keeps_the_first_error() {
    let world = parked_by_a_stale_holder().await;
    let sequence = world.state("test/a").await.head;
    let key = parked_row(&entity(), sequence);
    let before = world.memory.get(&key).await.unwrap();
    let other = before.clone().unwrap().with(a::ERROR, "another");
    world.store().run(&Park { entity: &entity(), sequence, row: &other }, PATIENCE).await.expect("it is parked");
    assert_eq!(world.memory.get(&key).await.unwrap(), before);
}

/// Promise: `show ORDER` accounts for every sequence number, by pages.
#[tokio::test(start_paused = true)]
async fn history_shows_each_settlement() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.claim("test/a").await;
    world.append_all("test/a", ["1", "2"]).await;
    world.work(&[world.drainer(Done)]).await;
    let operator = world.operator();
    let outcomes = async |most: usize| {
        let state = world.store().entity(&entity(), PATIENCE).await.unwrap();
        let settled = operator.settled(&entity(), state.as_ref(), most).await.unwrap();
        let first = Sequence(state.unwrap().head.0 - 3);
        let told = |(at, past): (&Sequence, &Past)| {
            (at.0 - first.0, past.settlement().unwrap(), past.first.map(|place| place.0 - first.0))
        };
        (settled.places.iter().map(told).collect::<Vec<_>>(), settled.has_older)
    };
    let applied = |at| (at, Settlement::Applied, None);
    let expected = [applied(0), (1, Settlement::Void, None), (2, Settlement::Repeat, Some(0)), applied(3)];
    assert_eq!(outcomes(10).await, (expected.to_vec(), false), "as the row remembers them");
    assert_eq!(outcomes(2).await, (expected[2..].to_vec(), true), "the newest");
    // Moves the receipts out of the order's row, into separate rows.
    let key = entity_row(&entity());
    let row = world.memory.get(&key).await.unwrap().unwrap();
    for receipt in operator.receipts(&entity()).await.unwrap() {
        if let Some(spill) = Spill::of(&entity(), &receipt, world.env.now()) {
            world.store().run(&spill, PATIENCE).await.unwrap();
        }
    }
    let mut recent = EntityState::parse(&row).unwrap().recent;
    recent.drop_beyond(1);
    let shorter = Change::set(a::RECENT, recent.to_stored().unwrap());
    world.memory.write(&Write::update(key, vec![shorter, Change::set(a::SPILLED, 1_u32)])).await.unwrap();
    assert_eq!(outcomes(10).await, (expected.to_vec(), false), "as their own rows tell");
}

#[tokio::test(start_paused = true)]
async fn unreadable_row_hides_no_other_lease() {
    let world = TestWorld::new();
    for name in ["test/a", "test/b"] {
        world.append(name, name).await;
    }
    let key = entity_row(&entity());
    let damaged = Change::set(a::BLOCKED, "no reason");
    let damage = Write::update(key, vec![damaged]);
    world.memory.write(&damage).await.expect("memory answers");
    let listed = world.leases("somebody who looks").list(None, 100).await.expect("the others are listed");
    assert_eq!(listed.leases.iter().map(|lease| lease.key(KeyDisplay::Raw)).collect::<Vec<_>>(), ["test/b"]);
    let [(named, error)] = listed.unreadable.as_slice() else { panic!("{:?}", listed.unreadable) };
    assert_eq!((named.as_str(), error.to_string().contains("`blocked`")), ("test/a", true));
    let entities = world.operator().entities().await.expect("its key is there");
    assert_eq!(entities.iter().map(EntityKey::as_str).collect::<Vec<_>>(), ["test/a", "test/b"]);
}
