//! Conditional writes as values.

use super::{Attribute, Key, Row, Value};
use crate::native::Native;

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
    /// The condition that the item must meet.
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
