//! Many parked deliveries put back, one after the other.

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

/// What became of one that was to be put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBack {
    /// It waits at this place.
    At(Sequence),
    /// It waits, and no wake-up could be sent: the sweep finds it within the
    /// hour.
    Unannounced,
    /// It was not parked any more: put back or removed by somebody else.
    NotParked,
    /// It was settled otherwise after all; what was left of it is removed.
    DecidedOtherwise(Settlement),
    /// Whoever parked it has not settled it yet. It stays, and so does what is
    /// parked behind it in the same inbox.
    Undecided,
    /// It stays parked, because one in front of it is undecided.
    Behind,
    /// It stays parked: its row or its body cannot be read, and why.
    Unreadable(CorruptRow),
}

impl PutBack {
    /// Whether it is still parked.
    pub fn stays(&self) -> bool {
        matches!(self, PutBack::Undecided | PutBack::Behind | PutBack::Unreadable(_))
    }
}

impl Operator {
    /// Puts parked deliveries back, each as [`redrive`](Self::redrive) does, in
    /// the order of `list`: those of one entity must be in theirs. Tells what
    /// became of each; where it is told to stop, the rest stays parked. Begun
    /// again after that, or after this process was killed, with what is parked
    /// by then, it goes on: what it put back is not put back again. One that cannot
    /// be read keeps no other from being put back.
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
            let became =
                if undecided.contains(entity) { PutBack::Behind } else { self.put_back_one(entity, *sequence).await? };
            if became == PutBack::Undecided {
                undecided.insert(entity);
            }
            if !goes_on(entity, *sequence, &became) {
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
