//! Reading ahead: the next deliveries of an inbox and the receipts that would
//! make them repeats.

use std::collections::{BTreeMap, VecDeque};

use super::PATIENCE;
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        delivery::{Item, Unpacked},
        entity::{EntityKey, IdentityHash, Sequence},
        format::CorruptRow,
        inbox::Receipt,
        keys::{delivery_range, receipt_row},
        table::Row,
    },
    time::Timestamp,
};

/// How many deliveries are read at once. Their receipts fit one batch read.
const PAGE: u32 = 25;

/// What stands at a place of the inbox.
#[derive(Debug, Clone)]
pub enum Place {
    /// A delivery.
    Delivery(Box<Waiting>),
    /// A marker: claimed, and never filled.
    Void(Sequence),
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
                    page.behind = Some(unpacked.head().received_at());
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

    /// Whose receipts are to be read, each once: those of this page, and `also`.
    pub fn wanted<'a>(&'a self, also: Option<&'a IdentityHash>) -> Vec<&'a IdentityHash> {
        let deliveries = self.places.iter().filter_map(|place| match place {
            Place::Delivery(waiting) => Some(waiting.unpacked.head().identity_hash()),
            Place::Void(_) => None,
        });
        let mut wanted: Vec<_> = deliveries.chain(also).collect();
        // The same identity may stand here twice; a batch read takes each key once.
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// The same with these receipts.
    ///
    /// # Errors
    ///
    /// One of them cannot be read.
    pub fn with_receipts(mut self, rows: &[Row]) -> Result<Self, CorruptRow> {
        for row in rows {
            let receipt = Receipt::parse(row)?;
            self.receipts.insert(receipt.identity.clone(), receipt);
        }
        Ok(self)
    }

    /// Reads what stands from `from` to `to`, and which of these identities, and
    /// of `also`, have a receipt.
    pub(super) async fn read(
        store: &Store,
        entity: &EntityKey,
        from: Sequence,
        to: Sequence,
        also: Option<&IdentityHash>,
    ) -> Result<Self, StoreError> {
        let rows = if from > to {
            Vec::new()
        } else {
            store.query(&delivery_range(entity, from, to, PAGE), PATIENCE).await?.rows
        };
        let page = Self::of(entity, from, rows)?;
        let keys: Vec<_> = page.wanted(also).into_iter().map(|identity| receipt_row(entity, identity)).collect();
        if keys.is_empty() {
            return Ok(page);
        }
        let receipts = store.get_many(&keys, PATIENCE).await?;
        Ok(page.with_receipts(&receipts)?)
    }

    /// Puts the page behind this one at its end.
    pub(super) fn extend(&mut self, next: Page) {
        self.places.extend(next.places);
        self.receipts.extend(next.receipts);
        self.behind = next.behind;
    }
}
