//! Tests of groups, and of deliveries that a newer delivery supersedes.

use super::{
    super::group::GROUP_BYTES,
    retry::{crashed, failed, waited},
    *,
};

const UP_TO_3: &str = "deliver = { up_to = 3 }\n";
const LATEST: &str = "deliver = 'latest'\n";

fn several(places: usize) -> DeliveryGroup {
    DeliveryGroup { size: places, is_latest: false }
}

fn latest(places: usize) -> DeliveryGroup {
    DeliveryGroup { size: places, is_latest: true }
}

fn roomy(state: EntityState, capacity: usize, page: InboxPage) -> Drain {
    let mut drain = Drain::granted(state, Memory { capacity, ..MEMORY });
    drain.read(page);
    drain
}

fn group(drain: &Drain, options: &str) -> DeliveryGroup {
    match drain.next(&MOMENT, found(options).as_ref()) {
        Step::Start { group, .. } => group,
        step => panic!("{step:?}"),
    }
}

fn of(rows: Vec<Row>) -> InboxPage {
    InboxPage::parse(&entity(), Sequence(8), rows).unwrap()
}

#[test]
fn group_ends_at_option_limit_or_page_end_or_full_row() {
    let state = row(7, 20);
    assert_eq!(group(&roomy(state.clone(), 9, page(5)), UP_TO_3), several(3));
    assert_eq!(group(&roomy(state.clone(), 9, page(2)), UP_TO_3), several(2));
    assert_eq!(group(&roomy(state.clone(), 9, page(5)), ""), DeliveryGroup::ONE);
    assert_eq!(group(&roomy(state.clone(), 9, page(5)), LATEST), latest(5));
    // A group has at most as many deliveries as the row holds receipts.
    assert_eq!(group(&roomy(state.clone(), 2, page(5)), UP_TO_3), several(2));
    assert_eq!(group(&roomy(state, 1, page(5)), UP_TO_3), DeliveryGroup::ONE);
}

#[test]
fn group_has_one_source_and_no_repeat_or_tombstone() {
    let start = |row_9: Row, state| group(&roomy(state, 9, of(vec![stored(&incoming("D8", 8), 8), row_9])), UP_TO_3);
    let with = |incoming: Incoming| start(stored(&incoming, 9), row(7, 9));
    assert_eq!(with(incoming("D9", 9)), several(2));
    assert_eq!(with(incoming("D8", 9)), DeliveryGroup::ONE, "a repeat");
    let known = remembering(&[("D9", Settlement::Applied)], 9);
    assert_eq!(start(stored(&incoming("D9", 9), 9), known), DeliveryGroup::ONE, "settled before");
    let mut other = incoming("D9", 9);
    other.identity.source = SourceName::parse("pay").unwrap();
    assert_eq!(with(other), DeliveryGroup::ONE, "of another source");
    let void =
        Row::new().with(a::ENTITY, entity().as_str()).with(a::ITEM, stored(&incoming("", 1), 9).text(a::ITEM).unwrap());
    assert_eq!(start(void.with(a::VERSION, FORMAT).with(a::VOID, true), row(7, 9)), DeliveryGroup::ONE, "a tombstone");
    let large = |mut incoming: Incoming| {
        incoming.body = vec![b' '; GROUP_BYTES / 2 + 1].into();
        incoming
    };
    let rows = [large(incoming("D8", 8)), large(incoming("D9", 9))];
    let rows = (8..).zip(&rows).map(|(at, incoming)| stored(incoming, at)).collect();
    assert_eq!(group(&roomy(row(7, 9), 9, of(rows)), UP_TO_3), DeliveryGroup::ONE, "too large to invoke a function");
}

#[test]
fn newest_delivery_supersedes_only_its_family_under_policy_latest() {
    let mut refund = incoming("D9", 9);
    refund.family = "refunds".into();
    let rows = || vec![stored(&incoming("D8", 8), 8), stored(&refund, 9), stored(&incoming("D10", 10), 10)];
    assert_eq!(group(&roomy(row(7, 10), 9, of(rows())), LATEST).size, 1);
    assert_eq!(group(&roomy(row(7, 10), 9, of(rows())), UP_TO_3), several(3));
}

