//! Writes and reads the operations log.
//!
//! An entry is written before each operation, and the operation's outcome afterwards.

use std::time::Duration;

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    entity::{EntityKey, Sequence},
    keys::action_range,
    maintain::{LogAction, LogOutcome, OperatorAction, Reason},
};

/// The retention of entries in the operations log. Erasing the entity deletes them sooner.
pub(super) const LOG_RETENTION: Duration = Duration::from_secs(400 * 86_400);

impl Operator {
    /// Sets the reason that the operations log records. Without a reason, nothing is recorded.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Runs `work`. If a reason is set, records the operation in the operations log before and
    /// after it.
    pub(super) async fn act<T>(
        &self,
        entity: &EntityKey,
        verb: &str,
        sequence: Option<Sequence>,
        work: impl Future<Output = Result<T, OperatorError>>,
        describe: impl FnOnce(&T) -> String,
    ) -> Result<T, OperatorError> {
        let Some(reason) = &self.reason else { return work.await };
        let env = self.store.env();
        let nonce = env.nonce();
        let verb = verb.to_owned();
        let act = OperatorAction {
            entity: entity.clone(),
            nonce,
            verb,
            sequence,
            reason: reason.clone(),
            ended: None,
            found: None,
        };
        self.store.run(&LogAction { action: &act, purge_at: env.now() + LOG_RETENTION }, PATIENCE).await?;
        let done = work.await;
        let outcome = match &done {
            Ok(done) => describe(done),
            Err(error) => error.to_string(),
        };
        // The operation succeeds even if its outcome cannot be recorded.
        let _ = self.store.run(&LogOutcome { action: &act, outcome: &outcome, found: None }, PATIENCE).await;
        done
    }

    pub async fn acts(&self, entity: &EntityKey) -> Result<Vec<OperatorAction>, OperatorError> {
        let mut acts: Vec<OperatorAction> = Vec::new();
        let mut pages = self.store.pages(action_range(entity, PAGE), PATIENCE);
        while let Some(rows) = pages.next().await? {
            for row in &rows {
                acts.extend(OperatorAction::parse(row)?);
            }
        }
        Ok(acts)
    }
}
