//! An order's waiting, parked and settled deliveries, as the rows of the order show them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use webhook_serializer::{
    operator::{Inspected, Operator, OperatorError, Past, SettledPage},
    protocol::{
        delivery::InboxItem,
        entity::{EntityKey, Sequence, SourceName},
        receipt::Settlement,
        state::EntityState,
    },
    time::Timestamp,
};

use crate::view::{
    order_status::{OrderStatus, ParkedDeliveries},
    position::marked,
    tone::{Tone, Word},
};

#[derive(Debug)]
pub struct Timeline {
    pub inspected: Inspected,
    pub settled: BTreeMap<Sequence, Past>,
    /// Set if there may be older deliveries that are not parked.
    pub has_older: bool,
}

impl Timeline {
    pub async fn read(operator: &Operator, order: &EntityKey, most: usize) -> Result<Self, OperatorError> {
        let inspected = operator.inspect(order).await?;
        let SettledPage { places, from, has_older } = operator.settled(order, inspected.state.as_ref(), most).await?;
        let parked: BTreeSet<Sequence> = inspected.parked.iter().map(|one| one.sequence).collect();
        let is_shown = parked.first().is_some_and(|first| *first < from);
        let has_older = has_older && (!is_shown || operator.has_others_before(order, from, &parked).await?);
        Ok(Self { inspected, settled: places, has_older })
    }

    pub fn status(&self, now: Timestamp) -> OrderStatus {
        let Inspected { state, waiting, parked, .. } = &self.inspected;
        let topic = match waiting.first() {
            Some(InboxItem::Delivery(unpacked)) => Some(unpacked.head().topic()),
            _ => None,
        };
        let parked = parked.iter().map(|one| (one.delivery().entity(), one.sequence, one.error.as_str()));
        let parked = ParkedDeliveries::of(parked);
        OrderStatus::of(state.as_ref(), topic, parked, now)
    }

    /// Returns the source of the next delivery, and the order's state. Returns `None` if no delivery waits.
    pub fn next_source(&self) -> Option<(&SourceName, &EntityState)> {
        let InboxItem::Delivery(next) = self.inspected.waiting.first()? else { return None };
        Some((next.head().source(), self.inspected.state.as_ref()?))
    }

    pub fn is_known(&self) -> bool {
        let Inspected { state, parked, .. } = &self.inspected;
        state.is_some() || !self.settled.is_empty() || !parked.is_empty()
    }
}

pub fn outcome(past: &Past) -> Word {
    match (past.settlement(), past.first) {
        (Some(Settlement::Repeat), Some(first)) => {
            Word::new(format!("repeat of {}", marked(first)), Settlement::Repeat)
        }
        (Some(Settlement::Void), _) => Word::new("tombstone: never written", Settlement::Void),
        (Some(settlement), _) => settlement.into(),
        (None, _) => Word::new("no receipt", Tone::Quiet),
    }
}

pub fn waited(past: &Past) -> Option<Duration> {
    let started = past.receipt.as_ref()?.started_at()?;
    Some(started.since(past.delivery.as_ref()?.received_at()))
}
