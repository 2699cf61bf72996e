//! The receipts outside the entity's row: those that a drain knows, and those that it must write.

use super::Drain;
use crate::{
    engine::drain::page::InboxPage,
    protocol::{
        inbox::Decision,
        receipt::{PagedReceipts, Receipt, Recent, Spilled},
    },
};

/// Receipts to write elsewhere before they leave the entity's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spilling {
    /// One page for all of these.
    Page(Recent),
    /// A row for each of these, because the entity has many pages already.
    Rows(Vec<Receipt>),
}

impl Spilling {
    pub fn receipts(&self) -> impl Iterator<Item = &Receipt> {
        let (page, rows) = match self {
            Self::Page(receipts) => (Some(receipts.iter()), None),
            Self::Rows(receipts) => (None, Some(receipts.iter())),
        };
        page.into_iter().flatten().chain(rows.into_iter().flatten())
    }

    pub fn place(&self) -> Spilled {
        match self {
            Self::Page(_) => Spilled::PAGES,
            Self::Rows(_) => Spilled::ROWS,
        }
    }
}

impl Drain {
    /// Returns the receipts that must be written elsewhere before `decision`, because `decision`
    /// drops them from the entity's row.
    ///
    /// The other receipts in the entity's row come into the same page, so that later decisions can
    /// drop them.
    pub fn to_spill(&self, decision: &Decision) -> Option<Spilling> {
        self.spilling(decision.dropped.iter())
    }

    /// Returns the receipts that must be written elsewhere before the settle after `decision`. The
    /// caller can write them while it writes `decision`.
    ///
    /// After a group, nothing is written ahead, because a later page also takes the group's receipts.
    pub fn to_spill_ahead(&self, decision: &Decision) -> Option<Spilling> {
        if decision.places() > 1 || self.state.tail <= decision.last() {
            return None;
        }
        let next = decision.recent.next_beyond(self.memory.capacity);
        self.spilling(next.filter(|receipt| receipt.sequence <= self.state.head))
    }

    fn spilling<'a>(&self, leaving: impl Iterator<Item = &'a Receipt>) -> Option<Spilling> {
        let is_only_here = |receipt: &&Receipt| receipt.spills().is_some() && !self.copied.contains(&receipt.sequence);
        let leaving: Vec<_> = leaving.filter(is_only_here).cloned().collect();
        let first = leaving.first()?.sequence;
        let pages = self.pages_written + self.receipt_pages.as_ref().map_or(0, PagedReceipts::pages);
        Some(match pages < self.memory.receipt_pages {
            true => Spilling::Page(self.state.recent.since(first)),
            false => Spilling::Rows(leaving),
        })
    }

    /// Returns the places where the receipts of the next page of items must be read.
    pub fn unread(&self) -> Spilled {
        Spilled { pages: self.granted.pages && self.receipt_pages.is_none(), ..self.granted }
    }

    /// Keeps the receipts of pages that were read with `page`, or else looks up its receipts in
    /// those read earlier.
    pub(super) fn known(&mut self, mut page: InboxPage) -> InboxPage {
        if let Some(found) = page.receipt_pages.take() {
            let in_pages = self.state.recent.iter().filter(|receipt| found.holds(receipt));
            self.copied.extend(in_pages.map(|receipt| receipt.sequence));
            self.places.pages |= found.pages() > 0;
            self.receipt_pages = Some(found);
        } else if let Some(known) = &self.receipt_pages {
            page.look_up(known);
        }
        page
    }

    /// Notes that the receipts `written` have been written elsewhere.
    pub fn spilled(&mut self, written: &Spilling) {
        self.copied.extend(written.receipts().map(|receipt| receipt.sequence));
        self.places = self.places.and(written.place());
        self.pages_written += usize::from(written.place().pages);
    }

    /// Lets `decision` say where receipts are, after some have been written elsewhere.
    pub fn mark(&self, decision: &mut Decision) {
        decision.spilled = self.everywhere();
    }

    /// Returns all places outside the entity's row where receipts may be.
    pub(super) fn everywhere(&self) -> Spilled {
        self.state.spilled.and(self.places)
    }
}
