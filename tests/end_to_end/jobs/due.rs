//! Which ticks are due: missed, late or requested ones, and those of new, held or disabled jobs.

use tests::prelude::*;
use webhook_serializer::jobs::{Missed, TickError, roster, switch::Switch::Off};

use super::night::{FUNCTION, MINUTE, Night, minute, one};

/// Promise: `missed`: once, each (the newest hundred), or skip.
#[tokio::test(start_paused = true)]
async fn missed_ticks_run_as_configured() {
    let night = Night::new();
    let job = |name, missed| night.runs.job(name, "every 10 minutes", Duration::ZERO).missed(missed);
    let jobs = Jobs::new().add(job("once", Missed::Once)).add(job("each", Missed::Each)).add(job("skip", Missed::Skip));
    let ticker = night.ticker(jobs);
    night.minutes(&ticker, [0, 45, 46, 50]).await;
    assert_eq!(night.runs.ticks("once"), [0, 40, 50]);
    assert_eq!(night.runs.ticks("each"), [0, 10, 20, 30, 40, 50]);
    assert_eq!(night.runs.ticks("skip"), [0, 50]);
}

#[tokio::test(start_paused = true)]
async fn at_most_a_hundred_missed_ticks_run() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("each", "every minute", Duration::ZERO).missed(Missed::Each)));
    night.minutes(&ticker, [0, 1000]).await;
    let ticks = night.runs.ticks("each");
    assert_eq!((ticks.len(), ticks[1], ticks[100]), (101, 901, 1000));
}

#[tokio::test(start_paused = true)]
async fn new_job_skips_ticks_due_before_its_definition() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("new", "every 10 minutes", Duration::ZERO)));
    night.minutes(&ticker, [5]).await;
    assert_eq!(night.runs.ticks("new"), [0_u64; 0]);
    night.minutes(&ticker, [10, 13]).await;
    assert_eq!(night.runs.ticks("new"), [10]);
    let ticker = night.ticker(one(night.runs.job("newer", "every 10 minutes", Duration::ZERO)));
    night.minutes(&ticker, [15, 25]).await;
    assert_eq!(night.runs.ticks("newer"), [20]);
}

#[tokio::test(start_paused = true)]
async fn new_schedule_has_no_missed_ticks() {
    for is_held in [false, true] {
        let night = Night::new();
        night.minutes(&night.ticker(one(night.runs.job("job", "every day", Duration::ZERO))), [0]).await;
        if is_held {
            night.held("job", MINUTE).await;
        }
        let new = night.ticker(one(night.runs.job("job", "every 10 minutes", Duration::ZERO).missed(Missed::Each)));
        night.minutes(&new, [55, 60, 61]).await;
        assert_eq!(night.runs.ticks("job"), [0, 60], "held: {is_held}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_tick_runs_unless_later_tick_ran() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("job", "every minute", Duration::ZERO)));
    night.until(7).await;
    night.invoke(&ticker, 3).await;
    night.invoke(&ticker, 5).await;
    night.invoke(&ticker, 4).await;
    assert_eq!(night.runs.ticks("job"), [3, 5]);
}

/// If the invocation were recorded, the job would not run until that time.
#[tokio::test(start_paused = true)]
async fn scheduler_invocation_dated_far_ahead_is_refused() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("job", "every minute", Duration::ZERO)));
    night.minutes(&ticker, [0]).await;
    for number in [16, 60, 60 * 24 * 365] {
        let refused = ticker.tick(minute(number), night.clock.monotonic() + FUNCTION).await;
        assert!(matches!(refused, Err(TickError::FarAhead { .. })), "{refused:?}");
    }
    assert_eq!(night.state("job").await.last_tick, Some(minute(0)));
    night.minutes(&ticker, 1..3).await;
    assert_eq!(night.runs.ticks("job"), [0, 1, 2]);
    night.invoke(&ticker, 2 + 15).await;
    assert_eq!(night.runs.ticks("job"), [0, 1, 2, 17]);
}

#[tokio::test(start_paused = true)]
async fn leased_job_runs_after_lease_is_released() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("job", "every minute", Duration::ZERO)));
    night.minutes(&ticker, [0]).await;
    let lease = night.held("job", 5 * MINUTE).await;
    night.minutes(&ticker, [1, 2]).await;
    assert_eq!(night.runs.ticks("job"), [0]);
    night.store().run(&Release { lease: &lease }, MINUTE).await.expect("memory answers");
    night.minutes(&ticker, [3]).await;
    assert_eq!(night.runs.ticks("job"), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn disabled_job_runs_only_on_request() {
    let night = Night::new();
    let ticker = night.ticker_by(one(night.runs.job("job", "every minute", Duration::ZERO)), &Off, night.env());
    night.minutes(&ticker, 0..3).await;
    assert_eq!(night.runs.ticks("job"), [0_u64; 0]);
    assert!(roster::request(&night.store(), "job").await.expect("memory answers").is_some());
    assert!(roster::request(&night.store(), "other").await.expect("memory answers").is_none());
    night.minutes(&ticker, 3..6).await;
    assert_eq!(night.runs.ticks("job"), [3]);
}

#[tokio::test(start_paused = true)]
async fn crashed_run_of_disabled_job_is_not_repeated() {
    let night = Night::new();
    let job = |takes| one(night.runs.job("job", "every minute", Duration::from_secs(takes)));
    night.killed(&night.ticker(job(30)), 0, Duration::from_secs(2)).await;
    night.minutes(&night.ticker_by(job(0), &Off, night.env()), 1..60).await;
    assert!(night.state("job").await.entity.held.is_none(), "it has no holder");
    night.minutes(&night.ticker(job(0)), 60..62).await;
    assert_eq!(night.runs.ticks("job"), [0, 60, 61], "nothing of the time when it was off");
}

#[tokio::test(start_paused = true)]
async fn job_run_requested_twice_happens_once() {
    let night = Night::new();
    let ticker = night.ticker(one(night.runs.job("job", "every 10 minutes", Duration::ZERO)));
    night.minutes(&ticker, 0..3).await;
    for _ in 0..2 {
        roster::request(&night.store(), "job").await.expect("memory answers");
    }
    night.minutes(&ticker, 3..12).await;
    assert_eq!(night.runs.ticks("job"), [0, 3, 10]);
}
