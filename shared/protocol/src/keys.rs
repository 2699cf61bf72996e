//! The keys of rows, and ranges of keys.
//!
//! Entities and inboxes have separate tables, so that a scan of the entities reads no payloads.

use super::{
    entity::{EntityKey, IdentityHash, Sequence},
    format::attribute as a,
    outage::DestinationId,
    receipt::Receipt,
    table::{Key, Range, Row, TableError, TableName},
};
use crate::time::Nonce;

// The prefixes of sort keys in the inbox table.

/// The sort key prefix of deliveries and tombstones.
const DELIVERY: &str = "d#";
const PARKED: &str = "p#";
const RECEIPT: &str = "r#";
/// The sort key prefix of pages of receipts.
const RECEIPT_PAGE: &str = "s#";
const PART: &str = "b#";
/// The sort key prefix of entries of the operations log.
const ACT: &str = "o#";

pub fn entity_row(entity: &EntityKey) -> Key {
    entity_row_named(entity.as_str())
}

/// Returns the key of an entity's row. The parameter `key` need not be a valid [`EntityKey`].
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
    let table = TableName::Inbox;
    let partition = (a::ENTITY.into(), partition.into());
    Range { table, partition, sort: a::ITEM.into(), from, to, limit }
}

/// Returns the range of an entity's inbox rows. The parts of large bodies have partitions of their own, so the range
/// does not contain them.
pub fn inbox_range(entity: &EntityKey, limit: u32) -> Range {
    range(entity.as_str(), "!".to_owned(), "~".to_owned(), limit)
}

pub fn delivery_row(entity: &EntityKey, sequence: Sequence) -> Key {
    inbox_row(entity.as_str().to_owned(), delivery_item(sequence))
}

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

pub fn receipt_range(entity: &EntityKey, limit: u32) -> Range {
    range(entity.as_str(), RECEIPT.to_owned(), format!("{RECEIPT}\u{7f}"), limit)
}

/// Returns the key of a page of receipts. `last` is its newest receipt. Two pages with equal keys
/// have equal receipts: a sequence that is settled again, after a rewind, is settled under a later token.
pub(crate) fn receipt_page_row(entity: &EntityKey, last: &Receipt, receipts: usize) -> Key {
    let item = format!("{}#{receipts}#{}", numbered(RECEIPT_PAGE, last.sequence), last.token);
    inbox_row(entity.as_str().to_owned(), item)
}

pub fn receipt_page_range(entity: &EntityKey, limit: u32) -> Range {
    range(entity.as_str(), RECEIPT_PAGE.to_owned(), format!("{RECEIPT_PAGE}\u{7f}"), limit)
}

pub fn is_receipt_page(row: &Row) -> bool {
    row.text(a::ITEM).is_some_and(|item| item.starts_with(RECEIPT_PAGE))
}

pub fn parked_row(entity: &EntityKey, sequence: Sequence) -> Key {
    inbox_row(entity.as_str().to_owned(), parked_item(sequence))
}

pub fn parked_range(entity: &EntityKey, limit: u32) -> Range {
    range(entity.as_str(), parked_item(Sequence(0)), parked_item(Sequence(u64::MAX)), limit)
}

fn parked_item(sequence: Sequence) -> String {
    numbered(PARKED, sequence)
}

/// Returns the key of an entry of the operations log. The keys of an entity's entries sort by time,
/// as far as the operators' clocks agree.
pub fn action_row(entity: &EntityKey, nonce: &Nonce) -> Key {
    inbox_row(entity.as_str().to_owned(), format!("{ACT}{nonce}"))
}

pub fn action_range(entity: &EntityKey, limit: u32) -> Range {
    range(entity.as_str(), ACT.to_owned(), format!("{ACT}\u{7f}"), limit)
}

pub fn action_nonce(row: &Row) -> Option<Nonce> {
    row.text(a::ITEM)?.strip_prefix(ACT).map(Nonce::from_stored)
}

/// Returns the key of one part of a body. Each part has a partition of its own, because DynamoDB
/// limits a partition to a thousand write units a second, and a part costs up to 350. No entity has
/// such a partition key, because no entity key contains the control character U+001F.
pub fn part_row(entity: &EntityKey, nonce: &Nonce, number: u32) -> Key {
    inbox_row(format!("{entity}\u{1f}{nonce}\u{1f}{number}"), format!("{PART}{number:04}"))
}

/// The partition of the list of jobs. No entity has this key, because no entity key contains the
/// control character U+001F.
const JOBS_LISTED: &str = "cron\u{1f}jobs";

/// Returns the key of a job's entry in the list of jobs.
pub fn job_listing_row(job: &str) -> Key {
    inbox_row(JOBS_LISTED.to_owned(), job.to_owned())
}

