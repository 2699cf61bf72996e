//! The tables' file is lost, and a copy of it comes in its place, while the queue,
//! functions, senders and the journal live on.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serializer::{local::function_pool::FunctionPool, view::audit::Sent};
use webhook_serializer::{
    operator::Restored,
    protocol::{entity::EntityKey, maintain::NextRestore},
    sources::Sources,
    time::Timestamp,
};

use super::{EnginesProcess, Stage, gate::Gate, operator_of, post, report::source_of, signal};
use crate::webhooks::{request, signed, update};

/// When the tables are copied, and when they are lost, since the run began.
pub(super) const COPIED_AFTER: Duration = Duration::from_secs(4);
pub(super) const LOST_AFTER: Duration = Duration::from_secs(8);

/// Longer than an append takes, or one that is frozen on the way.
const GIVEN_UP: Duration = Duration::from_millis(3_500);

/// Longer than it takes until each sender was answered twice.
const PATIENCE: Duration = Duration::from_secs(30);

/// What becomes of tables that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Their copy is restored.
    Restored,
    /// Their copy is used as it is: the negative control.
    UsedAsCopied,
}

/// What a restore came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PutBack {
    /// How many orders go on above all that was given out before.
    pub raised: usize,
    /// How many deliveries waited in the copy, and were set aside.
    pub set_aside: u64,
    /// How many of these were put back.
    pub deliveries: u64,
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

/// Whether a process has a thread that neither is stopped nor has ended. Where the system
/// does not say, one that was never frozen here.
fn runs(process: u32, was_frozen: bool) -> bool {
    if !Path::new("/proc/self/task").exists() {
        return !was_frozen;
    }
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // Behind its name, which may be anything.
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['T', 'Z', 'X']))
    })
}

/// The workers that are at work, or may be.
fn running(stage: &Stage, frozen: &BTreeSet<u32>) -> Vec<u32> {
    let workers = stage.workers.borrow();
    workers.iter().copied().filter(|process| runs(*process, frozen.contains(process))).collect()
}

/// Freezes the workers until something waits for each of so many orders that came when
/// none was at work. One that a handler froze is thawed in its time, and then frozen
/// again; `frozen` are those that are to be thawed.
async fn held_up(stage: &Stage, orders: usize, frozen: &mut BTreeSet<u32>) -> Result<()> {
    let begun = stage.now();
    let mut since = None;
    loop {
        let running = running(stage, frozen);
        for process in &running {
            signal("-STOP", *process).await;
        }
        since = if running.is_empty() { since.or(Some(stage.now())) } else { None };
        frozen.extend(running);
        let mut answered: BTreeMap<EntityKey, usize> = BTreeMap::new();
        for sent in stage.sent.lock().expect("no one panics while holding this").iter() {
            if since.is_some_and(|since| sent.answered.is_some_and(|at| at >= since)) {
                *answered.entry(sent.entity.clone()).or_default() += 1;
            }
        }
        // The first may have been appended before, the second was sent when that was answered.
        if answered.values().filter(|answers| **answers > 1).count() == orders {
            return Ok(());
        }
        ensure!(stage.now() < begun + PATIENCE, "senders are not answered");
        stage.env.sleep(Duration::from_millis(20)).await;
    }
}

/// Copies the tables as they are while something waits for each of so many orders: a
/// restore has to set it aside.
pub(super) async fn copied(stage: &Stage, engines: &mut EnginesProcess, orders: usize) -> Result<Copied> {
    let mut frozen = BTreeSet::new();
    let begun = loop {
        held_up(stage, orders, &mut frozen).await?;
        let begun = stage.now();
        engines.kill().await?;
        // One that was thawed at the last moment may have handled what waited.
        if running(stage, &frozen).is_empty() {
            break begun;
        }
        engines.restart().await?;
    };
    let folder = engines.data.with_extension("copy");
    std::fs::create_dir_all(&folder)?;
    copy_files(&engines.data, &folder)?;
    let as_of = stage.env.now();
    engines.restart().await?;
    for process in frozen {
        signal("-CONT", process).await;
    }
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
) -> Result<(Vec<Sent>, Option<PutBack>)> {
    gate.shut(true);
    let frozen: Vec<u32> = stage.workers.borrow().iter().copied().collect();
    for process in &frozen {
        signal("-STOP", *process).await;
    }
    stage.env.sleep(GIVEN_UP).await;
    engines.kill().await?;
    for file in files(&engines.data)? {
        std::fs::remove_file(file)?;
    }
    copy_files(&copied.folder, &engines.data)?;
    engines.restart().await?;
    let since: Vec<Sent> = {
        let sent = stage.sent.lock().expect("no one panics while holding this");
        sent.iter().filter(|sent| sent.answered.is_some_and(|at| at >= copied.begun)).cloned().collect()
    };
    let ids = since.iter().map(|sent| sent.delivery_id.clone());
    stage.again.lock().expect("no one panics while holding this").extend(ids);
    let put_back = match loss {
        Loss::Restored => Some(restored(stage, engines, copied.as_of).await?),
        Loss::UsedAsCopied => None,
    };
    gate.shut(false);
    for process in frozen {
        signal("-CONT", process).await;
    }
    Ok((since, put_back))
}

async fn restored(stage: &Stage, engines: &EnginesProcess, as_of: Timestamp) -> Result<PutBack> {
    let parts = engines.parts(&stage.env);
    let operator = operator_of(&parts, engines.config().retention);
    let NextRestore::GoOn(restoring) = operator.begin_restore(as_of).await? else {
        anyhow::bail!("it was begun before")
    };
    let mut orders = Vec::new();
    let mut put_back = PutBack::default();
    let whole = operator.restore_all(&restoring, false, |key, restored| {
        orders.push(key.to_owned());
        if let Ok(Restored::Raised(told)) = restored {
            put_back.raised += 1;
            put_back.set_aside += told.set_aside;
        }
        true
    });
    ensure!(whole.await?, "the restore comes to no end");
    for order in orders {
        for parked in operator.parked(&order.parse()?).await? {
            let id = parked.delivery().delivery_id().to_string();
            stage.again.lock().expect("no one panics while holding this").insert(id);
            operator.redrive(&parked, None).await?;
            put_back.deliveries += 1;
        }
    }
    Ok(put_back)
}

/// Their senders send these again, each until it is answered.
pub(super) async fn sent_again(stage: Arc<Stage>, ingests: Arc<FunctionPool>, sources: Arc<Sources>, all: Vec<Sent>) {
    for Sent { entity, delivery_id: id, .. } in all {
        let source = source_of(entity.as_str());
        let name = id.split('-').next().unwrap_or_default();
        loop {
            let webhook = signed(&sources, source, &id, update(name), stage.env.now());
            if post(&ingests, &request(&webhook)).await.is_some_and(|status| (200..300).contains(&status)) {
                break;
            }
            stage.env.sleep(Duration::from_millis(50)).await;
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Returns once it does, or does not: a signal is delivered in its own time.
    async fn until_it_runs(process: u32, is_running: bool) {
        while runs(process, true) != is_running {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn stopped_or_ended_process_is_not_running() {
        let sleeps = tokio::process::Command::new("sleep").arg("600").kill_on_drop(true).spawn();
        let mut sleeps = sleeps.expect("it starts");
        let process = sleeps.id().expect("it lives");
        until_it_runs(process, true).await;
        signal("-STOP", process).await;
        until_it_runs(process, false).await;
        signal("-CONT", process).await;
        until_it_runs(process, true).await;
        sleeps.kill().await.expect("it ends");
        assert!(!runs(process, true));
    }
}
