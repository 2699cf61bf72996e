//! Two operators at once, one of whom rewinds.

use tests::prelude::*;

use super::{Meeting, entity, every_meeting};

async fn applied() -> TestWorld {
    let world = TestWorld::with("test/a", ["1", "2"]).await;
    succeeds(&world).await;
    world.append("test/a", "3").await;
    world
}

async fn succeeds(world: &TestWorld) {
    world.work(&[world.drainer(Done)]).await;
}

async fn rewind(operator: &Operator) -> Result<RewindOutcome, OperatorError> {
    let state = operator.inspect(&entity()).await?.state.expect("it has a row");
    let settled = operator.settled(&entity(), Some(&state), 10).await?.places;
    let from = settled.into_keys().next().unwrap_or(Sequence(state.head.0));
    operator.rewind(&entity(), from).await
}

/// Asserts that `1` and `2` ran as pairs in this order, with `3` between or after the pairs. Returns the
/// number of pairs.
fn in_order(world: &TestWorld, at: Meeting) -> usize {
    let applied = world.applied();
    let runs: Vec<&str> = applied.iter().map(String::as_str).collect();
    let mut rest = &runs[..];
    let mut times = 0;
    while let Some(left) = rest.strip_prefix(&["1", "2"]) {
        rest = left.strip_prefix(&["3"]).unwrap_or(left);
        times += 1;
    }
    assert!(rest.is_empty() && runs.contains(&"3"), "{at:?}: {runs:?}");
    times
}

#[tokio::test(start_paused = true)]
async fn concurrent_rewinds_run_deliveries_in_order() {
    let check = async |world: TestWorld, first: Result<RewindOutcome, _>, second: Result<RewindOutcome, _>, at| {
        assert!(first.is_ok() && second.is_ok(), "{at:?}: {first:?} {second:?}");
        succeeds(&world).await;
        let done = [&first, &second].iter().filter(|rewound| matches!(rewound, Ok(RewindOutcome::Done(_)))).count();
        let times = in_order(&world, at);
        assert!(done >= 1 && (2..=1 + done).contains(&times), "{at:?}: {first:?} {second:?}: {times}");
        assert!(world.messages.is_empty());
    };
    every_meeting(applied, rewind, rewind, succeeds, check).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_rewind_and_end_of_rewind_lose_no_delivery() {
    let end = async |operator: &Operator| operator.end_rewind(&entity()).await;
    let check = async |world: TestWorld, first: Result<RewindOutcome, _>, ended: Result<RewindOutcome, _>, at| {
        assert!(first.is_ok() && ended.is_ok(), "{at:?}: {first:?} {ended:?}");
        succeeds(&world).await;
        let applied = world.applied();
        let mut once = applied.clone();
        once.dedup();
        assert!(applied.starts_with(&["1".into(), "2".into()]) && applied.contains(&"3".into()), "{at:?}: {applied:?}");
        assert_eq!(once, applied, "{at:?}");
        assert!(world.state("test/a").await.is_empty() && world.messages.is_empty(), "{at:?}");
    };
    every_meeting(applied, rewind, end, succeeds, check).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_skip_and_rewind_park_at_most_one_delivery() {
    let skip = async |operator: &Operator| {
        let state = operator.inspect(&entity()).await?.state.expect("it has a row");
        operator.skip(&entity(), state.next()).await
    };
    let check =
        async |world: TestWorld, rewound: Result<RewindOutcome, _>, skipped: Result<SkipOutcome, OperatorError>, at| {
            assert!(rewound.is_ok() && skipped.is_ok(), "{at:?}: {rewound:?} {skipped:?}");
            succeeds(&world).await;
            let parked = world.operator().parked(&entity()).await.expect("memory answers");
            let parked: Vec<_> = parked.iter().map(|one| one.delivery().delivery_id().to_string()).collect();
            assert_eq!(parked.len(), usize::from(matches!(skipped, Ok(SkipOutcome::As(_)))), "{at:?}: {skipped:?}");
            let all = [world.applied(), parked].concat();
            assert!(["1", "2", "3"].iter().all(|id| all.contains(&(*id).to_owned())), "{at:?}: {all:?}");
            assert!(world.state("test/a").await.is_empty() && world.messages.is_empty(), "{at:?}");
        };
    every_meeting(applied, rewind, skip, async |_| {}, check).await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_rewind_and_erase_leave_no_order_stuck() {
    let idle = async || {
        let world = applied().await;
        succeeds(&world).await;
        world
    };
    let erase = async |operator: &Operator| operator.erase(&entity()).await;
    let check =
        async |world: TestWorld, rewound: Result<RewindOutcome, _>, erased: Result<Erased, OperatorError>, at| {
            let fine = matches!(erased, Ok(_) | Err(OperatorError::InUse));
            assert!(rewound.is_ok() && fine, "{at:?}: {rewound:?} {erased:?}");
            succeeds(&world).await;
            let state = world.state("test/a").await;
            assert!(state.is_empty() && state.held.is_none() && world.messages.is_empty(), "{at:?}: {state:?}");
            world.append("test/a", "4").await;
            succeeds(&world).await;
            assert_eq!(world.applied().last().map(String::as_str), Some("4"), "{at:?}");
        };
    every_meeting(idle, rewind, erase, async |_| {}, check).await;
}
