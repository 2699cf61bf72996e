//! Checks an entity's receipts: its deliveries must have been settled in order, no two handler runs
//! may have overlapped, and each delivery must have been applied only once.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use crate::{
    entity::Sequence,
    receipt::{Receipt, Settlement},
};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The number of checked receipts, which excludes receipts of repeats and tombstones.
    pub receipts: usize,
    pub mistakes: Vec<Mistake>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistake {
    /// Two identities were settled at one sequence.
    SamePlace(Sequence),
    /// The sequence was settled under a smaller token than the sequence before it.
    TokenWentBack(Sequence),
    /// The handler of this sequence started before the preceding delivery was settled.
    Overlap(Sequence),
    AppliedAgain {
        first: Sequence,
        again: Sequence,
    },
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mistake::SamePlace(at) => write!(f, "{at}: two deliveries were settled at this sequence"),
            Mistake::TokenWentBack(at) => {
                write!(f, "{at}: the delivery was settled under a smaller token than the delivery before it")
            }
            Mistake::Overlap(at) => write!(f, "{at}: the delivery started before the previous one was settled"),
            Mistake::AppliedAgain { first, again } => write!(f, "{again}: applied again, after {first}"),
        }
    }
}

impl History {
    /// Checks the receipts of one entity, given in any order. A handler start may seem up to a
    /// second earlier than the previous settle, because the clocks of instances differ.
    pub fn of(mut receipts: Vec<Receipt>) -> Self {
        receipts.retain(|receipt| receipt.spills().is_some());
        receipts.sort_by_key(|receipt| receipt.sequence);
        let mut history = Self { receipts: receipts.len(), ..Self::default() };
        for pair in receipts.windows(2) {
            let [before, after] = pair else { continue };
            if before.sequence == after.sequence {
                history.mistakes.push(Mistake::SamePlace(after.sequence));
                continue;
            }
            // Equal tokens are valid: the deliveries of a group share one, and so do the deliveries
            // that the end of a rewind settles.
            if after.token < before.token {
                history.mistakes.push(Mistake::TokenWentBack(after.sequence));
            }
            let clocks = std::time::Duration::from_secs(1);
            // After a rewind that was ended early, a delivery that ran again is followed by receipts of
            // earlier runs, which were settled before it.
            let is_next_start = after.token != before.token && after.settled_at >= before.settled_at;
            if is_next_start && after.started_at().is_some_and(|started| started + clocks < before.settled_at) {
                history.mistakes.push(Mistake::Overlap(after.sequence));
            }
        }
        let mut applied = BTreeMap::new();
        for receipt in receipts.iter().filter(|receipt| receipt.settlement == Settlement::Applied) {
            match applied.entry(receipt.identity) {
                Entry::Vacant(first) => {
                    first.insert(receipt.sequence);
                }
                // Reported as `SamePlace` above.
                Entry::Occupied(first) if *first.get() == receipt.sequence => {}
                Entry::Occupied(first) => {
                    history.mistakes.push(Mistake::AppliedAgain { first: *first.get(), again: receipt.sequence });
                }
            }
        }
        history
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        entity::{FencingToken, IdentityHash},
        receipt::Settlement,
        time::Timestamp,
    };

    fn receipt(sequence: u64, token: u64, started: u64, settled: u64) -> Receipt {
        Receipt {
            identity: Some(IdentityHash::from_bytes(sequence.to_be_bytes())),
            sequence: Sequence(sequence),
            settlement: Settlement::Applied,
            token: FencingToken(token),
            attempts: 1,
            settled_at: Timestamp::from_millis(settled),
            took: Some(Duration::from_millis(settled - started)),
        }
    }

    #[test]
    fn history_with_growing_tokens_has_no_mistake() {
        let history = History::of(vec![receipt(2, 5, 20, 30), receipt(1, 4, 0, 10)]);
        assert_eq!(history, History { receipts: 2, ..History::default() });
    }

    #[test]
    fn deliveries_of_one_group_count_as_no_overlap() {
        let of_group = |sequence| receipt(sequence, 4, 0, 5000);
        let history = History::of(vec![of_group(1), of_group(2), of_group(3), receipt(4, 6, 5001, 9000)]);
        assert_eq!(history, History { receipts: 4, ..History::default() });
        let early = History::of(vec![of_group(1), of_group(2), receipt(3, 6, 3000, 9000)]);
        assert_eq!(early.mistakes, [Mistake::Overlap(Sequence(3))]);
    }

    /// The first delivery ran again, at 20 s. The end of the rewind settled the others as they were.
    #[test]
    fn rewind_ended_early_counts_as_no_overlap() {
        let history = History::of(vec![
            receipt(1, 10, 19_000, 20_000),
            receipt(2, 12, 1000, 2000),
            receipt(3, 12, 3000, 4000),
            receipt(4, 13, 25_000, 26_000),
        ]);
        assert_eq!(history, History { receipts: 4, ..History::default() });
    }

    #[test]
    fn identity_applied_twice_is_reported_as_mistake() {
        let identity = Some(IdentityHash::from_bytes([7; 8]));
        let settled = |sequence, settlement| {
            let at = 10_000 * sequence;
            Receipt { identity, settlement, ..receipt(sequence, sequence, at, at + 10) }
        };
        let [first, second, third] = [1, 2, 3].map(|sequence| settled(sequence, Settlement::Applied));
        let history = History::of(vec![first.clone(), second, third]);
        let again = |sequence| Mistake::AppliedAgain { first: Sequence(1), again: Sequence(sequence) };
        assert_eq!(history.mistakes, [again(2), again(3)]);
        let parked = History::of(vec![first, settled(2, Settlement::Parked), settled(3, Settlement::Repeat)]);
        assert_eq!(parked.mistakes, []);
    }

    #[test]
    fn history_reports_all_mistakes_at_one_sequence() {
        let history = History::of(vec![receipt(1, 4, 0, 9000), receipt(2, 3, 100, 9500), receipt(2, 5, 9600, 9700)]);
        assert_eq!(
            history.mistakes,
            [Mistake::TokenWentBack(Sequence(2)), Mistake::Overlap(Sequence(2)), Mistake::SamePlace(Sequence(2))]
        );
    }
}
