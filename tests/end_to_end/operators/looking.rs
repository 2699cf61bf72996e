//! How operators read an order's history, its operations log and single deliveries.

use tests::prelude::*;
use webhook_serializer::operator::SettledPage;

use super::entity;

async fn succeeds(world: &TestWorld) {
    world.work(&[world.drainer(Done)]).await;
}

async fn applied(count: u32) -> (TestWorld, Sequence) {
    let world = TestWorld::with("test/a", 1..=count).await;
    succeeds(&world).await;
    let head = world.state("test/a").await.head;
    (world, Sequence(head.0 + 1 - u64::from(count)))
}

async fn settled(world: &TestWorld, most: usize) -> SettledPage {
    let state = world.state("test/a").await;
    world.operator().settled(&entity(), Some(&state), most).await.expect("memory answers")
}

#[tokio::test(start_paused = true)]
async fn history_says_whether_older_entries_exist() {
    let (world, _) = applied(4).await;
    let has_older = async || (settled(&world, 3).await.has_older, settled(&world, 4).await.has_older);
    assert_eq!(has_older().await, (true, false));
    world.memory.purge(&TableName::Inbox, |_| true);
    assert_eq!(has_older().await, (true, false));
}

#[tokio::test(start_paused = true)]
async fn deliveries_before_a_place_may_all_be_known() {
    let (world, first) = applied(4).await;
    let known = |count: u64| (0..count).map(|at| Sequence(first.0 + at)).collect();
    let has_others = async |known| {
        let operator = world.operator();
        operator.has_others_before(&entity(), Sequence(first.0 + 3), &known).await.expect("memory answers")
    };
    assert_eq!((has_others(known(3)).await, has_others(known(2)).await), (false, true));
}

#[tokio::test(start_paused = true)]
async fn history_continues_beyond_the_first_page() {
    let (world, first) = applied(120).await;
    let settled = settled(&world, 120).await;
    assert_eq!((settled.places.len(), settled.places.keys().next()), (120, Some(&first)));
    let is_whole = settled.places.values().all(|past| past.delivery.is_some() && past.has_row);
    assert!(is_whole && settled.places.values().all(|past| past.settlement() == Some(Settlement::Applied)));

    let operator = world.operator().because(Reason::new("ada", "to see it"));
    for _ in 0..60 {
        operator.hold(&entity()).await.expect("memory answers");
        operator.resume(&entity()).await.expect("memory answers");
    }
    assert_eq!(operator.acts(&entity()).await.expect("memory answers").len(), 120);
}

#[tokio::test(start_paused = true)]
async fn deliveries_without_order_row_are_shown() {
    let (mut world, _) = applied(3).await;
    world.memory.purge(&TableName::Entities, |_| true);
    let circles = || Fault::Before(TableError::Invalid("it goes round in circles".into()));
    world.fail(circles(), move |call| call.request > 20);
    let settled = world.operator().settled(&entity(), None, 10).await.expect("it comes to an end");
    assert_eq!((settled.places.len(), settled.has_older), (3, false));
    assert!(settled.places.values().all(|past| past.has_row && past.settlement().is_none()), "{settled:?}");
}

#[tokio::test(start_paused = true)]
async fn delivery_with_spilled_receipt_is_shown_with_its_settlement() {
    let (world, first) = applied(30).await;
    let operator = world.operator();
    let ended = async |at: Sequence| {
        let single = operator.single(&entity(), at).await.expect("memory answers");
        let id = single.content.delivery().map(|delivery| delivery.delivery_id().to_string());
        (id, single.receipt.map(|receipt| (receipt.sequence, receipt.settlement)))
    };
    assert_eq!(ended(first).await, (Some("1".into()), Some((first, Settlement::Applied))));
    // A rewound delivery still shows its first settlement. A repeat behind it has none yet.
    operator.hold(&entity()).await.expect("memory answers");
    operator.rewind(&entity(), first).await.expect("memory answers");
    world.append("test/a", "1").await;
    assert_eq!(ended(first).await, (Some("1".into()), Some((first, Settlement::Applied))));
    assert_eq!(ended(world.state("test/a").await.tail).await, (Some("1".into()), None));
}

#[tokio::test(start_paused = true)]
async fn deliveries_are_found_by_order_and_sequence() {
    let (world, first) = applied(2).await;
    world.append("test/b", "other").await;
    let b = key("test/b");
    let last = world.state("test/b").await.tail;
    let places = [(entity(), first), (entity(), Sequence(first.0 + 1)), (entity(), Sequence(first.0 + 2)), (b, last)];
    let found = world.operator().deliveries(&places).await.expect("memory answers");
    let mut ids: Vec<_> = found.iter().map(|one| (one.entity().as_str(), one.delivery_id().as_str())).collect();
    ids.sort_unstable();
    assert_eq!(ids, [("test/a", "1"), ("test/a", "2"), ("test/b", "other")]);
}

#[tokio::test(start_paused = true)]
async fn delayed_wake_up_arrives_after_the_delay() {
    let world = TestWorld::with("test/a", ["1"]).await;
    world.messages.clear();
    let began = world.env.monotonic();
    let delay = Duration::from_secs(30);
    world.operator().wake(&entity(), delay).await.expect("it is woken");
    succeeds(&world).await;
    assert_eq!(world.applied(), ["1"]);
    let ended = world.journal.runs().last().expect("it ran").ended;
    assert!(ended.saturating_sub(began) >= delay, "{ended:?}");
}
