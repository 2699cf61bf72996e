//! Tests of when a breaker opens, admits a probe and closes. The tests advance the time themselves.

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn order(number: u64) -> EntityKey {
    EntityKey::parse(&format!("test/{number}")).unwrap()
}

#[derive(Default)]
struct Clocked {
    breaker: Breaker,
    now: Duration,
}

impl Clocked {
    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    fn admit(&mut self, number: u64) -> Admission<u64> {
        self.breaker.admit(&order(number), Asks::Schedule, self.now, LIMIT, 0.0)
    }

    fn admit_for_operator(&mut self, number: u64) -> Admission<u64> {
        self.breaker.admit(&order(number), Asks::Operator, self.now, LIMIT, 0.0)
    }

    fn start(&mut self, number: u64) -> u64 {
        match self.admit(number) {
            Admission::Start(start) => start,
            Admission::NotNow(wait) => panic!("order {number} is refused for {wait:?}"),
        }
    }

    fn is_admitted(&mut self, number: u64) -> bool {
        match self.admit(number) {
            Admission::Start(start) => {
                self.end(start, StartResult::Unknown);
                true
            }
            Admission::NotNow(_) => false,
        }
    }

    fn end(&mut self, start: u64, ending: StartResult) -> BreakerChange {
        self.breaker.ended(start, self.now, ending, 0.0)
    }

    fn run(&mut self, number: u64, seconds: f64, ending: StartResult) -> BreakerChange {
        let start = self.start(number);
        self.pass(seconds);
        self.end(start, ending)
    }

    fn opened() -> Self {
        let mut clocked = Self::default();
        let changes: Vec<_> = (1..=3).map(|number| clocked.run(number, 0.0, StartResult::Unwell)).collect();
        assert_eq!(changes, [BreakerChange::None, BreakerChange::None, BreakerChange::Opened(SHORTEST)]);
        clocked
    }
}

/// Promise: three failing orders in a row open a source's breaker, which counts no attempts; one delivery probes.
#[test]
fn three_failing_orders_open_the_breaker() {
    let mut clocked = Clocked::opened();
    assert_eq!(clocked.admit(4), Admission::NotNow(SHORTEST));
    clocked.pass(4.9);
    assert!(!clocked.is_admitted(4));
}

#[test]
fn single_poison_order_opens_no_breaker() {
    let mut clocked = Clocked::default();
    for _ in 0..20 {
        assert_eq!(clocked.run(1, 10.0, StartResult::Unwell), BreakerChange::None);
    }
    assert!(clocked.is_admitted(2));
}

#[test]
fn success_resets_the_breakers_failure_count() {
    let mut clocked = Clocked::default();
    for number in [1, 2] {
        clocked.run(number, 0.0, StartResult::Unwell);
    }
    clocked.run(9, 0.0, StartResult::Success);
    for number in [3, 4] {
        assert_eq!(clocked.run(number, 0.0, StartResult::Unwell), BreakerChange::None);
    }
    assert!(clocked.is_admitted(5));
}

#[test]
fn failures_answered_by_handler_open_no_breaker() {
    let mut clocked = Clocked::default();
    for number in 1..=20 {
        assert_eq!(clocked.run(number, 0.1, StartResult::Answered), BreakerChange::None);
    }
    assert!(clocked.is_admitted(21));
}

#[test]
fn breaker_admits_one_probe_after_the_wait() {
    let mut clocked = Clocked::opened();
    clocked.pass(5.0);
    let probe = clocked.start(4);
    assert!(!clocked.is_admitted(5), "one at a time");
    // The probe's result is unknown, so the next start may be the probe.
    clocked.end(probe, StartResult::Unknown);
    assert!(clocked.is_admitted(5));
}

#[test]
fn order_that_failed_last_waits_longest_for_probe() {
    let mut clocked = Clocked::opened();
    clocked.pass(5.0);
    assert_eq!(clocked.admit(3), Admission::NotNow(Duration::from_secs(5)));
    assert!(clocked.is_admitted(1));
    clocked.pass(5.0);
    assert!(clocked.is_admitted(3), "no other order came");
}

#[test]
fn successful_probe_closes_the_breaker() {
    let mut clocked = Clocked::opened();
    clocked.pass(5.0);
    assert_eq!(clocked.run(4, 0.1, StartResult::Success), BreakerChange::Closed);
    clocked.start(5);
    clocked.start(6);
}

