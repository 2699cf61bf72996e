//! The keys of rows, and ranges of keys.
//!
//! Entities and inboxes have separate tables, so that a scan of the entities reads no payloads.

use super::{
    entity::{EntityKey, IdentityHash, Sequence},
    format::attribute as a,
    table::{Key, Range, Row, TableError, TableName},
};
use crate::time::Nonce;

// The prefixes of sort keys in the inbox table.

/// The sort key prefix of deliveries and tombstones.
const DELIVERY: &str = "d#";
const PARKED: &str = "p#";
const RECEIPT: &str = "r#";
const PART: &str = "b#";
/// The sort key prefix of the operations log.
const ACT: &str = "o#";

pub fn entity_row(entity: &EntityKey) -> Key {
    entity_row_named(entity.as_str())
}

/// Returns the key of the entity row named `key`, which may be an invalid
/// [`EntityKey`].
pub(crate) fn entity_row_named(key: &str) -> Key {
    Key { table: TableName::Entities, partition: (a::ENTITY.into(), key.into()), sort: None }
}

fn inbox_row(partition: String, item: String) -> Key {
    Key {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), partition.into()),
        sort: Some((a::ITEM.into(), item.into())),
    }
}

fn range(partition: &str, from: String, to: String, limit: u32) -> Range {
    let (table, partition) = (TableName::Inbox, (a::ENTITY.into(), partition.into()));
    Range { table, partition, sort: a::ITEM.into(), from, to, limit }
}

/// Returns the range of an entity's inbox rows after the sort key `after`, at most `limit` rows.
/// Parts of bodies have partitions of their own and are not included.
pub fn inbox_range(entity: &EntityKey, after: Option<&str>, limit: u32) -> Range {
    range(entity.as_str(), after.map_or_else(|| "!".to_owned(), |after| format!("{after}\u{0}")), "~".to_owned(), limit)
}

pub fn delivery_row(entity: &EntityKey, sequence: Sequence) -> Key {
    inbox_row(entity.as_str().to_owned(), delivery_item(sequence))
}

/// Returns the range of the delivery rows `from..=to`, at most `limit`.
pub fn delivery_range(entity: &EntityKey, from: Sequence, to: Sequence, limit: u32) -> Range {
    range(entity.as_str(), delivery_item(from), delivery_item(to), limit)
}

fn delivery_item(sequence: Sequence) -> String {
    numbered(DELIVERY, sequence)
}

fn numbered(prefix: &str, sequence: Sequence) -> String {
    // Fixed width keeps the texts in the order of the numbers.
    format!("{prefix}{:020}", sequence.0)
}

pub fn receipt_row(entity: &EntityKey, identity: IdentityHash) -> Key {
    inbox_row(entity.as_str().to_owned(), format!("{RECEIPT}{identity}"))
}

/// Returns the range of an entity's receipt rows after the identity `after`, at most `limit`.
pub fn receipt_range(entity: &EntityKey, after: Option<IdentityHash>, limit: u32) -> Range {
    let from = after.map_or_else(|| RECEIPT.to_owned(), |after| format!("{RECEIPT}{after}\u{0}"));
    range(entity.as_str(), from, format!("{RECEIPT}\u{7f}"), limit)
}

pub fn parked_row(entity: &EntityKey, sequence: Sequence) -> Key {
    inbox_row(entity.as_str().to_owned(), parked_item(sequence))
}

/// Returns the range of an entity's parked deliveries from the sequence `from` on, at most `limit`.
pub fn parked_range(entity: &EntityKey, from: Sequence, limit: u32) -> Range {
    range(entity.as_str(), parked_item(from), parked_item(Sequence(u64::MAX)), limit)
}

fn parked_item(sequence: Sequence) -> String {
    numbered(PARKED, sequence)
}

/// Returns the key of an entry of the operations log. The keys sort by time, as far as the
/// operators' clocks agree.
pub fn action_row(entity: &EntityKey, nonce: &Nonce) -> Key {
    inbox_row(entity.as_str().to_owned(), format!("{ACT}{nonce}"))
}

/// Returns the range of an entity's operations log after the entry `after`, at most `limit`
/// entries.
pub fn action_range(entity: &EntityKey, after: Option<&Nonce>, limit: u32) -> Range {
    range(
        entity.as_str(),
        after.map_or_else(|| ACT.to_owned(), |after| format!("{ACT}{after}\u{0}")),
        format!("{ACT}\u{7f}"),
        limit,
    )
}

