//! Reading ahead: the next deliveries of an inbox and, where some have left its
//! entity's row, the receipts that would make them repeats.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::PATIENCE;
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        delivery::{Delivery, Item, Unpacked},
        entity::{EntityKey, IdentityHash, Sequence},
        format::CorruptRow,
        keys::{delivery_range, receipt_row},
        receipt::Receipt,
        table::Row,
    },
    time::Timestamp,
};

/// How many deliveries are read at once. Their receipts, up to three each, fit one
/// batch read of 100.
const PAGE: u32 = 25;

/// What stands at a place of the inbox.
#[derive(Debug, Clone)]
pub enum Place {
    /// A delivery.
    Delivery(Box<Waiting>),
    /// A marker: claimed, and never filled.
    Void(Sequence),
}

impl Place {
    /// The delivery, where one stands there, without its body.
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(waiting) => Some(waiting.unpacked.head()),
            Self::Void(_) => None,
        }
    }
}

/// A delivery that waits.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// As it was read, its body still packed.
    pub unpacked: Unpacked,
    /// The row it was read from: what is set aside is a copy of that.
    pub row: Row,
}

/// A page of an inbox, without holes between its places or in front of them.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub(super) places: VecDeque<Place>,
    pub(super) receipts: BTreeMap<IdentityHash, Receipt>,
    /// When the first delivery behind the hole arrived at which the page ends.
    pub(super) behind: Option<Timestamp>,
}

impl Page {
    /// What `rows`, which begin at `from`, tell: up to the first hole, or the
    /// first row behind another that cannot be read. That one is met again as
    /// the first of a page.
    ///
    /// # Errors
    ///
    /// The first row cannot be read.
    pub fn of(entity: &EntityKey, from: Sequence, rows: Vec<Row>) -> Result<Self, CorruptRow> {
        let mut page = Self::default();
        let mut expected = from;
        for row in rows {
            let item = match Item::parse(entity, &row) {
                Ok(item) => item,
                Err(_) if !page.places.is_empty() => break,
                Err(error) => return Err(error),
            };
            if item.sequence() != expected {
                if let Item::Delivery(unpacked) = &item {
                    page.behind = Some(unpacked.head().appended_at());
                }
                break;
            }
            expected = expected.next();
            page.places.push_back(match item {
                Item::Delivery(unpacked) => Place::Delivery(Box::new(Waiting { unpacked: *unpacked, row })),
                Item::Void(sequence) => Place::Void(sequence),
            });
        }
        Ok(page)
    }

    /// Whose receipts are to be read, each once.
    pub fn wanted(&self) -> BTreeSet<IdentityHash> {
        self.places.iter().filter_map(Place::delivery).flat_map(Delivery::repeated_hashes).collect()
    }

    /// The same with these receipts.
    ///
    /// # Errors
    ///
    /// One of them cannot be read.
    pub fn with_receipts(mut self, rows: &[Row]) -> Result<Self, CorruptRow> {
        for row in rows {
            let receipt = Receipt::parse(row)?;
            self.receipts.extend(receipt.identity.map(|identity| (identity, receipt)));
        }
        Ok(self)
    }

    /// Reads what stands from `from` to `to`; where `has_spilled` also which of it
    /// has a receipt.
    pub(crate) async fn read(
        store: &Store,
        entity: &EntityKey,
        from: Sequence,
        to: Sequence,
        has_spilled: bool,
    ) -> Result<Self, StoreError> {
        let rows = store.query(&delivery_range(entity, from, to, PAGE), PATIENCE).await?.rows;
        let page = Self::of(entity, from, rows)?;
        if !has_spilled || page.wanted().is_empty() {
            return Ok(page);
        }
        let keys: Vec<_> = page.wanted().into_iter().map(|identity| receipt_row(entity, identity)).collect();
        let receipts = store.get_many(&keys, PATIENCE).await?;
        Ok(page.with_receipts(&receipts)?)
    }

    /// What stands there, place by place.
    pub(crate) fn places(&self) -> impl ExactSizeIterator<Item = &Place> {
        self.places.iter()
    }

    /// The receipt of this delivery, where one was read.
    pub(crate) fn receipt(&self, identity: IdentityHash) -> Option<&Receipt> {
        self.receipts.get(&identity)
    }

    /// Puts the page behind this one at its end.
    pub(crate) fn extend(&mut self, next: Page) {
        self.places.extend(next.places);
        self.receipts.extend(next.receipts);
        self.behind = next.behind;
    }
}
