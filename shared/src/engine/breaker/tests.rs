use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn order(number: u64) -> EntityKey {
    EntityKey::parse(&format!("test/{number}")).unwrap()
}

/// A breaker and its clock.
#[derive(Default)]
struct Scene {
    breaker: Breaker,
    now: Duration,
}

impl Scene {
    fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    fn admit(&mut self, number: u64) -> Admission {
        self.breaker.admit(&order(number), self.now, LIMIT, 0.0)
    }

    fn start(&mut self, number: u64) -> u64 {
        match self.admit(number) {
            Admission::Start(start) => start,
            Admission::NotNow { wait, .. } => panic!("order {number} is put off for {wait:?}"),
        }
    }

    fn is_admitted(&mut self, number: u64) -> bool {
        match self.admit(number) {
            Admission::Start(start) => {
                self.end(start, Ending::Unknown);
                true
            }
            Admission::NotNow { .. } => false,
        }
    }

    fn end(&mut self, start: u64, ending: Ending) -> Change {
        self.breaker.ended(start, self.now, ending, 0.0)
    }

    /// Starts an order, which takes so long and ends so.
    fn run(&mut self, number: u64, seconds: f64, ending: Ending) -> Change {
        let start = self.start(number);
        self.pass(seconds);
        self.end(start, ending)
    }

    /// Three orders were refused, in no time.
    fn opened() -> Self {
        let mut scene = Self::default();
        let changes: Vec<_> = (1..=3).map(|number| scene.run(number, 0.0, Ending::Unwell)).collect();
        assert_eq!(changes, [Change::None, Change::None, Change::Opened(SHORTEST)]);
        scene
    }
}

#[test]
fn three_orders_that_fail_in_a_row_open_it() {
    let mut scene = Scene::opened();
    assert_eq!(scene.admit(4), Admission::NotNow { wait: SHORTEST, longest: SHORTEST * OPENINGS });
    scene.pass(4.9);
    assert!(!scene.is_admitted(4));
}

#[test]
fn a_poison_order_alone_opens_nothing() {
    let mut scene = Scene::default();
    for _ in 0..20 {
        assert_eq!(scene.run(1, 10.0, Ending::Unwell), Change::None);
    }
    assert!(scene.is_admitted(2));
}

#[test]
fn a_success_between_begins_anew() {
    let mut scene = Scene::default();
    for number in [1, 2] {
        scene.run(number, 0.0, Ending::Unwell);
    }
    scene.run(9, 0.0, Ending::Success);
    for number in [3, 4] {
        assert_eq!(scene.run(number, 0.0, Ending::Unwell), Change::None);
    }
    assert!(scene.is_admitted(5));
}

#[test]
fn what_answers_if_with_a_failure_opens_nothing() {
    let mut scene = Scene::default();
    for number in 1..=20 {
        assert_eq!(scene.run(number, 0.1, Ending::Answered), Change::None);
    }
    assert!(scene.is_admitted(21));
}

#[test]
fn one_probe_at_a_time_is_made_once_it_has_been_open_long_enough() {
    let mut scene = Scene::opened();
    scene.pass(5.0);
    let probe = scene.start(4);
    assert!(!scene.is_admitted(5), "one at a time");
    // Nobody knows how it ended: another may try.
    scene.end(probe, Ending::Unknown);
    assert!(scene.is_admitted(5));
}

#[test]
fn the_order_that_failed_last_is_no_probe_while_others_may_come() {
    let mut scene = Scene::opened();
    scene.pass(5.0);
    assert!(matches!(scene.admit(3), Admission::NotNow { wait, .. } if wait == Duration::from_secs(5)));
    assert!(scene.is_admitted(1));
    scene.pass(5.0);
    assert!(scene.is_admitted(3), "nobody else came");
}

#[test]
fn a_probe_that_succeeds_closes_it() {
    let mut scene = Scene::opened();
    scene.pass(5.0);
    assert_eq!(scene.run(4, 0.1, Ending::Success), Change::Closed);
    scene.start(5);
    scene.start(6);
}

#[test]
fn any_start_that_succeeds_closes_it() {
    let mut scene = Scene::default();
    let slow = scene.start(9);
    for number in 1..=3 {
        scene.run(number, 0.0, Ending::Unwell);
    }
    assert!(!scene.is_admitted(4));
    assert_eq!(scene.end(slow, Ending::Success), Change::Closed);
    assert!(scene.is_admitted(4));
}

#[test]
fn a_probe_that_is_answered_closes_it_whatever_the_answer() {
    let mut scene = Scene::opened();
    scene.pass(5.0);
    assert_eq!(scene.run(4, 0.1, Ending::Answered), Change::Closed);
    assert!(scene.is_admitted(5));
}

#[test]
fn each_probe_that_fails_doubles_the_wait_up_to_a_minute() {
    let mut scene = Scene::opened();
    let mut waits = Vec::new();
    for probe in 4..=9 {
        scene.pass(LONGEST.as_secs_f64());
        match scene.run(probe, 0.1, Ending::Unwell) {
            Change::Opened(wait) => waits.push(wait.as_secs()),
            change => panic!("{change:?}"),
        }
    }
    assert_eq!(waits, [10, 20, 40, 60, 60, 60]);
}

