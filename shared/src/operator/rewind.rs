//! Rewinds an entity: its applied deliveries run again in sequence, before the deliveries that
//! wait.

use super::{Operator, OperatorError, PATIENCE, Past};
use crate::{
    engine::drain::{
        page::{InboxPage, PageItem},
        plan::Memory,
    },
    leases::Guard,
    protocol::{
        attempt::Retries,
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Sequence},
        inbox::Decision,
        receipt::{Receipt, Settlement, Spilled},
        state::EntityState,
    },
    time::Timestamp,
};

/// The deliveries that a rewind covers, or that its end leaves settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewinding {
    pub from: Sequence,
    pub through: Sequence,
    /// The number of applied deliveries from `from` to `through`. A rewind runs only these again.
    pub applied: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RewindOutcome {
    Done(Rewinding),
    /// Nothing was changed, because the sequence is not settled. Contains the entity's row.
    NotSettled(EntityState),
    /// Nothing was changed, because a delivery or receipt has expired. Contains the first sequence
    /// from which a rewind is possible.
    Expired(Option<Sequence>),
    /// Nothing was changed, because nothing could run again, or because the entity is not being rewound.
    Nothing,
}

impl RewindOutcome {
    fn describe(&self) -> String {
        match self {
            Self::Done(Rewinding { from, through, applied }) => {
                let deliveries = if *applied == 1 { "delivery" } else { "deliveries" };
                format!("{applied} {deliveries} from {from} to {through}")
            }
            Self::NotSettled(_) => "nothing was changed: that sequence is not settled".into(),
            Self::Expired(_) => "nothing was changed: a delivery or receipt has expired".into(),
            Self::Nothing => "nothing to do".into(),
        }
    }
}

/// The decision whether a rewind is possible.
enum RewindPlan {
    Rewind {
        rewinding: Rewinding,
        /// The time at which the oldest delivery of the rewind was appended.
        since: Timestamp,
    },
    Refuse(RewindOutcome),
}

impl Operator {
    pub async fn would_rewind(&self, entity: &EntityKey, from: Sequence) -> Result<RewindOutcome, OperatorError> {
        let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
        Ok(match self.plan_rewind(entity, &state, from).await? {
            RewindPlan::Rewind { rewinding, .. } => RewindOutcome::Done(rewinding),
            RewindPlan::Refuse(outcome) => outcome,
        })
    }

