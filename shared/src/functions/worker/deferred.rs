//! Appends deferred deliveries, or defers them again while the store is down.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::batch::Batch;
use crate::{
    engine::{
        append::{ANSWERED, AppendError},
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

/// The number of orders whose deliveries are appended concurrently. Each of them has one unpacked body in memory.
const ORDERS_AT_ONCE: usize = 4;

/// The orders whose rows the store has throttled, each with the monotonic time until which this process defers their
/// deliveries again without a try. Otherwise each batch with such a delivery would last as long as an append may.
#[derive(Debug, Clone, Default)]
pub(super) struct Throttled(Arc<Mutex<BTreeMap<EntityKey, Duration>>>);

impl Throttled {
    fn note(&self, entity: &EntityKey, now: Duration, time: Duration) {
        let mut orders = lock(&self.0);
        orders.retain(|_, until| *until > now);
        orders.insert(entity.clone(), now + time);
    }

    fn left(&self, entity: &EntityKey, now: Duration) -> Option<Duration> {
        let until = *lock(&self.0).get(entity)?;
        (until > now).then(|| until - now)
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Appends<'a> {
    drainer: &'a Drainer,
    throttled: &'a Throttled,
    /// The delay with which the batch's remaining deliveries are deferred again, because the store did not answer.
    silent: Mutex<Option<Duration>>,
}

/// Appends the deferred deliveries of `batch` within `limit`. Returns the ids of the messages to
/// keep, which include the unreadable ones. The other messages may be deleted: their deliveries are
/// durable, in their inboxes or in other messages.
///
/// The deliveries of an order are appended one after the other, in order of arrival; several orders are appended
/// concurrently. If the store throttles a write to an order or reports a conflict, it does answer: only that order's
/// further deliveries are deferred again without a try. If it does not answer, all deliveries are that have not begun.
pub(super) async fn append_all(
    drainer: &Drainer,
    throttled: &Throttled,
    batch: &Batch,
    limit: Duration,
) -> BTreeSet<String> {
    let orders = batch.deferred();
    let deferred = orders.iter().flatten().map(|(id, _)| id);
    let kept = Mutex::new(batch.undeliverable().iter().map(|(id, _)| id).chain(deferred).cloned().collect());
    let appends = Appends { drainer, throttled, silent: Mutex::default() };
    let slots = Semaphore::new(ORDERS_AT_ONCE);
    let all = join_all(orders.iter().map(async |order| {
        let _slot = slots.acquire().await;
        for (id, deferred) in order {
            if appends.append(id, deferred).await {
                BTreeSet::remove(&mut lock(&kept), id);
            }
        }
    }));
    drainer.env().within(limit, all).await;
    kept.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Appends<'_> {
    /// Appends a delivery, or defers it again. Returns whether the message may be deleted.
    async fn append(&self, id: &str, deferred: &Deferred) -> bool {
        let inbox = self.drainer.inbox();
        if let Some(pause) = self.pause(deferred.entity()) {
            return inbox.defer_again(deferred, pause.max(deferred.pause()), PATIENCE).await.is_ok();
        }
        let (incoming, stored) = match deferred.incoming() {
            Ok(read) => read,
            Err(reason) => {
                self.drainer.observer().observe(&Event::UnreadableDelivery { message_id: id, reason });
                return false;
            }
        };
        let appended = inbox.append_deferred(&incoming, deferred.unrouted(), stored, ANSWERED);
        match traces::append_deferred(&incoming, deferred.trace(), appended).await {
            Ok(_) => true,
            Err(error) => {
                tracing::error!(entity = %incoming.entity, %error, "deferred delivery not appended");
                self.note(deferred, &error);
                inbox.defer_again(&deferred.again(), deferred.pause(), PATIENCE).await.is_ok()
            }
        }
    }

    /// Returns the delay with which the order's deliveries are deferred again without a try, if they are.
    fn pause(&self, entity: &EntityKey) -> Option<Duration> {
        let left = self.throttled.left(entity, self.drainer.env().monotonic());
        // Jitter halves the delay at most.
        left.map(|left| left * 2).max(*lock(&self.silent))
    }

    fn note(&self, deferred: &Deferred, error: &AppendError) {
        match error {
            AppendError::Store(StoreError::Unavailable(TableError::Throttled | TableError::Conflict)) => {
                // At least as late as this, the jittered message arrives again.
                self.throttled.note(deferred.entity(), self.drainer.env().monotonic(), deferred.pause() / 2);
            }
            AppendError::Store(StoreError::Unavailable(_)) => *lock(&self.silent) = Some(deferred.pause()),
            _ => {}
        }
    }
}
