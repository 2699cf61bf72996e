//! A queue that delivers at least once: late, out of order, twice, and after a delete.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, futures::Notified};
use webhook_serializer::{
    engine::queue::{self, Depth, Queue, QueueError, Visibility},
    protocol::entity::EntityKey,
};

use super::{
    history::TraceEvent,
    mutation::Mutator,
    node::{Node, pause},
    outage::{FailureMode, SimulatedService},
    random::{Draw, RandomStream, actor},
    world::{SimulatedWorld, entity_number},
};

#[derive(Debug, Clone)]
struct SimulatedMessage {
    entity: EntityKey,
    body: String,
    /// True if the message is a deferred delivery. The value is kept, because the auditor needs it at every
    /// write and it would cost a parse of the body.
    is_deferred: bool,
    visible_at: Duration,
    times: u32,
    /// The message was deleted and is received once more.
    ghost: bool,
    /// A duplicate follows soon, and the message stays visible.
    copied: bool,
}

#[derive(Debug, Clone)]
pub struct SimulatedReceipt {
    pub id: u64,
    pub entity: EntityKey,
    pub body: String,
    pub times: u32,
}

pub fn is_deferred(body: &str) -> bool {
    matches!(queue::Message::parse(body), Ok(queue::Message::Deferred(_)))
}

#[derive(Debug)]
pub struct SimulatedQueue {
    messages: Mutex<(u64, BTreeMap<u64, SimulatedMessage>)>,
    // Not a watch channel: it would wake its waiters in an order that the seed does not determine.
    changed: Notify,
}

impl Default for SimulatedQueue {
    fn default() -> Self {
        Self { messages: Mutex::default(), changed: Notify::new() }
    }
}

impl SimulatedQueue {
    fn with<T>(&self, act: impl FnOnce(&mut u64, &mut BTreeMap<u64, SimulatedMessage>) -> T) -> T {
        let mut messages = self.messages.lock().expect("no panic under the lock");
        let (next, messages) = &mut *messages;
        act(next, messages)
    }