    /// Makes the applied deliveries from sequence `from` on run again, before the deliveries that
    /// wait.
    ///
    /// This method first waits, for up to 30 s, until the entity's lease is free, so that a running
    /// handler can end. Finally it wakes a worker. If the first waiting delivery has failed or
    /// blocks the entity, its attempts are cleared.
    pub async fn rewind(&self, entity: &EntityKey, from: Sequence) -> Result<RewindOutcome, OperatorError> {
        if entity.is_kept_forever() {
            return Err(OperatorError::IsAJob);
        }
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Err(OperatorError::Unknown);
        }
        let rewind = self.rewind_under_lease(entity, from);
        self.act(entity, "rewind", Some(from), rewind, RewindOutcome::describe).await
    }

    async fn rewind_under_lease(&self, entity: &EntityKey, from: Sequence) -> Result<RewindOutcome, OperatorError> {
        let mut guard = self.acquire(entity, "rewind").await?;
        let token = guard.lease().token();
        let prepared = guard.hold(async {
            let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
            let plan = self.plan_rewind(entity, &state, from).await?;
            if let RewindPlan::Rewind { .. } = plan {
                // The rewind drops these receipts from the entity's row.
                for receipt in state.recent.iter().filter(|receipt| receipt.sequence >= from) {
                    self.spill(entity, receipt).await?;
                }
                self.renew_run_before(entity, &state, token).await?;
                self.wake_later(entity).await?;
            }
            Ok((state, plan))
        });
        match prepared.await? {
            Ok((state, RewindPlan::Rewind { rewinding, since })) => {
                guard.rewind(&state, from, since).await?;
                Ok(RewindOutcome::Done(rewinding))
            }
            Ok((_, RewindPlan::Refuse(outcome))) => self.release_and_return(guard, Ok(outcome)).await,
            Err(error) => self.release_and_return(guard, Err(error)).await,
        }
    }

    /// Changes the token that the delivery in front carries as `run_before`, if the delivery was
    /// rewound earlier and has not been settled since.
    ///
    /// The handler may already have had an effect with the old token. After this rewind the
    /// delivery runs once more, and receivers tell the two runs apart by the new token.
    async fn renew_run_before(
        &self,
        entity: &EntityKey,
        state: &EntityState,
        token: FencingToken,
    ) -> Result<(), OperatorError> {
        let page = InboxPage::read(&self.store, entity, state.next(), state.next(), state.spilled).await?;
        let front = page.items().next().and_then(PageItem::delivery);
        let before = front.and_then(|delivery| page.receipt(delivery.identity_hash()));
        match before.filter(|receipt| receipt.sequence == state.next()) {
            Some(before) => self.spill(entity, &Receipt { token, ..before.clone() }).await,
            None => Ok(()),
        }
    }

    async fn release_and_return<T>(&self, guard: Guard, result: Result<T, OperatorError>) -> Result<T, OperatorError> {
        guard.release().await?;
        result
    }

    async fn plan_rewind(
        &self,
        entity: &EntityKey,
        state: &EntityState,
        from: Sequence,
    ) -> Result<RewindPlan, OperatorError> {
        if from > state.head || from == Sequence(0) {
            return Ok(RewindPlan::Refuse(RewindOutcome::NotSettled(state.clone())));
        }
        let most = (state.head.0 - from.0).saturating_add(1);
        let settled = self.settled(entity, Some(state), usize::try_from(most).unwrap_or(usize::MAX)).await?;
        // Search backwards for the first gap. A delivery without a receipt would run as if it were new.
        let stands = |place: &Sequence| settled.places.get(place).is_some_and(Past::is_known);
        let mut first = None;
        let mut place = state.head;
        while place >= from && stands(&place) {
            first = Some(place);
            place = place.previous();
        }
        if first != Some(from) {
            return Ok(RewindPlan::Refuse(RewindOutcome::Expired(first)));
        }
        let was_applied = |past: &&Past| past.settlement() == Some(Settlement::Applied);
        let applied = settled.places.values().filter(was_applied).count();
        if applied == 0 {
            return Ok(RewindPlan::Refuse(RewindOutcome::Nothing));
        }
        let arrived = settled.places.values().filter_map(|past| past.delivery.as_ref().map(Delivery::appended_at));
        let since = arrived.min().unwrap_or_else(|| self.store.env().now());
        Ok(RewindPlan::Rewind { rewinding: Rewinding { from, through: state.head, applied }, since })
    }

    /// Ends a rewind. Deliveries that have not run again yet stay settled as before the rewind.
    pub async fn end_rewind(&self, entity: &EntityKey) -> Result<RewindOutcome, OperatorError> {
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Err(OperatorError::Unknown);
        }
        self.act(entity, "rewind --end", None, self.end_rewind_under_lease(entity), RewindOutcome::describe).await
    }

    async fn end_rewind_under_lease(&self, entity: &EntityKey) -> Result<RewindOutcome, OperatorError> {
        let mut guard = self.acquire(entity, "end of a rewind").await?;
        let token = guard.lease().token();
        let prepared = guard.hold(async {
            let seen_at = self.store.env().now();
            let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
            let page = self.rewound_items(entity, &state).await?;
            let memory = Memory::of(entity, self.retention);
            let Some((decision, rewinding)) = as_before(&state, &page, memory, token, seen_at) else {
                return Ok(None);
            };
            for receipt in decision.dropped.iter().filter(|receipt| receipt.sequence < decision.first) {
                self.spill(entity, receipt).await?;
            }
            self.wake_later(entity).await?;
            Ok(Some((state, decision, rewinding)))
        });
        match prepared.await? {
            Ok(Some((state, decision, rewinding))) => {
                guard.skip(state, &decision).await?;
                // Write this token to the receipt rows too, so that a later rewind runs the deliveries
                // with a new `run_before`.
                for receipt in decision.dropped.iter().filter(|receipt| receipt.sequence >= decision.first) {
                    self.spill(entity, receipt).await?;
                }
                Ok(RewindOutcome::Done(rewinding))
            }
            Ok(None) => self.release_and_return(guard, Ok(RewindOutcome::Nothing)).await,
            Err(error) => self.release_and_return(guard, Err(error)).await,
        }
    }

    /// Reads the rewound items in front, up to a gap or the first item that was never settled.
    async fn rewound_items(&self, entity: &EntityKey, state: &EntityState) -> Result<InboxPage, OperatorError> {
        let mut page = InboxPage::default();
        loop {
            let read = page.items().len() as u64;
            let from = Sequence(state.next().0 + read);
            if from > state.tail {
                return Ok(page);
            }
            page.extend(InboxPage::read(&self.store, entity, from, state.tail, state.spilled).await?);
            let is_new =
                |item: &PageItem| item.delivery().is_some_and(|delivery| known(delivery, state, &page).is_none());
            if page.items().len() as u64 == read || page.items().any(is_new) {
                return Ok(page);
            }
        }
    }
}

