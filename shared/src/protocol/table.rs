//! Rows, and writes as values.
//!
//! The protocol is a set of pure functions that turn a row, an input and a time
//! into a [`Write`]: one item, one condition, one change.
//! `aws/dynamo/expression.rs` renders that value as DynamoDB expressions,
//! `memory.rs` evaluates it in memory; nothing else knows how either works. So
//! the very same writes are model-checked, simulated under faults and compared
//! with the real store.
//!
//! This module owns the data types and the trait both implement. It decides
//! nothing.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// An attribute's name.
pub type Attribute = Cow<'static, str>;

/// An attribute's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    S(String),
    /// A whole number.
    N(i64),
    /// A number that is not a whole one of 64 bits, as its decimal text.
    Decimal(String),
    /// Bytes.
    B(Bytes),
    /// A truth value.
    Bool(bool),
    /// Null.
    Null,
    /// A list.
    L(Vec<Value>),
    /// A map.
    M(BTreeMap<String, Value>),
}

impl Value {
    /// What DynamoDB counts for this value, in bytes (developer guide, "item
    /// sizes and formats"; numbers: one byte for two significant digits, and
    /// one more).
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
    /// Sequences, tokens and times: all far below 2^63.
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
    /// What a literal is: `Change::set("n", 1)`.
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

/// One item of a table: its attributes, those of its key among them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Row(BTreeMap<Attribute, Value>);

impl Row {
    /// A row without attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The row with one more attribute.
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

    /// The value of an attribute.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// The text in an attribute; `None` if there is no such text.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::S(text)) => Some(text),
            _ => None,
        }
    }

    /// The number in an attribute; `None` if there is no such number.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::N(number)) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// The bytes in an attribute; `None` if there are none.
    pub fn bytes(&self, name: &str) -> Option<&Bytes> {
        match self.get(name) {
            Some(Value::B(bytes)) => Some(bytes),
            _ => None,
        }
    }

    /// All attributes, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&Attribute, &Value)> {
        self.0.iter()
    }

    /// What DynamoDB counts for this item, in bytes.
    pub fn size(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.size()).sum()
    }

    /// The write units that writing this item costs: one for each started KB.
    pub fn write_units(&self) -> u64 {
        self.size().div_ceil(1024).max(1) as u64
    }

    /// The read units that a strongly consistent read of this item costs: one
    /// for each started 4 KB.
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

/// Which table: one of ours, or one that a handler writes to by its own name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableName {
    /// One small row for each entity.
    Entities,
    /// Deliveries, receipts and what is parked.
    Inbox,
    /// A table of the handler's.
    Named(Arc<str>),
}

/// The primary key of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The table.
    pub table: TableName,
    /// The partition key: attribute and value.
    pub partition: (Attribute, Value),
    /// The sort key, where the table has one.
    pub sort: Option<(Attribute, Value)>,
}

impl Key {
    /// The key of an item in a handler's own table whose only key attribute is
    /// `attribute`.
    pub fn named(table: impl Into<Arc<str>>, attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self { table: TableName::Named(table.into()), partition: (attribute.into(), value.into()), sort: None }
    }

    /// The same with a sort key.
    #[must_use]
    pub fn and(mut self, attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        self.sort = Some((attribute.into(), value.into()));
        self
    }

    /// The key's attributes as a row.
    pub fn to_row(&self) -> Row {
        std::iter::once(self.partition.clone()).chain(self.sort.clone()).collect()
    }
}

/// How two values compare. Values of different types, and an attribute that is
/// not there, make every comparison false but `NotEqual`, which is true of both:
/// so DynamoDB does it. Only texts, numbers and bytes have an order; to ask for
/// that of another value is no request.
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

/// What must hold of the item for a write to land.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// The attribute is there.
    Exists(Attribute),
    /// The attribute is not there, or there is no such item.
    Absent(Attribute),
    /// A comparison with an attribute.
    Compare(Attribute, Comparison, Operand),
    /// All of these.
    All(Vec<Condition>),
    /// At least one of these; none of none.
    Any(Vec<Condition>),
}

impl Condition {
    /// `attribute = value`
    pub fn equal(attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self::compare(attribute, Comparison::Equal, value)
    }

    /// `attribute <comparison> value`
    pub fn compare(attribute: impl Into<Attribute>, comparison: Comparison, value: impl Into<Value>) -> Self {
        Self::Compare(attribute.into(), comparison, Operand::Value(value.into()))
    }

    /// `attribute <comparison> other attribute`
    pub fn compare_with(attribute: impl Into<Attribute>, comparison: Comparison, other: impl Into<Attribute>) -> Self {
        Self::Compare(attribute.into(), comparison, Operand::Attribute(other.into()))
    }

    /// The attribute is there.
    pub fn exists(attribute: impl Into<Attribute>) -> Self {
        Self::Exists(attribute.into())
    }

    /// The attribute is not there.
    pub fn absent(attribute: impl Into<Attribute>) -> Self {
        Self::Absent(attribute.into())
    }

    /// Whether nothing is asked. What is left out of one of several
    /// alternatives must not leave the others alone.
    pub fn always_holds(&self) -> bool {
        match self {
            Condition::Always => true,
            Condition::All(parts) => parts.iter().all(Self::always_holds),
            Condition::Any(parts) => parts.iter().any(Self::always_holds),
            Condition::Exists(_) | Condition::Absent(_) | Condition::Compare(..) => false,
        }
    }

    /// The attribute is not there, or holds at most `limit`.
    pub fn absent_or_at_most(attribute: &'static str, limit: impl Into<Value>) -> Self {
        Self::Any(vec![Self::absent(attribute), Self::compare(attribute, Comparison::AtMost, limit)])
    }
}

