//! Runs the engines on separate threads, so that their processor time is measured separately.

use std::{ops::Deref, time::Duration};

use anyhow::Result;
use serializer::local::Engines;
use tokio::runtime::{Builder, Runtime};

use crate::cpu::{Cpu, EngineThreads};

#[derive(Debug)]
pub(crate) struct SeparateEngines {
    engines: Engines,
    threads: EngineThreads,
    runtime: SeparateRuntime,
}

/// A runtime that may be dropped within another runtime. `None` once its threads must end.
#[derive(Debug)]
struct SeparateRuntime(Option<Runtime>);

impl SeparateEngines {
    pub(crate) async fn start() -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let threads = EngineThreads::of(builder.worker_threads(2).thread_name("engine").enable_all());
        let runtime = builder.build()?;
        let starting = runtime.spawn(Engines::start(None));
        let runtime = SeparateRuntime(Some(runtime));
        Ok(Self { engines: starting.await??, threads, runtime })
    }

    /// Returns the processor time that the process has used so far.
    pub(crate) fn spent(&self) -> Option<Cpu> {
        self.threads.spent()
    }

    /// Waits until the engines' threads have ended, at most five seconds. Otherwise, the next run would count their
    /// processor time as the program's.
    pub(crate) async fn stop(mut self) {
        let runtime = self.runtime.0.take().expect("the threads run");
        drop(self);
        let stopped = tokio::task::spawn_blocking(|| runtime.shutdown_timeout(Duration::from_secs(5)));
        stopped.await.expect("a runtime stops without a panic");
    }
}

impl Drop for SeparateRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Deref for SeparateEngines {
    type Target = Engines;

    fn deref(&self) -> &Engines {
        &self.engines
    }
}
