//! Limits how long a drain occupies its worker while other orders wait.
//!
//! A worker takes no other batch until its slowest drain ends. The time that a batch's wake-ups spent
//! in the queue shows whether other orders wait. If they do, a drain ends its slice sooner, waits
//! less, and pauses after its slice.

use std::time::Duration;

use super::plan::SHORT_WAIT;

/// The longest time that a wake-up spends in the queue while a worker is free or starts.
const PROMPT: Duration = Duration::from_millis(300);

/// The longest wait during which a drain keeps its place in the batch. Longer waits are handed over,
/// although SQS's delays are whole seconds.
const QUIET_WAIT: Duration = Duration::from_millis(750);

/// The same while other orders wait.
const CROWDED_WAIT: Duration = Duration::from_millis(100);

/// The pause after a slice, as a multiple of the time beyond [`PROMPT`] that a wake-up spent in the
/// queue. The more orders wait, the longer a busy order pauses, so that the queue stays short.
const PAUSES: u32 = 4;

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    /// The longest wait for a retry or a rate limit during which the drain keeps the lease.
    pub(super) patience: Duration,
    /// The time after which the drain hands over.
    pub(super) slice: Duration,
    /// The delay of the wake-up after a slice.
    pub(super) pause: Duration,
}

impl Pace {
    /// Returns the pace of a drain whose wake-up spent the time `lag` in the queue. `slice` is the
    /// length of a slice while no other order waits.
    pub(super) fn after(lag: Duration, slice: Duration) -> Self {
        match lag.checked_sub(PROMPT) {
            None => Self { patience: QUIET_WAIT, slice, pause: Duration::ZERO },
            Some(beyond) => Self {
                patience: CROWDED_WAIT,
                slice: slice.min(SHORT_WAIT),
                pause: (beyond * PAUSES).min(LONGEST_PAUSE),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_order_pauses_only_while_wake_ups_wait() {
        let slice = Duration::from_secs(2);
        let pace = |millis| Pace::after(Duration::from_millis(millis), slice);
        assert_eq!([0, 299].map(pace), [Pace { patience: QUIET_WAIT, slice, pause: Duration::ZERO }; 2]);
        for (lag, pause) in [(300, 0), (800, 2_000), (1_300, 4_000), (60_000, 5_000)] {
            let crowded = Pace { patience: CROWDED_WAIT, slice: SHORT_WAIT, pause: Duration::from_millis(pause) };
            assert_eq!(pace(lag), crowded, "{lag}");
        }
    }
}
