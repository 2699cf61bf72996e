//! Several processes of one function: its concurrency, as far as its reserved concurrency goes.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};

use super::function_process::{FunctionProcess, FunctionSettings, ProcessIds};
use super::runtime_api::InvokeError;

/// Up to so many processes of one function, each with one event at a time.
#[derive(Debug)]
pub struct FunctionPool {
    settings: Arc<FunctionSettings>,
    turns: Semaphore,
    idle: Mutex<Vec<FunctionProcess>>,
    process_ids: Arc<watch::Sender<BTreeSet<u32>>>,
}

impl FunctionPool {
    /// A pool without processes: they start as events come.
    pub fn new(settings: FunctionSettings, most: NonZeroUsize) -> Self {
        Self {
            settings: Arc::new(settings),
            turns: Semaphore::new(most.get()),
            idle: Mutex::default(),
            process_ids: Arc::default(),
        }
    }

    /// Starts the first process ahead of its first event.
    ///
    /// The errors are [`FunctionProcess::start`]'s: what is no function, or cannot work with its environment.
    pub async fn start(&self) -> Result<(), InvokeError> {
        let mut process = FunctionProcess::listed_in(self.settings.clone(), self.process_ids.clone());
        process.start().await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    /// The ids of the live processes.
    pub fn process_ids(&self) -> ProcessIds {
        self.process_ids.subscribe()
    }

    /// Has an idle process handle the event, or another one while there are fewer than the most; else waits for one.
    ///
    /// The errors are [`FunctionProcess::invoke`]'s. The process used last is used first, so that few stay warm.
    pub async fn invoke(&self, payload: Vec<u8>) -> Result<Vec<u8>, InvokeError> {
        let _turn = self.turns.acquire().await.expect("the semaphore is never closed");
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut process =
            idle.unwrap_or_else(|| FunctionProcess::listed_in(self.settings.clone(), self.process_ids.clone()));
        let outcome = process.invoke(payload).await;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        outcome
    }
}