/// Returns the decision that settles the rewound items in front with their outcomes before the
/// rewind.
///
/// Returns `None` if no item in front is rewound. The receipts get the token `token`. By this
/// token, a repeated write after a lost reply recognises that the first write landed. If the
/// decision drops receipts of earlier sequences, the caller must first write them to rows of their
/// own. `seen_at` is the time of the last read of the entity's row.
pub fn as_before(
    state: &EntityState,
    page: &InboxPage,
    memory: Memory,
    token: FencingToken,
    seen_at: Timestamp,
) -> Option<(Decision, Rewinding)> {
    let first = state.next();
    let mut recent = state.recent.clone();
    let mut decided = None;
    let mut applied = 0;
    for (place, stands) in (first.0..).map(Sequence).zip(page.items()) {
        let delivery = stands.delivery();
        let known = delivery.and_then(|delivery| known(delivery, state, page));
        let (receipt, was_settled) = match (delivery, known) {
            (Some(_), None) => break,
            (_, Some(receipt)) if receipt.sequence == place => (receipt.clone(), true),
            (_, known) => (not_run(place, delivery, known.is_some()), false),
        };
        applied += usize::from(receipt.settlement == Settlement::Applied);
        recent = recent.with(Receipt { token, ..receipt }, memory.retention);
        if was_settled {
            // Repeats that were never settled may follow; they do not belong to the rewind.
            decided = Some((recent.clone(), delivery.map(Delivery::appended_at)));
        }
    }
    let (mut recent, arrived) = decided?;
    let through = recent.last()?.sequence;
    let behind = page.items().nth((through.0 - state.head.0) as usize).and_then(PageItem::delivery);
    let decision = Decision {
        first,
        dropped: recent.drop_beyond(memory.capacity),
        spilled: state.spilled.and(Spilled::ROWS),
        recent,
        newest_event_time: state.newest_event_time.clone(),
        pending_since: match behind {
            Some(behind) => Some(behind.appended_at()),
            None if state.tail == through => Some(seen_at),
            None => arrived,
        },
        // A wait without an error comes from the rate limit.
        not_before: state.retry_at.filter(|_| state.last_error.is_none()),
        ends_one_by_one: state.one_by_one.is_some_and(|until| until <= through),
        carried: Retries::default(),
    };
    Some((decision, Rewinding { from: first, through, applied }))
}

fn known<'a>(delivery: &Delivery, state: &'a EntityState, page: &'a InboxPage) -> Option<&'a Receipt> {
    delivery.repeated_hashes().find_map(|identity| {
        let in_row = state.recent.iter().find(|receipt| receipt.spills() == Some(identity));
        in_row.or_else(|| page.receipt(identity))
    })
}

/// Returns the receipt of a repeat or a tombstone, which run no handler.
fn not_run(place: Sequence, delivery: Option<&Delivery>, is_repeat: bool) -> Receipt {
    Receipt {
        sequence: place,
        identity: delivery.map(Delivery::identity_hash),
        settlement: if is_repeat { Settlement::Repeat } else { Settlement::Void },
        token: FencingToken(0),
        attempts: 0,
        settled_at: delivery.map_or(Timestamp::from_millis(0), Delivery::received_at),
        took: None,
    }
}
