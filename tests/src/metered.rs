//! Computes the capacity units of calls to a store in memory, as DynamoDB documents them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use webhook_serializer::protocol::{
    memory::evaluate,
    table::{Index, Row, Table, TableError, Written},
};

use crate::forwarding::{Forwarding, Layer, TableReply, TableRequest};

pub type MeteredTable = Forwarding<TableMeter>;

#[derive(Default)]
pub struct TableMeter {
    requests: AtomicU64,
    write_units: AtomicU64,
    read_units: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestCounts {
    pub requests: u64,
    pub write_units: u64,
    pub read_units: u64,
}

impl MeteredTable {
    pub fn new(inner: Arc<dyn Table>) -> Self {
        Self::through(TableMeter::default(), inner)
    }
}

impl TableMeter {
    pub fn counted(&self) -> RequestCounts {
        let [requests, write_units, read_units] =
            [&self.requests, &self.write_units, &self.read_units].map(|counter| counter.load(Relaxed));
        RequestCounts { requests, write_units, read_units }
    }
}

impl Layer for TableMeter {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        self.requests.fetch_add(1, Relaxed);
        let reply = request.of(inner).await?;
        let (written, read) = match (request, &reply) {
            // The units are those of the larger row, before or after the write. All rows that are changed
            // here, and not put, cost one unit.
            (TableRequest::Write(_), TableReply::Written(Written::Landed(Some(row)) | Written::Refused(Some(row)))) => {
                (row.write_units(), 0)
            }
            (TableRequest::Write(write), TableReply::Written(Written::Landed(None))) => {
                let put = evaluate(write, None).ok().flatten();
                let indexes = Index::ALL.into_iter().filter(|index| index.table() == write.key.table);
                let of_indexes: u64 = indexes.map(|index| index.write_units(None, put.as_ref())).sum();
                (put.map_or(1, |row| row.write_units()) + of_indexes, 0)
            }
            (TableRequest::Write(_), _) => (1, 0),
            (TableRequest::Transact(..), _) => unimplemented!("no run that is metered in memory commits"),
            (_, TableReply::Row(row)) => (0, row.as_ref().map_or(1, Row::read_units)),
            (TableRequest::GetMany(keys), TableReply::Rows(rows)) => {
                (0, (keys.len() - rows.len()) as u64 + rows.iter().map(Row::read_units).sum::<u64>())
            }
            (_, TableReply::Page(page)) => {
                (0, page.rows.iter().map(Row::size).sum::<usize>().div_ceil(4096).max(1) as u64)
            }
            _ => (0, 0),
        };
        self.write_units.fetch_add(written, Relaxed);
        self.read_units.fetch_add(read, Relaxed);
        Ok(reply)
    }
}