#[test]
fn it_stays_open_for_no_less_than_a_probe_takes() {
    let mut scene = Scene::default();
    let starts: Vec<_> = (1..=3).map(|number| scene.start(number)).collect();
    scene.pass(10.0);
    let changes: Vec<_> = starts.into_iter().map(|start| scene.end(start, Ending::Unwell)).collect();
    assert_eq!(changes.last(), Some(&Change::Opened(Duration::from_secs(10))));
}

#[test]
fn those_put_off_come_back_spread() {
    let mut scene = Scene::opened();
    let waits = [0.0, 0.5, 0.999].map(|fraction| match scene.breaker.admit(&order(4), scene.now, LIMIT, fraction) {
        Admission::NotNow { wait, .. } => wait.as_secs_f64(),
        Admission::Start(_) => panic!("it is open"),
    });
    assert!(waits[0] >= 5.0 && waits[2] > 7.0 && waits[2] < 7.5, "{waits:?}");
    assert!(waits.is_sorted());
}

#[test]
fn starts_that_seem_to_hang_keep_others_from_starting() {
    let mut scene = Scene::default();
    let hanging: Vec<_> = (1..=3).map(|number| scene.start(number)).collect();
    assert!(scene.is_admitted(4), "they have only begun");
    scene.pass(1.1);
    assert_eq!(scene.admit(4), Admission::NotNow { wait: PATIENCE, longest: PATIENCE });
    // The first that answers shows that they did not.
    scene.end(hanging[0], Ending::Success);
    assert!(scene.is_admitted(4));
}

#[test]
fn one_order_that_hangs_keeps_no_other_from_starting() {
    let mut scene = Scene::default();
    scene.start(1);
    for number in 2..=50 {
        scene.pass(0.1);
        assert!(scene.is_admitted(number));
    }
}

/// Nothing is known of how long they take until the first has ended.
#[test]
fn a_handler_that_is_slow_and_well_is_never_held_up_once_one_has_succeeded() {
    let mut scene = Scene::default();
    scene.run(0, 3.0, Ending::Success);
    let mut running = std::collections::VecDeque::new();
    // One more every 300 ms, each of which takes 3 s: ten side by side.
    for number in 1..=200 {
        running.push_back((scene.start(number), scene.now + Duration::from_secs(3)));
        scene.pass(0.3);
        while let Some((start, _)) = running.pop_front_if(|(_, due)| *due <= scene.now) {
            assert_eq!(scene.end(start, Ending::Success), Change::None);
        }
    }
}

#[test]
fn a_time_out_across_a_freeze_does_not_count() {
    let mut scene = Scene::default();
    for number in 1..=5 {
        assert_eq!(scene.run(number, 60.0, Ending::Unwell), Change::None);
    }
    let frozen: Vec<_> = (1..=5).map(|number| scene.start(number)).collect();
    scene.pass(60.0);
    assert!(scene.is_admitted(6), "those are not hanging, they were frozen too");
    drop(frozen);
}

#[test]
fn sources_have_breakers_of_their_own() {
    let breakers = Breakers::default();
    let [hung, well] = ["hung", "well"].map(|name| SourceName::parse(name).unwrap());
    for number in 1..=3 {
        let ticket = breakers.admit(&hung, &order(number), Duration::ZERO, LIMIT, 0.0).unwrap();
        ticket.ended(Duration::ZERO, Ending::Unwell, 0.0);
    }
    assert!(breakers.admit(&hung, &order(4), Duration::ZERO, LIMIT, 0.0).is_err());
    assert!(breakers.admit(&well, &order(4), Duration::ZERO, LIMIT, 0.0).is_ok());
}

#[test]
fn a_start_that_is_dropped_is_no_probe_any_more() {
    let breakers = Breakers::default();
    let source = SourceName::parse("hung").unwrap();
    let admit = |number, now| breakers.admit(&source, &order(number), now, LIMIT, 0.0);
    for number in 1..=3 {
        admit(number, Duration::ZERO).unwrap().ended(Duration::ZERO, Ending::Unwell, 0.0);
    }
    let probe = admit(4, SHORTEST).unwrap();
    assert!(admit(5, SHORTEST).is_err());
    drop(probe);
    assert!(admit(5, SHORTEST).is_ok());
}

#[test]
fn those_that_hang_among_others_that_succeed_hold_nobody_back() {
    let mut scene = Scene::default();
    for number in 1..=5 {
        scene.start(number);
    }
    for number in 10..=60 {
        scene.pass(0.1);
        assert_eq!(scene.run(number, 0.05, Ending::Success), Change::None);
    }
}

#[test]
fn an_order_that_failed_and_hangs_again_counts_once() {
    let mut scene = Scene::default();
    scene.run(1, 0.0, Ending::Unwell);
    for number in [1, 2] {
        scene.start(number);
    }
    scene.pass(1.1);
    assert!(scene.is_admitted(3));
}
