//! Reads settled deliveries and their receipts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Operator, OperatorError, PAGE, PATIENCE};
use crate::{
    engine::drain::page::read_paged,
    protocol::{
        delivery::{Delivery, InboxItem},
        entity::{EntityKey, IdentityHash, Sequence},
        keys::{delivery_range, receipt_row, sequence_of},
        receipt::{Receipt, Settlement, Spilled, keep_latest},
        state::EntityState,
        table::Row,
    },
};

#[derive(Debug, Clone, Default)]
pub struct Past {
    /// The receipt, if it is still stored. A repeat or tombstone has a receipt only in the entity's
    /// row.
    pub receipt: Option<Receipt>,
    /// The delivery. A body that is stored in parts is missing. `None` if the sequence has a
    /// tombstone or the delivery has expired.
    pub delivery: Option<Delivery>,
    /// Set if the row of the delivery or the tombstone still exists.
    pub has_row: bool,
    /// The sequence of the delivery that this delivery repeats, if it is a repeat.
    pub first: Option<Sequence>,
}

impl Past {
    fn identities(&self) -> Vec<IdentityHash> {
        match &self.delivery {
            Some(delivery) => delivery.repeated_hashes().collect(),
            None => self.receipt.iter().filter_map(|receipt| receipt.identity).collect(),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        let own = self.receipt.as_ref().is_some_and(|receipt| receipt.settlement != Settlement::Repeat);
        self.has_row && (own || self.first.is_some() || self.delivery.is_none())
    }

    fn is_unclear(&self) -> bool {
        self.receipt.as_ref().is_none_or(|receipt| receipt.settlement == Settlement::Repeat)
    }

    pub fn settlement(&self) -> Option<Settlement> {
        match &self.receipt {
            Some(receipt) => Some(receipt.settlement),
            None if self.first.is_some() => Some(Settlement::Repeat),
            None if self.delivery.is_none() => Some(Settlement::Void),
            None => None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct SettledPage {
    pub places: BTreeMap<Sequence, Past>,
    /// The first sequence that was read.
    pub from: Sequence,
    pub has_older: bool,
}

impl Operator {
    /// Reads the newest settled sequences of an entity, at most `most`.
    ///
    /// `state` is the entity's row, if there is one. With a row, the cost does not depend on the
    /// number of older sequences.
    pub async fn settled(
        &self,
        entity: &EntityKey,
        state: Option<&EntityState>,
        most: usize,
    ) -> Result<SettledPage, OperatorError> {
        let remembered = match state {
            Some(state) => state.recent.iter().cloned().collect(),
            // Without a row, `head` is unknown, so all receipts are read.
            None => self.receipts(entity).await?,
        };
        let (from, through) = match state {
            Some(state) => (Sequence((state.head.0 + 1).saturating_sub(most as u64)), state.head),
            None => {
                let first = remembered.get(remembered.len().saturating_sub(most));
                (first.map_or(Sequence(0), |receipt| receipt.sequence), Sequence(u64::MAX))
            }
        };
        let mut places: BTreeMap<Sequence, Past> = BTreeMap::new();
        for receipt in remembered.iter().filter(|receipt| receipt.sequence >= from) {
            places.entry(receipt.sequence).or_default().receipt = Some(receipt.clone());
        }
        for item in self.standing(entity, from, through).await? {
            let place = places.entry(item.sequence()).or_default();
            place.has_row = true;
            if let InboxItem::Delivery(unpacked) = item {
                place.delivery = Some(unpacked.head().clone());
            }
        }
        let forgotten = places.values().filter(|past| past.is_unclear()).flat_map(Past::identities).collect();
        let spilled = state.map_or(Spilled::ANYWHERE, |state| state.spilled);
        let elsewhere = self.receipts_of(entity, spilled, forgotten).await?;
        let known = |identity| {
            let here = remembered.iter().find(|receipt| receipt.spills() == Some(identity));
            here.or_else(|| elsewhere.get(&identity))
        };
        for (sequence, past) in &mut places {
            let Some(receipt) = past.identities().into_iter().find_map(known) else { continue };
            match receipt.sequence == *sequence {
                true => past.receipt = Some(receipt.clone()),
                false => past.first = Some(receipt.sequence),
            }
        }
        let before = remembered.first().is_some_and(|receipt| receipt.sequence < from);
        let has_older = before || from > Sequence(1) && self.has_others_before(entity, from, &BTreeSet::new()).await?;
        Ok(SettledPage { places, from, has_older })
    }

    /// Returns the outcomes before the rewind, for those items in `waiting` that were rewound.
    pub(super) async fn again(
        &self,
        entity: &EntityKey,
        spilled: Spilled,
        waiting: &[InboxItem],
    ) -> Result<BTreeMap<Sequence, Settlement>, OperatorError> {
        let identity = |item: &InboxItem| match item {
            InboxItem::Delivery(unpacked) => Some((unpacked.head().sequence(), unpacked.head().identity_hash())),
            InboxItem::Void(_) => None,
        };
        let here: BTreeMap<Sequence, IdentityHash> = waiting.iter().filter_map(identity).collect();
        let receipts = self.receipts_of(entity, spilled, here.values().copied().collect()).await?;
        let before = |(place, identity): (&Sequence, &IdentityHash)| {
            let receipt = receipts.get(identity).filter(|receipt| receipt.sequence == *place)?;
            Some((*place, receipt.settlement))
        };
        Ok(here.iter().filter_map(before).collect())
    }

    async fn standing(
        &self,
        entity: &EntityKey,
        from: Sequence,
        through: Sequence,
    ) -> Result<Vec<InboxItem>, OperatorError> {
        let mut items = Vec::new();
        let mut pages = self.store.pages(delivery_range(entity, from, through, PAGE), PATIENCE);
        while let Some(rows) = pages.next().await? {
            for row in &rows {
                items.push(InboxItem::parse(entity, row)?);
            }
        }
        Ok(items)
    }

    /// Returns whether deliveries other than `known` may be stored before `place`. Reads one page.
    pub async fn has_others_before(
        &self,
        entity: &EntityKey,
        place: Sequence,
        known: &BTreeSet<Sequence>,
    ) -> Result<bool, OperatorError> {
        let most = PAGE.min(known.len() as u32 + 1);
        let page = self.store.query(&delivery_range(entity, Sequence(0), place.previous(), most), PATIENCE).await?;
        let is_other = |row: &Row| sequence_of(row).is_none_or(|sequence| !known.contains(&sequence));
        Ok(page.more || page.rows.iter().any(is_other))
    }

    /// Reads the latest receipt of each identity that has left the entity's row, from the places that
    /// `spilled` names.
    pub(super) async fn receipts_of(
        &self,
        entity: &EntityKey,
        spilled: Spilled,
        identities: BTreeSet<IdentityHash>,
    ) -> Result<BTreeMap<IdentityHash, Receipt>, OperatorError> {
        let mut receipts = BTreeMap::new();
        if identities.is_empty() {
            return Ok(receipts);
        }
        if spilled.rows {
            let keys: Vec<_> = identities.iter().map(|identity| receipt_row(entity, *identity)).collect();
            for keys in keys.chunks(PAGE as usize) {
                for row in self.store.get_many(keys, PATIENCE).await? {
                    let receipt = Receipt::parse(&row)?;
                    receipts.extend(receipt.identity.map(|identity| (identity, receipt)));
                }
            }
        }
        if spilled.pages {
            let paged = read_paged(&self.store, entity).await?;
            for identity in identities {
                if let Some(receipt) = paged.get(identity) {
                    keep_latest(&mut receipts, identity, receipt);
                }
            }
        }
        Ok(receipts)
    }
}
