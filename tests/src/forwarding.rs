//! A table in front of another table. A layer gets every request as one enum, so it is written once for all
//! kinds of requests.

use std::{ops::Deref, sync::Arc};

use futures_util::future::BoxFuture;
use webhook_serializer::protocol::table::{
    IndexPage, IndexScan, Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write,
    Written,
};

#[derive(Debug, Clone, Copy)]
pub enum TableRequest<'a> {
    Write(&'a Write),
    Transact(&'a [Write], &'a str),
    Get(&'a Key),
    GetMany(&'a [Key]),
    Query(&'a Range),
    Scan(&'a TableName, &'a Segment),
    ScanIndex(&'a IndexScan),
}

/// The reply to a request of the same kind.
#[derive(Debug)]
pub enum TableReply {
    Written(Written),
    Transacted(Transacted),
    Row(Option<Row>),
    Rows(Vec<Row>),
    Page(Page),
    Scanned(Scanned),
    IndexPage(IndexPage),
}

impl<'a> TableRequest<'a> {
    pub async fn of(self, table: &Arc<dyn Table>) -> Result<TableReply, TableError> {
        Ok(match self {
            Self::Write(write) => TableReply::Written(table.write(write).await?),
            Self::Transact(writes, token) => TableReply::Transacted(table.transact(writes, token).await?),
            Self::Get(key) => TableReply::Row(table.get(key).await?),
            Self::GetMany(keys) => TableReply::Rows(table.get_many(keys).await?),
            Self::Query(range) => TableReply::Page(table.query(range).await?),
            Self::Scan(table_name, segment) => TableReply::Scanned(table.scan(table_name, segment).await?),
            Self::ScanIndex(scan) => TableReply::IndexPage(table.scan_index(scan).await?),
        })
    }

    /// Returns the request's writes; none for a read.
    pub fn writes(self) -> &'a [Write] {
        match self {
            Self::Write(write) => std::slice::from_ref(write),
            Self::Transact(writes, _) => writes,
            _ => &[],
        }
    }
}

/// A layer in front of a table, which may change requests and replies.
pub trait Layer: Send + Sync + 'static {
    /// Answers `request` with a reply of the same kind; `request.of(inner)` passes it on.
    fn call(
        &self,
        inner: &Arc<dyn Table>,
        request: TableRequest<'_>,
    ) -> impl Future<Output = Result<TableReply, TableError>> + Send;
}

/// A table behind a layer. It dereferences to the layer.
#[derive(Clone)]
pub struct Forwarding<L> {
    inner: Arc<dyn Table>,
    layer: L,
}

impl<L> Forwarding<L> {
    /// Puts `layer` in front of `inner`.
    pub fn through(layer: L, inner: Arc<dyn Table>) -> Self {
        Self { inner, layer }
    }
}

impl<L> Deref for Forwarding<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

macro_rules! reply {
    ($self:ident, $request:expr, $kind:ident) => {
        Box::pin(async move {
            match $self.layer.call(&$self.inner, $request).await? {
                TableReply::$kind(reply) => Ok(reply),
                other => unreachable!("the reply is of another kind: {other:?}"),
            }
        })
    };
}

impl<L: Layer> Table for Forwarding<L> {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        reply!(self, TableRequest::Write(write), Written)
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        reply!(self, TableRequest::Transact(writes, token), Transacted)
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        reply!(self, TableRequest::Get(key), Row)
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        reply!(self, TableRequest::GetMany(keys), Rows)
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        reply!(self, TableRequest::Query(range), Page)
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        reply!(self, TableRequest::Scan(table, segment), Scanned)
    }
    fn scan_index<'a>(&'a self, scan: &'a IndexScan) -> BoxFuture<'a, Result<IndexPage, TableError>> {
        reply!(self, TableRequest::ScanIndex(scan), IndexPage)
    }
}
