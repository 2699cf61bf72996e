//! Counts the deliveries accepted and settled in the last minutes, and measures their lag. The figures are estimates,
//! because rows are read one after the other while webhooks arrive.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use webhook_serializer::{
    protocol::{
        entity::{Sequence, SourceName},
        format::attribute as a,
        keys::{is_parked, is_receipt_page, receipt_identity, sequence_of},
        receipt::{PagedReceipts, Receipt, Settlement},
        state::EntityState,
        table::Row,
    },
    time::Timestamp,
};

/// Explains a lag in `status` and on the console.
pub const LAG: &str = "the time from acceptance to settlement";

pub const WINDOW: Duration = Duration::from_secs(300);

type Place = (String, Sequence);

#[derive(Debug, Clone, Default)]
pub struct Throughput {
    since: Option<Timestamp>,
    settled: HashMap<Place, Timestamp>,
    accepted: HashMap<Place, (SourceName, Timestamp)>,
    in_window: BTreeMap<SourceName, u64>,
    newest: BTreeMap<SourceName, Timestamp>,
    is_at_least: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paced {
    pub accepted: u64,
    pub settled: u64,
    /// The median and the longest time from acceptance to settlement.
    pub lag: Option<(Duration, Duration)>,
}

impl Throughput {
    /// Returns empty counters for the events within the [`WINDOW`] before `now`.
    pub fn until(now: Timestamp) -> Self {
        let since = now.as_millis().saturating_sub(WINDOW.as_millis() as u64);
        Self { since: Some(Timestamp::from_millis(since)), ..Self::default() }
    }

    pub fn order(&mut self, state: &EntityState) {
        let Some(since) = self.since else { return };
        let oldest = state.recent.iter().next().map(|receipt| receipt.settled_at);
        // Older receipts have left the row, and some of them may be in the window too.
        self.is_at_least |= state.spilled.is_anywhere() && oldest.is_some_and(|oldest| oldest >= since);
        for receipt in state.recent.iter() {
            self.settle(state.entity.as_str(), receipt);
        }
    }

    fn settle(&mut self, entity: &str, receipt: &Receipt) {
        let is_in_window = self.since.is_some_and(|since| receipt.settled_at >= since);
        if is_in_window && receipt.settlement != Settlement::Void {
            let settled_at = self.settled.entry((entity.to_owned(), receipt.sequence)).or_insert(receipt.settled_at);
            // A rewound delivery may have several receipts.
            *settled_at = receipt.settled_at.max(*settled_at);
        }
    }

    /// Adds a row of the deliveries' table. All rows of the orders' table must be added first.
    pub fn delivery(&mut self, row: &Row) {
        let (Some(since), Some(entity)) = (self.since, row.text(a::ENTITY)) else { return };
        if receipt_identity(row).is_some() {
            if let Ok(receipt) = Receipt::parse(row) {
                self.settle(entity, &receipt);
            }
            return;
        }
        if is_receipt_page(row) {
            let mut paged = PagedReceipts::default();
            if paged.add(row).is_ok() {
                paged.iter().for_each(|receipt| self.settle(entity, receipt));
            }
            return;
        }
        let Some(sequence) = sequence_of(row).filter(|_| !is_parked(row)) else { return };
        let source = row.text(a::SOURCE).and_then(|source| SourceName::parse(source).ok());
        let (Some(source), Some(at)) = (source, row.number(a::RECEIVED_AT).map(Timestamp::from_millis)) else { return };
        let newest = self.newest.entry(source.clone()).or_insert(at);
        *newest = at.max(*newest);
        let place = (entity.to_owned(), sequence);
        if at >= since {
            *self.in_window.entry(source.clone()).or_default() += 1;
        }
        if at >= since || self.settled.contains_key(&place) {
            self.accepted.insert(place, (source, at));
        }
    }

    pub fn settled(&self) -> u64 {
        self.settled.len() as u64
    }

    /// Returns whether more deliveries may have been settled than the orders' rows show. A row holds only the newest
    /// receipts; older ones are in pages or have rows of their own.
    pub fn is_at_least(&self) -> bool {
        self.is_at_least
    }

    pub fn newest(&self) -> &BTreeMap<SourceName, Timestamp> {
        &self.newest
    }

    /// Returns the figures by source; `None` is an unknown source. All rows of the deliveries' table must be
    /// added first.
    pub fn by_source(&self) -> BTreeMap<Option<SourceName>, Paced> {
        let mut paced: BTreeMap<Option<SourceName>, Paced> = BTreeMap::new();
        for (source, accepted) in &self.in_window {
            paced.entry(Some(source.clone())).or_default().accepted = *accepted;
        }
        let mut lags: BTreeMap<&SourceName, Vec<Duration>> = BTreeMap::new();
        for (place, settled_at) in &self.settled {
            let accepted = self.accepted.get(place);
            paced.entry(accepted.map(|(source, _)| source.clone())).or_default().settled += 1;
            if let Some((source, at)) = accepted {
                lags.entry(source).or_default().push(settled_at.since(*at));
            }
        }
        for (source, mut lags) in lags {
            lags.sort_unstable();
            let lag = lags.get((lags.len() - 1) / 2).copied().zip(lags.last().copied());
            paced.entry(Some(source.clone())).or_default().lag = lag;
        }
        paced
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        entity::{DeliveryId, EntityKey, FencingToken, Identity, IdentityHash},
        format::FORMAT,
        inbox::SpillPage,
        keys::{delivery_row, parked_row, receipt_row},
        memory::evaluate,
        operation::Operation,
        receipt::{Recent, Spilled},
    };

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    fn ago(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000_000 - seconds)
    }