/// Returns the nonce of an entry of the operations log, or `None` for a row of another kind.
pub fn action_nonce(row: &Row) -> Option<Nonce> {
    row.text(a::ITEM)?.strip_prefix(ACT).map(Nonce::from_stored)
}

/// Returns the key of a part of a body. Each part has a partition of its own, because DynamoDB
/// limits a partition to a thousand write units a second, and a part costs up to 350. No entity can
/// have that partition, because no entity key contains the control character U+001F.
pub fn part_row(entity: &EntityKey, nonce: &Nonce, number: u32) -> Key {
    inbox_row(format!("{entity}\u{1f}{nonce}\u{1f}{number}"), format!("{PART}{number:04}"))
}

/// The partition that lists the jobs. It cannot be an entity's, because no entity key contains the
/// control character U+001F.
const JOBS_LISTED: &str = "cron\u{1f}jobs";

/// Returns the key of a job's entry in the list of jobs. The list exists because the entities table
/// cannot be queried by prefix.
pub fn job_listing_row(job: &str) -> Key {
    inbox_row(JOBS_LISTED.to_owned(), job.to_owned())
}

/// Returns the range of the listed jobs after the job `after`, at most `limit`.
pub fn job_listing_range(after: Option<&str>, limit: u32) -> Range {
    range(JOBS_LISTED, after.map_or_else(|| "!".to_owned(), |after| format!("{after}!")), "\u{7f}".to_owned(), limit)
}

/// The partition of the sweep's position. It cannot be an entity's, because no entity key contains
/// the control character U+001F.
const SWEEP: &str = "cron\u{1f}sweep";

pub fn sweep_position_row() -> Key {
    inbox_row(SWEEP.to_owned(), "position".to_owned())
}

/// Returns the range that contains only the sweep's position.
pub fn sweep_position_range() -> Range {
    range(SWEEP, "position".to_owned(), "position".to_owned(), 1)
}

/// The partition of the restore's record. It cannot be an entity's, because no entity key contains
/// the control character U+001F.
const RESTORE: &str = "cron\u{1f}restore";

/// Returns the key of the row that records a restore of the tables and its progress.
pub fn restore_row() -> Key {
    inbox_row(RESTORE.to_owned(), "restore".to_owned())
}

/// Returns the sequence of a delivery, a tombstone or a parked delivery, or `None` for a row of
/// another kind.
pub fn sequence_of(row: &Row) -> Option<Sequence> {
    let item = row.text(a::ITEM)?;
    let number = item.strip_prefix(DELIVERY).or_else(|| item.strip_prefix(PARKED))?;
    number.parse().ok().map(Sequence)
}

/// Returns the identity hash of a receipt, or `None` for a row of another kind.
pub fn receipt_identity(row: &Row) -> Option<IdentityHash> {
    row.text(a::ITEM)?.strip_prefix(RECEIPT).and_then(IdentityHash::from_stored)
}

pub fn is_parked(row: &Row) -> bool {
    row.text(a::ITEM).is_some_and(|item| item.starts_with(PARKED))
}

/// Returns the key of a row of the protocol's own tables.
pub fn key_of(table: &TableName, row: &Row) -> Option<Key> {
    let partition = (a::ENTITY.into(), row.get(a::ENTITY)?.clone());
    let sort = row.get(a::ITEM).map(|item| (a::ITEM.into(), item.clone()));
    Some(Key { table: table.clone(), partition, sort })
}

/// Returns the key after which a scan continues, given the last row that it has read. Fails for a
/// handler's own table, whose key attributes are unknown.
pub(crate) fn continuation_key(table: &TableName, row: &Row) -> Result<Key, TableError> {
    key_of(table, row)
        .filter(|_| !matches!(table, TableName::Named(_)))
        .ok_or_else(|| TableError::Invalid("only our own tables are scanned in more than one page".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivery_keys_sort_by_sequence() {
        assert!(delivery_item(Sequence(9)) < delivery_item(Sequence(10)));
        assert!(delivery_item(Sequence(u64::MAX - 1)) < delivery_item(Sequence(u64::MAX)));
    }
}
