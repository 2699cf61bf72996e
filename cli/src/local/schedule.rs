//! The part of EventBridge: one tick a minute for the scheduler function.

use std::time::Duration;

use anyhow::Result;
use scheduler::{ScheduledEvent, Scheduler};
use shared::{store::Store, sweep::Sweeper, time::Surroundings, wake::Waker};
use tokio::sync::watch;

use super::stopped;

/// Ticks until told to stop.
pub(super) async fn run(
    store: Store,
    waker: Waker,
    retention: Duration,
    surroundings: Surroundings,
    stopping: watch::Receiver<bool>,
) -> Result<()> {
    let scheduler = Scheduler::new(Sweeper::new(store, waker, retention), surroundings.clone());
    let stopped = stopped(stopping);
    tokio::pin!(stopped);
    loop {
        let to_the_minute = 60_000 - surroundings.now().as_millis() % 60_000;
        tokio::select! {
            biased;
            () = &mut stopped => return Ok(()),
            () = surroundings.sleep(Duration::from_millis(to_the_minute)) => {}
        }
        let event = ScheduledEvent { time: surroundings.now().to_string() };
        if let Err(error) = scheduler.tick(&event).await {
            tracing::warn!(%error, "the sweep ended early");
        }
    }
}
