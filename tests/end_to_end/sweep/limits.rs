//! The rows that one tick of the sweep visits.

use super::*;

#[tokio::test(start_paused = true)]
async fn sweep_tick_visits_at_most_configured_rows() {
    let (world, woken) = forgotten(200, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::with(&world, world.sweeper().at_most(2));
    let mut reached = None;
    for number in 10..200 {
        let swept = deployed.minute(number).await;
        assert!(swept.seen <= 2, "{} in minute {number}", swept.seen);
        if reached.is_none() && woken.count().0 == 200 {
            reached = Some(number);
        }
    }
    // Each minute reads two of the 200 rows and the job's own. Sixty segments end between rows.
    let reached = reached.expect("all are reached");
    assert!((110..=150).contains(&reached), "in minute {reached}");
}

#[tokio::test(start_paused = true)]
async fn sweep_in_one_part_visits_each_row_once_an_hour() {
    let (world, woken) = forgotten(600, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::with(&world, world.sweeper().in_one_part());
    let mut visits = Vec::new();
    for number in 10..130 {
        let seen = deployed.minute(number).await.seen;
        visits.extend((seen > 0).then_some((number, seen)));
    }
    assert_eq!(visits, [(10, 601), (70, 601)], "with the job's own row");
    assert_eq!(woken.count().0, 600);
    assert_eq!(position(&world).await.turn.number, 120);
}

#[tokio::test(start_paused = true)]
async fn sweep_in_one_part_continues_after_the_most_rows_of_a_tick() {
    let (world, woken) = forgotten(600, Duration::ZERO, |_| Ok(())).await;
    let deployed = SweepDeployment::with(&world, world.sweeper().in_one_part().at_most(250));
    let mut seen = Vec::new();
    for number in 10..14 {
        seen.push(deployed.minute(number).await.seen);
    }
    assert_eq!(seen, [250, 250, 101, 0]);
    assert_eq!(woken.count().0, 600);
}

/// A folder of `serializer local` may be swept in one part, and by a user's own scheduler in segments.
#[tokio::test(start_paused = true)]
async fn sweep_with_another_division_visits_all_rows() {
    let (world, woken) = forgotten(600, Duration::ZERO, |_| Ok(())).await;
    let by_segments = |most| SweepDeployment::with(&world, world.sweeper().at_most(most));
    let in_one_part = || SweepDeployment::with(&world, world.sweeper().in_one_part());
    by_segments(2).minute(10).await;
    assert!(position(&world).await.turn.after.is_some(), "it stopped in the first segment");
    assert_eq!(in_one_part().minute(11).await.seen, 601, "with the job's own row");
    let Swept { seen, segments, .. } = by_segments(u64::MAX).minute(12).await;
    assert_eq!((seen, segments), (601, 60));
    assert_eq!(in_one_part().minute(13).await.seen, 601);
    assert_eq!(in_one_part().minute(14).await.seen, 0, "once an hour");
    assert_eq!(woken.count().0, 600);
}
