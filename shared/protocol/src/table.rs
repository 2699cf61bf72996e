//! Rows, writes as values, and the trait of a table.
//!
//! The protocol is a set of pure functions that turn a row, an input and a time into a [`Write`]:
//! one item, one condition, one action. `expression.rs` renders a write as DynamoDB expressions,
//! and `memory.rs` evaluates it in memory. So the same writes are model-checked, simulated under
//! faults and compared with the real store.

mod error;
mod index;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::native::Native;
pub use error::{InvalidKind, InvalidRequest, TableError};
pub use index::{Index, IndexPage, IndexScan, SortKind};

/// An attribute's name.
pub type Attribute = Cow<'static, str>;

/// An attribute's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A string.
    S(String),
    /// A 64-bit integer.
    N(i64),
    /// Any other number, as decimal text.
    Decimal(String),
    /// Bytes.
    B(Bytes),
    /// A boolean.
    Bool(bool),
    /// Null.
    Null,
    /// A list.
    L(Vec<Value>),
    /// A map.
    M(BTreeMap<String, Value>),
}

impl Value {
    /// Returns the size in bytes as DynamoDB counts it (developer guide, "item sizes and formats").
    /// A number takes one byte for every two significant digits, one more, and another if it is
    /// negative.
    pub fn size(&self) -> usize {
        match self {
            Value::S(text) => text.len(),
            Value::N(number) => decimal_size(&number.to_string()),
            Value::Decimal(text) => decimal_size(text),
            Value::B(bytes) => bytes.len(),
            Value::Bool(_) | Value::Null => 1,
            Value::L(items) => 3 + items.iter().map(|item| 1 + item.size()).sum::<usize>(),
            Value::M(items) => 3 + items.iter().map(|(name, item)| 1 + name.len() + item.size()).sum::<usize>(),
        }
    }
}

fn decimal_size(text: &str) -> usize {
    let digits = text.trim_start_matches(['-', '0', '.']).trim_end_matches(['0', '.']);
    let significant = digits.bytes().filter(u8::is_ascii_digit).count();
    significant.div_ceil(2) + 1 + usize::from(text.starts_with('-'))
}

impl From<u64> for Value {
    /// Converts a sequence, token or time; all are far below 2^63.
    fn from(number: u64) -> Self {
        Value::N(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Value::N(i64::from(number))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::N(number)
    }
}

impl From<i32> for Value {
    /// Converts a literal, as in `Change::set("n", 1)`.
    fn from(number: i32) -> Self {
        Value::N(i64::from(number))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Value::Bool(truth)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::S(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::S(text)
    }
}

impl From<Bytes> for Value {
    fn from(bytes: Bytes) -> Self {
        Value::B(bytes)
    }
}

/// One item of a table: its attributes, including those of its key.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row(BTreeMap<Attribute, Value>);

impl Row {
    /// Creates a row without attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the row with an attribute set.
    #[must_use]
    pub fn with(mut self, name: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: impl Into<Attribute>, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// Removes an attribute.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Returns the value of an attribute.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns the string in an attribute, if it holds one.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::S(text)) => Some(text),
            _ => None,
        }
    }

    /// Returns the integer in an attribute, if it holds one that is not negative.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::N(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Returns the bytes in an attribute, if it holds bytes.
    pub fn bytes(&self, name: &str) -> Option<&Bytes> {
        match self.get(name) {
            Some(Value::B(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// Iterates over all attributes in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Attribute, &Value)> {
        self.0.iter()
    }

    /// Returns the size in bytes as DynamoDB counts it.
    pub fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.size()).sum()
    }

    /// Returns the write units of writing this item: one for each started KB.
    pub fn write_units(&self) -> u64 {
        self.size().div_ceil(1024).max(1) as u64
    }

    /// Returns the read units of a strongly consistent read: one for each started 4 KB.
    pub fn read_units(&self) -> u64 {
        self.size().div_ceil(4096).max(1) as u64
    }
}

impl FromIterator<(Attribute, Value)> for Row {
    fn from_iter<I: IntoIterator<Item = (Attribute, Value)>>(attributes: I) -> Self {
        Self(attributes.into_iter().collect())
    }
}

impl IntoIterator for Row {
    type Item = (Attribute, Value);
    type IntoIter = std::collections::btree_map::IntoIter<Attribute, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

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

/// A comparison of two values, as in DynamoDB.
///
/// If the values have different types, or an attribute is absent, `NotEqual` is true and every
/// other comparison is false. Only strings, numbers and bytes have an order. DynamoDB rejects an
/// ordering of other values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
}

/// The right side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// Another attribute of the same item.
    Attribute(Attribute),
}

/// The condition that an item must meet for a write to land.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// No condition.
    Always,
    /// The attribute exists.
    Exists(Attribute),
    /// The attribute, or the whole item, is absent.
    Absent(Attribute),
    /// A comparison of an attribute with a value or with another attribute.
    Compare(Attribute, Comparison, Operand),
    /// All of the conditions hold.
    All(Vec<Condition>),
    /// At least one of the conditions holds. An empty list never holds.
    Any(Vec<Condition>),
}

