//! How long a holder may rely on its lease.

use std::time::Duration;

use crate::{state::LONGEST_LEASE, time::Timestamp};

/// The most by which a lease's end may be too late although the clock was right. The store's time is known to within a
/// second and the duration of a request.
const AHEAD: Duration = Duration::from_secs(2);

/// What a holder knows about the end of its lease.
///
/// All durations except the length are times of the holder's monotonic clock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    length: Duration,
    /// The earliest expiry of the lease. The length counts from the moment when the last write that extended the lease
    /// was sent.
    expires: Duration,
    due: Duration,
    /// The time beyond which no renewal extends the lease.
    end: Duration,
}

impl Term {
    /// Creates the term of a lease that a request sent at `sent` granted, and that lasts until `end` at the latest.
    pub fn new(length: Duration, sent: Duration, end: Duration) -> Self {
        let mut term = Self { length: length.min(LONGEST_LEASE), expires: end, due: end, end };
        term.extend(sent);
        term
    }

    /// Notes that a write sent at `sent` extended the lease by its length.
    pub fn extend(&mut self, sent: Duration) {
        self.expires = (sent + self.length).min(self.end);
        // A renewal that cannot extend the lease is not due.
        self.due = if self.expires < self.end { sent + self.length / 3 } else { self.end };
    }

    /// Compares the lease's end in the row, which a write sent at `sent` has set, with `latest`: a time that the store's
    /// clock had not reached at `sent`.
    ///
    /// Returns true if the end comes from a wrong clock. The holder must then replace it before any work begins.
    #[must_use]
    pub fn is_wrong(&mut self, written: Timestamp, sent: Duration, latest: Timestamp) -> bool {
        let asked = self.expires.saturating_sub(sent);
        let lasts = written.since(latest);
        let is_wrong = lasts < asked * 2 / 3 || lasts > asked + AHEAD;
        if !is_wrong {
            self.expires = sent + lasts.min(asked);
        }
        is_wrong
    }

    pub fn length(&self) -> Duration {
        self.length
    }

    /// Returns the length of a lease that a renewal sent at `sent` asks for.
    pub fn renewed_from(&self, sent: Duration) -> Duration {
        self.length.min(self.end.saturating_sub(sent))
    }

    /// Returns the time until the next renewal is due.
    pub fn due_in(&self, now: Duration) -> Duration {
        self.due.saturating_sub(now)
    }

    /// Returns how long the lease surely lasts.
    pub fn left(&self, now: Duration) -> Duration {
        self.expires.saturating_sub(now)
    }
}
