//! Tests of a restore's record and writes: repeated writes are recognised, and rows that changed
//! since stay unchanged.

use super::*;
use crate::{
    entity::EntityKey,
    inbox::Claim,
    memory::{ConditionFailed, evaluate},
    receipt::{Receipt, Settlement},
    tick::{DefineJob, job_entity},
};

const T: Timestamp = Timestamp::from_secs(1_767_225_600);
const HOUR: Duration = Duration::from_secs(3_600);

fn nonce(number: u128) -> Nonce {
    Nonce::from_parts(T, number)
}

fn restoring() -> RestoreRecord {
    RestoreRecord { nonce: nonce(1), as_of: T, begun: T + 3 * HOUR, ended: None, found: None }
}

fn claimed(at: Timestamp) -> Row {
    let entity = EntityKey::parse("shop/order/1").unwrap();
    let claim = Claim { entity: &entity, nonce: &Nonce::from_parts(at, 7), now: at };
    evaluate(&claim.write(), None).unwrap().unwrap()
}

fn empty(at: Timestamp) -> Row {
    let row = claimed(at);
    let tail = row.number(a::TAIL).unwrap();
    row.with(a::HEAD, tail)
}

fn state(row: &Row) -> EntityState {
    EntityState::parse(row).unwrap()
}

fn advance<'a>(restoring: &'a RestoreRecord, seen: &'a EntityState) -> AdvanceNumbers<'a> {
    AdvanceNumbers { restoring, seen, job: None, now: restoring.begun, retention: HOUR }
}

fn twice(write: &Write, row: Option<&Row>) -> (Row, Written) {
    let landed = evaluate(write, row).expect("it lands").expect("a row");
    let again = match evaluate(write, Some(&landed)) {
        Ok(row) => Written::Landed(row),
        Err(ConditionFailed) => Written::Refused(Some(landed.clone())),
    };
    (landed, again)
}

#[test]
fn restore_record_decides_between_begin_continue_and_refuse() {
    let seen = restoring();
    let ended = RestoreRecord { ended: Some(T + 4 * HOUR), ..seen.clone() };
    assert_eq!(RestoreRecord::next(None, T), NextRestore::Begin);
    assert_eq!(RestoreRecord::next(Some(seen.clone()), T), NextRestore::GoOn(seen.clone()));
    assert_eq!(RestoreRecord::next(Some(ended.clone()), T), NextRestore::Done(ended.clone()));
    assert_eq!(RestoreRecord::next(Some(ended.clone()), T + HOUR), NextRestore::Another(ended.clone()));
    assert_eq!(
        RestoreRecord::next(Some(ended.clone()), ended.begun),
        NextRestore::Another(ended.clone()),
        "not before it"
    );
    assert_eq!(
        RestoreRecord::next(Some(ended), T + 5 * HOUR),
        NextRestore::Begin,
        "restored once, and backed up since"
    );
}

#[test]
fn restore_continues_above_sequences_and_tokens_since_backup() {
    for (made, ahead) in [(T, 0), (T + 24 * HOUR, 24 * 3_600_000)] {
        let row = empty(made);
        let advanced = evaluate(&advance(&restoring(), &state(&row)).write(), Some(&row)).unwrap().unwrap();
        let most = T.as_millis() + ahead + 1 + 3 * 3_600_000;
        for name in [a::TAIL, a::HEAD, a::TOKEN] {
            assert!(advanced.number(name).is_some_and(|number| number > most), "{name} of {advanced:?}");
        }
        assert!(advanced.number(a::PURGE_AT).unwrap() * 1000 > advanced.number(a::TOKEN).unwrap());
    }
}

#[test]
fn repeated_forced_acquire_advances_token_only_once() {
    let restoring = restoring();
    let now = restoring.begun;
    let length = HOUR;
    let holder = nonce(3);
    let mut row = empty(T);
    for _ in 0..3 {
        let seen = state(&row);
        let force = ForceAcquire { restoring: &restoring, seen: &seen, last: seen.tail, holder: &holder, now, length };
        row = evaluate(&force.write(), Some(&row)).unwrap().unwrap();
    }
    let advanced = evaluate(&advance(&restoring, &state(&row)).write(), Some(&row)).unwrap().unwrap();
    let ahead = advanced.number(a::TOKEN).unwrap() - restoring.begun.as_millis();
    // The shortest retention is a day, so a row is not purged while its numbers are ahead of the clock.
    assert!((3_600_000..3_600_010).contains(&ahead), "{ahead}");
}

