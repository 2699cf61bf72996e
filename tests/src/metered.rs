//! What calls of a store in memory would cost, computed from the rows as
//! DynamoDB documents it. `hot_order.rs` compares it with what is reported.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use futures_util::future::BoxFuture;
use webhook_serializer::protocol::{
    memory::evaluate,
    table::{Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written},
};

/// A store whose calls are counted.
pub struct MeteredTable {
    inner: Arc<dyn Table>,
    requests: AtomicU64,
    write_units: AtomicU64,
    read_units: AtomicU64,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Requests.
    pub requests: u64,
    /// Write units.
    pub write_units: u64,
    /// Read units.
    pub read_units: u64,
}

impl MeteredTable {
    /// Counts the calls of `inner`.
    pub fn new(inner: Arc<dyn Table>) -> Self {
        let (requests, write_units, read_units) = Default::default();
        Self { inner, requests, write_units, read_units }
    }

    /// What was counted so far.
    pub fn counted(&self) -> Counted {
        let [requests, write_units, read_units] =
            [&self.requests, &self.write_units, &self.read_units].map(|counter| counter.load(Relaxed));
        Counted { requests, write_units, read_units }
    }

    fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// A write costs the larger of the row before and after. The rows that are
    /// changed here, and not put, all cost one unit.
    async fn write_counted(&self, write: &Write) -> Result<Written, TableError> {
        self.request();
        let written = self.inner.write(write).await?;
        let row = match &written {
            Written::Landed(Some(row)) | Written::Refused(Some(row)) => Some(row.clone()),
            Written::Landed(None) => evaluate(write, None).ok().flatten(),
            Written::Refused(None) => None,
        };
        self.write_units.fetch_add(row.map_or(1, |row| row.write_units()), Relaxed);
        Ok(written)
    }

    fn read(&self, units: u64) {
        self.request();
        self.read_units.fetch_add(units, Relaxed);
    }
}

impl Table for MeteredTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        Box::pin(self.write_counted(write))
    }

    fn transact<'a>(&'a self, _: &'a [Write], _: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        unimplemented!("no run that is metered in memory commits")
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        Box::pin(async {
            let row = self.inner.get(key).await?;
            self.read(row.as_ref().map_or(1, Row::read_units));
            Ok(row)
        })
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        Box::pin(async {
            let rows = self.inner.get_many(keys).await?;
            let absent = (keys.len() - rows.len()) as u64;
            self.read(absent + rows.iter().map(Row::read_units).sum::<u64>());
            Ok(rows)
        })
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        Box::pin(async {
            let page = self.inner.query(range).await?;
            let bytes: usize = page.rows.iter().map(Row::size).sum();
            self.read(bytes.div_ceil(4096).max(1) as u64);
            Ok(page)
        })
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        self.request();
        self.inner.scan(table, segment)
    }
}