#[test]
fn success_of_earlier_start_closes_open_breaker() {
    let mut clocked = Clocked::default();
    let slow = clocked.start(9);
    for number in 1..=3 {
        clocked.run(number, 0.0, StartResult::Unwell);
    }
    assert!(!clocked.is_admitted(4));
    assert_eq!(clocked.end(slow, StartResult::Success), BreakerChange::Closed);
    assert!(clocked.is_admitted(4));
}

#[test]
fn probe_answered_with_failure_closes_the_breaker() {
    let mut clocked = Clocked::opened();
    clocked.pass(5.0);
    assert_eq!(clocked.run(4, 0.1, StartResult::Answered), BreakerChange::Closed);
    assert!(clocked.is_admitted(5));
}

#[test]
fn failed_probe_doubles_the_wait() {
    let mut clocked = Clocked::opened();
    let mut waits = Vec::new();
    for probe in 4..=9 {
        clocked.pass(LONGEST.as_secs_f64());
        match clocked.run(probe, 0.1, StartResult::Unwell) {
            BreakerChange::Opened(wait) => waits.push(wait.as_secs()),
            change => panic!("{change:?}"),
        }
    }
    assert_eq!(waits, [10, 20, 40, 60, 60, 60]);
}

#[test]
fn operators_early_probe_closes_breaker_and_never_prolongs_it() {
    let mut clocked = Clocked::opened();
    let probe = |clocked: &mut Clocked, number| match clocked.admit_for_operator(number) {
        Admission::Start(start) => Some(start),
        Admission::NotNow(_) => None,
    };
    assert_eq!(probe(&mut clocked, 3), None, "a second after each failure");
    clocked.pass(1.0);
    let first = probe(&mut clocked, 3).expect("even of the order that failed last");
    assert_eq!(probe(&mut clocked, 4), None, "one at a time");
    assert_eq!(clocked.end(first, StartResult::Unwell), BreakerChange::None);
    assert_eq!(probe(&mut clocked, 4), None, "a second after each failure");
    clocked.pass(4.0);
    assert!(clocked.is_admitted(4), "five seconds after it opened, as without the early probe");

    let mut clocked = Clocked::opened();
    clocked.pass(1.0);
    assert!(!clocked.is_admitted(4));
    let back = probe(&mut clocked, 4).expect("nothing else probes");
    assert_eq!(clocked.end(back, StartResult::Success), BreakerChange::Closed);
    assert!(clocked.is_admitted(5));
}

#[test]
fn breaker_wait_equals_duration_of_failed_starts() {
    let mut clocked = Clocked::default();
    let starts: Vec<_> = (1..=3).map(|number| clocked.start(number)).collect();
    clocked.pass(10.0);
    let changes: Vec<_> = starts.into_iter().map(|start| clocked.end(start, StartResult::Unwell)).collect();
    assert_eq!(changes.last(), Some(&BreakerChange::Opened(Duration::from_secs(10))));
}

#[test]
fn wait_of_refused_start_spreads_with_time_since_opening() {
    let mut clocked = Clocked::opened();
    let mut longest = Vec::new();
    for probe in 4..=7 {
        let waits = [0.0, 0.5, 1.0].map(|fraction| {
            match clocked.breaker.admit(&order(99), Asks::Schedule, clocked.now, LIMIT, fraction) {
                Admission::NotNow(wait) => wait.as_secs_f64(),
                Admission::Start(_) => panic!("it is open"),
            }
        });
        let until = clocked.breaker.open.as_ref().unwrap().until - clocked.now;
        assert!(waits[0] == until.as_secs_f64() && waits.is_sorted(), "{waits:?}");
        longest.push(waits[2] - waits[0]);
        clocked.now += until;
        clocked.run(probe, 0.0, StartResult::Unwell);
    }
    // Half of the time that the breaker stays open, or the time since it opened.
    assert_eq!(longest, [2.5, 5.0, 15.0, 35.0]);
    clocked.pass(600.0);
    clocked.run(9, 0.0, StartResult::Unwell);
    let refused = clocked.breaker.admit(&order(99), Asks::Schedule, clocked.now, LIMIT, 1.0);
    assert_eq!(refused, Admission::NotNow(LONGEST + LONGEST * OPENINGS));
}

