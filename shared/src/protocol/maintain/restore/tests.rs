use super::*;
use crate::protocol::{
    entity::EntityKey,
    inbox::Claim,
    memory::evaluate,
    receipt::{Receipt, Settlement},
    tick::{DefineJob, job_entity},
};

const T: Timestamp = Timestamp::from_secs(1_767_225_600);
const HOUR: Duration = Duration::from_secs(3_600);

fn nonce(number: u128) -> Nonce {
    Nonce::from_parts(T, number)
}

fn restoring() -> Restoring {
    Restoring { nonce: nonce(1), as_of: T, begun: T + 3 * HOUR, ended: None, found: None }
}

/// The row of an entity that was claimed on once.
fn claimed(at: Timestamp) -> Row {
    let entity = EntityKey::parse("shop/order/1").unwrap();
    let claim = Claim { entity: &entity, nonce: &Nonce::from_parts(at, 7), now: at };
    evaluate(&claim.write(), None).unwrap().unwrap()
}

/// The same, settled.
fn empty(at: Timestamp) -> Row {
    let row = claimed(at);
    let tail = row.number(a::TAIL).unwrap();
    row.with(a::HEAD, tail)
}

fn state(row: &Row) -> EntityState {
    EntityState::parse(row).unwrap()
}

fn raise<'a>(restoring: &'a Restoring, seen: &'a EntityState) -> Raise<'a> {
    Raise { restoring, seen, job: None, now: restoring.begun, retention: HOUR }
}

/// A first try that landed, and a second that is sent blindly.
fn twice(write: &Write, row: Option<&Row>) -> (Row, Written) {
    let landed = evaluate(write, row).expect("it lands").expect("a row");
    let again = match evaluate(write, Some(&landed)) {
        Ok(row) => Written::Landed(row),
        Err(()) => Written::Refused(Some(landed.clone())),
    };
    (landed, again)
}

#[test]
fn the_same_moment_is_gone_on_with_and_another_refused_unless_it_is_part_of_the_backup() {
    let seen = restoring();
    let ended = Restoring { ended: Some(T + 4 * HOUR), ..seen.clone() };
    assert_eq!(Restoring::next(None, T), NextRestore::Begin);
    assert_eq!(Restoring::next(Some(seen.clone()), T), NextRestore::GoOn(seen.clone()));
    assert_eq!(Restoring::next(Some(ended.clone()), T), NextRestore::Done(ended.clone()));
    assert_eq!(Restoring::next(Some(ended.clone()), T + HOUR), NextRestore::Another(ended.clone()));
    assert_eq!(Restoring::next(Some(ended.clone()), ended.begun), NextRestore::Another(ended.clone()), "not before it");
    assert_eq!(Restoring::next(Some(ended), T + 5 * HOUR), NextRestore::Begin, "restored once, and backed up since");
}

#[test]
fn numbers_go_above_a_thousand_writes_a_second_since_the_backup() {
    for (made, ahead) in [(T, 0), (T + 24 * HOUR, 24 * 3_600_000)] {
        let row = empty(made);
        let raised = evaluate(&raise(&restoring(), &state(&row)).write(), Some(&row)).unwrap().unwrap();
        let most = T.as_millis() + ahead + 1 + 3 * 3_600_000;
        for name in [a::TAIL, a::HEAD, a::TOKEN] {
            assert!(raised.number(name).is_some_and(|number| number > most), "{name} of {raised:?}");
        }
        assert!(raised.number(a::PURGE_AT).unwrap() * 1000 > raised.number(a::TOKEN).unwrap());
    }
}

#[test]
fn what_was_seized_is_raised_no_further_however_often() {
    let restoring = restoring();
    let (now, length, holder) = (restoring.begun, HOUR, nonce(3));
    let mut row = empty(T);
    for _ in 0..3 {
        let seen = state(&row);
        let seize = Seize { restoring: &restoring, seen: &seen, last: seen.tail, holder: &holder, now, length };
        row = evaluate(&seize.write(), Some(&row)).unwrap().unwrap();
    }
    let raised = evaluate(&raise(&restoring, &state(&row)).write(), Some(&row)).unwrap().unwrap();
    let ahead = raised.number(a::TOKEN).unwrap() - restoring.begun.as_millis();
    // The shortest retention is a day: a row is not purged while it is ahead.
    assert!((3_600_000..3_600_010).contains(&ahead), "{ahead}");
}

