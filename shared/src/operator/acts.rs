//! What operators do is written down: before it is done, so that nothing is done
//! that nobody knows of, and how it ended.

use std::time::Duration;

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::protocol::{
    entity::{EntityKey, Sequence},
    keys::action_range,
    maintain::{LogAction, LogOutcome, OperatorAction, Reason, Verb},
};

/// For how long it is told. An erase of the entity removes it sooner.
pub(super) const TOLD_FOR: Duration = Duration::from_secs(400 * 86_400);

impl Operator {
    /// The same operator, who has a reason: what they do is written down with it.
    #[must_use]
    pub fn because(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Does `work`, written down as `verb` where there is a reason.
    pub(super) async fn act<T>(
        &self,
        entity: &EntityKey,
        verb: Verb,
        sequence: Option<Sequence>,
        work: impl Future<Output = Result<T, OperatorError>>,
        told: impl FnOnce(&T) -> String,
    ) -> Result<T, OperatorError> {
        let Some(reason) = &self.reason else { return work.await };
        let env = self.store.env();
        let nonce = env.nonce();
        let verb = verb.as_str().to_owned();
        let act = OperatorAction { entity: entity.clone(), nonce, verb, sequence, reason: reason.clone(), ended: None };
        self.store.run(&LogAction { action: &act, purge_at: env.now() + TOLD_FOR }, PATIENCE).await?;
        let done = work.await;
        let outcome = match &done {
            Ok(done) => told(done),
            Err(error) => error.to_string(),
        };
        // It is done or not, whether or not that can be told.
        let _ = self.store.run(&LogOutcome { action: &act, outcome: &outcome }, PATIENCE).await;
        done
    }

    /// What operators did to an entity, the oldest first.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or a row cannot be read.
    pub async fn acts(&self, entity: &EntityKey) -> Result<Vec<OperatorAction>, OperatorError> {
        let mut acts: Vec<OperatorAction> = Vec::new();
        loop {
            let after = acts.last().map(|act| act.nonce.clone());
            let page = self.store.query(&action_range(entity, after.as_ref(), PAGE), PATIENCE).await?;
            for row in &page.rows {
                acts.extend(OperatorAction::parse(row)?);
            }
            if !page.more || page.rows.is_empty() {
                return Ok(acts);
            }
        }
    }
}
