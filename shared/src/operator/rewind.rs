//! What was applied is run once more, in its order, in front of what waits; and
//! that is ended early.

use super::{Operator, OperatorError, PATIENCE, Past};
use crate::{
    engine::drain::{
        page::{Page, Place},
        plan::Memory,
    },
    leases::Guard,
    protocol::{
        attempt::Retries,
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Sequence},
        inbox::Decision,
        maintain::Verb,
        receipt::{Receipt, Recent, Settlement},
        state::EntityState,
    },
    time::Timestamp,
};

/// What is run again, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewinding {
    /// The first place.
    pub from: Sequence,
    /// The last one; what waits stands behind it.
    pub through: Sequence,
    /// How many of these deliveries were applied: those are run again. The others
    /// stay as they were settled.
    pub applied: usize,
}

/// What became of an entity that was to be set back, or of one whose run was to be
/// ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewound {
    /// It is done: these are run again, or not any more.
    Done(Rewinding),
    /// Nothing was changed: that place is not settled. The row as it is.
    NotSettled(EntityState),
    /// Nothing was changed: what stood at a place from there on is there no longer,
    /// or nobody remembers how it ended. The first place from which all is there;
    /// `None`: there is none.
    Expired(Option<Sequence>),
    /// Nothing was changed: nothing was applied from there on; or nothing is to be
    /// run again.
    Nothing,
}

impl Rewound {
    fn told(&self) -> String {
        match self {
            Self::Done(Rewinding { from, through, applied }) => format!("{applied} of {from} to {through}"),
            Self::NotSettled(_) => "nothing done: that place was not settled".into(),
            Self::Expired(_) => "nothing done: what stood there has expired".into(),
            Self::Nothing => "nothing to do".into(),
        }
    }
}

impl Operator {
    /// What [`Operator::rewind`] would do now. Changes nothing.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or a row cannot be read.
    pub async fn would_rewind(&self, entity: &EntityKey, from: Sequence) -> Result<Rewound, OperatorError> {
        let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
        Ok(match self.back_to(entity, &state, from).await? {
            Ok((rewinding, _)) => Rewound::Done(rewinding),
            Err(rewound) => rewound,
        })
    }

