//! Measures the processor time of the whole process, and separately that of the engines. Both include
//! threads that have ended. On systems other than Linux, the figure is missing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    /// The time of the process without the engines' threads.
    pub(crate) program: Duration,
    pub(crate) engines: Duration,
}

impl std::ops::Sub for Cpu {
    type Output = Cpu;
    fn sub(self, earlier: Cpu) -> Cpu {
        Cpu {
            program: self.program.saturating_sub(earlier.program),
            engines: self.engines.saturating_sub(earlier.engines),
        }
    }
}

/// The threads of the engines' runtime.
#[derive(Debug, Clone, Default)]
pub(crate) struct EngineThreads(Arc<Mutex<ThreadTimes>>);

#[derive(Debug, Default)]
struct ThreadTimes {
    /// The processor time of the threads that have ended.
    ended: Duration,
    /// The directories of the running threads in `/proc`.
    running: BTreeSet<PathBuf>,
}

impl EngineThreads {
    /// Counts the threads of the runtime that `builder` builds.
    pub(crate) fn of(builder: &mut Builder) -> Self {
        let threads = Self::default();
        let starting = threads.clone();
        let stopping = threads.clone();
        builder
            .on_thread_start(move || {
                if let Some(thread) = this_thread() {
                    starting.lock().running.insert(thread);
                }
            })
            .on_thread_stop(move || {
                let mut threads = stopping.lock();
                if this_thread().is_some_and(|thread| threads.running.remove(&thread)) {
                    threads.ended += used(ClockId::ThreadCPUTime);
                }
            });
        threads
    }

    /// Returns the processor time that the process has used so far.
    pub(crate) fn spent(&self) -> Option<Cpu> {
        this_thread()?;
        // A thread leaves `running` before it ends, and needs the lock to leave.
        let threads = self.lock();
        let running: Option<Duration> = threads.running.iter().map(|thread| used_by(thread)).sum();
        let engines = threads.ended + running?;
        Some(Cpu { program: used(ClockId::ProcessCPUTime).saturating_sub(engines), engines })
    }

    fn lock(&self) -> MutexGuard<'_, ThreadTimes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the directory of this thread in `/proc`.
fn this_thread() -> Option<PathBuf> {
    fs::read_link("/proc/thread-self").ok().map(|thread| Path::new("/proc").join(thread))
}

fn used_by(thread: &Path) -> Option<Duration> {
    let times = fs::read_to_string(thread.join("schedstat")).ok()?;
    Some(Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?))
}

fn used(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread;

    use super::*;

    const WORK: Duration = Duration::from_millis(20);

    fn work() {
        let began = used(ClockId::ThreadCPUTime);
        while used(ClockId::ThreadCPUTime) - began < WORK {}
    }

    #[test]
    fn time_of_an_ended_thread_is_counted() {
        let threads = EngineThreads::default();
        let before = threads.spent().unwrap();
        thread::spawn(work).join().unwrap();
        let spent = threads.spent().unwrap() - before;
        assert!(spent.program >= WORK, "{spent:?}");
        assert_eq!(spent.engines, Duration::ZERO);
    }

    #[test]
    fn engines_time_is_separate_and_outlives_their_threads() {
        let mut builder = Builder::new_multi_thread();
        let threads = EngineThreads::of(builder.worker_threads(1));
        let runtime = builder.build().unwrap();
        runtime.block_on(async { tokio::spawn(async { work() }).await.unwrap() });
        runtime.block_on(async { tokio::task::spawn_blocking(work).await.unwrap() });
        drop(runtime);
        assert!(threads.lock().running.is_empty());
        let ended = threads.spent().unwrap();
        assert!((2 * WORK..8 * WORK).contains(&ended.engines), "{ended:?}");
        thread::spawn(work).join().unwrap();
        let later = threads.spent().unwrap() - ended;
        assert!(later.program >= WORK && later.engines.is_zero(), "{later:?}");
    }
}
