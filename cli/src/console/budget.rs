//! Limits what pages read that refresh by themselves: on average [`UNITS_PER_SECOND`], for all pages of a console
//! together. Pages that somebody opens are not limited.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::sync::{Mutex, MutexGuard};
use webhook_serializer::{aws::meter::Meter, time::Env};

use super::{ConsoleState, reading::UNITS_PER_SECOND};

/// The time after which a refresh asks again while another one reads.
const READING: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Budget {
    /// `None` if reading costs nothing.
    meter: Option<Arc<Meter>>,
    /// The monotonic time from which the next refresh may read. Locked while one reads.
    next: Mutex<Duration>,
}

/// The right to read. Dropping it charges the units that the meter has counted since it began.
pub(super) struct ReadingPermit<'a> {
    next: MutexGuard<'a, Duration>,
    meter: &'a Meter,
    began: Duration,
    before: f64,
}

impl Budget {
    pub(super) fn new(meter: Option<Arc<Meter>>) -> Self {
        Self { meter, next: Mutex::default() }
    }

    /// Lets a refresh read, or returns how long it has to wait. Without a meter, there is nothing to wait for, and the
    /// permit is `None`.
    fn begin(&self, now: Duration) -> Result<Option<ReadingPermit<'_>>, Duration> {
        let Some(meter) = &self.meter else { return Ok(None) };
        let next = self.next.try_lock().map_err(|_| READING)?;
        if now < *next {
            return Err(*next - now);
        }
        Ok(Some(ReadingPermit { next, meter, began: now, before: meter.reading().read_units }))
    }

    pub(super) async fn permit(&self, env: &Env) -> Option<ReadingPermit<'_>> {
        loop {
            match self.begin(env.monotonic()) {
                Ok(permit) => return permit,
                Err(wait) => env.sleep(wait).await,
            }
        }
    }
}

impl Drop for ReadingPermit<'_> {
    fn drop(&mut self) {
        let units = self.meter.reading().read_units - self.before;
        *self.next = self.began + Duration::from_secs_f64(units / UNITS_PER_SECOND as f64);
    }
}

/// Answers a refresh, or says with 204 and `Retry-After` when it may come again.
pub(super) async fn within_budget(State(shared): State<Arc<ConsoleState>>, request: Request, next: Next) -> Response {
    match shared.budget.begin(shared.watched.env.monotonic()) {
        Ok(_permit) => next.run(request).await,
        Err(wait) => {
            let seconds = wait.as_millis().div_ceil(1000);
            (StatusCode::NO_CONTENT, [(header::RETRY_AFTER, seconds.to_string())]).into_response()
        }
    }
}