    /// Has what was applied at `from` and behind it run again, in its order and in
    /// front of whatever waits, and wakes a worker. A handler that is at work ends
    /// first. What failed in front meanwhile, or blocked the entity, has all its
    /// attempts again when its turn comes.
    ///
    /// # Errors
    ///
    /// [`OperatorError::Lease`]: somebody has the entity, and keeps it, or it was
    /// lost on the way. [`OperatorError::Unknown`]: no such entity;
    /// [`OperatorError::IsAJob`].
    pub async fn rewind(&self, entity: &EntityKey, from: Sequence) -> Result<Rewound, OperatorError> {
        if entity.is_kept_forever() {
            return Err(OperatorError::IsAJob);
        }
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Err(OperatorError::Unknown);
        }
        let rewind = self.rewind_under_lease(entity, from);
        self.act(entity, Verb::Rewind, Some(from), rewind, Rewound::told).await
    }

    async fn rewind_under_lease(&self, entity: &EntityKey, from: Sequence) -> Result<Rewound, OperatorError> {
        let mut guard = self.taken(entity, "rewind").await?;
        let token = guard.lease().token();
        let prepared = guard.hold(async {
            let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
            let (rewinding, since) = match self.back_to(entity, &state, from).await? {
                Ok(back) => back,
                Err(rewound) => return Ok(Err(rewound)),
            };
            // Only what has a row of its own is known once the row goes back.
            for receipt in state.recent.iter().filter(|receipt| receipt.sequence >= from) {
                self.spill(entity, receipt).await?;
            }
            self.names_anew(entity, &state, token).await?;
            self.wakes_later(entity).await?;
            Ok(Ok((state, rewinding, since)))
        });
        match prepared.await? {
            Ok(Ok((state, rewinding, since))) => {
                guard.rewind(&state, from, since).await?;
                Ok(Rewound::Done(rewinding))
            }
            Ok(Err(rewound)) => self.nothing_done(guard, Ok(rewound)).await,
            Err(error) => self.nothing_done(guard, Err(error)).await,
        }
    }

    /// What stands in front and is being run again may have had its effect already:
    /// behind what is run in front of it now, it is to have it once more, and gets
    /// another name. Should nothing follow, it has another name all the same.
    async fn names_anew(
        &self,
        entity: &EntityKey,
        state: &EntityState,
        token: FencingToken,
    ) -> Result<(), OperatorError> {
        if state.is_empty() || !state.spilled {
            return Ok(());
        }
        let page = Page::read(&self.store, entity, state.next(), state.next(), true).await?;
        let front = page.places().next().and_then(Place::delivery);
        let before = front.and_then(|delivery| page.receipt(delivery.identity_hash()));
        match before.filter(|receipt| receipt.sequence == state.next()) {
            Some(before) => self.spill(entity, &Receipt { token, ..before.clone() }).await,
            None => Ok(()),
        }
    }

    async fn nothing_done<T>(&self, guard: Guard, told: Result<T, OperatorError>) -> Result<T, OperatorError> {
        guard.release().await?;
        told
    }

    /// What there is from `from` to the head, and since when; or why it cannot be
    /// run again.
    async fn back_to(
        &self,
        entity: &EntityKey,
        state: &EntityState,
        from: Sequence,
    ) -> Result<Result<(Rewinding, Timestamp), Rewound>, OperatorError> {
        if from > state.head || from == Sequence(0) {
            return Ok(Err(Rewound::NotSettled(state.clone())));
        }
        let most = (state.head.0 - from.0).saturating_add(1);
        let settled = self.settled(entity, Some(state), usize::try_from(most).unwrap_or(usize::MAX)).await?;
        // Backwards: what is there and remembered without a hole, up to the head. What nobody remembers would be
        // run as if it had just come.
        let stands = |place: &Sequence| settled.places.get(place).is_some_and(Past::is_known);
        let mut first = None;
        let mut place = state.head;
        while place >= from && stands(&place) {
            first = Some(place);
            place = place.previous();
        }
        if first != Some(from) {
            return Ok(Err(Rewound::Expired(first)));
        }
        let was_applied = |past: &&Past| past.settlement() == Some(Settlement::Applied);
        let applied = settled.places.values().filter(was_applied).count();
        if applied == 0 {
            return Ok(Err(Rewound::Nothing));
        }
        let arrived = settled.places.values().filter_map(|past| past.delivery.as_ref().map(Delivery::appended_at));
        let since = arrived.min().unwrap_or_else(|| self.store.env().now());
        Ok(Ok((Rewinding { from, through: state.head, applied }, since)))
    }

    /// Ends what [`Operator::rewind`] began: what has not been run again yet stays
    /// as it was settled before, and what waits goes on.
    ///
    /// # Errors
    ///
    /// As those of [`Operator::rewind`].
    pub async fn end_rewind(&self, entity: &EntityKey) -> Result<Rewound, OperatorError> {
        if self.store.entity(entity, PATIENCE).await?.is_none() {
            return Err(OperatorError::Unknown);
        }
        self.act(entity, Verb::EndRewind, None, self.end_rewind_under_lease(entity), Rewound::told).await
    }

    async fn end_rewind_under_lease(&self, entity: &EntityKey) -> Result<Rewound, OperatorError> {
        let mut guard = self.taken(entity, "end of a rewind").await?;
        let token = guard.lease().token();
        let prepared = guard.hold(async {
            let seen_at = self.store.env().now();
            let state = self.store.entity(entity, PATIENCE).await?.ok_or(OperatorError::Unknown)?;
            let page = self.to_be_run_again(entity, &state).await?;
            let memory = Memory { capacity: Recent::capacity(entity), retention: self.retention };
            let Some((decision, rewinding)) = as_before(&state, &page, memory, token, seen_at) else {
                return Ok(None);
            };
            for receipt in decision.dropped.iter().filter(|receipt| receipt.sequence < decision.first) {
                self.spill(entity, receipt).await?;
            }
            self.wakes_later(entity).await?;
            Ok(Some((state, decision, rewinding)))
        });
        match prepared.await? {
            Ok(Some((state, decision, rewinding))) => {
                guard.skip(state, &decision).await?;
                // Those that have rows of their own are of this token now, too: so another run has another name.
                for receipt in decision.dropped.iter().filter(|receipt| receipt.sequence >= decision.first) {
                    self.spill(entity, receipt).await?;
                }
                Ok(Rewound::Done(rewinding))
            }
            Ok(None) => self.nothing_done(guard, Ok(Rewound::Nothing)).await,
            Err(error) => self.nothing_done(guard, Err(error)).await,
        }
    }

    /// What stands in front, up to the first that was not settled before, or where
    /// nothing stands.
    async fn to_be_run_again(&self, entity: &EntityKey, state: &EntityState) -> Result<Page, OperatorError> {
        let mut page = Page::default();
        loop {
            let read = page.places().len() as u64;
            let from = Sequence(state.next().0 + read);
            if from > state.tail {
                return Ok(page);
            }
            page.extend(Page::read(&self.store, entity, from, state.tail, state.spilled).await?);
            let is_new =
                |place: &Place| place.delivery().is_some_and(|delivery| known(delivery, state, &page).is_none());
            if page.places().len() as u64 == read || page.places().any(is_new) {
                return Ok(page);
            }
        }
    }
}

