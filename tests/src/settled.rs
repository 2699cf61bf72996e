//! A count of what was settled, to wait on.

use tokio::sync::watch;
use webhook_serializer::telemetry::{Event, Observer};

/// Counts what was settled, however.
#[derive(Debug, Clone, Default)]
pub struct Settled(watch::Sender<usize>);

impl Settled {
    /// Waits until so many were.
    pub async fn until(&self, count: usize) {
        // The sender lives in `self`, so the channel is open.
        let _ = self.0.subscribe().wait_for(|settled| *settled >= count).await;
    }
}

impl Observer for Settled {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Settled { .. }) {
            self.0.send_modify(|settled| *settled += 1);
        }
    }
}
