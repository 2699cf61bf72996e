//! Stores the copy of a delivery that is being parked.

use std::time::Duration;

use super::{PATIENCE, page::WaitingDelivery};
use crate::{
    engine::store::{Store, StoreError},
    protocol::{
        delivery::parked_copy,
        entity::FencingToken,
        format::{attribute as a, shortened},
        inbox::Park,
        keys::parked_row,
        maintain::{ExtendRetention, KeepForever},
    },
    time::Nonce,
};

/// The time for which the parts of a body outlive the row that names them.
///
/// This time is needed because DynamoDB's TTL may delete rows days apart, although they expire
/// together.
pub(crate) const PARTS_OUTLIVE: Duration = Duration::from_secs(7 * 86_400);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Parking<'a> {
    /// The delivery's last error. The row stores at most 1,000 bytes of it.
    pub error: &'a str,
    /// The token that the delivery's handler got as
    /// [`Delivery::run_before`](crate::Delivery::run_before); `None` if the delivery was not
    /// rewound.
    pub run_before: Option<FencingToken>,
    /// The restore that parks the delivery.
    pub restore: Option<&'a Nonce>,
    /// The row's retention. `None` keeps the row until an operator redrives or discards it.
    pub kept_for: Option<Duration>,
}

impl Parking<'_> {
    /// Stores the parked copy. The caller must still settle the delivery as parked.
    ///
    /// If the delivery already has a parked copy, that copy stays. If both the copy and `kept_for`
    /// limit the retention, the later end applies.
    pub(crate) async fn park(self, store: &Store, waiting: &WaitingDelivery) -> Result<(), StoreError> {
        let head = waiting.unpacked.head();
        let now = store.env().now();
        let until = self.kept_for.map(|kept_for| now + kept_for);
        for part in head.part_keys() {
            match until {
                Some(until) => {
                    store.run(&ExtendRetention { row: part, until: until + PARTS_OUTLIVE }, PATIENCE).await?
                }
                None => store.run(&KeepForever { part }, PATIENCE).await?,
            }
        }
        let mut row = parked_copy(&waiting.row, self.run_before, &shortened(self.error, 1000), now, until);
        if let Some(restore) = self.restore {
            row.set(a::RESTORE, restore.as_str());
        }
        let entity = head.entity();
        let sequence = head.sequence();
        store.run(&Park { entity, sequence, row: &row }, PATIENCE).await?;
        if let Some(until) = until {
            // A worker may have stored the copy weeks ago, and died before it settled the delivery.
            store.run(&ExtendRetention { row: parked_row(entity, sequence), until }, PATIENCE).await?;
        }
        Ok(())
    }
}
