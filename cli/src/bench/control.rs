//! The floor: the same jobs in one process, a queue per key, no store.

use std::time::Duration;

use tokio::{sync::mpsc, task::JoinSet};
use webhook_serializer::time::Env;

use super::Scenario;

/// Runs the scenario's jobs; how long it took.
pub(super) async fn run(scenario: &Scenario) -> Duration {
    let env = Env::system();
    let mut lanes = JoinSet::new();
    let began = env.monotonic();
    let senders: Vec<mpsc::UnboundedSender<()>> = (0..scenario.entities)
        .map(|_| {
            let (sender, mut jobs) = mpsc::unbounded_channel();
            let (env, task) = (env.clone(), scenario.task);
            lanes.spawn(async move {
                while jobs.recv().await.is_some() {
                    if !task.is_zero() {
                        env.sleep(task).await;
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
    env.monotonic() - began
}