/// What settles as it was settled before what stands in front and was to be run
/// again: under this token, by which a landed first try is recognised. `None`:
/// nothing is to be run again. What leaves the row with it and stood in front of
/// these is to have rows of its own first. `seen_at` is when the row was last seen.
pub fn as_before(
    state: &EntityState,
    page: &Page,
    memory: Memory,
    token: FencingToken,
    seen_at: Timestamp,
) -> Option<(Decision, Rewinding)> {
    let first = state.next();
    let mut recent = state.recent.clone();
    let mut decided = None;
    let mut applied = 0;
    for (place, stands) in (first.0..).map(Sequence).zip(page.places()) {
        let delivery = stands.delivery();
        let known = delivery.and_then(|delivery| known(delivery, state, page));
        let (receipt, was_here) = match (delivery, known) {
            (Some(_), None) => break,
            (_, Some(receipt)) if receipt.sequence == place => (receipt.clone(), true),
            (_, known) => (not_run(place, delivery, known.is_some()), false),
        };
        applied += usize::from(receipt.settlement == Settlement::Applied);
        recent = recent.with(Receipt { token, ..receipt }, memory.retention);
        if was_here {
            // Behind it may stand repeats that have just come.
            decided = Some((recent.clone(), delivery.map(Delivery::appended_at)));
        }
    }
    let (mut recent, arrived) = decided?;
    let through = recent.last()?.sequence;
    let behind = page.places().nth((through.0 - state.head.0) as usize).and_then(Place::delivery);
    let decision = Decision {
        first,
        dropped: recent.drop_beyond(memory.capacity),
        recent,
        newest_event_time: state.newest_event_time.clone(),
        pending_since: match behind {
            Some(behind) => Some(behind.appended_at()),
            None if state.tail == through => Some(seen_at),
            None => arrived,
        },
        // A rate's wait is no delivery's own.
        not_before: state.retry_at.filter(|_| state.last_error.is_none()),
        ends_one_by_one: state.one_by_one.is_some_and(|until| until <= through),
        carried: Retries::default(),
    };
    Some((decision, Rewinding { from: first, through, applied }))
}

/// Where this delivery was settled.
fn known<'a>(delivery: &Delivery, state: &'a EntityState, page: &'a Page) -> Option<&'a Receipt> {
    delivery.repeated_hashes().find_map(|identity| {
        let in_row = state.recent.iter().find(|receipt| receipt.spills() == Some(identity));
        in_row.or_else(|| page.receipt(identity))
    })
}

/// A place of which nothing of its own is remembered: it was settled as a repeat of
/// another, or void.
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
