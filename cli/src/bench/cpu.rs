//! Processor time, with the emulators' threads told apart by their name. Linux
//! only; elsewhere nothing is reported.

use std::{fs, time::Duration};

/// The name of the emulators' threads.
pub(super) const ENGINE_THREAD: &str = "engine";

/// The processor time of all living threads of this process but the
/// emulators'.
pub(super) fn ours() -> Option<Duration> {
    let mut total = Duration::ZERO;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let thread = thread.ok()?.path();
        // A thread may end while we look.
        let Ok(name) = fs::read_to_string(thread.join("comm")) else { continue };
        let Ok(times) = fs::read_to_string(thread.join("schedstat")) else { continue };
        if name.trim() != ENGINE_THREAD {
            total += Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?);
        }
    }
    Some(total)
}