pub fn job_listing_range(limit: u32) -> Range {
    range(JOBS_LISTED, "!".to_owned(), "\u{7f}".to_owned(), limit)
}

/// The partition of the sweep's position. No entity has this key, because no entity key contains
/// the control character U+001F.
const SWEEP: &str = "cron\u{1f}sweep";

pub fn sweep_position_row() -> Key {
    inbox_row(SWEEP.to_owned(), "position".to_owned())
}

pub fn sweep_position_range() -> Range {
    range(SWEEP, "position".to_owned(), "position".to_owned(), 1)
}

/// The partition of the orders that each tick of the sweep looks at. No entity has this key, because each entity key
/// contains a slash. The scheduler's role may delete only rows of this partition, so its name has no control
/// character, which a policy cannot contain.
pub const WATCHED: &str = "watched";

/// The sort key prefix of the orders whose wake-up could not be sent.
const OWED: &str = "owed#";
/// The sort key prefix of the orders that have waited long. It sorts before [`OWED`], so these are read first.
const LONG: &str = "long#";

/// The reason why each tick of the sweep looks at an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchReason {
    /// The wake-up of a stored delivery could not be sent.
    Owed,
    /// Deliveries have waited for long.
    Long,
}

impl WatchReason {
    fn prefix(self) -> &'static str {
        match self {
            Self::Owed => OWED,
            Self::Long => LONG,
        }
    }
}

pub fn watched_row(reason: WatchReason, entity: &EntityKey) -> Key {
    inbox_row(WATCHED.to_owned(), format!("{}{entity}", reason.prefix()))
}

pub fn watched_range(limit: u32) -> Range {
    range(WATCHED, "!".to_owned(), "~".to_owned(), limit)
}

/// Returns what a row of [`watched_range`] names: the reason, and the text of the entity's key.
pub(crate) fn watched(row: &Row) -> Option<(WatchReason, &str)> {
    let item = row.text(a::ITEM)?;
    [WatchReason::Owed, WatchReason::Long]
        .into_iter()
        .find_map(|reason| item.strip_prefix(reason.prefix()).map(|entity| (reason, entity)))
}

/// The partition of the restore's record. No entity has this key, because no entity key contains
/// the control character U+001F.
const RESTORE: &str = "cron\u{1f}restore";

pub fn restore_row() -> Key {
    inbox_row(RESTORE.to_owned(), "restore".to_owned())
}

/// The partition of the outages of destinations. No entity has this key, because no entity key contains
/// the control character U+001F.
const OUTAGES: &str = "cron\u{1f}outages";

pub fn outage_row(destination: &DestinationId) -> Key {
    inbox_row(OUTAGES.to_owned(), destination.as_str().to_owned())
}

pub fn outage_range(limit: u32) -> Range {
    range(OUTAGES, "!".to_owned(), "\u{7f}".to_owned(), limit)
}

/// The partition of the row of alerts. No entity has this key, because no entity key contains the control
/// character U+001F.
const ALERTS: &str = "cron\u{1f}alerts";

pub fn alerts_row() -> Key {
    inbox_row(ALERTS.to_owned(), "alerts".to_owned())
}

pub fn alerts_range() -> Range {
    range(ALERTS, "alerts".to_owned(), "alerts".to_owned(), 1)
}

pub fn sequence_of(row: &Row) -> Option<Sequence> {
    let item = row.text(a::ITEM)?;
    let number = item.strip_prefix(DELIVERY).or_else(|| item.strip_prefix(PARKED))?;
    number.parse().ok().map(Sequence)
}

pub fn receipt_identity(row: &Row) -> Option<IdentityHash> {
    row.text(a::ITEM)?.strip_prefix(RECEIPT).and_then(IdentityHash::from_stored)
}

pub fn is_parked(row: &Row) -> bool {
    row.text(a::ITEM).is_some_and(|item| item.starts_with(PARKED))
}

/// Returns the key of a row of the protocol's own tables. Returns `None` if the row has no
/// attribute `entity`, which the rows of a handler's own table may lack.
pub fn key_of(table: &TableName, row: &Row) -> Option<Key> {
    let partition = (a::ENTITY.into(), row.get(a::ENTITY)?.clone());
    let sort = row.get(a::ITEM).map(|item| (a::ITEM.into(), item.clone()));
    Some(Key { table: table.clone(), partition, sort })
}

/// Returns the key after which a scan continues. The parameter `row` is the last row that the scan
/// has read. Fails for a handler's own table, whose key attributes are unknown.
pub fn continuation_key(table: &TableName, row: &Row) -> Result<Key, TableError> {
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
