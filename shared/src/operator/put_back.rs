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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutBack {
    At(Sequence),
    /// The delivery was redriven, but no wake-up could be sent. The sweep finds the delivery
    /// within about an hour.
    Unannounced,
    NotParked,
    /// The delivery was settled with this outcome, not as parked. Its parked row was removed.
    DecidedOtherwise(Settlement),
    /// The delivery stays parked, because the worker that parked it has not settled it yet. The
    /// list's later deliveries of the same inbox stay parked as well.
    Undecided,
    /// The delivery stays parked, because an earlier delivery of its inbox is undecided.
    Behind,
    Unreadable(CorruptRow),
}

impl PutBack {
    pub fn stays(&self) -> bool {
        matches!(self, PutBack::Undecided | PutBack::Behind | PutBack::Unreadable(_))
    }
}

impl Operator {
    /// Redrives the parked deliveries of `list`, one after the other.
    ///
    /// Within `list`, each entity's deliveries must be in order of their sequences. This method
    /// reports each result to `goes_on`, and stops once `goes_on` returns `false`. After a stop, an
    /// error or a crash, call this method again with the deliveries that are still parked.
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
