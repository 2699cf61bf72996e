//! Rows and their values, with their sizes as DynamoDB counts them.

use std::{borrow::Cow, collections::BTreeMap};

use bytes::Bytes;

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