#[test]
fn breaker_refuses_starts_while_three_orders_hang() {
    let mut clocked = Clocked::default();
    let hanging: Vec<_> = (1..=3).map(|number| clocked.start(number)).collect();
    assert!(clocked.is_admitted(4), "they have only just begun");
    clocked.pass(1.1);
    assert_eq!(clocked.admit(4), Admission::NotNow(PATIENCE));
    // The first success shows that the other starts do not hang.
    clocked.end(hanging[0], StartResult::Success);
    assert!(clocked.is_admitted(4));
}

#[test]
fn single_hanging_order_delays_no_other_order() {
    let mut clocked = Clocked::default();
    clocked.start(1);
    for number in 2..=50 {
        clocked.pass(0.1);
        assert!(clocked.is_admitted(number));
    }
}

#[test]
fn starts_of_slow_successful_handler_are_admitted() {
    let mut clocked = Clocked::default();
    clocked.run(0, 3.0, StartResult::Success);
    let mut running = std::collections::VecDeque::new();
    // Each start takes 3 s and one begins every 300 ms, so ten run at a time.
    for number in 1..=200 {
        running.push_back((clocked.start(number), clocked.now + Duration::from_secs(3)));
        clocked.pass(0.3);
        while let Some((start, _)) = running.pop_front_if(|(_, due)| *due <= clocked.now) {
            assert_eq!(clocked.end(start, StartResult::Success), BreakerChange::None);
        }
    }
}

#[test]
fn timeout_after_freeze_does_not_open_breaker() {
    let mut clocked = Clocked::default();
    for number in 1..=5 {
        assert_eq!(clocked.run(number, 60.0, StartResult::Unwell), BreakerChange::None);
    }
    let frozen: Vec<_> = (1..=5).map(|number| clocked.start(number)).collect();
    clocked.pass(60.0);
    assert!(clocked.is_admitted(6), "they were frozen too");
    drop(frozen);
}

fn ticket(admission: Admission<Ticket>) -> Option<Ticket> {
    match admission {
        Admission::Start(ticket) => Some(ticket),
        Admission::NotNow(_) => None,
    }
}

#[test]
fn each_source_has_a_separate_breaker() {
    let breakers = Breakers::default();
    let [hung, well] = ["hung", "well"].map(|name| DestinationId::of("handler", name));
    for number in 1..=3 {
        let admission = breakers.admit(&hung, &order(number), Asks::Schedule, Duration::ZERO, LIMIT, 0.0);
        ticket(admission).expect("it is closed").ended(Duration::ZERO, StartResult::Unwell, 0.0);
    }
    assert!(ticket(breakers.admit(&hung, &order(4), Asks::Schedule, Duration::ZERO, LIMIT, 0.0)).is_none());
    assert!(ticket(breakers.admit(&well, &order(4), Asks::Schedule, Duration::ZERO, LIMIT, 0.0)).is_some());
}

#[test]
fn dropped_probe_lets_another_probe_start() {
    let breakers = Breakers::default();
    let source = DestinationId::of("handler", "hung");
    let admit = |number, now| ticket(breakers.admit(&source, &order(number), Asks::Schedule, now, LIMIT, 0.0));
    for number in 1..=3 {
        admit(number, Duration::ZERO).unwrap().ended(Duration::ZERO, StartResult::Unwell, 0.0);
    }
    let probe = admit(4, SHORTEST).unwrap();
    assert!(admit(5, SHORTEST).is_none());
    drop(probe);
    assert!(admit(5, SHORTEST).is_some());
}

#[test]
fn hanging_starts_among_successes_open_no_breaker() {
    let mut clocked = Clocked::default();
    for number in 1..=5 {
        clocked.start(number);
    }
    for number in 10..=60 {
        clocked.pass(0.1);
        assert_eq!(clocked.run(number, 0.05, StartResult::Success), BreakerChange::None);
    }
}

#[test]
fn order_that_failed_and_hangs_is_counted_once_by_breaker() {
    let mut clocked = Clocked::default();
    clocked.run(1, 0.0, StartResult::Unwell);
    for number in [1, 2] {
        clocked.start(number);
    }
    clocked.pass(1.1);
    assert!(clocked.is_admitted(3));
}
