//! Doing operations: sent, sent again when the store is busy or silent, judged.
//!
//! Every operation recognises its own landed first try, so that all of them may
//! be repeated blindly. Only the caller of a claim needs to know that there was
//! doubt: it owes a wake-up then.

use std::{sync::Arc, time::Duration};

use crate::{
    protocol::{
        entity::{EntityKey, Sequence},
        format::CorruptRow,
        keys::entity_row,
        operation::Operation,
        state::EntityState,
        table::{Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write},
    },
    time::Env,
};

/// The longest that one try may take. Far above what DynamoDB takes, far below
/// what a sender of webhooks or a lease waits.
pub const ATTEMPT: Duration = Duration::from_millis(900);

/// The first wait between two tries; each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_millis(20);

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Why an operation has no outcome. In doubt, it may have landed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store was busy or silent for as long as we could wait.
    #[error("the store could not be reached in time: {0}")]
    Unavailable(TableError),
    /// The store will never accept it: a bug, missing tables or permissions.
    #[error("{0}")]
    Invalid(String),
    /// A row that this version cannot read.
    #[error(transparent)]
    Corrupt(#[from] CorruptRow),
}

/// An outcome, and whether any try before the last was left without an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// What became of it.
    pub outcome: T,
    /// Whether a try before may have landed unseen.
    pub doubtful: bool,
}

/// The store as operations see it.
#[derive(Clone)]
pub struct Store {
    table: Arc<dyn Table>,
    env: Env,
}

impl Store {
    /// Operations on `table`.
    pub fn new(table: Arc<dyn Table>, env: Env) -> Self {
        Self { table, env }
    }

    /// The clock and chance it lives by.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The rows themselves, for a handler's own reads.
    pub fn table(&self) -> &Arc<dyn Table> {
        &self.table
    }

    /// Does `operation`, for at most `patience`.
    pub async fn run<O: Operation>(&self, operation: &O, patience: Duration) -> Result<O::Outcome, StoreError> {
        self.run_noting_doubt(operation, patience).await.map(|answered| answered.outcome)
    }

    /// Does `operation`, for at most `patience`, and says whether a try before
    /// the last may have landed unseen.
    pub async fn run_noting_doubt<O: Operation>(
        &self,
        operation: &O,
        patience: Duration,
    ) -> Result<Answered<O::Outcome>, StoreError> {
        let write = operation.write();
        let Answered { outcome, doubtful } = self.persist(patience, || self.table.write(&write)).await?;
        Ok(Answered { outcome: operation.judge(outcome)?, doubtful })
    }

    /// Does several writes together, for at most `patience`; the same request
    /// each time, so that it is one transaction.
    pub async fn transact(&self, writes: &[Write], token: &str, patience: Duration) -> Result<Transacted, StoreError> {
        self.persist(patience, || self.table.transact(writes, token)).await.map(|answered| answered.outcome)
    }

    /// Reads an entity's row.
    pub async fn entity(&self, entity: &EntityKey, patience: Duration) -> Result<Option<EntityState>, StoreError> {
        let row = self.get(&entity_row(entity), patience).await?;
        Ok(row.as_ref().map(EntityState::parse).transpose()?)
    }

    /// Reads a row.
    pub async fn get(&self, key: &Key, patience: Duration) -> Result<Option<Row>, StoreError> {
        self.persist(patience, || self.table.get(key)).await.map(|answered| answered.outcome)
    }

    /// Reads rows; those that are not there are left out.
    pub async fn get_many(&self, keys: &[Key], patience: Duration) -> Result<Vec<Row>, StoreError> {
        self.persist(patience, || self.table.get_many(keys)).await.map(|answered| answered.outcome)
    }

    /// Reads a part of a partition.
    pub async fn query(&self, range: &Range, patience: Duration) -> Result<Page, StoreError> {
        self.persist(patience, || self.table.query(range)).await.map(|answered| answered.outcome)
    }

    /// Reads a part of a table, eventually consistent.
    pub async fn scan(&self, table: &TableName, segment: &Segment, patience: Duration) -> Result<Scanned, StoreError> {
        self.persist(patience, || self.table.scan(table, segment)).await.map(|answered| answered.outcome)
    }

    /// The row at `sequence`, where there is one.
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
        let give_up = self.env.monotonic() + patience;
        let mut wait = FIRST_WAIT;
        let mut doubtful = false;
        loop {
            let left = give_up.saturating_sub(self.env.monotonic());
            let error = match self.env.within(ATTEMPT.min(left), call()).await {
                Some(Ok(outcome)) => return Ok(Answered { outcome, doubtful }),
                Some(Err(TableError::Invalid(reason))) => return Err(StoreError::Invalid(reason)),
                Some(Err(error)) => error,
                None => TableError::Unknown("no answer in time".into()),
            };
            doubtful |= matches!(error, TableError::Unknown(_));
            let pause = self.env.jittered(wait);
            if self.env.monotonic() + pause >= give_up {
                return Err(StoreError::Unavailable(error));
            }
            self.env.sleep(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}
