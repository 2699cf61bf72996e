//! One order, from its rows: what waits, what is parked, what was settled.

use std::{collections::BTreeMap, time::Duration};

use webhook_serializer::{
    operator::{Inspected, Operator, OperatorError, Past},
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
    /// How many places are remembered that are older than those of `settled`.
    pub older: usize,
    /// The newest that were settled.
    pub settled: BTreeMap<Sequence, Past>,
}

impl Timeline {
    /// Reads an order, with at most so many of what was `settled`.
    ///
    /// # Errors
    ///
    /// The store could not be reached, or a row cannot be read.
    pub async fn read(operator: &Operator, order: &EntityKey, settled: usize) -> Result<Self, OperatorError> {
        let limit = settled;
        let inspected = operator.inspect(order).await?;
        let mut older = inspected.receipts.len().saturating_sub(limit);
        let head = inspected.state.as_ref().map_or(Sequence(0), |state| state.head);
        let from = if older > 0 { inspected.receipts[older - 1].sequence.next() } else { Sequence(1) };
        let mut settled = operator.past(order, &inspected.receipts, from, head).await?;
        // Between receipts that have left the row stand repeats, which have none.
        while settled.len() > limit && settled.pop_first().is_some() {
            older += 1;
        }
        Ok(Self { inspected, older, settled })
    }

    /// Whether anything is known of it.
    pub fn is_known(&self) -> bool {
        let Inspected { state, receipts, parked, .. } = &self.inspected;
        state.is_some() || !receipts.is_empty() || !parked.is_empty()
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
