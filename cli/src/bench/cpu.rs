//! Processor time, with the emulators' threads told apart by their name. Linux
//! only; elsewhere nothing is reported.

use std::{fs, time::Duration};

/// The name of the emulators' threads.
pub(super) const ENGINE_THREAD: &str = "engine";

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

/// The processor time of this process so far.
pub(super) fn spent() -> Option<Spent> {
    let mut spent = Spent { ours: Duration::ZERO, emulators: Duration::ZERO };
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let thread = thread.ok()?.path();
        // A thread may end while we look.
        let Ok(name) = fs::read_to_string(thread.join("comm")) else { continue };
        let Ok(times) = fs::read_to_string(thread.join("schedstat")) else { continue };
        let time = Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?);
        match name.trim() == ENGINE_THREAD {
            true => spent.emulators += time,
            false => spent.ours += time,
        }
    }
    Some(spent)
}
