//! Computes the capacity units of calls to a store in memory, as DynamoDB documents them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use webhook_serializer::protocol::{
    memory::evaluate,
    table::{Row, Table, TableError, Written},
};

use crate::forwarding::{Forwarding, Layer, Reply, Request};

pub type MeteredTable = Forwarding<Meter>;

#[derive(Default)]
pub struct Meter {
    requests: AtomicU64,
    write_units: AtomicU64,
    read_units: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    pub requests: u64,
    pub write_units: u64,
    pub read_units: u64,
}

impl MeteredTable {
    pub fn new(inner: Arc<dyn Table>) -> Self {
        Self::through(Meter::default(), inner)
    }
}

impl Meter {
    pub fn counted(&self) -> Counted {
        let [requests, write_units, read_units] =
            [&self.requests, &self.write_units, &self.read_units].map(|counter| counter.load(Relaxed));
        Counted { requests, write_units, read_units }
    }
}

impl Layer for Meter {
    async fn call(&self, inner: &Arc<dyn Table>, request: Request<'_>) -> Result<Reply, TableError> {
        self.requests.fetch_add(1, Relaxed);
        let reply = request.of(inner).await?;
        let (written, read) = match (request, &reply) {
            // The units are those of the larger row, before or after the write. All rows that are changed
            // here, and not put, cost one unit.
            (Request::Write(_), Reply::Written(Written::Landed(Some(row)) | Written::Refused(Some(row)))) => {
                (row.write_units(), 0)
            }
            (Request::Write(write), Reply::Written(Written::Landed(None))) => {
                (evaluate(write, None).ok().flatten().map_or(1, |row| row.write_units()), 0)
            }
            (Request::Write(_), _) => (1, 0),
            (Request::Transact(..), _) => unimplemented!("no run that is metered in memory commits"),
            (_, Reply::Row(row)) => (0, row.as_ref().map_or(1, Row::read_units)),
            (Request::GetMany(keys), Reply::Rows(rows)) => {
                (0, (keys.len() - rows.len()) as u64 + rows.iter().map(Row::read_units).sum::<u64>())
            }
            (_, Reply::Page(page)) => (0, page.rows.iter().map(Row::size).sum::<usize>().div_ceil(4096).max(1) as u64),
            _ => (0, 0),
        };
        self.write_units.fetch_add(written, Relaxed);
        self.read_units.fetch_add(read, Relaxed);
        Ok(reply)
    }
}
