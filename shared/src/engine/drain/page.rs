//! Reads the next deliveries of an inbox. If receipts have left the entity's row, it
//! also reads the receipts that would make these deliveries repeats.

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

/// The size of a page. Its receipts, up to three per delivery, fit one batch read of 100.
const PAGE: u32 = 25;

/// An inbox's item.
#[derive(Debug, Clone)]
pub enum PageItem {
    /// A delivery.
    Delivery(Box<Waiting>),
    /// Fills a sequence that was claimed and never written.
    Tombstone(Sequence),
}

impl PageItem {
    /// Returns the delivery, without its body.
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(waiting) => Some(waiting.unpacked.head()),
            Self::Tombstone(_) => None,
        }
    }
}

/// A delivery that is not settled.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The delivery, its body still packed.
    pub unpacked: Unpacked,
    /// The delivery's row, which parking copies.
    pub row: Row,
}

/// Consecutive items of an inbox.
#[derive(Debug, Clone, Default)]
pub struct Page {
    pub(super) items: VecDeque<PageItem>,
    pub(super) receipts: BTreeMap<IdentityHash, Receipt>,
    /// The time at which the first delivery behind the gap at the page's end was appended.
    pub(super) behind: Option<Timestamp>,
}

impl Page {
    /// Parses the rows from `from` on. The page ends before the first gap or corrupt row.
    ///
    /// # Errors
    ///
    /// The first row is corrupt.
    pub fn parse(entity: &EntityKey, from: Sequence, rows: Vec<Row>) -> Result<Self, CorruptRow> {
        let mut page = Self::default();
        let mut expected = from;
        for row in rows {
            let item = match Item::parse(entity, &row) {
                Ok(item) => item,
                Err(_) if !page.items.is_empty() => break,
                Err(error) => return Err(error),
            };
            if item.sequence() != expected {
                if let Item::Delivery(unpacked) = &item {
                    page.behind = Some(unpacked.head().appended_at());
                }
                break;
            }
            expected = expected.next();
            page.items.push_back(match item {
                Item::Delivery(unpacked) => PageItem::Delivery(Box::new(Waiting { unpacked: *unpacked, row })),
                Item::Void(sequence) => PageItem::Tombstone(sequence),
            });
        }
        Ok(page)
    }

    /// Returns the identities whose receipts are to be read.
    pub fn identities(&self) -> BTreeSet<IdentityHash> {
        self.items.iter().filter_map(PageItem::delivery).flat_map(Delivery::repeated_hashes).collect()
    }

    /// Adds receipts.
    ///
    /// # Errors
    ///
    /// One of them is corrupt.
    pub fn with_receipts(mut self, rows: &[Row]) -> Result<Self, CorruptRow> {
        for row in rows {
            let receipt = Receipt::parse(row)?;
            self.receipts.extend(receipt.identity.map(|identity| (identity, receipt)));
        }
        Ok(self)
    }

    /// Reads the items from `from` to `to`, and their receipts if `has_spilled`.
    pub(crate) async fn read(
        store: &Store,
        entity: &EntityKey,
        from: Sequence,
        to: Sequence,
        has_spilled: bool,
    ) -> Result<Self, StoreError> {
        let rows = store.query(&delivery_range(entity, from, to, PAGE), PATIENCE).await?.rows;
        let page = Self::parse(entity, from, rows)?;
        if !has_spilled || page.identities().is_empty() {
            return Ok(page);
        }
        let keys: Vec<_> = page.identities().into_iter().map(|identity| receipt_row(entity, identity)).collect();
        let receipts = store.get_many(&keys, PATIENCE).await?;
        Ok(page.with_receipts(&receipts)?)
    }

    pub(crate) fn items(&self) -> impl ExactSizeIterator<Item = &PageItem> {
        self.items.iter()
    }

    pub(crate) fn receipt(&self, identity: IdentityHash) -> Option<&Receipt> {
        self.receipts.get(&identity)
    }

    /// Appends the page behind this one.
    pub(crate) fn extend(&mut self, next: Page) {
        self.items.extend(next.items);
        self.receipts.extend(next.receipts);
        self.behind = next.behind;
    }
}
