//! Maintenance operations on the tables: holds, the operations log, erasure, retention, the sweep's
//! position, the orders that it watches, the list of jobs, and restores.

mod act;
mod erase;
mod hold;
mod listing;
mod mend;
mod parked;
mod position;
mod restore;
mod retention;
mod watch;

pub use act::*;
pub use erase::*;
pub use hold::*;
pub use listing::*;
pub use mend::*;
pub use parked::*;
pub use position::*;
pub use restore::*;
pub use retention::*;
pub use watch::*;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use futures_util::FutureExt;

    use super::*;
    use crate::{
        delivery::PutPart,
        entity::{EntityKey, Sequence},
        format::attribute as a,
        hold::Hold,
        inbox::{Claim, Void},
        keys::{WatchReason, action_row, delivery_row, entity_row, part_row, watched_row},
        memory::MemoryTable,
        operation::Operation,
        state::EntityState,
        table::{Key, Row, Table, Written},
        time::{Nonce, Timestamp},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn done<O: Operation>(table: &MemoryTable, operation: &O) -> (O::Outcome, Written) {
        let reply = table.write(&operation.write()).now_or_never().expect("at once").expect("it answers");
        (operation.judge(reply.clone()).expect("it can be read"), reply)
    }

    /// Runs an operation twice, asserts that both runs have the same outcome, and returns the
    /// second reply.
    fn twice<O: Operation<Outcome: Debug + PartialEq>>(table: &MemoryTable, operation: &O) -> Written {
        let (first, _) = done(table, operation);
        let (second, reply) = done(table, operation);
        assert_eq!(first, second);
        reply
    }

    fn read(table: &MemoryTable, key: &Key) -> Option<Row> {
        table.get(key).now_or_never().expect("at once").expect("it answers")
    }

    #[test]
    fn write_sent_twice_has_the_same_outcome_both_times() {
        let table = MemoryTable::new();
        let entity = EntityKey::parse("shop/order/1").unwrap();
        let nonce = |number| Nonce::from_parts(NOW, number);
        let claimed = done(&table, &Claim { entity: &entity, nonce: &nonce(1), now: NOW }).0;
        let void = Void { entity: &entity, sequence: claimed.sequence, purge_at: NOW };
        done(&table, &void);

        let part = part_row(&entity, &nonce(1), 0);
        let row = Row::new().with(a::VERSION, 1_u32).with(a::BODY, "x").with(a::PURGE_AT, 7_u32);
        twice(&table, &PutPart { key: part.clone(), row });
        twice(&table, &ExtendRetention { row: part.clone(), until: NOW });
        assert_eq!(read(&table, &part).unwrap().number(a::PURGE_AT), Some(NOW.as_secs_rounded_up()));
        twice(&table, &KeepForever { part: part.clone() });
        assert_eq!(read(&table, &part).unwrap().get(a::PURGE_AT), None);
        twice(&table, &ExtendRetention { row: part.clone(), until: NOW });
        assert_eq!(read(&table, &part).unwrap().get(a::PURGE_AT), None, "kept forever");
        twice(&table, &ExpireAgain { part: part.clone(), until: NOW });
        assert_eq!(read(&table, &part).unwrap().number(a::PURGE_AT), Some(NOW.as_secs_rounded_up()));
        twice(&table, &ExpireAgain { part: part.clone(), until: Timestamp::from_secs(1) });
        assert_eq!(read(&table, &part).unwrap().number(a::PURGE_AT), Some(NOW.as_secs_rounded_up()));
        twice(&table, &RemovePart { part: &part });
        twice(&table, &ExpireAgain { part: part.clone(), until: NOW });
        twice(&table, &KeepForever { part: part.clone() });
        assert_eq!(read(&table, &part), None, "a deleted row is not created again");

        let parked = delivery_row(&entity, claimed.sequence).to_row().with(a::NONCE, "1");
        let delivered = crate::table::Write::put(delivery_row(&entity, claimed.sequence), parked.clone());
        table.write(&delivered).now_or_never().expect("at once").expect("it answers");
        twice(&table, &MarkRedrive::of(&parked, NOW).unwrap());
        assert!(matches!(twice(&table, &Discard::of(&parked).unwrap()), Written::Refused(Some(_))));
        table.write(&delivered).now_or_never().expect("at once").expect("it answers");
        let discards = [1, 2].map(|_| done(&table, &Discard::of(&parked).unwrap()).0);
        assert_eq!(discards, [Discarded::Discarded, Discarded::Gone]);
        assert!(matches!(twice(&table, &MarkRedrive::of(&parked, NOW).unwrap()), Written::Refused(None)));
        table.write(&delivered).now_or_never().expect("at once").expect("it answers");
        let (removed, reply) = done(&table, &Remove::of(&parked).unwrap());
        assert!(matches!((removed, reply), (Removed::Gone, Written::Landed(_))));
        assert_eq!(twice(&table, &Remove::of(&parked).unwrap()), Written::Refused(None));

        let seen = EntityState::parse(&read(&table, &entity_row(&entity)).unwrap()).unwrap();
        assert!(matches!(twice(&table, &Forget::of(&seen, NOW)), Written::Landed(_)));

        let turn = SweepTurn::first(NOW);
        let first = Position { turn: turn.clone(), nonce: nonce(1), round: None, in_one_part: false };
        assert!(matches!(twice(&table, &AdvancePosition { seen: None, to: &first }), Written::Refused(_)));
        let next = Position { turn: turn.finished(NOW, TURN), nonce: nonce(2), round: None, in_one_part: false };
        assert!(matches!(twice(&table, &AdvancePosition { seen: Some(&first), to: &next }), Written::Refused(_)));
        let other = Position { turn, nonce: nonce(3), round: None, in_one_part: false };
        assert_eq!(done(&table, &AdvancePosition { seen: Some(&first), to: &other }).0, PositionAdvanced::Elsewhere);

        twice(&table, &ListJob { job: "report" });

        let watch = Watch { reason: WatchReason::Owed, entity: &entity, nonce: &nonce(1), purge_at: NOW };
        twice(&table, &watch);
        let row = || read(&table, &watched_row(WatchReason::Owed, &entity)).unwrap();
        let watched = Watched::parse(&row()).unwrap();
        assert_eq!((watched.reason, &watched.entity), (WatchReason::Owed, &entity));
        twice(&table, &Watch { nonce: &nonce(2), ..watch });
        assert_eq!(done(&table, &watched.end).0, Removed::Another, "a later wake-up is owed, too");
        twice(&table, &Watched::parse(&row()).unwrap().end);
    }

    #[test]
    fn hold_or_resume_write_landing_late_changes_nothing() {
        let table = MemoryTable::new();
        let entity = EntityKey::parse("shop/order/1").unwrap();
        let state = || EntityState::parse(&read(&table, &entity_row(&entity)).unwrap()).unwrap();
        let begin = BeginHold { entity: &entity, seen: Hold::default(), now: NOW };
        assert!(matches!(twice(&table, &begin), Written::Refused(_)));
        let held = state();
        assert_eq!(held.hold.since(), Some(NOW));
        let end = EndHold { seen: &held, purge_at: None };
        assert!(matches!(twice(&table, &end), Written::Refused(_)));
        let ended = state();
        assert_eq!(ended.hold.since(), None);
        assert_eq!(done(&table, &begin).0, HoldChanged::Changed(Some(ended.clone())), "it would hold again");
        done(&table, &BeginHold { seen: ended.hold, ..begin });
        assert_eq!(done(&table, &end).0, HoldChanged::Changed(Some(state())), "it would end the next hold");
    }

    #[test]
    fn operations_log_records_who_when_why_and_outcome() {
        let table = MemoryTable::new();
        let action = OperatorAction {
            entity: EntityKey::parse("shop/order/1").unwrap(),
            nonce: Nonce::from_parts(NOW, 1),
            verb: "rewind --end".to_owned(),
            sequence: Some(Sequence(7)),
            reason: Reason::new("Jane", "it was paid twice"),
            ended: None,
            found: None,
        };
        let logged = || {
            OperatorAction::parse(&read(&table, &action_row(&action.entity, &action.nonce)).unwrap()).unwrap().unwrap()
        };
        twice(&table, &LogAction { action: &action, purge_at: NOW });
        assert_eq!(logged(), action);
        assert_eq!((logged().verb.as_str(), logged().at()), ("rewind --end", Some(NOW)));
        let found = Some("{}".to_owned());
        twice(&table, &LogOutcome { action: &action, outcome: "nothing was left", found: found.as_deref() });
        assert_eq!(logged(), OperatorAction { ended: Some("nothing was left".into()), found, ..action.clone() });
    }
}