/// A group's last delivery may have an earlier event time than a delivery before it.
#[test]
fn last_delivery_of_group_supersedes_no_newer_event() {
    let rows = |times: [Option<u64>; 4]| {
        let timed = |(at, time): (u64, Option<u64>)| {
            let event_time = time.map(Timestamp::from_millis);
            stored(&Incoming { event_time, ..incoming(&format!("D{at}"), at) }, at)
        };
        of((8..).zip(times).map(timed).collect())
    };
    let start = |times| group(&roomy(row(7, 11), 9, rows(times)), LATEST).size;
    assert_eq!(start([Some(6), Some(6), None, Some(7)]), 4);
    assert_eq!(start([Some(6), Some(9), Some(8), Some(9)]), 2);
    assert_eq!(start([Some(6), None, Some(5), Some(9)]), 2);
}

#[test]
fn redriven_or_deferred_delivery_supersedes_no_delivery() {
    let places = |late: &dyn Fn(u64, &mut Row)| {
        let rows = (8..11).map(|at| {
            let mut row = stored(&incoming(&format!("D{at}"), at), at);
            late(at, &mut row);
            row
        });
        group(&roomy(row(7, 10), 9, of(rows.collect())), LATEST).size
    };
    assert_eq!(places(&|_, _| {}), 3);
    for mark in [a::APPENDED_AT, a::REDRIVE] {
        let mark_at = |marked| {
            move |at, row: &mut Row| {
                if at == marked {
                    row.set(mark, 20_u64)
                }
            }
        };
        assert_eq!(places(&mark_at(9)), 1, "{mark}");
        assert_eq!(places(&mark_at(10)), 2, "{mark}");
        assert_eq!(places(&mark_at(8)), 3, "{mark}: a newer one supersedes it");
    }
}

#[test]
fn failed_or_suspect_delivery_starts_singly() {
    let alone = Moment { is_alone: true, ..MOMENT };
    let start = |options: &str, change: &dyn Fn(&mut EntityState)| {
        let mut state = row(7, 12);
        change(&mut state);
        match roomy(state, 9, page(5)).next(&alone, found(options).as_ref()) {
            Step::Start { group, .. } => group.size,
            step => panic!("{step:?}"),
        }
    };
    for (options, many) in [(UP_TO_3, 3), (LATEST, 5)] {
        assert_eq!(start(options, &|_| {}), many);
        assert_eq!(start(options, &|state| state.suspect = 1), 1);
        assert_eq!(start(options, &|state| state.one_by_one = Some(Sequence(8))), 1);
        assert_eq!(start(options, &|state| state.one_by_one = Some(Sequence(7))), many);
    }
    assert_eq!(start(UP_TO_3, &|state| state.attempts = 1), 1);
    // With `latest`, the attempts belong to the whole group.
    assert_eq!(start(LATEST, &|state| state.attempts = 1), 5);
}

#[test]
fn failed_group_is_retried_one_by_one() {
    let drain = roomy(row(7, 20), 9, page(5));
    let source = source("retry = { attempts = 3, first = \"4s\", longest = \"9s\" }\ndeliver = { up_to = 3 }\n");
    let answered = |outcome| drain.answered(outcome, several(3), &source, with(1.0));
    let apart = |wait| {
        let retries = Retries::default();
        let one_by_one = Some(Sequence(10));
        let error = "later".into();
        Step::Retry { is_started: true, attempts: 0, retries, one_by_one, wait, error }
    };
    assert_eq!(answered(Outcome::retry("later")), apart(4 * SECOND));
    assert_eq!(answered(Outcome::unanswered("later")), apart(4 * SECOND));
    assert_eq!(
        answered(Outcome::unavailable("later")),
        retry(FailureClass::Unavailable, 0, 4 * SECOND, "later"),
        "it stays together"
    );
    assert_eq!(answered(Outcome::Reject("later".into())), apart(HANDOVER_DELAY));
    assert_eq!(answered(Outcome::Done), Step::Apply);
    let refused = drain.refused(several(3), &source, with(1.0));
    assert!(matches!(refused, Step::Retry { attempts: 0, one_by_one: Some(Sequence(10)), .. }), "{refused:?}");
}

