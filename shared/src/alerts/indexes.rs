//! Reads the indexes of trouble.

use std::collections::{BTreeMap, BTreeSet};

use super::group::{Common, Look, OrderInTrouble, Trouble};
use crate::{
    operator::{Operator, OperatorError, Pass, held_entity, indexed_entity},
    protocol::{
        entity::{EntityKey, SourceName},
        format::attribute as a,
        table::{Index, Row},
        waits::{SourceTag, WaitClass, Waits},
    },
    sources::Sources,
    time::Timestamp,
};

/// The most read units that one look spends on an index, for about 40,000 orders.
const MOST_UNITS: u64 = 1000;

/// The kinds of trouble that the index of waiting orders shows.
pub(super) const WAITING: [Trouble; 3] = [Trouble::Blocked, Trouble::Failing, Trouble::Unavailable];

/// Reads the indexes. Of an index that cannot be read, the look knows nothing; the error says which one that is.
pub async fn look(operator: &Operator, sources: &Sources) -> Result<(Look, Option<OperatorError>), OperatorError> {
    let names = sources.iter().map(|source| (SourceTag::of(&source.name), source.name.to_string())).collect();
    let mut reading = IndexReading { operator, names, look: Look::default(), lacks: None };
    let mut held = BTreeMap::new();
    reading.read(Index::Held, &[Trouble::OnHold], |_, row| held.extend(on_hold(row))).await?;
    let mut blocked = BTreeSet::new();
    let add = |reading: &mut IndexReading<'_>, row: &Row| reading.waiting(row, &held, &mut blocked);
    reading.read(Index::Waits, &WAITING, add).await?;
    // A blocked order that is also on hold counts as blocked.
    for (order, since) in held.into_iter().filter(|(order, _)| !blocked.contains(order)) {
        let common = Common::new(Trouble::OnHold, SourceTag::default(), "", "");
        reading.look.add(common, OrderInTrouble { since, order, source: String::new() });
    }
    reading.read(Index::Parked, &[Trouble::Parked], IndexReading::parked).await?;
    Ok((reading.look, reading.lacks))
}

struct IndexReading<'a> {
    operator: &'a Operator,
    names: BTreeMap<SourceTag, String>,
    look: Look,
    lacks: Option<OperatorError>,
}

impl IndexReading<'_> {
    /// Reads an index to its end, or until [`MOST_UNITS`] are spent.
    async fn read(
        &mut self,
        index: Index,
        troubles: &[Trouble],
        mut add: impl FnMut(&mut Self, &Row),
    ) -> Result<(), OperatorError> {
        let operator = self.operator;
        let mut pass: Pass<'_> = operator.index_pass(index);
        loop {
            let rows = match pass.page().await {
                Ok(Some(rows)) => rows,
                Ok(None) => return Ok(()),
                Err(error) if error.lacks_index() => {
                    self.lacks = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            };
            rows.iter().for_each(|row| add(self, row));
            if pass.read().units() >= MOST_UNITS {
                break;
            }
        }
        self.look.incomplete.extend(troubles);
        Ok(())
    }

    fn waiting(&mut self, row: &Row, held: &BTreeMap<EntityKey, Timestamp>, blocked: &mut BTreeSet<EntityKey>) {
        let waits = row.bytes(a::WAITS).and_then(|bytes| Waits::from_stored(bytes));
        let (Some(waits), Some(order)) = (waits, indexed_entity(row)) else { return };
        let trouble = match waits.class {
            WaitClass::Blocked => Trouble::Blocked,
            WaitClass::Failed | WaitClass::Unanswered => Trouble::Failing,
            WaitClass::Unavailable | WaitClass::NotTried => Trouble::Unavailable,
        };
        if trouble == Trouble::Blocked {
            blocked.insert(order.clone());
        } else if held.contains_key(&order) {
            return;
        }
        let error = match trouble {
            Trouble::Unavailable => "",
            _ => row.text(a::LAST_ERROR).unwrap_or_default(),
        };
        let source = self.names.get(&waits.source).cloned().unwrap_or_default();
        let since = Timestamp::from_millis(row.number(a::PENDING_SINCE).unwrap_or_default());
        self.look.add(Common::new(trouble, waits.source, &source, error), OrderInTrouble { since, order, source });
    }

    fn parked(&mut self, row: &Row) {
        let source = row.text(a::SOURCE).and_then(|source| SourceName::parse(source).ok());
        let (Some(order), Some(source)) = (indexed_entity(row), source) else { return };
        let since = Timestamp::from_millis(row.number(a::PARKED_AT).unwrap_or_default());
        let error = row.text(a::ERROR).unwrap_or_default();
        let common = Common::new(Trouble::Parked, SourceTag::of(&source), source.as_str(), error);
        self.look.add(common, OrderInTrouble { since, order, source: source.to_string() });
    }
}

/// Returns the order of an entry of [`Index::Held`] whose hold has not ended, and the time of the hold.
fn on_hold(row: &Row) -> Option<(EntityKey, Timestamp)> {
    Some((held_entity(row)?, Timestamp::from_millis(row.number(a::HOLD)?)))
}
