//! The orders that each tick of the sweep looks at, whatever segment is due.

use tests::handlers::Done;
use webhook_serializer::{
    engine::{append::DEADLINE, queue::WakeUp},
    protocol::{keys::watched_range, maintain::Watched},
};

use super::*;

async fn watched(world: &TestWorld) -> usize {
    world.memory.query(&watched_range(1_000)).await.expect("memory answers").rows.len()
}

/// Returns a world in which the wake-ups of some orders could not be sent, and whose queue answers again.
async fn owed(fault: Fault, orders: usize) -> TestWorld {
    let mut world = TestWorld::new();
    let queue = world.queue.clone();
    world.break_queue(move |_| fault.clone());
    for number in 0..orders {
        let begun = world.env.monotonic();
        let appended = world.inbox().append(&world.incoming(&format!("test/{number:03}"), "1")).await;
        assert!(appended.expect("it is stored").wake_up_failed.is_some());
        assert!(world.env.monotonic() - begun <= DEADLINE + Duration::from_millis(250), "a sender waits");
    }
    world.queue = queue;
    world
}

/// Promise: a wake-up that could not be sent is sent by the sweep's next ticks, at any number of orders; a tick begins no
/// further ones after 30 s.
#[tokio::test(start_paused = true)]
async fn owed_wake_up_is_sent_by_the_next_tick() {
    for fault in [Fault::Before(TableError::Throttled), Fault::Silent] {
        let world = owed(fault, 40).await;
        // It may visit no row.
        let deployed = SweepDeployment::with(&world, world.sweeper().at_most(0));
        let Swept { owed, seen, .. } = deployed.minute(5).await;
        assert_eq!((owed, seen, watched(&world).await), (40, 0, 0));
        world.work(&[world.drainer(Done)]).await;
        assert_eq!(world.applied().len(), 40);
        assert_eq!(deployed.minute(8).await.owed, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_owed_wake_up_stays_owed() {
    let mut world = owed(Fault::Before(TableError::Throttled), 40).await;
    let woken = Arc::new(Woken::default());
    let refuses = |entity: &str| match entity {
        "test/007" => Err(QueueError::Unavailable("InternalError".into())),
        _ => Ok(()),
    };
    picks(&mut world, &woken, Duration::ZERO, 0, refuses);
    let deployed = SweepDeployment::with(&world, world.sweeper().at_most(0));
    assert_eq!((deployed.minute(5).await.owed, watched(&world).await), (39, 1));
    assert_eq!((deployed.minute(6).await.owed, watched(&world).await), (0, 1));
    picks(&mut world, &woken, Duration::ZERO, 0, |_| Ok(()));
    let deployed = SweepDeployment::with(&world, world.sweeper().at_most(0));
    assert_eq!((deployed.minute(7).await.owed, watched(&world).await), (1, 0));
    assert_eq!(woken.count(), (40, 1));
}

#[tokio::test(start_paused = true)]
async fn owed_wake_up_of_a_killed_tick_is_repeated() {
    let mut world = owed(Fault::Before(TableError::Throttled), 40).await;
    let woken = Arc::new(Woken::default());
    picks(&mut world, &woken, Duration::ZERO, 0, |_| Ok(()));
    let whole = world.table.clone();
    world.break_table(|call: &TableCall<'_>| match call.writes.iter().any(|write| write.action == Action::Delete) {
        true => Fault::Silent,
        false => Fault::None,
    });
    let sweeper = world.sweeper();
    let until = world.env.monotonic() + MINUTE;
    assert!(world.env.within(Duration::from_secs(1), sweeper.go_on(minute(1), until)).await.is_none());
    world.table = whole;
    SweepDeployment::with(&world, world.sweeper().at_most(0)).minutes([5, 6]).await;
    assert_eq!((woken.count(), watched(&world).await), ((40, 2), 0));
}

#[tokio::test(start_paused = true)]
async fn many_owed_wake_ups_leave_the_sweep_its_time() {
    let mut world = owed(Fault::Before(TableError::Throttled), 700).await;
    picks(&mut world, &Arc::default(), Duration::from_millis(750), 0, |_| Ok(()));
    let deployed = SweepDeployment::by(&world);
    let Swept { owed, segments, .. } = deployed.minute(60).await;
    // Forty groups take 30 s: two pages of 250 orders, and eight groups of sixteen.
    assert_eq!((owed, segments), (2 * 250 + 8 * 16, 1));
}

/// Promise: once the sweep has seen that an order waits for five minutes, it measures the order's wait each minute.
#[tokio::test(start_paused = true)]
async fn wait_of_a_watched_order_is_measured_each_minute() {
    let (world, _) = forgotten(1, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::by(&world);
    deployed.minutes(10..70).await;
    for number in 70..80 {
        let waited = deployed.minute(number).await.oldest;
        assert_eq!(waited.as_secs() / 60, number, "its segment is due in one minute of the hour");
    }
    world.messages.send(&WakeUp::of(&key("test/000")).into(), Duration::ZERO).await.expect("it is sent");
    world.work(&[world.drainer(Done)]).await;
    assert_eq!(world.applied().len(), 1);
    assert_eq!((deployed.minute(90).await.oldest, watched(&world).await), (Duration::ZERO, 0));
}

#[tokio::test(start_paused = true)]
async fn twenty_longest_waits_are_watched() {
    let mut world = TestWorld::new();
    let mut lately = Vec::new();
    for age in (0..30).rev() {
        let entity = format!("test/{age:02}");
        world.append(&entity, "1").await;
        lately.extend((age < 10).then_some(entity));
        world.env.sleep(MINUTE).await;
    }
    picks(&mut world, &Arc::default(), Duration::ZERO, 0, |_| Ok(()));
    let deployed = SweepDeployment::by(&world);
    deployed.minutes(35..95).await;
    let rows = world.memory.query(&watched_range(100)).await.expect("memory answers").rows;
    let watched: Vec<_> = rows.iter().map(|row| Watched::parse(row).expect("it can be read").entity).collect();
    assert_eq!(watched.len(), 20);
    assert!(watched.iter().all(|entity| !lately.contains(&entity.to_string())), "{watched:?}");
    // Each tick visits about one of them, and measures all that it has visited.
    assert_eq!(deployed.minute(95).await.oldest, 95 * MINUTE);
}

/// While the queue is out, the sweep goes on to mend rows and to measure how long orders wait.
#[tokio::test(start_paused = true)]
async fn owed_wake_ups_leave_the_sweep_its_time() {
    for out in [Fault::Before(TableError::Throttled), Fault::Silent] {
        let mut world = owed(Fault::Before(TableError::Throttled), 40).await;
        world.break_queue(move |_| out.clone());
        let deployed = SweepDeployment::by(&world);
        let Swept { owed, segments, oldest, .. } = deployed.minute(5).await;
        assert_eq!((owed, segments, watched(&world).await), (0, 1, 40));
        assert!(oldest > 4 * MINUTE, "{oldest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn segment_of_many_rows_delays_the_next() {
    let (world, _) = forgotten(1_500, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::with(&world, world.sweeper().in_one_part());
    let mut visits = Vec::new();
    for number in 10..260 {
        let seen = deployed.minute(number).await.seen;
        visits.extend((seen > 0).then_some((number, seen)));
    }
    let minutes = visits.iter().map(|(number, _)| *number);
    assert!(minutes.eq([10, 70, 130, 191, 252]), "{visits:?}: a minute later once all rows are mended");
}