#[test]
fn what_landed_and_was_not_answered_is_recognised_by_the_second_try() {
    let restoring = restoring();
    let begin = BeginRestore { seen: None, restoring: &restoring };
    let (row, again) = twice(&begin.write(), None);
    assert_eq!((Restoring::parse(&row), begin.judge(again)), (Ok(restoring.clone()), Ok(BegunRestore::Begun)));
    let other = Restoring { nonce: nonce(2), ..restoring.clone() };
    let refused = BeginRestore { seen: None, restoring: &other }.judge(Written::Refused(Some(row.clone())));
    assert_eq!(refused, Ok(BegunRestore::Elsewhere));
    let ended = evaluate(&EndRestore { restoring: &restoring, now: T + 4 * HOUR }.write(), Some(&row)).unwrap();
    assert_eq!(Restoring::parse(&ended.unwrap()).unwrap().ended, Some(T + 4 * HOUR));
    let noted = evaluate(&NoteFound { restoring: &restoring, found: "{}" }.write(), Some(&row)).unwrap();
    assert_eq!(Restoring::parse(&noted.unwrap()).unwrap().found.as_deref(), Some("{}"));

    let row = claimed(T);
    let seen = state(&row);
    let (last, holder) = (seen.tail.next(), nonce(3));
    let (now, length) = (restoring.begun, HOUR);
    let seize = Seize { restoring: &restoring, seen: &seen, last, holder: &holder, now, length };
    let (row, again) = twice(&seize.write(), Some(&row));
    let Ok(Seized::Seized(lease, seized)) = seize.judge(again) else { panic!("it is recognised") };
    assert!(lease.is_mine(&seized) && seized.tail == last && seized.token > seen.token);
    assert_eq!(Seize { holder: &nonce(4), ..seize }.judge(Written::Refused(Some(row))), Ok(Seized::Changed));

    let row = empty(T);
    let seen = state(&row);
    let raise = raise(&restoring, &seen);
    let (row, again) = twice(&raise.write(), Some(&row));
    assert_eq!(raise.judge(again), Ok(Raised::Raised(state(&row))));
    assert_eq!(raise.judge(Written::Refused(Some(claimed(T)))), Ok(Raised::Changed));
    assert!(restoring.is_done(&state(&row), T));
}

/// A claim, a settle, a grant, a hold, a tick, an erase.
#[test]
fn a_row_that_changed_since_it_was_seen_is_not_raised() {
    let receipt = Receipt {
        sequence: Sequence(T.as_millis() + 1),
        identity: Some(crate::protocol::entity::IdentityHash::from_bytes([1; 8])),
        settlement: Settlement::Applied,
        token: FencingToken(1),
        attempts: 1,
        settled_at: T,
        took: None,
    };
    let recent = crate::protocol::receipt::Recent::default().with(receipt, HOUR).to_stored().unwrap();
    let row = empty(T).with(a::RECENT, recent);
    let (restoring, seen) = (restoring(), state(&row));
    let write = raise(&restoring, &seen).write();
    let raised = evaluate(&write, Some(&row)).unwrap().unwrap();
    assert!(raised.get(a::SPILLED).is_some() && raised.get(a::RECENT).is_none());
    let number = |name| row.number(name).unwrap();
    let mut erased = row.clone();
    erased.remove(a::RECENT);
    let changed = [
        row.clone().with(a::TAIL, number(a::TAIL) + 1),
        row.clone().with(a::HEAD, number(a::HEAD) + 1).with(a::TAIL, number(a::TAIL) + 1),
        row.clone().with(a::TOKEN, number(a::TOKEN) + 1),
        row.clone().with(a::HOLD, 7_u32),
        row.clone().with(a::LAST_TICK, 7_u32),
        row.clone().with(a::VERSION, FORMAT + 1),
        erased,
    ];
    for row in changed {
        assert!(evaluate(&write, Some(&row)).is_err(), "{row:?}");
    }
}

#[test]
fn a_row_that_was_claimed_on_since_is_in_use_unless_it_was_raised_or_made_since() {
    let restoring = restoring();
    let (later, now) = (restoring.begun + HOUR, restoring.begun + 2 * HOUR);
    let claimed_at = |row: Row, at| state(&row.with(a::LAST_CLAIM, Nonce::from_parts(at, 7).as_str()));
    let judged = |state: &EntityState| (restoring.is_done(state, now), restoring.is_in_use(state, now));
    assert_eq!(judged(&state(&claimed(T))), (false, false));
    assert_eq!(judged(&claimed_at(claimed(T), later)), (false, true), "claimed on, and not raised");
    assert_eq!(judged(&state(&claimed(T + HOUR))), (false, true), "made between the backup and the restore");
    assert_eq!(judged(&state(&claimed(later))), (true, false), "made since");
    assert_eq!(judged(&state(&claimed(now + HOUR))), (false, true), "made by a clock that is ahead");
    let raised = evaluate(&raise(&restoring, &state(&empty(T))).write(), Some(&empty(T))).unwrap().unwrap();
    assert_eq!(judged(&state(&raised)), (true, false));
    assert_eq!(judged(&claimed_at(raised, later)), (true, false), "raised, and claimed on since");
}

#[test]
fn what_is_stopped_is_on_hold_afterwards_and_its_row_is_not_deleted_for_idleness() {
    let raised = |row: Row| evaluate(&raise(&restoring(), &state(&row)).write(), Some(&row)).unwrap().unwrap();
    let seen = |row: Row| {
        let row = raised(row);
        (state(&row).hold.since().is_some(), row.get(a::PURGE_AT).is_some())
    };
    assert_eq!(seen(empty(T)), (false, true));
    assert_eq!(seen(empty(T).with(a::HOLD, 7_u32)), (true, false));
    assert_eq!(seen(empty(T).with(a::BLOCKED, "attempts")), (true, false));
}

#[test]
fn a_job_s_row_says_that_its_runs_since_the_backup_are_not_known() {
    let entity = job_entity("report").unwrap();
    let define = DefineJob { entity: &entity, definition: "on", seen: None, from: T, now: T };
    let row = evaluate(&define.write(), None).unwrap().unwrap();
    let job = JobState::parse(&row).unwrap();
    let restoring = restoring();
    let raise = Raise { job: Some(&job), ..raise(&restoring, &job.entity) };
    let raised = JobState::parse(&evaluate(&raise.write(), Some(&row)).unwrap().unwrap()).unwrap();
    assert_eq!(raised.last_tick, Some(restoring.begun), "none before it is due");
    assert_eq!(raised.last_result.unwrap().error, NOT_KNOWN, "and it is not cut");
}
