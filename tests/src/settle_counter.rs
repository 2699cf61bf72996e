//! Counts settlements, so that tests can wait for them.

use tokio::sync::watch;
use webhook_serializer::telemetry::{Event, Observer};

#[derive(Debug, Clone, Default)]
pub struct SettleCounter(watch::Sender<usize>);

impl SettleCounter {
    pub async fn until(&self, count: usize) {
        // `self` owns the sender, so the channel is open.
        let _ = self.0.subscribe().wait_for(|settled| *settled >= count).await;
    }
}

impl Observer for SettleCounter {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Settled { .. }) {
            self.0.send_modify(|settled| *settled += 1);
        }
    }
}
