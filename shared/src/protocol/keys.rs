//! The keys of the rows, and the ranges of keys that are read together.
//!
//! Two tables, so that a scan of the entities never reads a payload.

use super::{
    entity::{EntityKey, IdentityHash, Sequence},
    format::attribute as a,
    table::{Key, Range, Row, TableError, TableName},
};
use crate::time::Nonce;

/// How the keys of the inbox's rows begin: of a delivery or a void, of what is
/// parked, of a receipt, of a part of a body, of what an operator did.
const DELIVERY: &str = "d#";
const PARKED: &str = "p#";
const RECEIPT: &str = "r#";
const PART: &str = "b#";
const ACT: &str = "o#";

/// The row of an entity in the `entities` table.
pub fn entity_row(entity: &EntityKey) -> Key {
    entity_row_named(entity.as_str())
}

/// The row in the `entities` table whose key is this text, which may be none
/// that we could read.
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

/// All that stands in an entity's inbox, at most `limit` rows from behind
/// `after`: deliveries, what operators did, what is parked, receipts.
pub fn inbox_range(entity: &EntityKey, after: Option<&str>, limit: u32) -> Range {
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), entity.as_str().into()),
        sort: a::ITEM.into(),
        from: after.map_or_else(|| "!".to_owned(), |after| format!("{after}\u{0}")),
        to: "~".into(),
        limit,
    }
}

/// Where the delivery, or the void, of `sequence` stands.
pub fn delivery_row(entity: &EntityKey, sequence: Sequence) -> Key {
    inbox_row(entity.as_str().to_owned(), delivery_item(sequence))
}

/// The delivery rows of `from` to `to`, at most `limit` of them.
pub fn delivery_range(entity: &EntityKey, from: Sequence, to: Sequence, limit: u32) -> Range {
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), entity.as_str().into()),
        sort: a::ITEM.into(),
        from: delivery_item(from),
        to: delivery_item(to),
        limit,
    }
}

fn delivery_item(sequence: Sequence) -> String {
    numbered(DELIVERY, sequence)
}

fn numbered(prefix: &str, sequence: Sequence) -> String {
    // Fixed width, so that the order of the texts is the order of the numbers.
    format!("{prefix}{:020}", sequence.0)
}

/// Where the receipt of an identity stands.
pub fn receipt_row(entity: &EntityKey, identity: IdentityHash) -> Key {
    inbox_row(entity.as_str().to_owned(), format!("{RECEIPT}{identity}"))
}

/// All receipts of an entity, at most `limit` from behind `after`.
pub fn receipt_range(entity: &EntityKey, after: Option<IdentityHash>, limit: u32) -> Range {
    let from = after.map_or_else(|| RECEIPT.to_owned(), |after| format!("{RECEIPT}{after}\u{0}"));
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), entity.as_str().into()),
        sort: a::ITEM.into(),
        from,
        to: format!("{RECEIPT}\u{7f}"),
        limit,
    }
}

/// Where the parked delivery of `sequence` stands.
pub fn parked_row(entity: &EntityKey, sequence: Sequence) -> Key {
    inbox_row(entity.as_str().to_owned(), parked_item(sequence))
}

/// The parked deliveries of an entity from `from` on, at most `limit`.
pub fn parked_range(entity: &EntityKey, from: Sequence, limit: u32) -> Range {
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), entity.as_str().into()),
        sort: a::ITEM.into(),
        from: parked_item(from),
        to: parked_item(Sequence(u64::MAX)),
        limit,
    }
}

fn parked_item(sequence: Sequence) -> String {
    numbered(PARKED, sequence)
}

/// Where it stands what an operator did. The order of the keys is that of the
/// times, as far as the operators' clocks agree.
pub fn act_row(entity: &EntityKey, nonce: &Nonce) -> Key {
    inbox_row(entity.as_str().to_owned(), format!("{ACT}{nonce}"))
}

/// What operators did to an entity, at most `limit` from behind `after`.
pub fn act_range(entity: &EntityKey, after: Option<&Nonce>, limit: u32) -> Range {
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), entity.as_str().into()),
        sort: a::ITEM.into(),
        from: after.map_or_else(|| ACT.to_owned(), |after| format!("{ACT}{after}\u{0}")),
        to: format!("{ACT}\u{7f}"),
        limit,
    }
}

