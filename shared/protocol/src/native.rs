//! Items of a transaction in DynamoDB's own form, from handlers in other languages.

use std::collections::BTreeMap;

use bytes::Bytes;

/// One item of `TransactWriteItems`. The write that holds it names only its table.
#[derive(Debug, Clone, PartialEq)]
pub struct Native {
    pub kind: NativeKind,
    /// The whole item of a put; otherwise the item's key.
    pub item: NativeRow,
    pub condition: Option<String>,
    /// The attribute names behind the placeholders of the expressions.
    pub names: BTreeMap<String, String>,
    /// The values behind the placeholders of the expressions.
    pub values: NativeRow,
}

#[derive(Debug, Clone, PartialEq)]
pub enum NativeKind {
    Put,
    /// An update, with its update expression.
    Update(String),
    Delete,
    Check,
}

pub type NativeRow = BTreeMap<String, NativeValue>;

/// An attribute's value. Numbers keep the text in which the handler wrote them.
#[derive(Debug, Clone, PartialEq)]
pub enum NativeValue {
    S(String),
    N(String),
    B(Bytes),
    Ss(Vec<String>),
    Ns(Vec<String>),
    Bs(Vec<Bytes>),
    Bool(bool),
    Null,
    L(Vec<NativeValue>),
    M(NativeRow),
}
