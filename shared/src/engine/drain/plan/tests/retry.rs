//! Tests of the step after a start that did not settle its delivery.

use super::*;

pub(super) fn crashed(times: u8) -> Retries {
    (0..times).fold(Retries::default(), |retries, _| retries.crashed())
}

#[test]
fn delivery_with_too_many_crashes_is_not_started() {
    let tried = |crashes, options: &str| {
        let (last_error, retries) = (Some("it broke".into()), crashed(crashes));
        let state = EntityState { attempts: 9, last_error, retries, ..row(7, 8) };
        drain(state, 1).next(&MOMENT, found(options).as_ref())
    };
    let twice = "retry = { attempts = 2 }\n";
    assert_eq!([tried(7, ""), tried(1, twice)], [STARTED, STARTED]);
    assert_eq!([tried(8, ""), tried(2, twice)], [aside(9, "it broke"), aside(9, "it broke")]);
    assert_eq!(tried(8, "retry = { attempts = 99 }\n"), aside(9, "it broke"));
    let blocked = Step::GiveUp(9, crashed(8), "it broke".into());
    assert_eq!(tried(8, "on_failure = \"block\"\n"), blocked);
    let gone = drain(EntityState { attempts: 1, ..row(7, 8) }, 1).next(&MOMENT, Some(&Found::Gone));
    assert_eq!(gone, aside(1, ""));
}

#[test]
fn handler_outcome_applies_commits_parks_or_retries_delivery() {
    let drain = drain(EntityState { attempts: 1, ..row(7, 8) }, 1);
    let source = source("retry = { attempts = 3, first = \"4s\", longest = \"9s\" }\n");
    let follows = |outcome| drain.answered(outcome, Group::ONE, &source, with(1.0));
    assert_eq!(follows(Outcome::Done), Step::Apply);
    assert_eq!(follows(Outcome::Commit(Vec::new())), Step::Commit(Vec::new()));
    assert_eq!(follows(Outcome::Reject("no".into())), aside(2, "no"));
    let wait = 4 * SECOND;
    assert_eq!(follows(Outcome::retry("later")), retry(FailureClass::Failed, 2, wait, "later"));
    assert_eq!(follows(Outcome::unanswered("later")), retry(FailureClass::Unanswered, 2, wait, "later"));
    assert_eq!(follows(Outcome::unavailable("later")), retry(FailureClass::Unavailable, 1, wait, "later"));
    assert_eq!(
        follows(Outcome::retry_after(77 * SECOND, "later")),
        retry(FailureClass::Failed, 2, 77 * SECOND, "later")
    );
}

#[test]
fn retry_limit_counts_backoff_even_if_requested_wait_is_shorter() {
    let step = drain(row(7, 8), 1).answered(
        Outcome::retry_after(Duration::ZERO, "soon"),
        Group::ONE,
        &source("retry = { first = \"4s\" }\n"),
        with(1.0),
    );
    let Step::Retry { wait, retries, .. } = step else { panic!("{step:?}") };
    assert_eq!((wait, retries.waited(FailureClass::Failed)), (Duration::ZERO, 4 * SECOND));
}

#[test]
fn not_now_outcome_waits_and_counts_no_attempt() {
    let source = source("retry = { attempts = 2, first = \"4s\", longest = \"9s\" }\n");
    let requeue = |attempts, outcome, fraction| {
        drain(EntityState { attempts, ..row(7, 8) }, 1).answered(outcome, Group::ONE, &source, with(fraction))
    };
    let step = |attempts, wait| retry(FailureClass::Unavailable, attempts, wait, "full");
    assert_eq!(requeue(0, Outcome::not_now("full"), 0.5), step(0, 5 * SECOND));
    // The answer counts no attempt, even if one more would be the last.
    assert_eq!(requeue(1, Outcome::not_now("full"), 0.0), step(1, 5 * SECOND / 2));
    assert_eq!(requeue(1, Outcome::not_now("full"), 1.0), step(1, 15 * SECOND / 2));
    let asked = |after| Outcome::NotNow { after: Some(after), error: "full".into() };
    assert_eq!(requeue(1, asked(77 * SECOND), 0.5), step(1, 77 * SECOND));
    assert_eq!(requeue(1, asked(86_400 * SECOND * 9), 0.5), step(1, 86_400 * SECOND));
    assert_eq!(requeue(1, asked(Duration::ZERO), 0.5), step(1, 5 * SECOND));
}

pub(super) fn waited(class: FailureClass, wait: Duration) -> EntityState {
    let retries = Retries::default().after(class, wait);
    EntityState { attempts: 3, retries, last_error: Some("before".into()), ..row(7, 9) }
}

#[test]
fn each_failure_class_has_a_separate_limit() {
    let options = "retry = { for = \"100s\", unanswered_for = \"200s\", unavailable_for = \"300s\" }\n";
    type Answers = [(FailureClass, fn(&str) -> Outcome, u32, u32); 3];
    let answers: Answers = [
        (FailureClass::Failed, |error| Outcome::retry(error), 100, 4),
        (FailureClass::Unanswered, |error| Outcome::unanswered(error), 200, 4),
        (FailureClass::Unavailable, |error| Outcome::unavailable(error), 300, 3),
    ];
    for (class, outcome, limit, attempts) in answers {
        for (_, other, ..) in answers.iter().filter(|(other, ..)| *other != class) {
            let step =
                drain(waited(class, 400 * SECOND), 2).answered(other("no"), Group::ONE, &source(options), with(0.5));
            assert!(matches!(step, Step::Retry { .. }), "{class:?} uses up another's limit: {step:?}");
        }
        let step = |wait: Duration, on_failure| {
            drain(waited(class, wait), 2).answered(
                outcome("no"),
                Group::ONE,
                &source(&format!("{options}{on_failure}")),
                with(0.5),
            )
        };
        let limit = limit * SECOND;
        assert!(matches!(step(limit - SECOND, ""), Step::Retry { .. }), "{class:?}");
        let retries = waited(class, limit).retries;
        let carried = if class == FailureClass::Unavailable { retries.carried() } else { Retries::default() };
        assert_eq!(step(limit, ""), Step::Park { attempts, error: "no".into(), carried }, "{class:?}");
        assert_eq!(step(limit, "on_failure = \"block\"\n"), Step::GiveUp(attempts, retries, "no".into()), "{class:?}");
    }
}

