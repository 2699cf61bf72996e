//! Forgetting an entity: all that is stored of it, at a person's request.

use std::time::Duration;

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::{
    delivery::Item,
    entity::{EntityKey, Sequence},
    rows::{EntityState, attribute as a, entity_row, key_of, sequence_of},
    table::{Action, Condition, Key, Range, Row, TableName, Write, Written},
};

/// How far clocks may be apart. A row that is made anew begins with its maker's
/// time: what is erased must be older, or sequences and tokens could come twice.
const CLOCKS_APART: Duration = Duration::from_secs(900);

impl Operator {
    /// Deletes an entity's row, its deliveries, receipts, and what is parked of
    /// it; says how many rows that were. Asked again after a failure, it goes
    /// on. A delivery that comes meanwhile stays, and is the first of a new
    /// row: its sequences and tokens go on above the old ones.
    ///
    /// # Errors
    ///
    /// [`OperatorError::InUse`] while deliveries wait or somebody has its
    /// lease, [`OperatorError::TooFresh`] in its first quarter of an hour; then
    /// nothing was deleted.
    pub async fn erase(&self, entity: &EntityKey) -> Result<u64, OperatorError> {
        let mut erased = 0;
        let now = self.store.surroundings().now().as_millis();
        // Whatever comes from now on has a sequence above this.
        let through = Sequence(now.saturating_sub(CLOCKS_APART.as_millis() as u64));
        if let Some(state) = self.store.entity(entity, PATIENCE).await? {
            self.erase_row(&state, through).await?;
            erased += 1;
        }
        let mut from = "!".to_owned();
        loop {
            let range = Range {
                table: TableName::Inbox,
                partition: (a::ENTITY.into(), entity.as_str().into()),
                sort: a::ITEM.into(),
                from,
                to: "~".into(),
                limit: PAGE,
            };
            let page = self.store.query(&range, PATIENCE).await?;
            for row in page.rows.iter().filter(|row| !waits(row, through)) {
                for key in keys(entity, row)? {
                    let delete = Write { key, condition: Condition::Always, action: Action::Delete };
                    self.store.write(&delete, PATIENCE).await?;
                    erased += 1;
                }
            }
            match page.rows.last().and_then(|row| row.text(a::ITEM)) {
                Some(last) if page.more => from = format!("{last}\u{0}"),
                _ => return Ok(erased),
            }
        }
    }

    /// A row that was changed since, by a claim or an acquire, refuses.
    async fn erase_row(&self, seen: &EntityState, through: Sequence) -> Result<(), OperatorError> {
        if !seen.is_empty() || seen.held.is_some() {
            return Err(OperatorError::InUse);
        }
        if seen.tail > through || seen.token.0 > through.0 {
            return Err(OperatorError::TooFresh);
        }
        let condition = Condition::All(vec![
            Condition::equal(a::TAIL, seen.tail.0),
            Condition::equal(a::TOKEN, seen.token.0),
            Condition::absent(a::HOLDER),
        ]);
        let delete = Write { key: entity_row(&seen.entity), condition, action: Action::Delete };
        match self.store.write(&delete, PATIENCE).await?.outcome {
            // Without a row: a first try landed.
            Written::Landed(_) | Written::Refused(None) => Ok(()),
            Written::Refused(Some(_)) => Err(OperatorError::InUse),
        }
    }
}

fn waits(row: &Row, through: Sequence) -> bool {
    let is_delivery = row.text(a::ITEM).is_some_and(|item| item.starts_with("d#"));
    is_delivery && sequence_of(row).is_some_and(|sequence| sequence > through)
}

/// The row, and before it the parts that only it names.
fn keys(entity: &EntityKey, row: &Row) -> Result<Vec<Key>, OperatorError> {
    let mut keys = Vec::new();
    if sequence_of(row).is_some()
        && let Item::Delivery(unpacked) = Item::parse(entity, row)?
    {
        keys.extend(unpacked.head().part_keys());
    }
    keys.extend(key_of(&TableName::Inbox, row));
    Ok(keys)
}
