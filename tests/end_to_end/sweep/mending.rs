//! The sweep mends rows that an older version wrote, and records when all of them are.

use futures_util::FutureExt;
use tests::prelude::*;
use webhook_serializer::protocol::{
    keys::sweep_position_row,
    maintain::Round,
    waits::{SourceTag, WaitClass, Waits},
};

use super::{SweepDeployment, position};

/// Makes a change that an older version could have made.
fn older(world: &TestWorld, key: Key, change: Change) {
    let write = Write::update(key, vec![change]);
    world.memory.write(&write).now_or_never().expect("memory answers at once").expect("it takes it");
}

async fn is_complete(world: &TestWorld) -> bool {
    position(world).await.round.is_some_and(|round| round.is_complete())
}

async fn waiting(world: &TestWorld) -> Vec<bool> {
    let mut waiting = Vec::new();
    for entity in ["test/a", "test/b"] {
        let state = world.state(entity).await;
        assert_eq!(state.waits, state.due_waits(), "{entity}");
        waiting.push(state.waits.is_some());
    }
    waiting
}

/// Promise: an index of failing and blocked orders is trusted only once a whole round of the sweep has mended the rows
/// of older versions.
#[tokio::test(start_paused = true)]
async fn sweep_mends_rows_of_an_older_version_and_records_a_whole_round() {
    let world = TestWorld::new();
    for entity in ["test/a", "test/b"] {
        world.append(entity, "1").await;
    }
    let left_over = Waits { class: WaitClass::Failed, source: SourceTag::default() }.to_stored();
    older(&world, entity_row(&key("test/a")), Change::set(a::LAST_ERROR, "no"));
    older(&world, entity_row(&key("test/b")), Change::set(a::WAITS, left_over));

    let deployed = SweepDeployment::by(&world);
    deployed.minutes(10..70).await;
    assert_eq!(waiting(&world).await, [true, false]);
    assert!(!is_complete(&world).await, "workers of the older version may have written after the sweep");
    // An older version's sweep advances the position, and leaves what it does not know.
    older(&world, sweep_position_row(), Change::set(a::NONCE, world.env.nonce().as_str()));
    deployed.minutes(70..149).await;
    assert!(!is_complete(&world).await);
    deployed.minutes(149..151).await;
    assert!(is_complete(&world).await);
    let round = position(&world).await.round;
    deployed.minutes(151..160).await;
    assert_eq!(position(&world).await.round, round, "it stays");
    older(&world, sweep_position_row(), Change::set(a::NONCE, world.env.nonce().as_str()));
    assert_eq!(position(&world).await.round.filter(Round::is_complete), None, "an older version is back");
}