#[test]
fn unanswered_restore_writes_are_recognised_as_landed() {
    let restoring = restoring();
    let begin = BeginRestore { seen: None, restoring: &restoring };
    let (row, again) = twice(&begin.write(), None);
    assert_eq!((RestoreRecord::parse(&row), begin.judge(again)), (Ok(restoring.clone()), Ok(BegunRestore::Begun)));
    let other = RestoreRecord { nonce: nonce(2), ..restoring.clone() };
    let refused = BeginRestore { seen: None, restoring: &other }.judge(Written::Refused(Some(row.clone())));
    assert_eq!(refused, Ok(BegunRestore::Elsewhere));
    let ended = evaluate(&EndRestore { restoring: &restoring, now: T + 4 * HOUR }.write(), Some(&row)).unwrap();
    assert_eq!(RestoreRecord::parse(&ended.unwrap()).unwrap().ended, Some(T + 4 * HOUR));
    let noted = evaluate(&RecordFindings { restoring: &restoring, found: "{}" }.write(), Some(&row)).unwrap();
    assert_eq!(RestoreRecord::parse(&noted.unwrap()).unwrap().found.as_deref(), Some("{}"));

    let row = claimed(T);
    let seen = state(&row);
    let last = seen.tail.next();
    let holder = nonce(3);
    let now = restoring.begun;
    let length = HOUR;
    let force = ForceAcquire { restoring: &restoring, seen: &seen, last, holder: &holder, now, length };
    let (row, again) = twice(&force.write(), Some(&row));
    let Ok(ForceAcquired::Granted(lease, forced)) = force.judge(again) else { panic!("it is recognised") };
    assert!(lease.is_mine(&forced) && forced.tail == last && forced.token > seen.token);
    assert_eq!(
        ForceAcquire { holder: &nonce(4), ..force }.judge(Written::Refused(Some(row))),
        Ok(ForceAcquired::Changed)
    );

    let row = empty(T);
    let seen = state(&row);
    let advance = advance(&restoring, &seen);
    let (row, again) = twice(&advance.write(), Some(&row));
    assert_eq!(advance.judge(again), Ok(NumbersAdvanced::Advanced(state(&row))));
    assert_eq!(advance.judge(Written::Refused(Some(claimed(T)))), Ok(NumbersAdvanced::Changed));
    assert!(restoring.is_done(&state(&row), T));
}

/// The changes are a claim, a settle, a grant, a hold, a tick, a newer version and an erasure.
#[test]
fn restore_changes_no_row_that_changed_meanwhile() {
    let receipt = Receipt {
        sequence: Sequence(T.as_millis() + 1),
        identity: Some(crate::entity::IdentityHash::from_bytes([1; 8])),
        settlement: Settlement::Applied,
        token: FencingToken(1),
        attempts: 1,
        settled_at: T,
        took: None,
    };
    let recent = crate::receipt::Recent::default().with(receipt, HOUR).to_stored().unwrap();
    let row = empty(T).with(a::RECENT, recent);
    let restoring = restoring();
    let seen = state(&row);
    let write = advance(&restoring, &seen).write();
    let advanced = evaluate(&write, Some(&row)).unwrap().unwrap();
    assert!(advanced.get(a::SPILLED).is_some() && advanced.get(a::RECENT).is_none());
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
fn unrestored_row_claimed_after_backup_counts_as_in_use() {
    let restoring = restoring();
    let later = restoring.begun + HOUR;
    let now = restoring.begun + 2 * HOUR;
    let claimed_at = |row: Row, at| state(&row.with(a::LAST_CLAIM, Nonce::from_parts(at, 7).as_str()));
    let judged = |state: &EntityState| (restoring.is_done(state, now), restoring.is_in_use(state, now));
    assert_eq!(judged(&state(&claimed(T))), (false, false));
    assert_eq!(judged(&claimed_at(claimed(T), later)), (false, true), "claimed, and not advanced");
    assert_eq!(judged(&state(&claimed(T + HOUR))), (false, true), "created between the backup and the restore");
    assert_eq!(judged(&state(&claimed(later))), (true, false), "created since");
    assert_eq!(judged(&state(&claimed(now + HOUR))), (false, true), "created by a clock that is ahead");
    let advanced = evaluate(&advance(&restoring, &state(&empty(T))).write(), Some(&empty(T))).unwrap().unwrap();
    assert_eq!(judged(&state(&advanced)), (true, false));
    assert_eq!(judged(&claimed_at(advanced, later)), (true, false), "advanced, and claimed since");
}

#[test]
fn blocked_entity_is_on_hold_after_a_restore() {
    let advanced = |row: Row| evaluate(&advance(&restoring(), &state(&row)).write(), Some(&row)).unwrap().unwrap();
    let seen = |row: Row| {
        let row = advanced(row);
        (state(&row).hold.since().is_some(), row.get(a::PURGE_AT).is_some())
    };
    assert_eq!(seen(empty(T)), (false, true));
    assert_eq!(seen(empty(T).with(a::HOLD, 7_u32)), (true, false));
    assert_eq!(seen(empty(T).with(a::BLOCKED, "attempts")), (true, false));
}

#[test]
fn last_run_of_restored_job_is_marked_unknown() {
    let entity = job_entity("report").unwrap();
    let define = DefineJob { entity: &entity, definition: "on", seen: None, from: T, now: T };
    let row = evaluate(&define.write(), None).unwrap().unwrap();
    let job = JobState::parse(&row).unwrap();
    let restoring = restoring();
    let advance = AdvanceNumbers { job: Some(&job), ..advance(&restoring, &job.entity) };
    let advanced = JobState::parse(&evaluate(&advance.write(), Some(&row)).unwrap().unwrap()).unwrap();
    assert_eq!(advanced.last_tick, Some(restoring.begun), "none before it is due");
    assert_eq!(advanced.last_result.unwrap().error, NOT_KNOWN, "and it is not cut");
}
