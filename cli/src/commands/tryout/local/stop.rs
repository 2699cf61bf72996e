//! Ends `serializer local` after Ctrl-C or SIGTERM, once the running handlers are done.

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use serializer::{
    local::{FUNCTION_TIMEOUT, LocalRun, function_process::ProcessIds},
    output,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

const AT_ONCE: Duration = Duration::from_secs(1);

/// Listeners for Ctrl-C and SIGTERM. The command creates the listeners before it prints that it serves, because callers
/// may stop the command as soon as they read that line.
pub(super) struct Stops {
    interrupted: Signal,
    terminated: Signal,
}

impl Stops {
    pub(super) fn listen() -> Result<Self> {
        Ok(Self { interrupted: signal(SignalKind::interrupt())?, terminated: signal(SignalKind::terminate())? })
    }
}

/// Waits for Ctrl-C or SIGTERM, then for the running handlers. Fails at once if the data folder's files are removed. A
/// second Ctrl-C stops the handlers at once.
pub(super) async fn stop_when_asked(
    stops: Stops,
    deployment: LocalRun,
    processes: Option<ProcessIds>,
) -> Result<ExitCode> {
    let Stops { mut interrupted, mut terminated } = stops;
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
        lost = deployment.engines.data_removed() => bail!("{lost}"),
    }
    deployment.finish();
    output::complain(stopping(&deployment.at_work().orders()));
    let stopped = tokio::select! {
        ended = deployment.stop() => Some(ended?),
        _ = interrupted.recv() => None,
    };
    if stopped.is_some() {
        output::complain("stopped");
        return Ok(ExitCode::SUCCESS);
    }
    // Dropping the deployment has killed its processes.
    if let Some(mut processes) = processes {
        let _ = tokio::time::timeout(AT_ONCE, processes.wait_for(|ids| ids.is_empty())).await;
    }
    output::complain(
        "stopped without waiting for the handlers; with --data, the next start takes over their deliveries",
    );
    Ok(ExitCode::from(130))
}

fn stopping(at_work: &[String]) -> String {
    const SHOWN: usize = 3;
    if at_work.is_empty() {
        return "stopping: no handler runs".to_owned();
    }
    let more = if at_work.len() > SHOWN { format!(" and {} more", at_work.len() - SHOWN) } else { String::new() };
    let shown: Vec<&str> = at_work.iter().take(SHOWN).map(String::as_str).collect();
    format!(
        "stopping: waits at most {} s for the handlers of {}{more}; Ctrl-C again ends at once",
        FUNCTION_TIMEOUT.as_secs(),
        shown.join(", ")
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn stop_message_names_orders_with_running_handlers() {
        let orders = ["a/1", "a/2", "a/3", "a/4", "a/5"].map(str::to_owned);
        let stopping = super::stopping(&orders);
        assert!(
            stopping.contains("at most 60 s for the handlers of a/1, a/2, a/3 and 2 more; Ctrl-C again"),
            "{stopping}"
        );
        assert_eq!(super::stopping(&[]), "stopping: no handler runs");
    }
}
