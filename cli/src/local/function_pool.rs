//! Several processes of one function, up to its reserved concurrency.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, watch};

use super::function_process::{FunctionProcess, FunctionSettings, ProcessIds};
use super::runtime_api::InvokeError;

#[derive(Debug)]
pub struct FunctionPool {
    settings: Arc<FunctionSettings>,
    turns: Semaphore,
    idle: Mutex<Vec<FunctionProcess>>,
    process_ids: Arc<watch::Sender<BTreeSet<u32>>>,
}

impl FunctionPool {
    pub fn new(settings: FunctionSettings, most: NonZeroUsize) -> Self {
        Self {
            settings: Arc::new(settings),
            turns: Semaphore::new(most.get()),
            idle: Mutex::default(),
            process_ids: Arc::default(),
        }
    }

    pub async fn start(&self) -> Result<(), InvokeError> {
        let mut process = FunctionProcess::listed_in(self.settings.clone(), self.process_ids.clone());
        process.start().await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    pub fn process_ids(&self) -> ProcessIds {
        self.process_ids.subscribe()
    }

    /// Invokes an idle process, starts a new one if the limit allows, or waits for one. The process used last is used
    /// first, so that few processes stay warm.
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
