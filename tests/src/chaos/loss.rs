//! The tables' file is lost, and a copy of it comes in its place, while the queue,
//! functions, senders and the journal live on.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serializer::local::function_pool::FunctionPool;
use webhook_serializer::{protocol::maintain::NextRestore, sources::Sources, time::Timestamp};

use super::{EnginesProcess, Stage, gate::Gate, operator_of, post, signal};
use crate::webhooks::{request, signed, update};

/// When the tables are copied, and when they are lost, since the run began.
pub(super) const COPIED_AFTER: Duration = Duration::from_secs(4);
pub(super) const LOST_AFTER: Duration = Duration::from_secs(8);

/// Longer than an append takes, or one that is frozen on the way.
const GIVEN_UP: Duration = Duration::from_millis(3_500);

/// What becomes of tables that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Their copy is restored.
    Restored,
    /// Their copy is used as it is: the negative control.
    UsedAsCopied,
}

/// A copy of the tables.
pub(super) struct Copied {
    folder: PathBuf,
    as_of: Timestamp,
    /// Before it was made: what was answered since may be missing in it.
    begun: Duration,
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("tables.sqlite") {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    for file in files(from)? {
        std::fs::copy(&file, to.join(file.file_name().context("a name")?))?;
    }
    Ok(())
}

/// Copies the tables as they are.
pub(super) async fn copied(stage: &Stage, engines: &mut EnginesProcess) -> Result<Copied> {
    let begun = stage.now();
    engines.kill().await?;
    let folder = engines.data.with_extension("copy");
    std::fs::create_dir_all(&folder)?;
    copy_files(&engines.data, &folder)?;
    let as_of = stage.surroundings.now();
    engines.restart().await?;
    Ok(Copied { folder, as_of, begun })
}

/// Puts the copy in the tables' place, restores it, and puts back what was set
/// aside, while nobody reaches them; workers are frozen and live through it. What
/// is to be sent again: all that was answered since the copy.
pub(super) async fn lost(
    stage: &Stage,
    engines: &mut EnginesProcess,
    gate: &Gate,
    copied: &Copied,
    loss: Loss,
) -> Result<Vec<String>> {
    gate.shut(true);
    let frozen: Vec<u32> = stage.workers.borrow().iter().copied().collect();
    for process in &frozen {
        signal("-STOP", *process).await;
    }
    stage.surroundings.sleep(GIVEN_UP).await;
    engines.kill().await?;
    for file in files(&engines.data)? {
        std::fs::remove_file(file)?;
    }
    copy_files(&copied.folder, &engines.data)?;
    engines.restart().await?;
    let since: Vec<String> = {
        let sent = stage.sent.lock().expect("no one panics while holding this");
        let since = sent.iter().filter(|sent| sent.answered.is_some_and(|at| at >= copied.begun));
        since.map(|sent| sent.delivery_id.clone()).collect()
    };
    stage.again.lock().expect("no one panics while holding this").extend(since.iter().cloned());
    if loss == Loss::Restored {
        restored(stage, engines, copied.as_of).await?;
    }
    gate.shut(false);
    for process in frozen {
        signal("-CONT", process).await;
    }
    Ok(since)
}

async fn restored(stage: &Stage, engines: &EnginesProcess, as_of: Timestamp) -> Result<()> {
    let parts = engines.parts(&stage.surroundings);
    let operator = operator_of(&parts, engines.config().retention);
    let NextRestore::GoOn(restoring) = operator.begin_restore(as_of).await? else {
        anyhow::bail!("it was begun before")
    };
    let mut orders = Vec::new();
    let whole = operator.restore_all(&restoring, false, |key, _| {
        orders.push(key.to_owned());
        true
    });
    ensure!(whole.await?, "the restore comes to no end");
    for order in orders {
        for parked in operator.parked(&order.parse()?).await? {
            let id = parked.delivery().delivery_id().to_string();
            stage.again.lock().expect("no one panics while holding this").insert(id);
            operator.redrive(&parked, None).await?;
        }
    }
    Ok(())
}

/// Their senders send these again, each until it is answered.
pub(super) async fn sent_again(stage: Arc<Stage>, ingests: Arc<FunctionPool>, sources: Arc<Sources>, ids: Vec<String>) {
    for id in ids {
        let name = id.split('-').next().unwrap_or_default();
        loop {
            let webhook = signed(&sources, "test", &id, update(name), stage.surroundings.now());
            if post(&ingests, &request(&webhook)).await.is_some_and(|status| (200..300).contains(&status)) {
                break;
            }
            stage.surroundings.sleep(Duration::from_millis(50)).await;
        }
    }
}
