//! The floor: the same jobs in one process, a queue per key, no store.

use std::time::Duration;

use tokio::{sync::mpsc, task::JoinSet};
use webhook_serializer::time::Surroundings;

use super::Scenario;

/// Runs the scenario's jobs; how long it took.
pub(super) async fn run(scenario: &Scenario) -> Duration {
    let surroundings = Surroundings::system();
    let mut lanes = JoinSet::new();
    let began = surroundings.monotonic();
    let senders: Vec<mpsc::UnboundedSender<()>> = (0..scenario.entities)
        .map(|_| {
            let (sender, mut jobs) = mpsc::unbounded_channel();
            let (surroundings, task) = (surroundings.clone(), scenario.task);
            lanes.spawn(async move {
                while jobs.recv().await.is_some() {
                    if !task.is_zero() {
                        surroundings.sleep(task).await;
                    }
                }
            });
            sender
        })
        .collect();
    for number in 0..scenario.deliveries {
        // The receiver lives until its sender is dropped.
        let _ = senders[number % scenario.entities].send(());
    }
    drop(senders);
    while lanes.join_next().await.is_some() {}
    surroundings.monotonic() - began
}
