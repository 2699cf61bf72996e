//! Workers on Lambda Managed Instances: what they cost, and how many runs they have
//! room for.

use super::{ASSUMPTIONS, Load, price};

/// Instances that run day and night.
#[derive(Debug, Clone, Copy)]
pub struct Instances {
    /// How many.
    pub count: f64,
    /// What EC2 asks for an hour of one on demand, in dollars.
    pub hour: f64,
}

/// An hour of an `m7g.large` on demand, in dollars
/// (<https://aws.amazon.com/ec2/pricing/on-demand/>).
pub const INSTANCE_HOUR: f64 = 0.0816;

/// How many worker functions run at once at most: `WorkerConcurrency`, where nobody
/// said otherwise.
pub const MOST_WORKERS: f64 = 50.0;

/// How many orders a worker's run drains side by side: `WorkerBatchSize`, likewise.
const BATCH: f64 = 10.0;

/// How many runs at once an event source begins with, and how many it adds in a second
/// while more waits: 300 in a minute
/// (<https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html>).
const PACE: Pace = Pace { first: 5.0, more: 5.0 };

struct Pace {
    first: f64,
    more: f64,
}

/// Whether instances have room for a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// For each order in a run of its own.
    Enough,
    /// As far as orders share runs.
    Shared,
    /// Not even where ten orders share each run.
    TooLittle,
}

impl Instances {
    /// Hours of a month, of all of them.
    pub(super) fn hours(&self) -> f64 {
        self.count * 24.0 * ASSUMPTIONS.days
    }

    /// How many worker runs they have room for: one for each of their two processors,
    /// which is what the smallest memory takes.
    pub fn runs(&self) -> f64 {
        (self.count * 2.0).floor().max(1.0)
    }

    /// Whether they have room for what `load` has under way on average.
    pub fn room(&self, load: &Load) -> Room {
        let wanted = load.runs_at_once();
        if wanted <= self.runs() {
            Room::Enough
        } else if wanted / BATCH <= self.runs() {
            Room::Shared
        } else {
            Room::TooLittle
        }
    }

    /// What they cost in a month, in dollars, Lambda's fee included.
    pub fn dollars(&self) -> f64 {
        self.hours() * self.hour * (1.0 + price::MANAGEMENT_FEE)
    }

    /// How many worker runs, under way at every moment, cost as much where Lambda
    /// counts their time instead.
    pub fn runs_for_the_same(&self) -> f64 {
        let seconds = 60.0 * 60.0 * 24.0 * ASSUMPTIONS.days;
        self.dollars() / (seconds * ASSUMPTIONS.memory_gb * price::GB_SECOND)
    }
}

impl Load {
    /// How long it takes, in seconds, until the last is drained of so many `orders` that
    /// come at once after a quiet time, each with its burst, where `most` runs can be
    /// under way: one turn of full batches after the other, by handlers that wait rather
    /// than compute. No start of a function is in it.
    pub fn rush(&self, orders: f64, most: f64) -> f64 {
        let turn = self.worker_ms() / 1000.0;
        let (mut left, mut at) = (orders, 0.0);
        while left > 0.0 {
            left -= (PACE.first + PACE.more * at).floor().min(most) * BATCH;
            at += turn;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::load, *};

    const THREE: Instances = Instances { count: 3.0, hour: 0.10 };

    #[test]
    fn they_are_paid_by_the_hour_with_a_fee_in_place_of_the_workers_time() {
        let (usual, managed) = (load().serializer(), Load { instances: Some(THREE), ..load() }.serializer());
        // 3 * 720 hours at ten cents, and 15 %.
        assert!((managed.dollars_for("  its instances") - 216.0).abs() < 1e-9);
        assert!((managed.dollars_for("  their management") - 32.4).abs() < 1e-9);
        assert_eq!(managed.dollars_for("worker"), usual.dollars_for("worker"), "requests cost the same");
        let time = usual.items.iter().skip_while(|item| item.item != "worker").nth(1).unwrap().dollars;
        assert!((managed.dollars - usual.dollars - (248.4 - time)).abs() < 1e-9, "nothing else changes");
        // They stand there whether anything arrives or not.
        let [first, ..] = Load { instances: Some(THREE), ..load() }.bills();
        assert!(first.fixed > 248.4);
        // As many runs as that, day and night, cost the same by time.
        let busy = THREE.runs_for_the_same();
        let per_day = load().per_day * busy / load().runs_at_once();
        let time = Load { per_day, ..load() }.serializer();
        let time = time.items.iter().skip_while(|item| item.item != "worker").nth(1).unwrap().dollars;
        assert!((time - 248.4).abs() < 1e-6, "{time}");
    }

    #[test]
    fn they_have_room_for_a_run_on_each_processor() {
        assert_eq!((THREE.runs(), Instances { count: 0.4, ..THREE }.runs()), (6.0, 1.0));
        let room = |runs: f64| {
            let per_day = load().per_day * runs / load().runs_at_once();
            THREE.room(&Load { per_day, ..load() })
        };
        assert_eq!([5.9, 6.1, 59.9, 60.1].map(room), [Room::Enough, Room::Shared, Room::Shared, Room::TooLittle]);
    }

    #[test]
    fn a_rush_is_drained_in_turns_of_as_many_runs_as_the_event_source_gives() {
        let template = include_str!("../../../template.yaml");
        for (name, value) in [("WorkerConcurrency", MOST_WORKERS), ("WorkerBatchSize", BATCH)] {
            assert!(template.contains(&format!("\n  {name}:\n    Type: Number\n    Default: {value}\n")), "{name}");
        }
        // 10 ms and three times 56: 178 ms a turn, of 5, 5, 6, 7, 8, 9 and 10 runs at first.
        let turns = |orders, most| (load().rush(orders, most) / 0.178).round();
        let after = [50.0, 100.0, 160.0, 220.0, 300.0, 390.0, 490.0];
        assert_eq!([0, 1, 2, 3].map(|n| turns(after[n], MOST_WORKERS)), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(turns(161.0, MOST_WORKERS), 4.0);
        // Two turns of five, and fifteen of six.
        assert_eq!((turns(1000.0, THREE.runs()), turns(10.0, 1.0)), (17.0, 1.0));
        assert!(turns(1000.0, MOST_WORKERS) < 17.0);
    }
}
