//! Parks a delivery: for a worker that gives it up, an operator who skips it, or a
//! restore.

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

/// How much longer a body's parts are kept than the row that names them: TTL may delete
/// them days apart.
pub(crate) const PARTS_OUTLIVE: Duration = Duration::from_secs(7 * 86_400);

/// The additions of a parked delivery's row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parking<'a> {
    /// The last error, stored up to 1,000 characters.
    pub error: &'a str,
    /// The token of the delivery's run before a rewind.
    pub run_before: Option<FencingToken>,
    /// `None`: until an operator decides.
    pub kept_for: Option<Duration>,
}

impl Parking<'_> {
    /// Parks the delivery, which is still to be settled as parked. A repeat keeps the
    /// first row and extends its time.
    pub(crate) async fn park(self, store: &Store, waiting: &Waiting) -> Result<(), StoreError> {
        let (head, now) = (waiting.unpacked.head(), store.env().now());
        let until = self.kept_for.map(|kept_for| now + kept_for);
        for part in head.part_keys() {
            match until {
                Some(until) => {
                    store.run(&ExtendRetention { row: part, until: until + PARTS_OUTLIVE }, PATIENCE).await?
                }
                None => store.run(&KeepForever { part }, PATIENCE).await?,
            }
        }
        let row = parked_copy(&waiting.row, self.run_before, &shortened(self.error, 1000), now, until);
        let (entity, sequence) = (head.entity(), head.sequence());
        store.run(&Park { entity, sequence, row: &row }, PATIENCE).await?;
        if let Some(until) = until {
            // A worker may have parked it weeks ago and died before it settled it.
            store.run(&ExtendRetention { row: parked_row(entity, sequence), until }, PATIENCE).await?;
        }
        Ok(())
    }
}
