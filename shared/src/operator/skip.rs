//! Skips the delivery in front: parks it, and lets the entity continue.

use super::{Operator, OperatorError, PATIENCE};
use crate::{
    engine::drain::{
        page::{InboxPage, WaitingDelivery},
        park::Parking,
        plan::{DeliveryGroup, Drain, Front, Memory, SettleRequest},
        spill::{spill_dropped, spill_one},
    },
    leases::{Guard, Leases, Terms},
    protocol::{
        attempt::Retries,
        entity::{EntityKey, FencingToken, Sequence},
        inbox::{Void, Voided},
        maintain::Reason,
        receipt::{Receipt, Settlement},
        state::{BlockReason, EntityState},
    },
    time::Timestamp,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipOutcome {
    As(Settlement),
    /// Nothing was changed, because the delivery is not in front. Contains the entity's row.
    NotInFront(EntityState),
    /// Nothing was changed, because the sequence is claimed but still empty.
    NotThereYet,
}

impl SkipOutcome {
    fn describe(&self) -> String {
        match self {
            Self::As(settlement) => format!("settled as {settlement}"),
            Self::NotInFront(_) => "nothing was changed: the delivery is not the next one".into(),
            Self::NotThereYet => "nothing was changed: the sequence is not filled yet".into(),
        }
    }
}

impl Operator {
    /// Parks the delivery at `sequence` if it is in front, and unblocks the entity.
    ///
    /// This method first waits, for up to 30 s, until the entity's lease is free, so that a running
    /// handler can end. A repeat or a tombstone is settled as such, not parked.
    pub async fn skip(&self, entity: &EntityKey, sequence: Sequence) -> Result<SkipOutcome, OperatorError> {
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Err(OperatorError::Unknown);
        }
        let skip = self.skip_under_lease(entity, sequence);
        self.act(entity, "skip", Some(sequence), skip, SkipOutcome::describe).await
    }

    async fn skip_under_lease(&self, entity: &EntityKey, sequence: Sequence) -> Result<SkipOutcome, OperatorError> {
        let mut guard = self.acquire(entity, "skip").await?;
        let decided = guard.hold(async {
            self.wake_later(entity).await?;
            self.decide(entity, sequence).await
        });
        match decided.await? {
            Ok(SkipDecision::Settle(settling)) => {
                let settlement = settling.settlement;
                self.settle_skipped(guard, settling).await?;
                Ok(SkipOutcome::As(settlement))
            }
            Ok(SkipDecision::Nothing(skipped)) => {
                guard.release().await?;
                Ok(skipped)
            }
            Err(error) => {
                guard.release().await?;
                Err(error)
            }
        }
    }

    pub(super) async fn acquire(&self, entity: &EntityKey, what: &str) -> Result<Guard, OperatorError> {
        let holder = self.reason.as_ref().map_or_else(|| what.to_owned(), |reason| format!("{what}, {}", reason.by));
        let leases = Leases::new(self.store.clone(), &holder).waking(self.waker.clone()).kept_for(self.retention);
        Ok(leases.acquire(entity, Terms::default()).await?)
    }

    /// Decides how to settle the item in front. Stores the parked copy if the item must be parked.
    async fn decide(&self, entity: &EntityKey, sequence: Sequence) -> Result<SkipDecision, OperatorError> {
        let seen_at = self.store.env().now();
        let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
        if state.is_empty() || state.next() != sequence {
            return Ok(SkipDecision::Nothing(SkipOutcome::NotInFront(state)));
        }
        let memory = Memory::of(entity, self.retention);
        let mut drain = Drain::granted(state.clone(), memory);
        loop {
            drain.read(InboxPage::read(&self.store, entity, sequence, state.tail, drain.unread()).await?);
            let settlement = match drain.front_item() {
                Front::Settled(settlement) => settlement,
                Front::Tombstone => Settlement::Void,
                Front::Unread if state.blocked == Some(BlockReason::Expired) => {
                    let purge_at = self.store.env().now() + self.retention;
                    match self.store.run(&Void { entity, sequence, purge_at }, PATIENCE).await? {
                        Voided::Void => drain.tombstone_written(),
                        // A slow ingest has stored a delivery there in the meantime.
                        Voided::Filled(_) => continue,
                    }
                    Settlement::Void
                }
                Front::Unread => return Ok(SkipDecision::Nothing(SkipOutcome::NotThereYet)),
                Front::Delivery(waiting) => {
                    self.park(drain.run_before(waiting.unpacked.head()), waiting).await?;
                    Settlement::Parked
                }
            };
            return Ok(SkipDecision::Settle(SkipSettlement { state, drain: Box::new(drain), settlement, seen_at }));
        }
    }

    async fn park(&self, run_before: Option<FencingToken>, waiting: &WaitingDelivery) -> Result<(), OperatorError> {
        let error = match &self.reason {
            Some(Reason { by, why }) => format!("skipped by {by}: {why}"),
            None => "skipped".into(),
        };
        let parking = Parking { error: &error, run_before, restore: None, kept_for: self.parked_retention };
        Ok(parking.park(&self.store, waiting).await?)
    }

    async fn settle_skipped(&self, guard: Guard, settling: SkipSettlement) -> Result<(), OperatorError> {
        let SkipSettlement { state, mut drain, settlement, seen_at } = settling;
        let at = self.store.env().now();
        let token = guard.lease().token();
        let attempts = if settlement == Settlement::Parked { drain.tried(DeliveryGroup::ONE) } else { 0 };
        let request = SettleRequest {
            settlement,
            group: DeliveryGroup::ONE,
            token,
            attempts,
            took: None,
            at,
            carried: Retries::default(),
        };
        // A wait without an error comes from the rate limit.
        let not_before = state.retry_at.filter(|_| state.last_error.is_none());
        let mut decision = drain.decision(request, seen_at, not_before);
        if spill_dropped(&self.store, &mut drain, &mut decision, self.retention, PATIENCE).await.is_err() {
            decision = decision.dropping_nothing();
        }
        Ok(guard.skip(state, &decision).await?)
    }

    pub(super) async fn spill(&self, entity: &EntityKey, receipt: &Receipt) -> Result<(), OperatorError> {
        Ok(spill_one(&self.store, entity, receipt, self.retention, PATIENCE).await?)
    }
}

enum SkipDecision {
    Settle(SkipSettlement),
    Nothing(SkipOutcome),
}

struct SkipSettlement {
    state: EntityState,
    drain: Box<Drain>,
    settlement: Settlement,
    /// A time just before the entity's row was read.
    seen_at: Timestamp,
}
