//! The handlers of `shared/examples` under faults.

use order_totals::Totals;
use tests::prelude::*;

#[path = "../../shared/examples/order_totals.rs"]
#[expect(dead_code, reason = "its main")]
pub(crate) mod order_totals;

async fn append(world: &TestWorld, id: &str, happened: u64, body: &str) {
    let mut incoming = world.incoming("shopify/order/1", id);
    incoming.event_time = Some(Timestamp::from_secs(1_767_000_000 + happened));
    incoming.body = body.to_owned().into();
    world.inbox().append(&incoming).await.expect("it is appended");
}

/// Each write in turn lands and loses its reply. Two deliveries are sent twice, and the last delivery is
/// older than the one before it.
///
/// Promise: `Outcome::Commit`: at most 99 writes and the settle, or none; none to the serializer's own tables.
#[tokio::test(start_paused = true)]
async fn example_totals_are_correct_despite_lost_replies() {
    for lost in 1..=24 {
        let mut world = TestWorld::new();
        let plan = move |call: &TableCall<'_>| if call.write == lost { Fault::ReplyLost } else { Fault::None };
        world.table = Arc::new(FaultyTable::new(world.memory.clone(), &world.env, plan));
        let told = [("1", 100, "10.00"), ("2", 300, "30.00"), ("2", 300, "30.00"), ("3", 200, "20.00")];
        for (id, happened, total) in told {
            append(&world, id, happened, &format!(r#"{{"total_price":"{total}"}}"#)).await;
        }
        append(&world, "other", 400, "{}").await;
        world.work(&[world.drainer(Totals("totals".into()))]).await;
        tokio::time::advance(Duration::from_secs(60)).await;
        append(&world, "1", 100, r#"{"total_price":"10.00"}"#).await;
        world.work(&[world.drainer(Totals("totals".into()))]).await;

        let rows = world.memory.rows(&TableName::Named("totals".into()));
        let seen: Vec<_> =
            rows.iter().map(|row| (row.text("order"), row.text("total"), row.number("deliveries"))).collect();
        assert_eq!(seen, [(Some("shopify/order/1"), Some("30.00"), Some(3))], "the reply to write {lost} was lost");
        let parked = world.operator().all_parked().await.unwrap();
        assert_eq!(parked.len(), 1, "it is about no total");
    }
}
