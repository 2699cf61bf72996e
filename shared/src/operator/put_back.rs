//! Redrives many parked deliveries, one after the other.

use std::collections::BTreeSet;

use super::{Operator, OperatorError};
use crate::{
    engine::store::StoreError,
    protocol::{
        entity::{EntityKey, Sequence},
        format::CorruptRow,
        receipt::Settlement,
    },
};

/// The result for one delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBack {
    /// The delivery waits at this sequence.
    At(Sequence),
    /// The delivery waits, but no wake-up could be sent; the sweep finds it within the hour.
    Unannounced,
    /// The delivery is no longer parked.
    NotParked,
    /// The delivery was settled differently; its parked row is removed.
    DecidedOtherwise(Settlement),
    /// The worker that parked it has not settled it yet. It stays parked, and so do those
    /// behind it in the same inbox.
    Undecided,
    /// The delivery stays parked behind an undecided one.
    Behind,
    /// The delivery stays parked: its row or its body is corrupt.
    Unreadable(CorruptRow),
}

impl PutBack {
    /// Returns whether it is still parked.
    pub fn stays(&self) -> bool {
        matches!(self, PutBack::Undecided | PutBack::Behind | PutBack::Unreadable(_))
    }
}

impl Operator {
    /// Redrives parked deliveries in the order of `list`, which must keep the order of each
    /// entity. Reports each result; once `goes_on` returns `false`, the rest stays parked. A
    /// new call with what is still parked continues after a stop or a crash.
    ///
    /// # Errors
    ///
    /// The store could not be reached. The rest stays parked.
    pub async fn put_back(
        &self,
        list: &[(EntityKey, Sequence)],
        mut goes_on: impl FnMut(&EntityKey, Sequence, &PutBack) -> bool,
    ) -> Result<(), OperatorError> {
        let mut undecided: BTreeSet<&EntityKey> = BTreeSet::new();
        for (entity, sequence) in list {
            let result =
                if undecided.contains(entity) { PutBack::Behind } else { self.put_back_one(entity, *sequence).await? };
            if result == PutBack::Undecided {
                undecided.insert(entity);
            }
            if !goes_on(entity, *sequence, &result) {
                break;
            }
        }
        Ok(())
    }

    async fn put_back_one(&self, entity: &EntityKey, sequence: Sequence) -> Result<PutBack, OperatorError> {
        let parked = match self.parked_at(entity, sequence).await {
            Ok(Some(parked)) => parked,
            Ok(None) => return Ok(PutBack::NotParked),
            Err(OperatorError::Store(StoreError::Corrupt(error))) => return Ok(PutBack::Unreadable(error)),
            Err(error) => return Err(error),
        };
        Ok(match self.redrive(&parked, None).await {
            Ok(appended) => PutBack::At(appended.sequence),
            Err(OperatorError::Queue(_)) => PutBack::Unannounced,
            Err(OperatorError::NotParked) => PutBack::NotParked,
            Err(OperatorError::DecidedOtherwise(settlement)) => PutBack::DecidedOtherwise(settlement),
            Err(OperatorError::Undecided) => PutBack::Undecided,
            Err(OperatorError::Store(StoreError::Corrupt(error))) => PutBack::Unreadable(error),
            Err(error) => return Err(error),
        })
    }
}
