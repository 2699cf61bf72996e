//! Runs operations on the store, with retries.
//!
//! A request whose reply was lost may be repeated, because each operation either recognises that an
//! earlier request for it has landed, or does no harm if it lands twice. Only the caller of a claim
//! must learn of a lost reply, because it must then send a wake-up.

use std::{sync::Arc, time::Duration};

use crate::{
    protocol::{
        entity::{EntityKey, Sequence},
        format::CorruptRow,
        keys::entity_row,
        operation::Operation,
        state::EntityState,
        table::{
            IndexPage, IndexScan, InvalidKind, InvalidRequest, Key, Page, Range, Row, Scanned, Segment, Table,
            TableError, TableName, Transacted, Write,
        },
    },
    time::{Env, backoff::Backoff},
};

/// The timeout of one request to the store or the queue. It is far longer than DynamoDB's usual
/// latency, and far shorter than the timeout of a webhook's sender.
pub const ATTEMPT: Duration = Duration::from_millis(900);

pub(super) const FIRST_WAIT: Duration = Duration::from_millis(20);

pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// The error of an operation on the store. The operation may have taken effect all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store was busy or did not answer, and the time for retries is over.
    #[error("the store could not be reached in time: {0}")]
    Unavailable(TableError),
    /// The store refuses the operation because of a bug, a missing table or a missing permission.
    #[error("{0}")]
    Invalid(InvalidRequest),
    /// A row cannot be read by this version of the program.
    #[error(transparent)]
    Corrupt(#[from] CorruptRow),
}

impl StoreError {
    /// Returns what has to change before the store accepts the request. `None` for any other error.
    pub fn invalid_kind(&self) -> Option<InvalidKind> {
        match self {
            Self::Invalid(request) => Some(request.kind),
            Self::Unavailable(_) | Self::Corrupt(_) => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    pub outcome: T,
    /// Set if an earlier request for the operation got no answer. That request may have landed.
    pub doubtful: bool,
}

#[derive(Clone)]
pub struct Store {
    table: Arc<dyn Table>,
    env: Env,
}

impl Store {
    pub fn new(table: Arc<dyn Table>, env: Env) -> Self {
        Self { table, env }
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the tables that the store uses. Calls to them are not retried.
    pub fn table(&self) -> &Arc<dyn Table> {
        &self.table
    }

    /// Runs `operation`. Repeats a failed request until the time `patience` has passed, unless the
    /// store refuses the request as invalid.
    pub async fn run<O: Operation>(&self, operation: &O, patience: Duration) -> Result<O::Outcome, StoreError> {
        self.run_noting_doubt(operation, patience).await.map(|answered| answered.outcome)
    }

    pub async fn run_noting_doubt<O: Operation>(
        &self,
        operation: &O,
        patience: Duration,
    ) -> Result<Answered<O::Outcome>, StoreError> {
        let write = operation.write();
        let Answered { outcome, doubtful } = self.persist(patience, || self.table.write(&write)).await?;
        Ok(Answered { outcome: operation.judge(outcome)?, doubtful })
    }

    /// Runs `writes` in one transaction. The client token `token` makes retries idempotent.
    pub async fn transact(&self, writes: &[Write], token: &str, patience: Duration) -> Result<Transacted, StoreError> {
        let send = self.table.prepare(writes, token);
        self.persist(patience, send).await.map(|answered| answered.outcome)
    }

    pub async fn entity(&self, entity: &EntityKey, patience: Duration) -> Result<Option<EntityState>, StoreError> {
        let row = self.get(&entity_row(entity), patience).await?;
        Ok(row.as_ref().map(EntityState::parse).transpose()?)
    }

    pub async fn get(&self, key: &Key, patience: Duration) -> Result<Option<Row>, StoreError> {
        self.persist(patience, || self.table.get(key)).await.map(|answered| answered.outcome)
    }

    /// Reads several rows. The result leaves out rows that do not exist.
    pub async fn get_many(&self, keys: &[Key], patience: Duration) -> Result<Vec<Row>, StoreError> {
        self.persist(patience, || self.table.get_many(keys)).await.map(|answered| answered.outcome)
    }

    pub async fn query(&self, range: &Range, patience: Duration) -> Result<Page, StoreError> {
        self.persist(patience, || self.table.query(range)).await.map(|answered| answered.outcome)
    }

    /// Reads a page of a table's segment, with eventual consistency.
    pub async fn scan(&self, table: &TableName, segment: &Segment, patience: Duration) -> Result<Scanned, StoreError> {
        self.persist(patience, || self.table.scan(table, segment)).await.map(|answered| answered.outcome)
    }

    /// Reads a page of an index, with eventual consistency.
    pub async fn scan_index(&self, scan: &IndexScan, patience: Duration) -> Result<IndexPage, StoreError> {
        self.persist(patience, || self.table.scan_index(scan)).await.map(|answered| answered.outcome)
    }

    pub(crate) async fn item(
        &self,
        entity: &EntityKey,
        sequence: Sequence,
        patience: Duration,
    ) -> Result<Option<Row>, StoreError> {
        self.get(&crate::protocol::keys::delivery_row(entity, sequence), patience).await
    }

    async fn persist<T, F>(&self, patience: Duration, mut call: impl FnMut() -> F) -> Result<Answered<T>, StoreError>
    where
        F: Future<Output = Result<T, TableError>>,
    {
        let mut tries = Backoff::within(patience, &self.env, FIRST_WAIT, LONGEST_WAIT);
        let mut doubtful = false;
        let mut earlier = None;
        loop {
            let left = tries.left();
            let error = match self.env.within(ATTEMPT.min(left), call()).await {
                Some(Ok(outcome)) => return Ok(Answered { outcome, doubtful }),
                Some(Err(TableError::Invalid(reason))) => return Err(StoreError::Invalid(reason)),
                Some(Err(error)) => error,
                None => {
                    doubtful = true;
                    // The end of the patience cut the request short, so the store may be slow without being silent.
                    let earlier = earlier.take().filter(|_| left < ATTEMPT);
                    earlier.unwrap_or_else(|| TableError::Unknown("no answer in time".into()))
                }
            };
            doubtful |= matches!(error, TableError::Unknown(_));
            if !tries.pause().await {
                return Err(StoreError::Unavailable(error));
            }
            earlier = Some(error);
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
