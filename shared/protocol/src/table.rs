//! Rows, writes as values, and the trait of a table.
//!
//! The protocol is a set of pure functions that turn a row, an input and a time into a [`Write`]:
//! one item, one condition, one action. `expression.rs` renders a write as DynamoDB expressions,
//! and `memory.rs` evaluates it in memory. So the same writes are model-checked, simulated under
//! faults and compared with the real store.

mod error;
mod index;
mod row;
mod write;

use std::sync::Arc;

use futures_util::future::BoxFuture;

pub use error::{InvalidKind, InvalidRequest, TableError, is_credential_error};
pub use index::{Index, IndexPage, IndexScan, SortKind};
pub use row::{Attribute, Row, Value};
pub use write::{Action, Change, Comparison, Condition, Operand, Write};

/// A table of the protocol, or a handler's own table.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableName {
    /// One small row for each entity.
    Entities,
    /// All other rows of the protocol, such as deliveries, parked deliveries and receipts.
    Inbox,
    /// A handler's own table.
    Named(Arc<str>),
}

/// The primary key of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The table.
    pub table: TableName,
    /// The partition key: attribute and value.
    pub partition: (Attribute, Value),
    /// The sort key, if the table has one.
    pub sort: Option<(Attribute, Value)>,
}

impl Key {
    /// Creates the key of an item in a handler's own table, without a sort key.
    pub fn named(table: impl Into<Arc<str>>, attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self { table: TableName::Named(table.into()), partition: (attribute.into(), value.into()), sort: None }
    }

    /// Returns the key with a sort key added.
    #[must_use]
    pub fn and(mut self, attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        self.sort = Some((attribute.into(), value.into()));
        self
    }

    /// Returns the key's attributes as a row.
    pub fn to_row(&self) -> Row {
        std::iter::once(self.partition.clone()).chain(self.sort.clone()).collect()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// The write landed. The reply to an update contains the new row; other replies contain none.
    Landed(Option<Row>),
    /// The condition did not hold. Contains the unchanged row, or `None` if there is no such item.
    Refused(Option<Row>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Transacted {
    Landed,
    /// Nothing landed, because at least one condition failed. Contains the result of each write, in order.
    Refused(Vec<ConditionResult>),
}

/// The most writes of a caller in one transaction. DynamoDB takes 100, and the protocol adds one.
pub const MOST_OWN_WRITES: usize = 99;

/// The result of one write's condition in a refused transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum ConditionResult {
    Held,
    /// Contains the unchanged row, or `None` if there is no such item.
    Failed(Option<Row>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Range {
    pub table: TableName,
    pub partition: (Attribute, Value),
    pub sort: Attribute,
    /// The first sort key of the range, inclusive.
    pub from: String,
    /// The last sort key of the range, inclusive.
    pub to: String,
    pub limit: u32,
}

impl Range {
    /// Returns whether no sort key is in the range. DynamoDB refuses to read such a range.
    pub fn is_empty(&self) -> bool {
        self.from > self.to
    }

    /// Returns the part of the range behind `row`. `None` if nothing is left, or the row has no sort key.
    pub fn after(&self, row: &Row) -> Option<Self> {
        let last = row.text(&self.sort)?;
        let rest = Self { from: format!("{last}\u{0}"), ..self.clone() };
        (!rest.is_empty()).then_some(rest)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Set if the page ended at its size limit or row limit, so that more rows may follow.
    pub more: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The number of the segment, from 0.
    pub number: u32,
    /// The number of segments in the table.
    pub of: u32,
    /// The key after which the scan continues; `None` at the segment's beginning.
    pub after: Option<Key>,
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scanned {
    pub rows: Vec<Row>,
    /// The key after which the scan continues; `None` at the segment's end.
    pub after: Option<Key>,
}

/// Sends a prepared transaction once at each call.
pub type Prepared<'a> = Box<dyn Fn() -> BoxFuture<'a, Result<Transacted, TableError>> + Send + 'a>;

/// A store of rows that supports conditional writes of single items, and transactions. Reads are
/// strongly consistent, except `scan`.
///
/// If the future of a call is dropped, the call may have landed or not.
pub trait Table: Send + Sync + 'static {
    /// Sends a write once, without a retry.
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>>;

    /// Sends several writes, which land all together or not at all. For ten minutes, an identical
    /// call with the same `token` is the same transaction. The token has at most 36 characters.
    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>>;

    /// Prepares a transaction that may be sent several times. DynamoDB recognises a repetition only
    /// if the request is the same, so its table builds the request once.
    fn prepare<'a>(&'a self, writes: &'a [Write], token: &'a str) -> Prepared<'a> {
        Box::new(move || self.transact(writes, token))
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>>;

    /// Reads up to 100 different rows of one table. Absent rows are left out; the order
    /// is undefined.
    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>>;

    /// Reads a range of a partition in the order of the sort keys.
    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>>;

    /// Reads a segment of a table, in any order. The read is eventually consistent. A handler's own
    /// table must fit into one page.
    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>>;

    /// Reads a page of an index, as [`IndexScan`] says. A table without this index, or whose index is still being
    /// filled, refuses the request as invalid, so an index that answers has every row that belongs in it.
    fn scan_index<'a>(&'a self, scan: &'a IndexScan) -> BoxFuture<'a, Result<IndexPage, TableError>> {
        let refusal = format!("this table does not read the index {}", scan.index.name());
        Box::pin(std::future::ready(Err(TableError::Invalid(refusal.into()))))
    }
}
