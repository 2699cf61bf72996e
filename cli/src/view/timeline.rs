//! One order, from its rows: what waits, what is parked, what was settled.

use std::{collections::BTreeMap, time::Duration};

use webhook_serializer::{
    operator::{Inspected, Operator, OperatorError, Past, Settled},
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::Settlement,
    },
};

/// An order, as `inspect` shows it.
#[derive(Debug)]
pub struct Timeline {
    /// Its row, what waits, what is parked.
    pub inspected: Inspected,
    /// The newest that were settled.
    pub settled: BTreeMap<Sequence, Past>,
    /// Whether anything is left of older ones.
    pub has_older: bool,
}

impl Timeline {
    /// Reads an order, with at most `most` of what was settled.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or a row cannot be read.
    pub async fn read(operator: &Operator, order: &EntityKey, most: usize) -> Result<Self, OperatorError> {
        let inspected = operator.inspect(order).await?;
        let Settled { places, has_older } = operator.settled(order, inspected.state.as_ref(), most).await?;
        Ok(Self { inspected, settled: places, has_older })
    }

    /// Whether anything is known of it.
    pub fn is_known(&self) -> bool {
        let Inspected { state, parked, .. } = &self.inspected;
        state.is_some() || !self.settled.is_empty() || !parked.is_empty()
    }
}

/// How a place was settled, in words.
pub fn outcome(past: &Past) -> String {
    match (past.settlement(), past.first) {
        (Some(Settlement::Repeat), Some(first)) => format!("repeat of {first}"),
        (Some(Settlement::Void), _) => "void: never filled".into(),
        (Some(settlement), _) => settlement.to_string(),
        (None, _) => "no receipt".into(),
    }
}

/// How long it stood in its inbox before its handler was started.
pub fn waited(past: &Past) -> Option<Duration> {
    let started = past.receipt.as_ref()?.started_at()?;
    Some(started.since(past.delivery.as_ref()?.received_at()))
}
