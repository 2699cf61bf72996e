//! A delivery set aside, for a person to decide about: by a worker that gives it
//! up, by somebody who skips it, by a restore.

use std::time::Duration;

use super::{PATIENCE, page::Waiting};
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        delivery::parked_copy,
        entity::FencingToken,
        format::shortened,
        inbox::Park,
        keys::parked_row,
        maintain::{ExtendRetention, KeepForever},
    },
};

/// A body's parts outlive the row that names them: TTL deletes each in its own
/// time, within days.
pub(crate) const PARTS_LONGER: Duration = Duration::from_secs(7 * 86_400);

/// How a delivery is set aside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aside<'a> {
    /// Why; cut at 1,000 characters.
    pub error: &'a str,
    /// The token under which it was applied where it stands, before a person had it
    /// run again.
    pub run_before: Option<FencingToken>,
    /// How long it is kept. `None`: until a person decides.
    pub kept_for: Option<Duration>,
}

impl Aside<'_> {
    /// Sets the delivery aside. It is still to be settled as parked. Done twice, the
    /// first time stands, and is kept for as long as the second.
    ///
    /// # Errors
    ///
    /// The store could not be reached in time.
    pub(crate) async fn set(self, store: &Store, waiting: &Waiting) -> Result<(), StoreError> {
        let (head, now) = (waiting.unpacked.head(), store.env().now());
        let until = self.kept_for.map(|kept_for| now + kept_for);
        for part in head.part_keys() {
            match until {
                Some(until) => store.run(&ExtendRetention { row: part, until: until + PARTS_LONGER }, PATIENCE).await?,
                None => store.run(&KeepForever { part }, PATIENCE).await?,
            }
        }
        let row = parked_copy(&waiting.row, self.run_before, &shortened(self.error, 1000), now, until);
        let (entity, sequence) = (head.entity(), head.sequence());
        store.run(&Park { entity, sequence, row: &row }, PATIENCE).await?;
        if let Some(until) = until {
            // Whoever set it aside before may have died weeks ago, and not have settled it.
            store.run(&ExtendRetention { row: parked_row(entity, sequence), until }, PATIENCE).await?;
        }
        Ok(())
    }
}
