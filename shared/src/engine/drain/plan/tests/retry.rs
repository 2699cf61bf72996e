//! Tests of the step after a start that did not settle its delivery.

use super::*;
use crate::protocol::state::NOT_TRIED;

pub(super) fn crashed(times: u8) -> Retries {
    (0..times).fold(Retries::default(), |retries, _| retries.crashed())
}

#[test]
fn delivery_with_too_many_crashes_is_not_started() {
    let tried = |crashes, options: &str| {
        let last_error = Some("it broke".into());
        let retries = crashed(crashes);
        let state = EntityState { attempts: 9, last_error, retries, ..row(7, 8) };
        drain(state, 1).next(&MOMENT, found(options).as_ref())
    };
    let twice = "retry = { attempts = 2 }\n";
    assert_eq!([tried(7, ""), tried(1, twice)], [STARTED, STARTED]);
    assert_eq!([tried(8, ""), tried(2, twice)], [aside(9, "it broke"), aside(9, "it broke")]);
    assert_eq!(tried(8, "retry = { attempts = 99 }\n"), aside(9, "it broke"));
    let blocked = Step::GiveUp { attempts: 9, retries: crashed(8), error: "it broke".into() };
    assert_eq!(tried(8, "on_failure = \"block\"\n"), blocked);
    let gone = drain(EntityState { attempts: 1, ..row(7, 8) }, 1).next(&MOMENT, Some(&SourceLookup::Gone));
    assert_eq!(gone, aside(1, ""));
}

#[test]
fn handler_outcome_applies_commits_parks_or_retries_delivery() {
    let drain = drain(EntityState { attempts: 1, ..row(7, 8) }, 1);
    let source = source("retry = { attempts = 3, first = \"4s\", longest = \"9s\" }\n");
    let follows = |outcome| drain.answered(outcome, DeliveryGroup::ONE, &source, with(1.0));
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
        DeliveryGroup::ONE,
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
        drain(EntityState { attempts, ..row(7, 8) }, 1).answered(outcome, DeliveryGroup::ONE, &source, with(fraction))
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

/// Returns `state` after failed attempts.
pub(super) fn failed(attempts: u32, state: EntityState) -> EntityState {
    let retries = (0..attempts).fold(state.retries, |retries, _| retries.after(FailureClass::Failed, SECOND));
    EntityState { attempts, retries, ..state }
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
            let step = drain(waited(class, 400 * SECOND), 2).answered(
                other("no"),
                DeliveryGroup::ONE,
                &source(options),
                with(0.5),
            );
            assert!(matches!(step, Step::Retry { .. }), "{class:?} uses up another's limit: {step:?}");
        }
        let step = |wait: Duration, on_failure| {
            drain(waited(class, wait), 2).answered(
                outcome("no"),
                DeliveryGroup::ONE,
                &source(&format!("{options}{on_failure}")),
                with(0.5),
            )
        };
        let limit = limit * SECOND;
        assert!(matches!(step(limit - SECOND, ""), Step::Retry { .. }), "{class:?}");
        let retries = waited(class, limit).retries;
        let carried = if class == FailureClass::Unavailable { retries.carried() } else { Retries::default() };
        assert_eq!(step(limit, ""), Step::Park { attempts, error: "no".into(), carried }, "{class:?}");
        assert_eq!(
            step(limit, "on_failure = \"block\"\n"),
            Step::GiveUp { attempts, retries, error: "no".into() },
            "{class:?}"
        );
    }
}

