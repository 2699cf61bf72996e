//! Redrives many parked deliveries, one after the other.

use std::collections::BTreeSet;

use super::{Operator, OperatorError};
use crate::{
    engine::{append::Appended, store::StoreError},
    protocol::entity::{EntityKey, Sequence},
};

/// The result of redriving one delivery of a list.
pub type Redriven = Result<Appended, OperatorError>;

impl Operator {
    /// Redrives the parked deliveries of `list`, one after the other.
    ///
    /// Within `list`, each entity's deliveries must be in order of their sequences. If a delivery is undecided, the
    /// list's later deliveries of the same entity stay parked as well. This method reports each result to `goes_on`,
    /// and stops once `goes_on` returns `false`. After a stop, an error or a crash, call this method again with the
    /// deliveries that are still parked.
    ///
    /// # Errors
    ///
    /// The errors that concern one delivery are only reported: [`OperatorError::NotParked`], `DecidedOtherwise`,
    /// `Undecided`, `Behind`, a corrupt row, and a wake-up that could not be sent. Any other error ends the run.
    pub async fn redrive_all(
        &self,
        list: &[(EntityKey, Sequence)],
        mut goes_on: impl FnMut(&EntityKey, Sequence, &Redriven) -> bool,
    ) -> Result<(), OperatorError> {
        let mut undecided: BTreeSet<&EntityKey> = BTreeSet::new();
        for (entity, sequence) in list {
            let result = match undecided.contains(entity) {
                true => Err(OperatorError::Behind),
                false => self.redrive_at(entity, *sequence).await,
            };
            match &result {
                Err(OperatorError::Undecided) => _ = undecided.insert(entity),
                Ok(_)
                | Err(
                    OperatorError::NotParked
                    | OperatorError::DecidedOtherwise(_)
                    | OperatorError::Behind
                    | OperatorError::Store(StoreError::Corrupt(_))
                    | OperatorError::Queue(_),
                ) => {}
                Err(error) => return Err(error.clone()),
            }
            if !goes_on(entity, *sequence, &result) {
                break;
            }
        }
        Ok(())
    }

    async fn redrive_at(&self, entity: &EntityKey, sequence: Sequence) -> Redriven {
        let parked = self.parked_at(entity, sequence).await?.ok_or(OperatorError::NotParked)?;
        self.redrive(&parked, None).await
    }
}