/// The act that an inbox row's key names, where it is one's.
pub fn act_nonce(row: &Row) -> Option<Nonce> {
    row.text(a::ITEM)?.strip_prefix(ACT).map(Nonce::from_stored)
}

/// Where one part of a body stands that is too large for one row. A partition
/// of its own for each part: a thousand write units a second are all that one
/// takes, and a part alone has 350. The separator can be in no entity key.
pub fn part_row(entity: &EntityKey, nonce: &Nonce, number: u32) -> Key {
    inbox_row(format!("{entity}\u{1f}{nonce}\u{1f}{number}"), format!("{PART}{number:04}"))
}

/// The partition that lists the jobs by name. The separator can be in no entity
/// key.
const JOBS_LISTED: &str = "cron\u{1f}jobs";

/// Where a job is listed: the table of entities cannot be asked for a prefix.
pub fn job_listing_row(job: &str) -> Key {
    inbox_row(JOBS_LISTED.to_owned(), job.to_owned())
}

/// The jobs listed behind `after`, at most `limit`.
pub fn job_listing_range(after: Option<&str>, limit: u32) -> Range {
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), JOBS_LISTED.into()),
        sort: a::ITEM.into(),
        from: after.map_or_else(|| "!".to_owned(), |after| format!("{after}!")),
        to: "\u{7f}".into(),
        limit,
    }
}

/// The partition of the sweep's position. The separator can be in no entity key.
const SWEEP: &str = "cron\u{1f}sweep";

/// Where the sweep remembers how far it came.
pub fn sweep_position_row() -> Key {
    inbox_row(SWEEP.to_owned(), "position".to_owned())
}

/// The partition that holds the sweep's position and nothing else.
pub fn sweep_position_range() -> Range {
    Range {
        table: TableName::Inbox,
        partition: (a::ENTITY.into(), SWEEP.into()),
        sort: a::ITEM.into(),
        from: "position".to_owned(),
        to: "position".to_owned(),
        limit: 1,
    }
}

/// The partition of the restore that these tables went through. The separator can
/// be in no entity key.
const RESTORE: &str = "cron\u{1f}restore";

/// Where it is written down that the tables were restored from a backup, and how
/// far that is.
pub fn restore_row() -> Key {
    inbox_row(RESTORE.to_owned(), "restore".to_owned())
}

/// The sequence that an inbox row's key names, where it is one of a delivery or
/// of a parked delivery.
pub fn sequence_of(row: &Row) -> Option<Sequence> {
    let item = row.text(a::ITEM)?;
    let number = item.strip_prefix(DELIVERY).or_else(|| item.strip_prefix(PARKED))?;
    number.parse().ok().map(Sequence)
}

/// The identity that an inbox row's key names, where it is a receipt's.
pub fn receipt_identity(row: &Row) -> Option<IdentityHash> {
    row.text(a::ITEM)?.strip_prefix(RECEIPT).and_then(IdentityHash::from_stored)
}

/// Whether an inbox row is one of a parked delivery.
pub fn is_parked(row: &Row) -> bool {
    row.text(a::ITEM).is_some_and(|item| item.starts_with(PARKED))
}

/// The key of a row read from one of our tables.
pub fn key_of(table: &TableName, row: &Row) -> Option<Key> {
    let partition = (a::ENTITY.into(), row.get(a::ENTITY)?.clone());
    let sort = row.get(a::ITEM).map(|item| (a::ITEM.into(), item.clone()));
    Some(Key { table: table.clone(), partition, sort })
}

/// The key behind which a scan goes on. Of a handler's own table we do not know
/// which attributes are its key.
pub(crate) fn key_to_go_on_from(table: &TableName, row: &Row) -> Result<Key, TableError> {
    key_of(table, row)
        .filter(|_| !matches!(table, TableName::Named(_)))
        .ok_or_else(|| TableError::Invalid("only our own tables are scanned in more than one page".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_delivery_items_is_the_order_of_sequences() {
        assert!(delivery_item(Sequence(9)) < delivery_item(Sequence(10)));
        assert!(delivery_item(Sequence(u64::MAX - 1)) < delivery_item(Sequence(u64::MAX)));
    }
}