/// One change to one attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Set it.
    Set(Attribute, Value),
    /// Set it where it is absent.
    SetIfAbsent(Attribute, Value),
    /// Add to a number that counts as `base` where it is absent.
    Add {
        /// The attribute.
        attribute: Attribute,
        /// What an absent one counts as.
        base: u64,
        /// What is added.
        by: u64,
    },
    /// Remove it.
    Remove(Attribute),
}

impl Change {
    /// Sets `attribute`.
    pub fn set(attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self::Set(attribute.into(), value.into())
    }

    /// Sets `attribute` where it is absent.
    pub fn set_if_absent(attribute: impl Into<Attribute>, value: impl Into<Value>) -> Self {
        Self::SetIfAbsent(attribute.into(), value.into())
    }

    /// Adds `by` to a number, which counts as 0 where it is absent.
    pub fn add(attribute: impl Into<Attribute>, by: u64) -> Self {
        Self::Add { attribute: attribute.into(), base: 0, by }
    }

    /// Removes `attribute`.
    pub fn remove(attribute: impl Into<Attribute>) -> Self {
        Self::Remove(attribute.into())
    }
}

/// What a write does to its item.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Put these attributes in place of whatever is there; those of the key
    /// stay the key's.
    Put(Row),
    /// Change single attributes; creates the item where there is none.
    Update(Vec<Change>),
    /// Delete the item.
    Delete,
    /// Only check the condition, which must ask for something; for
    /// transactions.
    Check,
}

/// One conditional write of one item.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The item.
    pub key: Key,
    /// What must hold.
    pub condition: Condition,
    /// What is done then.
    pub action: Action,
}

impl Write {
    /// An unconditional put, for a handler's own rows: under its lease nobody
    /// else writes them.
    pub fn put(key: Key, row: Row) -> Self {
        Self { key, condition: Condition::Always, action: Action::Put(row) }
    }

    /// An unconditional update, for a handler's own rows. Creates the row where
    /// there is none.
    pub fn update(key: Key, changes: impl IntoIterator<Item = Change>) -> Self {
        Self { key, condition: Condition::Always, action: Action::Update(changes.into_iter().collect()) }
    }

    /// An unconditional delete, for a handler's own rows.
    pub fn delete(key: Key) -> Self {
        Self { key, condition: Condition::Always, action: Action::Delete }
    }

    /// Writes nothing; the writes beside it land only if `condition` holds.
    pub fn check(key: Key, condition: Condition) -> Self {
        Self { key, condition, action: Action::Check }
    }

    /// The same write under a condition.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.condition = condition;
        self
    }
}

/// What became of a write that was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Written {
    /// It landed. An update brings the row as it is now; a put, a delete and a
    /// check bring nothing.
    Landed(Option<Row>),
    /// The condition did not hold. Brings the row as it is, so that a refusal
    /// explains itself; `None`: there is no such item.
    Refused(Option<Row>),
}

/// What became of a transaction that was answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Transacted {
    /// All of it landed.
    Landed,
    /// Nothing landed; for each write in order, whether its condition failed,
    /// and if so the row that it met.
    Refused(Vec<Option<Option<Row>>>),
}

/// Why a call has no answer. One variant for each reaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Too much at the moment; nothing landed. Try again later.
    #[error("the store throttles")]
    Throttled,
    /// Another transaction holds the item; nothing landed. Try again.
    #[error("another transaction is at work on the item")]
    Conflict,
    /// No answer: it may have landed or not.
    #[error("no answer from the store: {0}")]
    Unknown(String),
    /// The store will never accept it: a bug, or missing permissions.
    #[error("the store refuses the request: {0}")]
    Invalid(String),
}

/// A part of a partition, in the order of its sort key.
#[derive(Debug, Clone, PartialEq)]
pub struct Range {
    /// The table.
    pub table: TableName,
    /// The partition key.
    pub partition: (Attribute, Value),
    /// The sort key's attribute.
    pub sort: Attribute,
    /// The first sort key wanted.
    pub from: String,
    /// The last sort key wanted.
    pub to: String,
    /// The most rows wanted.
    pub limit: u32,
}

/// Rows, and whether there may be more.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether it ended for its size or limit rather than for lack of rows.
    pub more: bool,
}

/// Which part of a table a scan reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// This part, from 0.
    pub number: u32,
    /// Of so many.
    pub of: u32,
    /// Go on behind this key.
    pub after: Option<Key>,
    /// The most rows wanted.
    pub limit: u32,
}

/// Rows of a scan.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scanned {
    /// The rows.
    pub rows: Vec<Row>,
    /// Where to go on; `None` at the end of the segment.
    pub after: Option<Key>,
}

/// A store of rows with conditional single-item writes. Reads are strongly
/// consistent, except `scan`.
///
/// Cancelling a call's future says nothing about what it did.
pub trait Table: Send + Sync + 'static {
    /// Does one write, once.
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>>;

    /// Does several writes together or not at all. The identical call with the
    /// same `token` (at most 36 characters) is one transaction for ten minutes.
    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>>;

    /// Reads one row.
    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>>;

    /// Reads up to 100 different rows of one table; those that are not there
    /// are left out, the order is any.
    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>>;

    /// Reads a part of a partition in order.
    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>>;

    /// Reads a part of a table in any order, possibly out of date. Goes on in
    /// our own tables only; a handler's is read in one page, or not at all.
    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_cost_a_byte_for_two_digits_and_one_more() {
        for (number, size) in [(0, 1), (1, 2), (99, 2), (100, 2), (12_345, 4), (1_700_000_000_000, 2), (-12, 3)] {
            assert_eq!(Value::N(number).size(), size, "{number}");
        }
    }
}