#[test]
fn unavailable_destination_parks_delivery_at_half_the_retention() {
    let step = |wait| {
        drain(waited(FailureClass::Unavailable, wait), 2).answered(
            Outcome::unavailable("no"),
            DeliveryGroup::ONE,
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
    let minute = 60 * SECOND;
    let hour = 3_600 * SECOND;
    let carried = EntityState { retries: waited(FailureClass::Unavailable, 3 * hour).retries.carried(), ..row(7, 9) };
    let mut drain = Drain::granted(carried, Memory { retention: 1_000 * hour, ..MEMORY });
    drain.read(page(2));
    let source = source("retry = { unavailable_for = \"3h\" }\n");
    let step = |age| {
        let at = Timestamp::from_millis(8) + age;
        drain.answered(Outcome::unavailable("no"), DeliveryGroup::ONE, &source, AnswerTiming { at, ..with(1.0) })
    };
    let Step::Retry { retries, wait, .. } = step(hour) else { panic!("it has time left") };
    assert_eq!(retries.waited(FailureClass::Unavailable), hour + 5 * minute + wait, "clocks may be apart");
    assert!(matches!(step(3 * hour), Step::Park { .. }));
}

/// Promise: a limit parks or blocks only after a start; a refused start counts nothing; `attempts` are failed starts;
/// one source's outage counts for no other.
#[test]
fn refused_start_counts_nothing_and_reaches_no_limit() {
    let limits = "retry = { attempts = 1, for = \"0s\", unanswered_for = \"0s\", unavailable_for = \"0s\" }\n";
    let held = |state: EntityState, options: &str| {
        let options = format!("{limits}{options}");
        match drain(state, 2).held_back(2 * SECOND, &source(&options), NOW) {
            Step::Retry { is_started: false, attempts, retries, one_by_one: None, wait, error } => {
                assert_eq!(wait, 2 * SECOND);
                (attempts, retries, error)
            }
            other => panic!("{other:?}"),
        }
    };
    for options in ["", "on_failure = \"block\"\n"] {
        assert_eq!(held(row(7, 9), options), (0, Retries::default(), NOT_TRIED.into()));
        for class in [FailureClass::Failed, FailureClass::Unanswered] {
            let tried = waited(class, 500 * SECOND);
            let tried = EntityState { retries: tried.retries.crashed(), ..tried };
            assert_eq!(held(tried.clone(), options), (3, tried.retries, "before".into()), "{class:?}");
        }
        // The delivery already waits for its destination.
        let tried = waited(FailureClass::Unavailable, 500 * SECOND);
        let retries = tried.retries.waiting(FailureClass::Unavailable, 2 * SECOND);
        assert_eq!(held(tried, options), (3, retries, "before".into()));
    }
}

#[test]
fn attempts_limit_counts_only_failed_starts() {
    let source = source("retry = { attempts = 3 }\n");
    let mut state = EntityState { last_error: Some("before".into()), ..row(7, 9) };
    let failed = Outcome::retry("no");
    let unanswered = Outcome::unanswered("no");
    let unavailable = Outcome::unavailable("no");
    let outcomes = [&unanswered, &unavailable, &failed, &unanswered, &unanswered, &failed, &unanswered];
    for outcome in outcomes {
        let answered = drain(state.clone(), 2).answered(outcome.clone(), DeliveryGroup::ONE, &source, with(0.5));
        let Step::Retry { attempts, retries, .. } = answered else { panic!("{answered:?}") };
        (state.attempts, state.retries) = (attempts, retries.crashed());
    }
    assert_eq!((state.attempts, state.retries.failures), (6, 2));
    assert_eq!(drain(state, 2).answered(failed, DeliveryGroup::ONE, &source, with(0.5)), aside(7, "no"));
}

#[test]
fn delivery_of_another_source_inherits_no_waiting_time() {
    let source = source("retry = { unavailable_for = \"300s\" }\n");
    let carried = |next: &str| {
        let mut other = incoming("D9", 9);
        other.identity.source = SourceName::parse(next).unwrap();
        let rows = vec![stored(&incoming("D8", 8), 8), stored(&other, 9)];
        let mut drain = Drain::granted(waited(FailureClass::Unavailable, 300 * SECOND), MEMORY);
        drain.read(InboxPage::parse(&entity(), Sequence(8), rows).unwrap());
        match drain.answered(Outcome::unavailable("no"), DeliveryGroup::ONE, &source, with(0.5)) {
            Step::Park { carried, .. } => carried.waited(FailureClass::Unavailable),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([carried("shop"), carried("other")], [300 * SECOND, Duration::ZERO]);
}

#[test]
fn handler_error_is_stored_as_one_line() {
    let drain = drain(row(7, 8), 1);
    let said = || "no\n\tsuch \u{1b}[31morder".to_owned();
    let one_line = "no  such  [31morder";
    let answered = |outcome| drain.answered(outcome, DeliveryGroup::ONE, &source(""), with(0.0));
    assert_eq!(answered(Outcome::Reject(said())), aside(1, one_line));
    let Step::Retry { error, .. } = answered(Outcome::retry(said())) else { panic!("it is tried again") };
    assert_eq!(error, one_line);
}

#[test]
fn last_failed_attempt_parks_or_blocks_as_configured() {
    let state = failed(1, row(7, 8));
    let retries = state.retries;
    let drain = drain(state, 1);
    let fails = |options| drain.failed("it broke", DeliveryGroup::ONE, &source(options), with(0.0));
    assert_eq!(fails("retry = { attempts = 2 }\n"), aside(2, "it broke"));
    let blocks = "retry = { attempts = 2 }\non_failure = \"block\"\n";
    assert_eq!(fails(blocks), Step::GiveUp { attempts: 2, retries, error: "it broke".into() });
}

#[test]
fn rate_limit_applies_to_retries() {
    let drain = drain(row(7, 8), 1);
    let waits = |outcome| drain.answered(outcome, DeliveryGroup::ONE, &source("rate = \"1/min\"\n"), with(0.0));
    assert_eq!(waits(Outcome::retry_after(SECOND, "no")), retry(FailureClass::Failed, 1, 60 * SECOND, "no"));
    assert_eq!(waits(Outcome::retry_after(90 * SECOND, "no")), retry(FailureClass::Failed, 1, 90 * SECOND, "no"));
    assert_eq!(waits(Outcome::unavailable("no")), retry(FailureClass::Unavailable, 0, 60 * SECOND, "no"));
}

#[test]
fn commit_with_failed_condition_counts_as_failed_attempt() {
    let refused = drain(row(7, 8), 1).refused(DeliveryGroup::ONE, &source("retry = { attempts = 1 }\n"), with(0.0));
    assert_eq!(refused, aside(1, "a condition of the handler's own writes did not hold"));
}