impl Condition {
    /// Creates the condition `attribute = value`.
    pub fn equal(attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self::compare(attribute, Comparison::Equal, value)
    }

    /// Creates a comparison of an attribute with a value.
    pub fn compare(attribute: impl Into<Attribute>, comparison: Comparison, value: impl Into<Value>) -> Self {
        Self::Compare(attribute.into(), comparison, Operand::Value(value.into()))
    }

    /// Creates a comparison of an attribute with another attribute of the same item.
    pub fn compare_with(attribute: impl Into<Attribute>, comparison: Comparison, other: impl Into<Attribute>) -> Self {
        Self::Compare(attribute.into(), comparison, Operand::Attribute(other.into()))
    }

    /// Creates the condition that the attribute exists.
    pub fn exists(attribute: impl Into<Attribute>) -> Self {
        Self::Exists(attribute.into())
    }

    /// Creates the condition that the attribute is absent.
    pub fn absent(attribute: impl Into<Attribute>) -> Self {
        Self::Absent(attribute.into())
    }

    /// Returns whether the condition holds for every item. Alternatives of [`Any`](Self::Any) that
    /// hold for every item only together are not recognised.
    pub fn always_holds(&self) -> bool {
        match self {
            Condition::Always => true,
            Condition::All(parts) => parts.iter().all(Self::always_holds),
            Condition::Any(parts) => parts.iter().any(Self::always_holds),
            Condition::Exists(_) | Condition::Absent(_) | Condition::Compare(..) => false,
        }
    }

    /// Creates the condition that the attribute is absent, or at most `limit`.
    pub fn absent_or_at_most(attribute: &'static str, limit: impl Into<Value>) -> Self {
        Self::Any(vec![Self::absent(attribute), Self::compare(attribute, Comparison::AtMost, limit)])
    }
}

/// One change to one attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Sets the attribute.
    Set(Attribute, Value),
    /// Sets the attribute if it is absent.
    SetIfAbsent(Attribute, Value),
    /// Adds to a number.
    Add {
        /// The attribute.
        attribute: Attribute,
        /// The value of an absent attribute before the addition.
        base: u64,
        /// The number to add.
        by: u64,
    },
    /// Removes the attribute.
    Remove(Attribute),
}

impl Change {
    /// Creates a change that sets `attribute`.
    pub fn set(attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self::Set(attribute.into(), value.into())
    }

    /// Creates a change that sets `attribute` if it is absent.
    pub fn set_if_absent(attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self::SetIfAbsent(attribute.into(), value.into())
    }

    /// Creates a change that adds `by` to a number. An absent number counts as 0.
    pub fn add(attribute: impl Into<Attribute>, by: u64) -> Self {
        Self::Add { attribute: attribute.into(), base: 0, by }
    }

    /// Creates a change that removes `attribute`.
    pub fn remove(attribute: impl Into<Attribute>) -> Self {
        Self::Remove(attribute.into())
    }
}

/// The effect of a write on its item.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Replaces all attributes except those of the key.
    Put(Row),
    /// Changes single attributes, and creates the item if it is absent.
    Update(Vec<Change>),
    /// Deletes the item.
    Delete,
    /// Only checks the condition, within a transaction. The condition must test something: DynamoDB
    /// rejects a check without a condition expression.
    Check,
    /// Writes or checks the item as DynamoDB's own expressions say, within a transaction. The write's key names only
    /// the table, and its condition always holds.
    Native(Box<Native>),
}

/// One conditional write of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The key of the item.
    pub key: Key,
    /// The condition on which the action depends.
    pub condition: Condition,
    /// The effect on the item.
    pub action: Action,
}

impl Write {
    /// Creates an unconditional put. It suits a handler's own rows, which nobody else writes while
    /// the handler's lease lasts.
    pub fn put(key: Key, row: Row) -> Self {
        Self { key, condition: Condition::Always, action: Action::Put(row) }
    }

    /// Creates an unconditional update of a handler's own row.
    pub fn update(key: Key, changes: impl IntoIterator<Item = Change>) -> Self {
        Self { key, condition: Condition::Always, action: Action::Update(changes.into_iter().collect()) }
    }

    /// Creates an unconditional deletion of a handler's own row.
    pub fn delete(key: Key) -> Self {
        Self { key, condition: Condition::Always, action: Action::Delete }
    }

    /// Creates a check for a transaction. The transaction's other writes land only if `condition`
    /// holds.
    pub fn check(key: Key, condition: Condition) -> Self {
        Self { key, condition, action: Action::Check }
    }

    /// Returns the write with `condition` as its condition.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
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
    /// Nothing landed. Contains one element for each write: `Some` if the write's condition failed,
    /// with the row if there is one.
    Refused(Vec<Option<Option<Row>>>),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_costs_one_byte_and_another_per_two_digits() {
        for (number, size) in [(0, 1), (1, 2), (99, 2), (100, 2), (12_345, 4), (1_700_000_000_000, 2), (-12, 3)] {
            assert_eq!(Value::N(number).size(), size, "{number}");
        }
    }
}
