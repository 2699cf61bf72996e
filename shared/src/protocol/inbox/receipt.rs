//! Receipts: what is remembered of a delivery once it is settled.

use crate::{
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, FencingToken, IdentityHash, Sequence},
        format::{CorruptRow, FORMAT, attribute as a, check_format, readable, shortened},
        keys::{receipt_identity, receipt_row},
        operation::Operation,
        state::{EntityState, Settlement},
        table::{Action, Comparison, Condition, Row, Write, Written},
    },
    time::Timestamp,
};

/// What is remembered of a settled delivery: it recognises repeats and tells
/// the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Which delivery.
    pub identity: IdentityHash,
    /// Where it stood.
    pub sequence: Sequence,
    /// How it ended.
    pub settlement: Settlement,
    /// The token of the handler start that ended it.
    pub token: FencingToken,
    /// How many attempts it took.
    pub attempts: u32,
    /// When it was accepted.
    pub received_at: Option<Timestamp>,
    /// When its last handler start was.
    pub started_at: Option<Timestamp>,
    /// When it was settled.
    pub settled_at: Timestamp,
    /// Its source, for people.
    pub source: Option<String>,
    /// The sender's id, cut to [`Receipt::TEXT_BYTES`], for people.
    pub delivery_id: Option<String>,
    /// Its topic, cut to [`Receipt::TEXT_BYTES`], for people.
    pub topic: Option<String>,
}

impl Receipt {
    /// How much of the sender's texts is kept: a receipt costs one write unit.
    pub const TEXT_BYTES: usize = 64;

    /// The receipt of `delivery`, settled at `settled_at` under `token`.
    pub fn of(
        delivery: &Delivery,
        settlement: Settlement,
        token: FencingToken,
        started_at: Option<Timestamp>,
        settled_at: Timestamp,
    ) -> Self {
        Self {
            identity: delivery.identity_hash().clone(),
            sequence: delivery.sequence(),
            settlement,
            token,
            attempts: delivery.attempt(),
            received_at: Some(delivery.received_at()),
            started_at,
            settled_at,
            source: Some(delivery.source().to_string()),
            delivery_id: Some(shortened(delivery.delivery_id().as_str(), Self::TEXT_BYTES)),
            topic: Some(shortened(delivery.topic(), Self::TEXT_BYTES)),
        }
    }

    /// The receipt that a holder before `state` owed and may not have written:
    /// what its row still says. `None`: there is nothing it could owe.
    pub fn owed(state: &EntityState, now: Timestamp) -> Option<Self> {
        let last = state.last_settled.as_ref()?;
        if last.settlement == Settlement::Repeat {
            return None;
        }
        Some(Self {
            identity: last.identity.clone()?,
            sequence: state.head,
            settlement: last.settlement,
            // The settle's own is not known any more: above every earlier one, below the next start's.
            token: FencingToken(state.token.0.saturating_sub(1)),
            attempts: 0,
            received_at: None,
            started_at: None,
            settled_at: now,
            source: None,
            delivery_id: None,
            topic: None,
        })
    }

    /// Reads an `r#` row.
    pub fn parse(row: &Row) -> Result<Self, CorruptRow> {
        check_format(row)?;
        let number = |name| row.number(name).ok_or(CorruptRow::Attribute(name));
        let time = |name| row.number(name).map(Timestamp::from_millis);
        Ok(Self {
            identity: receipt_identity(row).ok_or(CorruptRow::Attribute(a::ITEM))?,
            sequence: Sequence(number(a::SEQUENCE)?),
            settlement: row
                .text(a::OUTCOME)
                .and_then(Settlement::from_stored)
                .ok_or(CorruptRow::Attribute(a::OUTCOME))?,
            token: FencingToken(number(a::TOKEN)?),
            attempts: row.number(a::ATTEMPTS).unwrap_or(0).try_into().unwrap_or(u32::MAX),
            received_at: time(a::RECEIVED_AT),
            started_at: time(a::STARTED_AT),
            settled_at: time(a::SETTLED_AT).ok_or(CorruptRow::Attribute(a::SETTLED_AT))?,
            source: row.text(a::SOURCE).map(str::to_owned),
            delivery_id: row.text(a::DELIVERY_ID).map(str::to_owned),
            topic: row.text(a::TOPIC).map(str::to_owned),
        })
    }
}

/// Writes a receipt.
#[derive(Debug, Clone)]
pub struct WriteReceipt<'a> {
    /// Of which entity.
    pub entity: &'a EntityKey,
    /// The receipt.
    pub receipt: &'a Receipt,
    /// When it may be forgotten.
    pub purge_at: Timestamp,
}

impl WriteReceipt<'_> {
    /// The write beside a settle in one transaction. What a holder that lost
    /// its lease left about the same place gives way: the settle's condition
    /// says whose decision counts, and were this refused, the delivery would
    /// have to pass for applied without what its handler wrote.
    pub fn deciding(&self) -> Write {
        let same_place = Condition::All(vec![readable(), Condition::equal(a::SEQUENCE, self.receipt.sequence.0)]);
        self.write().when(Condition::Any(vec![Condition::absent(a::ITEM), same_place]))
    }
}

impl Operation for WriteReceipt<'_> {
    type Outcome = ();

    fn write(&self) -> Write {
        let receipt = self.receipt;
        let mut row = Row::new()
            .with(a::VERSION, FORMAT)
            .with(a::SEQUENCE, receipt.sequence.0)
            .with(a::OUTCOME, receipt.settlement.as_str())
            .with(a::TOKEN, receipt.token.0)
            .with(a::ATTEMPTS, receipt.attempts)
            .with(a::SETTLED_AT, receipt.settled_at.as_millis())
            .with(a::PURGE_AT, self.purge_at.as_secs_rounded_up());
        for (name, time) in [(a::RECEIVED_AT, receipt.received_at), (a::STARTED_AT, receipt.started_at)] {
            if let Some(time) = time {
                row.set(name, time.as_millis());
            }
        }
        for (name, text) in
            [(a::SOURCE, &receipt.source), (a::DELIVERY_ID, &receipt.delivery_id), (a::TOPIC, &receipt.topic)]
        {
            if let Some(text) = text {
                row.set(name, text.as_str());
            }
        }
        Write {
            key: receipt_row(self.entity, &receipt.identity),
            condition: Condition::Any(vec![
                Condition::absent(a::ITEM),
                Condition::All(vec![
                    readable(),
                    Condition::equal(a::SEQUENCE, receipt.sequence.0),
                    Condition::compare(a::TOKEN, Comparison::Less, receipt.token.0),
                ]),
            ]),
            action: Action::Put(row),
        }
    }

    /// There is one: this one's first try, or one of another place. Either way
    /// it is remembered. One that a holder left about the same place that had
    /// lost its lease carries a smaller token and gives way: the receipt says
    /// what the settle said.
    fn judge(&self, _reply: Written) -> Result<(), CorruptRow> {
        Ok(())
    }
}
