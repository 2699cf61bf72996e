//! A worker's connection to the table, which stops answering when the worker crashes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use futures_util::{FutureExt, future::BoxFuture};

use crate::protocol::{
    memory::MemoryTable,
    table::{Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written},
};

pub(super) struct WorkerTable {
    inner: Arc<MemoryTable>,
    has_crashed: AtomicBool,
}

impl WorkerTable {
    pub(super) fn new(inner: Arc<MemoryTable>) -> Self {
        Self { inner, has_crashed: AtomicBool::new(false) }
    }

    pub(super) fn crash(&self) {
        self.has_crashed.store(true, Relaxed);
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.has_crashed.load(Relaxed)
    }

    fn answer<'a, T: Send + 'a>(&self, answer: impl FnOnce() -> BoxFuture<'a, T>) -> BoxFuture<'a, T> {
        if self.has_crashed() { std::future::pending().boxed() } else { answer() }
    }
}

impl Table for WorkerTable {
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
