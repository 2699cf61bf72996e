//! A table that stops answering when its worker dies.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::{FutureExt, future::BoxFuture};

use crate::protocol::{
    memory::MemoryTable,
    table::{Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written},
};

/// A table that answers until its worker has died.
pub(super) struct Mortal {
    inner: Arc<MemoryTable>,
    died: AtomicBool,
}

impl Mortal {
    pub(super) fn new(inner: Arc<MemoryTable>) -> Self {
        Self { inner, died: AtomicBool::new(false) }
    }

    /// Stops answering.
    pub(super) fn die(&self) {
        self.died.store(true, Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.died.load(Relaxed)
    }

    fn answer<'a, T: Send + 'a>(&self, answer: impl FnOnce() -> BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        if self.is_dead() { std::future::pending().boxed() } else { answer() }
    }
}

impl Table for Mortal {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        self.answer(|| self.inner.write(write))
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        self.answer(|| self.inner.transact(writes, token))
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        self.answer(|| self.inner.get(key))
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        self.answer(|| self.inner.get_many(keys))
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        self.answer(|| self.inner.query(range))
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        self.answer(|| self.inner.scan(table, segment))
    }
}
