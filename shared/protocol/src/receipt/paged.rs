//! Receipts in pages: rows that each hold consecutive receipts of an entity.

use std::collections::BTreeMap;

use super::{Receipt, Recent, keep_latest};
use crate::{
    entity::IdentityHash,
    format::{CorruptRow, attribute as a, check_format},
    table::Row,
};

/// The most pages of receipts that an entity gets. Further receipts get separate rows.
///
/// A drain reads all pages, which takes at most eight read units. With more pages, this would cost more
/// than the write units that a page saves.
pub const PAGES: usize = 56;

/// The receipts in an entity's pages.
#[derive(Debug, Clone, Default)]
pub struct PagedReceipts {
    receipts: BTreeMap<IdentityHash, Receipt>,
    pages: usize,
}

impl PagedReceipts {
    /// Adds the receipts of a page. Of each identity's receipts, the latest one counts.
    ///
    /// # Errors
    ///
    /// Returns an error if `row` cannot be read as a page of receipts.
    pub fn add(&mut self, row: &Row) -> Result<(), CorruptRow> {
        check_format(row)?;
        let receipts = row.bytes(a::RECENT).and_then(Recent::from_stored);
        for receipt in receipts.ok_or(CorruptRow::Attribute(a::RECENT))?.iter() {
            let Some(identity) = receipt.spills() else { continue };
            keep_latest(&mut self.receipts, identity, receipt);
        }
        self.pages += 1;
        Ok(())
    }

    pub fn get(&self, identity: IdentityHash) -> Option<&Receipt> {
        self.receipts.get(&identity)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Receipt> {
        self.receipts.values()
    }

    /// Returns whether a page holds this very receipt.
    pub fn holds(&self, receipt: &Receipt) -> bool {
        let paged = receipt.spills().and_then(|identity| self.get(identity));
        paged.is_some_and(|paged| paged.sequence == receipt.sequence && paged.token == receipt.token)
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        entity::{EntityKey, FencingToken, Sequence},
        format::FORMAT,
        inbox::SpillPage,
        memory::evaluate,
        operation::Operation,
        receipt::Settlement,
        time::Timestamp,
    };

    const AT: u64 = 1_799_999_999_999;

    fn receipt(sequence: u64, settlement: Settlement, token: u64) -> Receipt {
        Receipt {
            sequence: Sequence(sequence),
            identity: Some(IdentityHash::from_bytes(sequence.to_be_bytes())),
            settlement,
            token: FencingToken(token),
            attempts: 31,
            settled_at: Timestamp::from_millis(AT),
            took: Some(Duration::from_secs(60)),
        }
    }

    fn page(entity: &EntityKey, receipts: &[Receipt]) -> Row {
        let recent = Recent::default();
        let recent = receipts.iter().fold(recent, |recent, receipt| recent.with(receipt.clone(), Duration::ZERO));
        let purge_at = Timestamp::from_millis(AT);
        evaluate(&SpillPage::of(entity, &recent, purge_at).unwrap().write(), None).unwrap().unwrap()
    }

    fn order() -> EntityKey {
        EntityKey::parse("shop/order/1").unwrap()
    }

    #[test]
    fn page_of_full_row_costs_one_write_unit() {
        for bytes in 3..=256 {
            let entity = EntityKey::parse(&format!("n/{}", "x".repeat(bytes - 2))).unwrap();
            let first = AT - Recent::capacity(&entity) as u64;
            let receipts: Vec<_> = (first + 1..=AT).map(|at| receipt(at, Settlement::Applied, AT)).collect();
            let row = page(&entity, &receipts);
            assert_eq!(row.write_units(), 1, "{} bytes with a key of {bytes}", row.size());
            let all = row.size() * PAGES;
            assert!(all <= 8 * 4096, "{all} bytes in {PAGES} pages with a key of {bytes}");
        }
    }

    #[test]
    fn latest_receipt_of_each_identity_is_read() {
        let applied = |at, token| receipt(at, Settlement::Applied, token);
        let repeat = receipt(3, Settlement::Repeat, 8);
        let mut paged = PagedReceipts::default();
        for receipts in [[applied(1, 5), applied(2, 7), repeat.clone()], [applied(1, 9), applied(2, 11), repeat]] {
            paged.add(&page(&order(), &receipts)).unwrap();
        }
        paged.add(&page(&order(), &[applied(1, 3)])).unwrap();
        assert_eq!(paged.iter().cloned().collect::<Vec<_>>(), [applied(1, 9), applied(2, 11)]);
        assert_eq!(paged.pages(), 3);
        assert!(paged.holds(&applied(1, 9)) && !paged.holds(&applied(1, 5)) && !paged.holds(&applied(4, 9)));
    }

    #[test]
    fn unreadable_page_is_refused() {
        let row = page(&order(), &[receipt(1, Settlement::Applied, 5)]);
        let read = |row: Row| PagedReceipts::default().add(&row);
        assert_eq!(read(row.clone()), Ok(()));
        assert_eq!(read(row.clone().with(a::RECENT, "x")), Err(CorruptRow::Attribute(a::RECENT)));
        assert_eq!(read(row.with(a::VERSION, FORMAT + 1)), Err(CorruptRow::Newer(u64::from(FORMAT) + 1)));
    }
}
