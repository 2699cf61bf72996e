//! Measures the processor time of the engines, and separately that of the rest of the program. The
//! engines' threads are found by their names. On systems other than Linux, the figure is missing.

use std::{fs, time::Duration};

/// The prefix in the names of all engines' threads.
pub(crate) const ENGINE: &str = "engine";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
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

/// Returns the processor time that living threads have used so far. ThreadTimes with the name
/// `engines` are this run's engines. Engine threads of earlier runs, which may still be
/// ending, are not counted.
pub(crate) fn spent(engines: &str) -> Option<Cpu> {
    let mut spent = Cpu { program: Duration::ZERO, engines: Duration::ZERO };
    for thread in fs::read_dir("/proc/self/task").ok()? {
        let thread = thread.ok()?.path();
        // A thread may end between these two reads.
        let Ok(name) = fs::read_to_string(thread.join("comm")) else { continue };
        let Ok(times) = fs::read_to_string(thread.join("schedstat")) else { continue };
        let time = Duration::from_nanos(times.split_whitespace().next()?.parse().ok()?);
        match name.trim() {
            name if name == engines => spent.engines += time,
            name if name.starts_with(ENGINE) => {}
            _ => spent.program += time,
        }
    }
    Some(spent)
}