    pub fn len(&self) -> usize {
        self.with(|_, messages| messages.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn holds(&self, entity: &EntityKey) -> bool {
        let is_one = |message: &SimulatedMessage| message.entity == *entity && !message.is_deferred;
        self.with(|_, messages| messages.values().any(is_one))
    }

    pub fn next_at(&self) -> Option<Duration> {
        self.with(|_, messages| messages.values().map(|message| message.visible_at).min())
    }

    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    pub fn put(&self, world: &SimulatedWorld, node: u32, message: &queue::Message, delay: Duration) {
        let entity = message.entity();
        let body = message.text();
        let visible_at = world.elapsed() + delay;
        let id = self.with(|next, messages| {
            *next += 1;
            messages.insert(
                *next,
                SimulatedMessage {
                    entity: entity.clone(),
                    is_deferred: is_deferred(&body),
                    body,
                    visible_at,
                    times: 0,
                    ghost: false,
                    copied: false,
                },
            );
            *next
        });
        let delay = delay.as_millis() as u64;
        world.trace(TraceEvent::WakeUp { node, entity: entity_number(entity), message: id, delay });
        self.changed.notify_waiters();
    }

    pub fn receive(
        &self,
        world: &SimulatedWorld,
        draw: &mut Draw,
        most: u64,
        visibility: Duration,
    ) -> Vec<SimulatedReceipt> {
        let now = world.elapsed();
        let mut received = Vec::new();
        let mut visible: Vec<u64> =
            self.with(|_, messages| messages.iter().filter(|(_, m)| m.visible_at <= now).map(|(id, _)| *id).collect());
        while !visible.is_empty() && (received.len() as u64) < most {
            let id = visible.swap_remove(draw.between(0, visible.len() as u64 - 1) as usize);
            let twice = world.is_active() && draw.happens(world.profile.copies) && world.allows(draw.id);
            let again_at = if twice { now + draw.millis(0, 4000) } else { now + visibility };
            let honest = !(world.is_active() && draw.happens(world.profile.dishonest) && world.allows(draw.id));
            let receipt = self.with(|_, messages| {
                let message = messages.get_mut(&id)?;
                message.times += 1;
                message.visible_at = again_at;
                message.copied = twice;
                let really = message.times;
                let times = if honest { really } else { 1 };
                let receipt =
                    SimulatedReceipt { id, entity: message.entity.clone(), body: message.body.clone(), times };
                if message.ghost {
                    messages.remove(&id);
                }
                Some((receipt, really))
            });
            if let Some((receipt, really)) = receipt {
                if receipt.times != really {
                    world.mark("a copy's receive count lies");
                    let entity = entity_number(&receipt.entity);
                    world.with_history(|history| history.lied.insert(entity));
                }
                received.push(receipt);
            }
        }
        received
    }

    pub fn delete(&self, world: &SimulatedWorld, draw: &mut Draw, id: u64) {
        let stays = world.is_active() && draw.happens(world.profile.copies / 2) && world.allows(draw.id);
        let at = world.elapsed() + draw.millis(0, world.profile.again.as_millis() as u64);
        self.with(|_, messages| {
            if stays && let Some(message) = messages.get_mut(&id) {
                message.visible_at = at;
                message.ghost = true;
            } else {
                messages.remove(&id);
            }
        });
        if stays {
            world.mark("a deleted wake-up comes again");
        }
    }

    /// Extends the visibility timeouts of messages in flight. Returns whether all of them were still in
    /// flight.
    fn hide(&self, world: &SimulatedWorld, ids: &[u64], at: Duration) -> bool {
        let now = world.elapsed();
        let hidden = self.with(|_, messages| {
            let mut hide = |id: &u64| match messages.get_mut(id) {
                Some(message) if message.visible_at > now => {
                    if !message.copied {
                        message.visible_at = at;
                    }
                    true
                }
                _ => false,
            };
            ids.iter().filter(|id| hide(id)).count()
        });
        self.changed.notify_waiters();
        hidden == ids.len()
    }

    pub fn show(&self, id: u64, at: Duration) {
        self.with(|_, messages| {
            if let Some(message) = messages.get_mut(&id) {
                message.visible_at = at;
            }
        });
        self.changed.notify_waiters();
    }
}

#[derive(Debug)]
pub struct NodeQueue {
    node: Node,
    mutator: Arc<Mutator>,
}

impl NodeQueue {
    pub fn new(node: &Node, mutator: &Arc<Mutator>) -> Arc<Self> {
        Arc::new(Self { node: node.clone(), mutator: mutator.clone() })
    }
}

impl Queue for NodeQueue {
    fn send<'a>(&'a self, message: &'a queue::Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let node = &self.node;
            let world = &node.world;
            self.mutator.until_put().await;
            if self.mutator.discards(message, node.number) || self.mutator.suppresses_wake_up(message.entity()) {
                return Ok(());
            }
            let delay = Duration::from_secs(delay.as_millis().div_ceil(1000) as u64);
            let mut draw = node.stream.draw();
            let latency = draw.millis(1, 12);
            let put = |world: &SimulatedWorld| world.queue.put(world, node.number, message, delay);
            if let Some(how) = world.out(&[SimulatedService::Sends], node.number) {
                pause(latency).await;
                if how == FailureMode::LosesReply {
                    put(world);
                }
                if how == FailureMode::Silent {
                    return std::future::pending().await;
                }
                return Err(QueueError::Unavailable("simulated outage".into()));
            }
            let failing = world.is_active() && draw.happens(world.profile.queue) && world.allows(draw.id);
            if !failing {
                pause(latency).await;
                put(world);
                return Ok(());
            }
            let how =
                draw.one_of(&["fails before", "done, reply lost", "done, silence", "silence", "slow", "done twice"]);
            world.trace(TraceEvent::Fault { node: node.number, decision: draw.id, how, call: "send" });
            pause(latency).await;
            let failed = Err(QueueError::Unavailable("simulated".into()));
            match how {
                "fails before" => failed,
                "done, reply lost" => {
                    put(world);
                    failed
                }
                "done, silence" => {
                    put(world);
                    std::future::pending().await
                }
                "silence" => std::future::pending().await,
                "slow" => {
                    pause(draw.millis(100, 2000)).await;
                    put(world);
                    Ok(())
                }
                _ => {
                    put(world);
                    put(world);
                    Ok(())
                }
            }
        })
    }
}

/// A request that counts as unanswered until this value is dropped.
struct PendingReply<'a>(&'a AtomicU32);

impl<'a> PendingReply<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Visibility for NodeQueue {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let Node { world, number, .. } = &self.node;
            let mut draw = RandomStream::new(world.plan.seed, actor::HIDING).draw_for(*number, world.elapsed());
            let ids: Vec<u64> = receipts.iter().map(|receipt| receipt.parse().expect("a message's number")).collect();
            let time = Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
            let hide = || world.queue.hide(world, &ids, world.elapsed() + time);
            let failed = Err(QueueError::Unavailable("simulated".into()));
            let failing = world.is_active() && draw.happens(world.profile.queue) && world.allows(draw.id);
            let out = world.out(&[SimulatedService::Sends], *number);
            let _unanswered = PendingReply::begin(&self.node.hiding);
            pause(draw.millis(1, 12)).await;
            let how = match out {
                None if !failing => return if hide() { Ok(()) } else { failed },
                None => draw.one_of(&[FailureMode::FailsBefore, FailureMode::LosesReply, FailureMode::Silent]),
                Some(how) => how,
            };
            match how {
                FailureMode::LosesReply => {
                    hide();
                    failed
                }
                FailureMode::Silent => std::future::pending().await,
                _ => failed,
            }
        })
    }
}

impl Depth for NodeQueue {
    fn waiting(&self) -> BoxFuture<'_, Result<u64, QueueError>> {
        Box::pin(async move {
            pause(Duration::from_millis(3)).await;
            Ok(self.node.world.queue.len() as u64)
        })
    }
}
