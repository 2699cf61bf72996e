//! Simulates an hour in which the rate of webhooks rises tenfold within five minutes. The
//! simulation goes second by second, under the limits of Lambda, SQS and DynamoDB.

use std::collections::VecDeque;

use crate::scaling::{BURST, limit, load, workers};

const RAMP: usize = 5 * 60;
const HOUR: usize = 60 * 60;
const DAY: usize = 24 * HOUR;
const TENFOLD: f64 = 10.0;

/// A deployment and its usual rate of webhooks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeakStack {
    /// The rate before the peak, in webhooks a second.
    pub(crate) usual: f64,
    /// The template's parameter `WorkerConcurrency`.
    pub(crate) workers: f64,
    /// The account's quota of concurrent executions of Lambda functions.
    pub(crate) account: f64,
    /// The write units a second that each table accepts from the start.
    pub(crate) warm: f64,
}

/// The result of the simulated hour.
#[derive(Debug, Default)]
pub(crate) struct PeakOutcome {
    pub(crate) sent: f64,
    pub(crate) refused: f64,
    /// The webhooks that a table did not accept. They were answered 503, or deferred.
    pub(crate) not_stored: f64,
    /// The longest time from the arrival of an order's burst until a worker drains it, in seconds.
    pub(crate) longest_wait: usize,
    /// The largest number of deliveries that waited at the same time.
    pub(crate) most_waiting: f64,
    /// The seconds from the hour's end until no backlog is left. `None` if a backlog is left after
    /// a day.
    pub(crate) caught_up: Option<usize>,
}

/// The capacity of an on-demand table: the greater of its warm throughput and double its
/// peak, at most the table's quota. A peak counts once it is half an hour old.
#[derive(Debug)]
struct OnDemand {
    capacity: f64,
    recent: VecDeque<f64>,
}

impl OnDemand {
    fn new(warm: f64, usual: f64) -> Self {
        Self { capacity: warm.max(2.0 * usual).min(limit::TABLE_WRITES), recent: VecDeque::new() }
    }

    fn consume(&mut self, units: f64) {
        self.recent.push_back(units);
        if self.recent.len() > limit::DOUBLING_SECONDS {
            let peak = self.recent.pop_front().unwrap_or_default();
            self.capacity = self.capacity.max(2.0 * peak).min(limit::TABLE_WRITES);
        }
    }
}

/// Returns the fraction of `demand` that `capacity` can serve.
fn share(capacity: f64, demand: f64) -> f64 {
    if demand > capacity { capacity / demand } else { 1.0 }
}

fn rate(usual: f64, second: usize) -> f64 {
    match second {
        ..RAMP => usual * (1.0 + (TENFOLD - 1.0) * second as f64 / RAMP as f64),
        RAMP..HOUR => usual * TENFOLD,
        _ => usual,
    }
}

/// Simulates the hour, and then the usual rate until no delivery waits.
pub(crate) fn simulate(stack: PeakStack) -> PeakOutcome {
    let load = load(stack.usual);
    let row = load.row_units() as f64;
    let drain = load.drain_units();
    let burst_seconds = load.worker_ms() / 1000.0;
    let orders_a_second = limit::BATCH / burst_seconds;
    let mut entities = OnDemand::new(stack.warm, stack.usual * (1.0 + drain / BURST));
    let mut inbox = OnDemand::new(stack.warm, stack.usual * row);
    let mut environments = stack.usual / limit::REQUESTS_EACH;
    let mut pollers = limit::FIRST_POLLERS.max(workers(stack.usual, limit::BATCH));
    let mut queue: VecDeque<(usize, f64)> = VecDeque::new();
    let mut waiting = 0.0;
    let mut outcome = PeakOutcome::default();
    for second in 0..HOUR + DAY {
        let sent = rate(stack.usual, second);
        let workers = pollers.min(stack.workers).min(stack.account);
        // A burst is drained at the earliest in the second after its arrival.
        let wanted = f64::min(waiting, workers * orders_a_second);
        // In the worst case each worker has one order. Ingest gets the remaining concurrency.
        let busy = workers.min(wanted * burst_seconds);
        let room = (stack.account - busy).max(0.0);
        environments = (environments + limit::ENVIRONMENTS_A_SECOND).min(room);
        let answered = sent.min(environments * limit::REQUESTS_EACH);

        let entity_share = share(entities.capacity, answered + wanted * drain);
        let stored = answered * entity_share.min(share(inbox.capacity, answered * row));
        let drained = wanted * entity_share;
        entities.consume(answered * entity_share + drained * drain);
        inbox.consume(stored * row);

        let mut taken = drained;
        while let Some((arrived, orders)) = queue.front_mut().filter(|_| taken > 0.0) {
            outcome.longest_wait = outcome.longest_wait.max(second - *arrived);
            let now = taken.min(*orders);
            taken -= now;
            *orders -= now;
            if *orders <= 1e-9 {
                queue.pop_front();
            }
        }
        queue.push_back((second, stored / BURST));
        waiting += stored / BURST - drained;
        let is_behind = waiting > stored / BURST + 1e-6;
        if is_behind {
            pollers = (pollers + limit::POLLERS_A_SECOND).min(limit::POLLERS);
        }
        outcome.most_waiting = outcome.most_waiting.max(waiting * BURST);
        if second < HOUR {
            outcome.sent += sent;
            outcome.refused += sent - answered;
            outcome.not_stored += answered - stored;
        } else if !is_behind {
            outcome.caught_up = Some(second - HOUR);
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMPLE: PeakStack = PeakStack { usual: 1_000.0, workers: 1_000.0, account: 10_000.0, warm: 40_000.0 };

    #[test]
    fn ample_limits_refuse_no_request() {
        let outcome = simulate(AMPLE);
        assert_eq!((outcome.refused, outcome.not_stored), (0.0, 0.0));
        assert!(outcome.longest_wait < 10, "{outcome:?}");
        assert_eq!(outcome.caught_up, Some(0));
    }

    #[test]
    fn account_limit_of_ten_refuses_half_of_the_requests() {
        let outcome = simulate(PeakStack { usual: 10.0, workers: 5.0, account: 10.0, warm: 4_000.0 });
        // Five busy workers leave a concurrency of five for ingest, which then answers 50 of 100
        // requests a second.
        let share = outcome.refused / outcome.sent;
        assert!((0.45..0.50).contains(&share), "{share}");
        assert_eq!(outcome.not_stored, 0.0);
    }

    #[test]
    fn cold_table_refuses_over_half_of_the_burst() {
        let outcome = simulate(PeakStack { warm: 4_000.0, ..AMPLE });
        let share = outcome.not_stored / outcome.sent;
        assert!((0.5..0.9).contains(&share), "{share}");
    }

    #[test]
    fn few_workers_build_a_backlog() {
        let outcome = simulate(PeakStack { usual: 100.0, workers: 5.0, ..AMPLE });
        assert_eq!((outcome.refused, outcome.not_stored), (0.0, 0.0));
        // In the 55 minutes after the ramp, 806 of 1,000 deliveries a second begin to wait.
        assert!((2.6e6..2.8e6).contains(&outcome.most_waiting), "{outcome:?}");
        assert!(outcome.longest_wait > HOUR, "{outcome:?}");
        assert!(outcome.caught_up.is_some_and(|seconds| seconds > 6 * HOUR), "{outcome:?}");
    }
}
