//! A substitute for the systems that a handler changes apart from its commits.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
};

use serde_json::Value;
use tokio::sync::watch;

use crate::protocol::{
    entity::FencingToken,
    memory::MemoryTable,
    table::{Key, Row, Table},
};

tokio::task_local! {
    /// The signal that the handler of a frozen worker awaits before each write to a system.
    static FROZEN: watch::Receiver<bool>;
}

/// A substitute for a system that the handler writes to. The substitute holds JSON documents by key. It
/// also shows the rows that the handler committed.
#[derive(Debug, Clone, Default)]
pub struct ExternalSystem {
    state: Arc<Mutex<ExternalState>>,
    pub(super) memory: Arc<MemoryTable>,
}

#[derive(Debug, Default)]
struct ExternalState {
    values: BTreeMap<String, Value>,
    newest: BTreeMap<String, FencingToken>,
    known: BTreeSet<(String, String)>,
}

/// The error of a write under an old fencing token, after a write to the same key under a newer one. The
/// field is the old token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("refused: token {0} is older than the newest token seen")]
pub struct StaleToken(pub FencingToken);

impl ExternalSystem {
    fn state(&self) -> MutexGuard<'_, ExternalState> {
        self.state.lock().expect("no one panics while holding this")
    }

    /// Returns a row that the handler committed to one of its own tables.
    pub async fn row(&self, key: &Key) -> Option<Row> {
        self.memory.get(key).await.ok().flatten()
    }

    #[doc(hidden)]
    pub fn table(&self) -> Arc<dyn Table> {
        self.memory.clone()
    }

    /// Returns the document at `key`, or `None` if nothing was written there.
    pub async fn get(&self, key: &str) -> Option<Value> {
        self.state().values.get(key).cloned()
    }

    /// Writes the document at `key` without checking a fencing token.
    pub async fn set(&self, key: &str, value: impl Into<Value>) {
        thawed().await;
        self.state().values.insert(key.to_owned(), value.into());
    }

    /// Writes the document at `key`, unless this key was already written under a newer fencing token.
    ///
    /// # Errors
    ///
    /// The key was written under a newer token. The document is unchanged.
    pub async fn set_fenced(&self, key: &str, token: FencingToken, value: impl Into<Value>) -> Result<(), StaleToken> {
        thawed().await;
        let mut state = self.state();
        if state.newest.get(key).is_some_and(|newest| *newest > token) {
            return Err(StaleToken(token));
        }
        state.newest.insert(key.to_owned(), token);
        state.values.insert(key.to_owned(), value.into());
        Ok(())
    }

    /// Adds `by` to the number at `key`. A repeated call adds once more.
    pub async fn add(&self, key: &str, by: i64) {
        thawed().await;
        self.state().add(key, by);
    }

    /// Adds `by` to the number at `key`, unless an earlier call has done so with the same `key` and `id`.
    /// Returns whether this call changed the number.
    pub async fn add_once(&self, key: &str, id: &str, by: i64) -> bool {
        thawed().await;
        let mut state = self.state();
        let is_new = state.known.insert((key.to_owned(), id.to_owned()));
        if is_new {
            state.add(key, by);
        }
        is_new
    }

    pub(super) fn documents(&self) -> BTreeMap<String, String> {
        self.state().values.iter().map(|(key, value)| (key.clone(), value.to_string())).collect()
    }
}

impl ExternalState {
    fn add(&mut self, key: &str, by: i64) {
        let before = self.values.get(key).and_then(Value::as_i64).unwrap_or(0);
        self.values.insert(key.to_owned(), (before + by).into());
    }
}

/// Runs `work` as a frozen worker would: its writes to external systems wait until the signal is true.
pub(super) fn frozen<F: Future>(until: watch::Receiver<bool>, work: F) -> impl Future<Output = F::Output> {
    FROZEN.scope(until, work)
}

async fn thawed() {
    if let Ok(mut until) = FROZEN.try_with(Clone::clone) {
        // An error means that the sender was dropped, so nothing is frozen any more.
        let _ = until.wait_for(|thawed| *thawed).await;
    }
}
