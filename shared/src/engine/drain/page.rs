//! Reading ahead: the next deliveries of an inbox and the receipts that would
//! make them repeats.

use std::collections::{HashMap, VecDeque};

use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        delivery::Item,
        entity::{EntityKey, IdentityHash, Sequence},
        inbox::Receipt,
        keys::{delivery_range, receipt_row},
        table::Row,
    },
    time::Timestamp,
};

use super::PATIENCE;

/// How many deliveries are read at once. Their receipts fit one batch read.
pub(super) const PAGE: u32 = 25;

/// One item, and the row it was read from.
pub(super) struct Read {
    pub(super) item: Item,
    pub(super) row: Row,
}

/// A page of an inbox, without holes between its items or in front of them.
#[derive(Default)]
pub(super) struct Page {
    pub(super) items: VecDeque<Read>,
    pub(super) receipts: HashMap<IdentityHash, Receipt>,
    /// When the first delivery behind the hole arrived at which the page ends.
    pub(super) behind: Option<Timestamp>,
}

impl Page {
    /// Reads what stands from `from` to `to`, up to the first hole, and which
    /// of these identities, and of `also`, have a receipt.
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
        let mut items = VecDeque::new();
        let mut expected = from;
        let mut behind = None;
        for row in rows {
            let item = match Item::parse(entity, &row) {
                Ok(item) => item,
                // What stands in front of it can be decided; it is met again as the first.
                Err(_) if !items.is_empty() => break,
                Err(error) => return Err(error.into()),
            };
            if item.sequence() != expected {
                if let Item::Delivery(unpacked) = &item {
                    behind = Some(unpacked.head().received_at());
                }
                break;
            }
            expected = expected.next();
            items.push_back(Read { item, row });
        }
        let mut wanted: Vec<&IdentityHash> = also.into_iter().collect();
        wanted.extend(items.iter().filter_map(|read| match &read.item {
            Item::Delivery(unpacked) => Some(unpacked.head().identity_hash()),
            Item::Void(_) => None,
        }));
        // The same identity may stand here twice; a batch read takes each key once.
        wanted.sort_unstable();
        wanted.dedup();
        let keys: Vec<_> = wanted.into_iter().map(|identity| receipt_row(entity, identity)).collect();
        let mut receipts = HashMap::new();
        if !keys.is_empty() {
            for row in store.get_many(&keys, PATIENCE).await? {
                let receipt = Receipt::parse(&row)?;
                receipts.insert(receipt.identity.clone(), receipt);
            }
        }
        Ok(Self { items, receipts, behind })
    }

    /// The last place that this page covers.
    pub(super) fn last(&self) -> Option<Sequence> {
        self.items.back().map(|read| read.item.sequence())
    }

    /// Puts the page behind this one at its end.
    pub(super) fn extend(&mut self, next: Page) {
        self.items.extend(next.items);
        self.receipts.extend(next.receipts);
        self.behind = next.behind;
    }
}
