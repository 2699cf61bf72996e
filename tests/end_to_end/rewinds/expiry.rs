//! The sweep keeps what rewound deliveries need, and lets other receipts expire.

use tests::prelude::*;
use webhook_serializer::protocol::keys::is_receipt_page;

use super::{applied, entity, operator, rewound};

#[tokio::test(start_paused = true)]
async fn sweep_extends_expiry_of_rewound_deliveries_and_receipts() {
    let world = applied(40).await;
    world.env.sleep(Duration::from_secs(16 * 86_400)).await;
    operator(&world).hold(&entity()).await.unwrap();
    rewound(&world, 0).await;
    world.sweeper().sweep_all().await.unwrap();
    let now = world.env.now();
    let rows = world.memory.rows(&TableName::Inbox);
    let soonest = rows.iter().filter_map(|row| {
        let item = row.text(a::ITEM)?;
        ["d#", "r#", "s#"].iter().any(|kind| item.starts_with(kind)).then(|| row.number(a::PURGE_AT))?
    });
    let soonest = soonest.min().expect("they expire");
    assert!(soonest > (now + Duration::from_secs(29 * 86_400)).as_millis() / 1000, "{soonest} at {now:?}");
}

/// Only pages that hold receipts of waiting deliveries are kept for longer.
#[tokio::test(start_paused = true)]
async fn sweep_lets_receipts_of_settled_deliveries_expire() {
    let world = applied(60).await;
    world.append("test/a", "waits").await;
    operator(&world).hold(&entity()).await.unwrap();
    let expiry = || {
        let pages = world.memory.rows(&TableName::Inbox).into_iter().filter(is_receipt_page);
        pages.map(|row| row.number(a::PURGE_AT)).collect::<Vec<_>>()
    };
    let before = expiry();
    assert!(before.len() >= 2);
    world.env.sleep(Duration::from_secs(16 * 86_400)).await;
    assert_eq!(world.sweeper().sweep_all().await.unwrap().kept, 1);
    assert_eq!(expiry(), before);
}

/// The sweep finds out by the delivery's expiry whether it has extended the receipts.
#[tokio::test(start_paused = true)]
async fn sweep_extends_receipts_before_their_deliveries() {
    let mut world = applied(60).await;
    world.env.sleep(Duration::from_secs(16 * 86_400)).await;
    operator(&world).hold(&entity()).await.unwrap();
    rewound(&world, 0).await;
    let expiry = |world: &TestWorld, kind: &str| {
        let rows = world.memory.rows(&TableName::Inbox);
        let of_kind = rows.iter().filter(|row| row.text(a::ITEM).is_some_and(|item| item.starts_with(kind)));
        of_kind.filter_map(|row| row.number(a::PURGE_AT)).min().expect("they expire")
    };
    let due = expiry(&world, "d#");
    for kind in ["s#", "r#"] {
        let whole = world.table.clone();
        let before = expiry(&world, kind);
        world.fail(Fault::Before(TableError::Throttled), move |call| match call.writes {
            [Write { key, .. }] => key.to_row().text(a::ITEM).is_some_and(|item| item.starts_with(kind)),
            _ => false,
        });
        assert!(world.sweeper().sweep_all().await.is_err(), "{kind}");
        assert_eq!((expiry(&world, kind), expiry(&world, "d#")), (before, due), "{kind}");
        world.table = whole;
    }
    world.sweeper().sweep_all().await.unwrap();
    assert!(["d#", "s#", "r#"].iter().all(|kind| expiry(&world, kind) > due));
}