    fn key() -> EntityKey {
        EntityKey::parse("shop/order/1").unwrap()
    }

    fn identity() -> IdentityHash {
        let source = SourceName::parse("a").unwrap();
        Identity { source, delivery_id: DeliveryId::new("1"), redrive: 0 }.hash()
    }

    fn receipt(sequence: u64, settlement: Settlement, at: Timestamp) -> Receipt {
        Receipt {
            sequence: Sequence(sequence),
            identity: Some(identity()),
            settlement,
            token: FencingToken(1),
            attempts: 1,
            settled_at: at,
            took: None,
        }
    }

    fn order(receipts: &[Receipt], spilled: Spilled) -> EntityState {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1");
        let row = row.with(a::TAIL, 9_u32).with(a::HEAD, 9_u32).with(a::TOKEN, 9_u32);
        let mut state = EntityState::parse(&row).unwrap();
        for receipt in receipts {
            state.recent = std::mem::take(&mut state.recent).with(receipt.clone(), WINDOW);
        }
        state.spilled = spilled;
        state
    }

    fn delivery(sequence: u64, source: &str, at: Timestamp) -> Row {
        let row = delivery_row(&key(), Sequence(sequence)).to_row();
        row.with(a::SOURCE, source).with(a::RECEIVED_AT, at.as_millis())
    }

    #[test]
    fn throughput_and_lag_are_shown_per_source() {
        let mut pace = Throughput::until(NOW);
        let settled = [
            receipt(5, Settlement::Applied, ago(301)),
            receipt(6, Settlement::Applied, ago(290)),
            receipt(7, Settlement::Void, ago(200)),
            receipt(8, Settlement::Parked, ago(100)),
            receipt(9, Settlement::Applied, ago(10)),
        ];
        pace.order(&order(&settled, Spilled::default()));
        for (sequence, source, at) in [(5, "a", 302), (6, "a", 320), (8, "b", 102), (9, "a", 11), (10, "a", 1)] {
            pace.delivery(&delivery(sequence, source, ago(at)));
        }
        // The parked copy of a delivery is not counted again.
        let parked =
            parked_row(&key(), Sequence(8)).to_row().with(a::SOURCE, "b").with(a::RECEIVED_AT, NOW.as_millis());
        pace.delivery(&parked);
        let seconds = Duration::from_secs;
        let told = pace.by_source();
        let of = |name: &str| told[&SourceName::parse(name).ok()].clone();
        assert_eq!(of("a"), Paced { accepted: 2, settled: 2, lag: Some((seconds(1), seconds(30))) });
        assert_eq!(of("b"), Paced { accepted: 1, settled: 1, lag: Some((seconds(2), seconds(2))) });
        assert_eq!((told.len(), pace.settled(), pace.is_at_least()), (2, 3, false));
        let newest: Vec<u64> = pace.newest().values().map(|at| NOW.since(*at).as_secs()).collect();
        assert_eq!(newest, [1, 102]);
    }

    #[test]
    fn throughput_is_lower_bound_if_receipts_were_spilled() {
        let mut pace = Throughput::until(NOW);
        pace.order(&order(&[receipt(9, Settlement::Applied, ago(10))], Spilled::ROWS));
        assert_eq!((pace.settled(), pace.is_at_least()), (1, true));
        let row = receipt_row(&key(), identity()).to_row();
        let row = row.with(a::VERSION, FORMAT).with(a::SEQUENCE, 8_u32).with(a::OUTCOME, "applied");
        pace.delivery(&row.with(a::TOKEN, 3_u32).with(a::SETTLED_AT, ago(20).as_millis()));
        assert_eq!(pace.settled(), 2);
        assert_eq!(pace.by_source()[&None].settled, 2, "nobody has said whose they were");
        let paged = Recent::default().with(receipt(7, Settlement::Applied, ago(30)), WINDOW);
        let entity = key();
        let page = SpillPage::of(&entity, &paged, NOW).unwrap().write();
        pace.delivery(&evaluate(&page, None).unwrap().unwrap());
        assert_eq!(pace.settled(), 3);
        let mut long_ago = Throughput::until(NOW);
        long_ago.order(&order(&[receipt(9, Settlement::Applied, ago(400))], Spilled::ROWS));
        assert_eq!((long_ago.settled(), long_ago.is_at_least()), (0, false));
    }
}
