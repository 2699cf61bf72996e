//! Reads the next deliveries of an inbox, a page at a time, and their receipts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::future::try_join;

use super::PATIENCE;
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        delivery::{Delivery, InboxItem, Unpacked},
        entity::{EntityKey, IdentityHash, Sequence},
        format::CorruptRow,
        keys::{delivery_range, receipt_page_range, receipt_row},
        receipt::{PAGES, PagedReceipts, Receipt, Spilled, keep_latest},
        table::Row,
    },
    time::Timestamp,
};

/// The number of deliveries in a page. Each delivery is looked up under up to three identity
/// hashes, so the page's receipts fit in one batch read of 100 items.
const PAGE: u32 = 25;

#[derive(Debug, Clone)]
pub enum PageItem {
    Delivery(Box<WaitingDelivery>),
    Tombstone(Sequence),
}

impl PageItem {
    /// Returns the delivery with an undecoded body, or `None` for a tombstone.
    pub fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(waiting) => Some(waiting.unpacked.head()),
            Self::Tombstone(_) => None,
        }
    }
}

/// A delivery in the inbox that is not settled yet.
#[derive(Debug, Clone)]
pub struct WaitingDelivery {
    /// The delivery. Its body may still be compressed or stored in parts.
    pub unpacked: Unpacked,
    /// The delivery's row, which parking copies.
    pub row: Row,
}

#[derive(Debug, Clone, Default)]
pub struct InboxPage {
    pub(super) items: VecDeque<PageItem>,
    pub(super) receipts: BTreeMap<IdentityHash, Receipt>,
    /// The receipts in the entity's pages of receipts, if they were read with this page of items.
    pub(super) receipt_pages: Option<PagedReceipts>,
    /// The append time of the delivery that follows the gap at the page's end. `None` if there is
    /// no such gap, or if a tombstone follows it.
    pub(super) behind: Option<Timestamp>,
}

impl InboxPage {
    /// Creates a page from `rows`, which were read from the sequence `from` on. The page ends
    /// before the first gap or corrupt row; it is empty if `from` itself is a gap.
    ///
    /// # Errors
    ///
    /// Returns an error if the first row is corrupt.
    pub fn parse(entity: &EntityKey, from: Sequence, rows: Vec<Row>) -> Result<Self, CorruptRow> {
        let mut page = Self::default();
        let mut expected = from;
        for row in rows {
            let item = match InboxItem::parse(entity, &row) {
                Ok(item) => item,
                Err(_) if !page.items.is_empty() => break,
                Err(error) => return Err(error),
            };
            if item.sequence() != expected {
                if let InboxItem::Delivery(unpacked) = &item {
                    page.behind = Some(unpacked.head().appended_at());
                }
                break;
            }
            expected = expected.next();
            page.items.push_back(match item {
                InboxItem::Delivery(unpacked) => {
                    PageItem::Delivery(Box::new(WaitingDelivery { unpacked: *unpacked, row }))
                }
                InboxItem::Void(sequence) => PageItem::Tombstone(sequence),
            });
        }
        Ok(page)
    }

    pub fn identities(&self) -> BTreeSet<IdentityHash> {
        self.items.iter().filter_map(PageItem::delivery).flat_map(Delivery::repeated_hashes).collect()
    }

    pub fn with_receipts(mut self, rows: &[Row]) -> Result<Self, CorruptRow> {
        for row in rows {
            let receipt = Receipt::parse(row)?;
            self.receipts.extend(receipt.identity.map(|identity| (identity, receipt)));
        }
        Ok(self)
    }

    #[must_use]
    pub fn with_paged(mut self, paged: PagedReceipts) -> Self {
        self.look_up(&paged);
        self.receipt_pages = Some(paged);
        self
    }

    /// Adds the receipts in `paged` that have identities of these items.
    pub(super) fn look_up(&mut self, paged: &PagedReceipts) {
        for identity in self.identities() {
            if let Some(receipt) = paged.get(identity) {
                keep_latest(&mut self.receipts, identity, receipt);
            }
        }
    }

    /// Reads the page of items from the sequence `from` on, up to `to`. Also reads the receipts with
    /// the identities of these items, from the places that `spilled` names.
    pub(crate) async fn read(
        store: &Store,
        entity: &EntityKey,
        from: Sequence,
        to: Sequence,
        spilled: Spilled,
    ) -> Result<Self, StoreError> {
        let items = async {
            let rows = store.query(&delivery_range(entity, from, to, PAGE), PATIENCE).await?.rows;
            let page = Self::parse(entity, from, rows)?;
            if !spilled.rows || page.identities().is_empty() {
                return Ok(page);
            }
            let keys: Vec<_> = page.identities().into_iter().map(|identity| receipt_row(entity, identity)).collect();
            Ok(page.with_receipts(&store.get_many(&keys, PATIENCE).await?)?)
        };
        let paged = async {
            match spilled.pages {
                true => read_paged(store, entity).await.map(Some),
                false => Ok(None),
            }
        };
        let (page, paged) = try_join(items, paged).await?;
        Ok(match paged {
            Some(paged) => page.with_paged(paged),
            None => page,
        })
    }

    pub(crate) fn items(&self) -> impl ExactSizeIterator<Item = &PageItem> {
        self.items.iter()
    }

    pub(crate) fn receipt(&self, identity: IdentityHash) -> Option<&Receipt> {
        self.receipts.get(&identity)
    }

    pub(crate) fn extend(&mut self, next: InboxPage) {
        self.items.extend(next.items);
        self.receipts.extend(next.receipts);
        self.behind = next.behind;
    }
}

/// Reads all pages of an entity's receipts.
pub(crate) async fn read_paged(store: &Store, entity: &EntityKey) -> Result<PagedReceipts, StoreError> {
    let mut paged = PagedReceipts::default();
    let mut rows = store.pages(receipt_page_range(entity, PAGES as u32), PATIENCE);
    while let Some(rows) = rows.next().await? {
        for row in &rows {
            paged.add(row)?;
        }
    }
    Ok(paged)
}
