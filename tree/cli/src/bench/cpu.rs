//! Processor time, with the emulators' threads told apart by their name. Linux
//! only; elsewhere nothing is reported.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// What the names of all emulators' threads begin with.
const ENGINE: &str = "engine";

/// A name for the threads of one run's emulators: those of the run before may
/// not have ended yet.
pub(super) fn engine_name() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    format!("{ENGINE}-{}", RUNS.fetch_add(1, Relaxed))
}

/// Processor time spent so far, by whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    /// By all living threads but the emulators'.
    pub(super) ours: Duration,
    /// By the emulators' threads.
    pub(super) emulators: Duration,
}

impl std::ops::Sub for Spent {
    type Output = Spent;
    fn sub(self, earlier: Spent) -> Spent {
        Spent {
            ours: self.ours.saturating_sub(earlier.ours),
            emulators: self.emulators.saturating_sub(earlier.emulators),
        }
    }
}

/// The processor time of this process so far, in which `engine` names the
/// emulators' threads.
pub(super) fn spent(engine: &str) -> Option<Spent> {
    let mut spent = Spent { ours: Duration::ZERO, emulators: Duration::ZERO };
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let thread = thread.ok()?.path();
        // A thread may end while we look.
        let Ok(name) = fs::read_to_string(thread.join("comm")) else { continue };
        let Ok(times) = fs::read_to_string(thread.join("schedstat")) else { continue };
        let time = Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?);
        match name.trim() {
            name if name == engine => spent.emulators += time,
            name if name.starts_with(ENGINE) => {}
            _ => spent.ours += time,
        }
    }
    Some(spent)
}
