//! What keeps the tables in order, as operations on their rows: an entity is
//! forgotten, the end of a row's retention put off or taken away, the sweep's
//! position moved on, a job listed, what an operator does written down, a restored row raised. Pure; `operator.rs`,
//! `engine/sweep.rs` and `jobs/ticker.rs` do it.

mod act;
mod erase;
mod hold;
mod listing;
mod position;
mod restore;
mod retention;

pub use act::{Act, Begun, EndedAs, Reason, Verb};
pub use erase::{Forget, Forgotten, Remove, RemovePart, Removed};
pub use hold::{BeginHold, EndHold, Turned};
pub use listing::ListJob;
pub use position::{MoveOn, Moved, Place, Position, SEGMENTS, TURN};
pub use restore::{
    BeginRestore, BegunRestore, EndRestore, NextRestore, NoteFound, Raise, Raised, Restoring, Seize, Seized,
    is_claimed_after,
};
pub use retention::{ExpireAgain, KeepForever, PutOff};

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use futures_util::FutureExt;

    use super::*;
    use crate::{
        protocol::{
            delivery::PutPart,
            entity::{EntityKey, Sequence},
            format::attribute as a,
            hold::Hold,
            inbox::{Claim, Void},
            keys::{act_row, delivery_row, entity_row, part_row},
            memory::MemoryTable,
            operation::Operation,
            state::EntityState,
            table::{Key, Row, Table, Written},
        },
        time::{Nonce, Timestamp},
    };

    const NOW: Timestamp = Timestamp::from_secs(1_767_225_600);

    fn done<O: Operation>(table: &MemoryTable, operation: &O) -> (O::Outcome, Written) {
        let reply = table.write(&operation.write()).now_or_never().expect("at once").expect("it answers");
        (operation.judge(reply.clone()).expect("it can be read"), reply)
    }

    /// That a second try is told what the first one was, whose reply was lost.
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
    fn what_landed_and_was_not_answered_is_recognised_by_the_second_try() {
        let table = MemoryTable::new();
        let entity = EntityKey::parse("shop/order/1").unwrap();
        let nonce = |number| Nonce::from_parts(NOW, number);
        let claimed = done(&table, &Claim { entity: &entity, nonce: &nonce(1), now: NOW }).0;
        let void = Void { entity: &entity, sequence: claimed.sequence, purge_at: NOW };
        done(&table, &void);

        let part = part_row(&entity, &nonce(1), 0);
        let row = Row::new().with(a::VERSION, 1_u32).with(a::BODY, "x").with(a::PURGE_AT, 7_u32);
        twice(&table, &PutPart { key: part.clone(), row });
        twice(&table, &PutOff { row: part.clone(), until: NOW });
        assert_eq!(read(&table, &part).unwrap().number(a::PURGE_AT), Some(NOW.as_secs_rounded_up()));
        twice(&table, &KeepForever { part: part.clone() });
        assert_eq!(read(&table, &part).unwrap().get(a::PURGE_AT), None);
        twice(&table, &PutOff { row: part.clone(), until: NOW });
        assert_eq!(read(&table, &part).unwrap().get(a::PURGE_AT), None, "what has no end is given none");
        twice(&table, &ExpireAgain { part: part.clone(), until: NOW });
        assert_eq!(read(&table, &part).unwrap().number(a::PURGE_AT), Some(NOW.as_secs_rounded_up()));
        twice(&table, &ExpireAgain { part: part.clone(), until: Timestamp::from_secs(1) });
        assert_eq!(read(&table, &part).unwrap().number(a::PURGE_AT), Some(NOW.as_secs_rounded_up()));
        twice(&table, &RemovePart { part: &part });
        twice(&table, &ExpireAgain { part: part.clone(), until: NOW });
        twice(&table, &KeepForever { part: part.clone() });
        assert_eq!(read(&table, &part), None, "what is gone is not made again");

        let parked = delivery_row(&entity, claimed.sequence).to_row().with(a::NONCE, "1");
        let delivered = crate::protocol::table::Write::put(delivery_row(&entity, claimed.sequence), parked.clone());
        table.write(&delivered).now_or_never().expect("at once").expect("it answers");
        let (removed, reply) = done(&table, &Remove::of(&parked).unwrap());
        assert!(matches!((removed, reply), (Removed::Gone, Written::Landed(_))));
        assert_eq!(twice(&table, &Remove::of(&parked).unwrap()), Written::Refused(None));

        let seen = EntityState::parse(&read(&table, &entity_row(&entity)).unwrap()).unwrap();
        assert!(matches!(twice(&table, &Forget::of(&seen, NOW)), Written::Landed(_)));

        let place = Place::first(NOW);
        let first = Position { place: place.clone(), nonce: nonce(1) };
        assert!(matches!(twice(&table, &MoveOn { seen: None, to: &first }), Written::Refused(_)));
        let next = Position { place: place.finished(NOW), nonce: nonce(2) };
        assert!(matches!(twice(&table, &MoveOn { seen: Some(&first), to: &next }), Written::Refused(_)));
        let other = Position { place, nonce: nonce(3) };
        assert_eq!(done(&table, &MoveOn { seen: Some(&first), to: &other }).0, Moved::Elsewhere);

        twice(&table, &ListJob { job: "report" });
    }

    #[test]
    fn a_hold_and_its_end_are_recognised_by_the_second_try_and_neither_once_the_other_came() {
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
        assert_eq!(done(&table, &begin).0, Turned::Otherwise(Some(ended.clone())), "it would hold what goes on");
        done(&table, &BeginHold { seen: ended.hold, ..begin });
        assert_eq!(done(&table, &end).0, Turned::Otherwise(Some(state())), "it would let go on what is held anew");
    }

    #[test]
    fn an_act_is_told_with_who_and_when_and_how_it_ended() {
        let table = MemoryTable::new();
        let act = Act {
            entity: EntityKey::parse("shop/order/1").unwrap(),
            nonce: Nonce::from_parts(NOW, 1),
            verb: Verb::EndRewind.as_str().to_owned(),
            sequence: Some(Sequence(7)),
            reason: Reason::new("Jane", "it was paid twice"),
            ended: None,
        };
        let told = || Act::parse(&read(&table, &act_row(&act.entity, &act.nonce)).unwrap()).unwrap().unwrap();
        twice(&table, &Begun { act: &act, purge_at: NOW });
        assert_eq!(told(), act);
        assert_eq!((told().verb.as_str(), told().at()), ("rewind --end", Some(NOW)));
        twice(&table, &EndedAs { act: &act, outcome: "nothing was left" });
        assert_eq!(told(), Act { ended: Some("nothing was left".into()), ..act.clone() });
    }
}
