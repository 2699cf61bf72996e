//! The record of the job of alerts: the groups of trouble that it has found and reported.
//!
//! The job sends a message, then records it here. A run that finds the nonce changed has been overtaken by
//! another one, and records nothing.

use crate::{
    format::{CorruptRow, FORMAT, attribute as a, check_format, readable},
    keys::alerts_row,
    operation::{Operation, has_nonce, nonce_as_seen},
    table::{Action, Change, Condition, Row, Write, Written},
    time::Nonce,
};

/// The groups of trouble as last recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertsRow {
    pub nonce: Nonce,
    /// The groups, in a form that only the job of alerts reads.
    pub groups: String,
}

impl AlertsRow {
    /// The most bytes of the row.
    pub const MOST_BYTES: usize = 4096;

    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let text = |name| row.text(name).ok_or(CorruptRow::Attribute(name));
        Ok(Self { nonce: Nonce::from_stored(text(a::NONCE)?), groups: text(a::GROUPS)?.to_owned() })
    }
}

/// Replaces the record of the job of alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordAlerts<'a> {
    /// The nonce of the record that the run has read; `None` if it found none.
    pub seen: Option<&'a Nonce>,
    pub to: &'a AlertsRow,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertsRecorded {
    Recorded,
    /// Another run has recorded since.
    Elsewhere,
}

impl Operation for RecordAlerts<'_> {
    type Outcome = AlertsRecorded;

    fn write(&self) -> Write {
        Write {
            key: alerts_row(),
            condition: Condition::All(vec![readable(), nonce_as_seen(self.seen)]),
            action: Action::Update(vec![
                Change::set(a::VERSION, FORMAT),
                Change::set(a::NONCE, self.to.nonce.as_str()),
                Change::set(a::GROUPS, self.to.groups.as_str()),
            ]),
        }
    }

    /// Treats a refusal as success if the row has this record's nonce, because then an earlier try of this
    /// write landed.
    fn judge(&self, reply: Written) -> Result<AlertsRecorded, CorruptRow> {
        Ok(match reply {
            Written::Landed(_) => AlertsRecorded::Recorded,
            Written::Refused(row) if has_nonce(&row, &self.to.nonce) => AlertsRecorded::Recorded,
            Written::Refused(_) => AlertsRecorded::Elsewhere,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{memory::MemoryTable, table::Table, time::Timestamp};

    fn record(table: &MemoryTable, seen: Option<&Nonce>, to: &AlertsRow) -> AlertsRecorded {
        let operation = RecordAlerts { seen, to };
        let reply = futures_util::FutureExt::now_or_never(table.write(&operation.write())).expect("it is in memory");
        operation.judge(reply.expect("memory answers")).expect("the row is readable")
    }

    #[test]
    fn overtaken_run_records_nothing_and_repeated_record_is_recognised() {
        let table = MemoryTable::new();
        let row = |number, groups: &str| AlertsRow {
            nonce: Nonce::from_parts(Timestamp::from_secs(1_767_225_600), number),
            groups: groups.to_owned(),
        };
        let first = row(1, "one");
        let second = row(2, "two");
        let other = row(3, "three");
        assert_eq!(record(&table, None, &first), AlertsRecorded::Recorded);
        assert_eq!(record(&table, None, &first), AlertsRecorded::Recorded, "the reply was lost");
        assert_eq!(record(&table, Some(&first.nonce), &second), AlertsRecorded::Recorded);
        assert_eq!(record(&table, Some(&first.nonce), &second), AlertsRecorded::Recorded, "the reply was lost");
        assert_eq!(record(&table, Some(&first.nonce), &other), AlertsRecorded::Elsewhere);
        assert_eq!(record(&table, None, &other), AlertsRecorded::Elsewhere);
    }
}
