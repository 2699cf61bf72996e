//! What was deferred while the store was out: appended now, or deferred again.

use std::{collections::BTreeSet, time::Duration};

use super::batch::Batch;
use crate::{
    engine::{
        append::{ANSWERED, AppendError, Inbox},
        deferred::Deferred,
        drain::Drainer,
        store::StoreError,
    },
    telemetry::Event,
    traces,
};

/// How long the queue is tried for, where the store is still out.
const PATIENCE: Duration = Duration::from_secs(5);

/// Appends what `batch` has of it, within `limit`; the ids of the messages to
/// keep, those that cannot be read among them. The others may be deleted: each is
/// durable in its inbox, or in a message that comes later.
///
/// One after the other, in the order in which they arrived: so no more than one
/// body is unpacked at a time, and a store that is out is asked once.
pub(super) async fn take_up(drainer: &Drainer, batch: &Batch, limit: Duration) -> BTreeSet<String> {
    let mut kept: BTreeSet<String> = batch.undeliverable().iter().map(|(id, _)| id.clone()).collect();
    kept.extend(batch.deferred().iter().map(|(id, _)| id.clone()));
    let inbox = drainer.inbox();
    let all = async {
        let mut is_out = false;
        for (id, deferred) in batch.deferred() {
            if take_up_one(drainer, &inbox, id, deferred, &mut is_out).await {
                kept.remove(id);
            }
        }
    };
    drainer.surroundings().within(limit, all).await;
    kept
}

/// Whether its message may be deleted.
async fn take_up_one(drainer: &Drainer, inbox: &Inbox, id: &str, deferred: &Deferred, is_out: &mut bool) -> bool {
    let (incoming, stored) = match deferred.incoming() {
        Ok(read) => read,
        Err(reason) => {
            drainer.observer().observe(&Event::UnreadableDelivery { message_id: id, reason });
            return false;
        }
    };
    if !*is_out {
        let appended = inbox.take_up(&incoming, stored, ANSWERED);
        match traces::taken_up(&incoming, deferred.trace(), appended).await {
            Ok(_) => return true,
            Err(error) => {
                tracing::error!(entity = %incoming.entity, %error, "not taken up");
                *is_out = matches!(error, AppendError::Store(StoreError::Unavailable(_)));
            }
        }
    }
    inbox.defer_again(deferred, PATIENCE).await.is_ok()
}
