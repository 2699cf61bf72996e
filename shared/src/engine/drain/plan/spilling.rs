//! Receipts to write elsewhere before they leave the entity's row.

use crate::protocol::receipt::{Receipt, Recent, Spilled};

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
