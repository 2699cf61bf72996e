//! The part of EventBridge: one tick a minute for the scheduler function.

use std::time::Duration;

use anyhow::Result;
use scheduler::{ScheduledEvent, Scheduler};
use shared::time::Surroundings;
use tokio::sync::watch;

use super::{FUNCTION_TIMEOUT, invoker::Invoker, stopped};

/// What is ticked.
#[derive(Debug)]
pub(super) enum Ticked {
    /// The scheduler function's handler, in this process.
    Here(Scheduler),
    /// The function `scheduler`, which somebody else runs.
    Invoked(Invoker),
}

impl Ticked {
    async fn tick(&self, event: ScheduledEvent) -> Result<()> {
        match self {
            Ticked::Here(scheduler) => {
                scheduler.tick(&event).await?;
            }
            Ticked::Invoked(invoker) => {
                invoker.invoke("scheduler", &event, FUNCTION_TIMEOUT).await?;
            }
        }
        Ok(())
    }
}

/// Ticks until told to stop.
pub(super) async fn run(ticked: Ticked, surroundings: Surroundings, stopping: watch::Receiver<bool>) -> Result<()> {
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
        if let Err(error) = ticked.tick(event).await {
            tracing::warn!(%error, "the scheduler failed");
        }
    }
}