#[test]
fn unavailable_destination_parks_delivery_at_half_the_retention() {
    let step = |wait| {
        drain(waited(FailureClass::Unavailable, wait), 2).answered(
            Outcome::unavailable("no"),
            Group::ONE,
            &source(""),
            with(0.5),
        )
    };
    assert!(matches!(step(MEMORY.retention / 2 - SECOND), Step::Retry { .. }));
    assert!(matches!(step(MEMORY.retention / 2), Step::Park { .. }));
}

/// The delivery in front is an hour old. It inherits waits of three hours from the delivery before
/// it.
#[test]
fn inherited_waiting_time_is_capped_at_delivery_age_plus_5_minutes() {
    let (minute, hour) = (60 * SECOND, 3_600 * SECOND);
    let carried = EntityState { retries: waited(FailureClass::Unavailable, 3 * hour).retries.carried(), ..row(7, 9) };
    let mut drain = Drain::granted(carried, Memory { retention: 1_000 * hour, ..MEMORY });
    drain.read(page(2));
    let source = source("retry = { unavailable_for = \"3h\" }\n");
    let step = |age| {
        let at = Timestamp::from_millis(8) + age;
        drain.answered(Outcome::unavailable("no"), Group::ONE, &source, AnswerTiming { at, ..with(1.0) })
    };
    let Step::Retry { retries, wait, .. } = step(hour) else { panic!("it has time left") };
    assert_eq!(retries.waited(FailureClass::Unavailable), hour + 5 * minute + wait, "clocks may be apart");
    assert!(matches!(step(3 * hour), Step::Park { .. }));
}

#[test]
fn start_refused_by_breaker_waits_as_for_unavailable_destination() {
    let held = |state: EntityState, longest| {
        drain(state, 2).held_back(
            2 * SECOND,
            longest,
            "others failed",
            &source("retry = { attempts = 1 }\n"),
            with(1.0),
        )
    };
    let step = |retries: Retries, attempts, wait, error: &str| {
        let retries = retries.after(FailureClass::Unavailable, wait);
        Step::Retry { is_started: false, attempts, retries, one_by_one: None, wait, error: error.into() }
    };
    assert_eq!(held(row(7, 9), 60 * SECOND), step(Retries::default(), 0, 2 * SECOND, "others failed"));
    let state = waited(FailureClass::Unavailable, 30 * SECOND);
    assert_eq!(held(state.clone(), 60 * SECOND), step(state.retries, 3, 41 * SECOND, "before"));
    assert_eq!(
        held(state.clone(), 10 * SECOND),
        step(state.retries, 3, 10 * SECOND, "before"),
        "at most five openings"
    );
    assert!(
        matches!(held(waited(FailureClass::Unavailable, 500 * SECOND), SECOND), Step::Park { .. }),
        "half of the retention"
    );
}

#[test]
fn handler_error_is_stored_as_one_line() {
    let drain = drain(row(7, 8), 1);
    let said = || "no\n\tsuch \u{1b}[31morder".to_owned();
    let one_line = "no  such  [31morder";
    let answered = |outcome| drain.answered(outcome, Group::ONE, &source(""), with(0.0));
    assert_eq!(answered(Outcome::Reject(said())), aside(1, one_line));
    let Step::Retry { error, .. } = answered(Outcome::retry(said())) else { panic!("it is tried again") };
    assert_eq!(error, one_line);
}

#[test]
fn last_failed_attempt_parks_or_blocks_as_configured() {
    let drain = drain(EntityState { attempts: 1, ..row(7, 8) }, 1);
    let fails = |options| drain.failed("it broke", Group::ONE, &source(options), with(0.0));
    assert_eq!(fails("retry = { attempts = 2 }\n"), aside(2, "it broke"));
    let blocks = "retry = { attempts = 2 }\non_failure = \"block\"\n";
    assert_eq!(fails(blocks), Step::GiveUp(2, Retries::default(), "it broke".into()));
}

#[test]
fn rate_limit_applies_to_retries() {
    let drain = drain(row(7, 8), 1);
    let waits = |outcome| drain.answered(outcome, Group::ONE, &source("rate = \"1/min\"\n"), with(0.0));
    assert_eq!(waits(Outcome::retry_after(SECOND, "no")), retry(FailureClass::Failed, 1, 60 * SECOND, "no"));
    assert_eq!(waits(Outcome::retry_after(90 * SECOND, "no")), retry(FailureClass::Failed, 1, 90 * SECOND, "no"));
    assert_eq!(waits(Outcome::unavailable("no")), retry(FailureClass::Unavailable, 0, 60 * SECOND, "no"));
}

#[test]
fn commit_with_failed_condition_counts_as_failed_attempt() {
    let refused = drain(row(7, 8), 1).refused(Group::ONE, &source("retry = { attempts = 1 }\n"), with(0.0));
    assert_eq!(refused, aside(1, "a condition of the handler's own writes did not hold"));
}
