//! A store before another: what it changes about a request or its reply is all
//! that has to be written, once for whichever request it is.

use std::{ops::Deref, sync::Arc};

use futures_util::future::BoxFuture;
use webhook_serializer::protocol::table::{
    Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written,
};

/// What a store is asked.
#[derive(Debug, Clone, Copy)]
pub enum Request<'a> {
    /// One write.
    Write(&'a Write),
    /// Several, under a token.
    Transact(&'a [Write], &'a str),
    /// One row.
    Get(&'a Key),
    /// Several rows.
    GetMany(&'a [Key]),
    /// A part of a partition.
    Query(&'a Range),
    /// A part of a table.
    Scan(&'a TableName, &'a Segment),
}

/// What it answers.
#[derive(Debug)]
#[expect(missing_docs, reason = "each to the request of that kind")]
pub enum Reply {
    Written(Written),
    Transacted(Transacted),
    Row(Option<Row>),
    Rows(Vec<Row>),
    Page(Page),
    Scanned(Scanned),
}

impl<'a> Request<'a> {
    /// Asks `table`.
    pub async fn of(self, table: &Arc<dyn Table>) -> Result<Reply, TableError> {
        Ok(match self {
            Self::Write(write) => Reply::Written(table.write(write).await?),
            Self::Transact(writes, token) => Reply::Transacted(table.transact(writes, token).await?),
            Self::Get(key) => Reply::Row(table.get(key).await?),
            Self::GetMany(keys) => Reply::Rows(table.get_many(keys).await?),
            Self::Query(range) => Reply::Page(table.query(range).await?),
            Self::Scan(table_name, segment) => Reply::Scanned(table.scan(table_name, segment).await?),
        })
    }

    /// What it writes; nothing: it reads.
    pub fn writes(self) -> &'a [Write] {
        match self {
            Self::Write(write) => std::slice::from_ref(write),
            Self::Transact(writes, _) => writes,
            _ => &[],
        }
    }
}

/// What stands before a store.
pub trait Layer: Send + Sync + 'static {
    /// Answers `request` in the place of `inner`, with a reply of its kind;
    /// `request.of(inner)` lets it through.
    fn call(
        &self,
        inner: &Arc<dyn Table>,
        request: Request<'_>,
    ) -> impl Future<Output = Result<Reply, TableError>> + Send;
}

/// A store behind a layer, to which this dereferences.
#[derive(Clone)]
pub struct Forwarding<L> {
    inner: Arc<dyn Table>,
    layer: L,
}

impl<L> Forwarding<L> {
    /// `inner` behind `layer`.
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
                Reply::$kind(reply) => Ok(reply),
                other => unreachable!("answers another request: {other:?}"),
            }
        })
    };
}

impl<L: Layer> Table for Forwarding<L> {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        reply!(self, Request::Write(write), Written)
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        reply!(self, Request::Transact(writes, token), Transacted)
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        reply!(self, Request::Get(key), Row)
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        reply!(self, Request::GetMany(keys), Rows)
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        reply!(self, Request::Query(range), Page)
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        reply!(self, Request::Scan(table, segment), Scanned)
    }
}
