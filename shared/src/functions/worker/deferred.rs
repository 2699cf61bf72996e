//! Appends deferred deliveries, or defers them again while the store is down.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::batch::Batch;
use crate::{
    engine::{
        append::{ANSWERED, AppendError, Inbox},
        deferred::Deferred,
        drain::Drainer,
        store::StoreError,
    },
    protocol::{entity::EntityKey, table::TableError},
    telemetry::Event,
    traces,
};

/// The time limit for deferring a delivery again while the store is down.
const PATIENCE: Duration = Duration::from_secs(5);

/// Appends the deferred deliveries of `batch` within `limit`. Returns the ids of the messages to
/// keep, which include the unreadable ones. The other messages may be deleted: their deliveries are
/// durable, in their inboxes or in other messages.
///
/// Deliveries are appended one after the other, in order of arrival, so that only one body is unpacked at a time. If
/// the store does not answer, all further deliveries are deferred again without a try to append them. If the store
/// throttles a write to an order or reports a conflict, only that order's further deliveries are.
pub(super) async fn append_all(drainer: &Drainer, batch: &Batch, limit: Duration) -> BTreeSet<String> {
    let mut kept: BTreeSet<String> = batch.undeliverable().iter().map(|(id, _)| id.clone()).collect();
    kept.extend(batch.deferred().iter().map(|(id, _)| id.clone()));
    let inbox = drainer.inbox();
    let all = async {
        let mut pauses = Pauses::default();
        for (id, deferred) in batch.deferred() {
            if append_one(drainer, &inbox, id, deferred, &mut pauses).await {
                kept.remove(id);
            }
        }
    };
    drainer.env().within(limit, all).await;
    kept
}

/// The delays with which further deliveries of the batch are deferred again, without a try to append them. If the store
/// did not answer, the delay applies to all of them. If the store throttled a write to an order or reported a conflict,
/// it applies to that order's deliveries.
#[derive(Default)]
struct Pauses<'a> {
    store: Option<Duration>,
    orders: BTreeMap<&'a EntityKey, Duration>,
}

impl<'a> Pauses<'a> {
    fn of(&self, entity: &EntityKey) -> Option<Duration> {
        self.store.or_else(|| self.orders.get(entity).copied())
    }

    fn note(&mut self, deferred: &'a Deferred, error: &AppendError) {
        match error {
            AppendError::Store(StoreError::Unavailable(TableError::Throttled | TableError::Conflict)) => {
                self.orders.insert(deferred.entity(), deferred.pause());
            }
            AppendError::Store(StoreError::Unavailable(_)) => self.store = Some(deferred.pause()),
            _ => {}
        }
    }
}

/// Appends a delivery, or defers it again. Returns whether the message may be deleted.
async fn append_one<'a>(
    drainer: &Drainer,
    inbox: &Inbox,
    id: &str,
    deferred: &'a Deferred,
    pauses: &mut Pauses<'a>,
) -> bool {
    let (incoming, stored) = match deferred.incoming() {
        Ok(read) => read,
        Err(reason) => {
            drainer.observer().observe(&Event::UnreadableDelivery { message_id: id, reason });
            return false;
        }
    };
    if let Some(pause) = pauses.of(deferred.entity()) {
        return inbox.defer_again(deferred, pause.max(deferred.pause()), PATIENCE).await.is_ok();
    }
    let appended = inbox.append_deferred(&incoming, deferred.unrouted(), stored, ANSWERED);
    match traces::append_deferred(&incoming, deferred.trace(), appended).await {
        Ok(_) => true,
        Err(error) => {
            tracing::error!(entity = %incoming.entity, %error, "deferred delivery not appended");
            pauses.note(deferred, &error);
            inbox.defer_again(&deferred.again(), deferred.pause(), PATIENCE).await.is_ok()
        }
    }
}
