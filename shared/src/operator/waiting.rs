//! Counts the waiting deliveries of a source.

use std::{collections::BTreeMap, time::Duration};

use super::{Operator, OperatorError, PATIENCE};
use crate::protocol::{
    entity::{EntityKey, Sequence, SourceName},
    format::{CorruptRow, attribute as a},
    keys::{is_parked, sequence_of},
    table::TableName,
};

impl Operator {
    pub async fn wake(&self, entity: &EntityKey, delay: Duration) -> Result<(), OperatorError> {
        Ok(self.waker.wake(entity, delay, PATIENCE).await?)
    }

    /// Counts the waiting deliveries of `source`, for each entity. Reads the whole inbox table.
    ///
    /// Deliveries that arrive or are settled during the read may or may not be counted.
    pub async fn waiting_of(&self, source: &SourceName) -> Result<BTreeMap<EntityKey, usize>, OperatorError> {
        let mut kept: BTreeMap<EntityKey, Vec<Sequence>> = BTreeMap::new();
        let mut pass = self.pass(TableName::Inbox);
        while let Some(rows) = pass.page().await? {
            let its = rows.iter().filter(|row| row.text(a::SOURCE) == Some(source.as_str()) && !is_parked(row));
            for row in its {
                if let (Some(sequence), Some(entity)) = (sequence_of(row), row.text(a::ENTITY)) {
                    kept.entry(EntityKey::parse(entity).map_err(CorruptRow::from)?).or_default().push(sequence);
                }
            }
        }
        let mut waiting = BTreeMap::new();
        for (entity, sequences) in kept {
            let head = self.store.entity(&entity, PATIENCE).await?.map_or(Sequence(0), |state| state.head);
            let count = sequences.into_iter().filter(|sequence| *sequence > head).count();
            if count > 0 {
                waiting.insert(entity, count);
            }
        }
        Ok(waiting)
    }
}