#[test]
fn not_now_outcome_does_not_split_the_group() {
    let requeue = |options: &str, group: DeliveryGroup, state: EntityState| {
        let drain = roomy(state, 9, page(5));
        match drain.answered(Outcome::not_now("full"), group, &source(options), with(0.5)) {
            Step::Retry { attempts, one_by_one: None, wait, .. } if wait == 5 * SECOND => attempts,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(requeue(UP_TO_3, several(3), row(7, 20)), 0);
    assert_eq!(requeue(LATEST, latest(5), EntityState { attempts: 2, one_by_one: Some(Sequence(7)), ..row(7, 20) }), 2);
}

#[test]
fn final_failed_attempt_under_policy_latest_splits_the_group() {
    let source = source("retry = { attempts = 3, first = \"4s\", longest = \"9s\" }\ndeliver = 'latest'\n");
    let fails = |attempts| {
        let drain = roomy(failed(attempts, row(7, 20)), 9, page(5));
        match drain.answered(Outcome::retry(""), latest(5), &source, with(1.0)) {
            Step::Retry { attempts, one_by_one, .. } => (attempts, one_by_one),
            step => panic!("{step:?}"),
        }
    };
    // `one_by_one == head` says that the attempts belong to the latest delivery.
    assert_eq!(fails(0), (1, Some(Sequence(7))));
    assert_eq!(fails(1), (2, Some(Sequence(7))));
    assert_eq!(fails(2), (0, Some(Sequence(12))));
}

/// The sources document may have been changed to allow fewer attempts than were already made.
#[test]
fn attempts_under_policy_latest_park_no_other_delivery() {
    let options = "retry = { attempts = 2, first = \"4s\", longest = \"9s\" }\ndeliver = 'latest'\n";
    let retries = crashed(3);
    let tried = |one_by_one| roomy(EntityState { attempts: 3, retries, one_by_one, ..row(7, 20) }, 9, page(5));
    assert_eq!(group(&tried(Some(Sequence(7))), options), latest(5));
    assert!(matches!(tried(None).next(&MOMENT, found(options).as_ref()), Step::Park { attempts: 3, .. }));
}

/// The source may have been changed from `latest` to `each` after the latest delivery failed.
#[test]
fn attempts_under_policy_latest_do_not_count_after_change_to_each() {
    let source = source("retry = { attempts = 3, first = \"4s\", longest = \"9s\" }\n");
    let stood_for = |one_by_one| failed(2, EntityState { one_by_one: Some(Sequence(one_by_one)), ..row(7, 20) });
    let alone = roomy(stood_for(7), 9, page(5));
    assert_eq!((alone.attempt(DeliveryGroup::ONE), alone.attempt(latest(5))), (1, 3));
    let answered = |drain: &Drain, outcome| drain.answered(outcome, DeliveryGroup::ONE, &source, with(1.0));
    let Step::Retry { attempts, one_by_one, .. } = answered(&alone, Outcome::retry("no")) else {
        panic!("it is retried")
    };
    assert_eq!((attempts, one_by_one), (1, Some(Sequence(8))));
    assert_eq!(answered(&alone, Outcome::Reject("no".into())), aside(1, "no"));
    // From now on the attempts belong to the delivery in front.
    let again = roomy(stood_for(8), 9, page(5));
    assert_eq!(again.attempt(DeliveryGroup::ONE), 3);
    assert_eq!(answered(&again, Outcome::retry("no")), aside(3, "no"));
}

#[test]
fn one_decision_settles_the_whole_group() {
    let mut drain = roomy(remembering(&[("D6", Settlement::Applied), ("D7", Settlement::Applied)], 12), 3, page(4));
    let ending = SettleRequest { group: several(3), ..ended(Settlement::Applied) };
    let decision = drain.decision(ending, NOW, None);
    assert_eq!((decision.first, decision.last(), decision.places()), (Sequence(8), Sequence(10), 3));
    assert_eq!(identities(&decision.dropped), [6, 7]);
    let receipts: Vec<_> =
        decision.receipts().map(|receipt| (receipt.identity, receipt.settlement, receipt.took)).collect();
    let applied = |id: &str| (Some(incoming(id, 1).identity.hash()), Settlement::Applied, Some(SECOND));
    assert_eq!(receipts, ["D8", "D9", "D10"].map(applied));
    assert_eq!(decision.newest_event_time.of("orders"), Some(Timestamp::from_millis(10)));
    assert_eq!(decision.pending_since, Some(Timestamp::from_millis(11)));
    let state = EntityState { head: decision.last(), recent: decision.recent.clone(), ..drain.state.clone() };
    drain.settled(state, &decision);
    assert_eq!(drain.front().unwrap().unpacked.head().sequence(), Sequence(11));
}

#[test]
fn superseded_deliveries_have_no_attempts() {
    let drain = roomy(row(7, 10), 9, page(3));
    assert_eq!(drain.members(latest(3)).map(|one| one.unpacked.head().sequence().0).collect::<Vec<_>>(), [10]);
    let decision = drain.decision(SettleRequest { group: latest(3), ..ended(Settlement::Applied) }, NOW, None);
    let receipts: Vec<_> = decision.receipts().map(|one| (one.settlement, one.attempts, one.took)).collect();
    let superseded = (Settlement::Superseded, 0, None);
    assert_eq!(receipts, [superseded, superseded, (Settlement::Applied, 1, Some(SECOND))]);
}

#[test]
fn deliveries_start_singly_until_split_group_is_settled() {
    let ends = |until| {
        let state = EntityState { one_by_one: Some(Sequence(until)), ..row(7, 12) };
        roomy(state, 9, page(2)).decision(ended(Settlement::Applied), NOW, None).ends_one_by_one
    };
    assert!(ends(7) && ends(8) && !ends(9));
}

#[test]
fn next_page_is_read_ahead_if_page_lacks_a_full_next_group() {
    let drain = roomy(row(7, 20), 9, page(5));
    let source = found(UP_TO_3);
    assert_eq!(drain.ahead(3, source.as_ref()), Some((Sequence(13), Sequence(20))));
    assert_eq!(drain.ahead(2, source.as_ref()), None);
    assert_eq!(drain.ahead(3, None), None);
}

#[test]
fn receipts_of_two_groups_share_a_page() {
    let mut drain = roomy(row(7, 20), 4, page(6));
    let decide =
        |drain: &Drain| drain.decision(SettleRequest { group: several(2), ..ended(Settlement::Applied) }, NOW, None);
    for expected in [&[][..], &[], &[8, 9, 10, 11]] {
        let decision = decide(&drain);
        assert_eq!(spilling(drain.to_spill(&decision)), expected);
        assert_eq!(spilling(drain.to_spill_ahead(&decision)), [0; 0]);
        let state = EntityState { head: decision.last(), recent: decision.recent.clone(), ..drain.state.clone() };
        drain.settled(state, &decision);
    }
}

#[test]
fn stale_delivery_is_superseded_if_configured() {
    let applied = |at| EntityState {
        newest_event_time: row(7, 8).newest_event_time.applied("orders", Timestamp::from_millis(at)),
        ..row(7, 8)
    };
    let step = |options: &str, state, redrive| {
        let mut one = incoming("D8", 8);
        one.identity.redrive = redrive;
        roomy(state, 9, of(vec![stored(&one, 8)])).next(&MOMENT, found(options).as_ref())
    };
    let skip = "stale = 'skip'\n";
    assert_eq!(step(skip, applied(9), 0), Step::Settle(Settlement::Superseded));
    assert_eq!(step(skip, applied(8), 0), STARTED, "at the same time");
    assert_eq!(step("", applied(9), 0), STARTED);
    assert_eq!(step(skip, applied(9), 1), STARTED, "redriven");
}

#[test]
fn group_ends_before_a_stale_delivery() {
    let rows = [("D8", 80), ("D9", 90), ("D10", 85)];
    let rows = || (8..).zip(rows).map(|(at, (id, time))| stored(&incoming(id, time), at)).collect();
    let start = |options: &str| group(&roomy(row(7, 10), 9, of(rows())), options);
    assert_eq!(start(UP_TO_3), several(3));
    assert_eq!(start("deliver = { up_to = 3 }\nstale = 'skip'\n"), several(2));
}

#[test]
fn split_group_keeps_time_waited_for_destination() {
    let retries = waited(FailureClass::Unavailable, 300 * SECOND).retries;
    let drain = roomy(EntityState { retries, ..row(7, 20) }, 9, page(5));
    let source = source("retry = { unavailable_for = \"300s\" }\ndeliver = { up_to = 3 }\n");
    let step = drain.answered(Outcome::unavailable("no"), several(3), &source, with(0.5));
    let Step::Retry { attempts, retries: kept, one_by_one, wait, .. } = step else { panic!("{step:?}") };
    assert_eq!((attempts, kept, one_by_one, wait), (0, retries.carried(), Some(Sequence(10)), HANDOVER_DELAY));
}
