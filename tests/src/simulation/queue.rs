//! A queue that delivers at least once: late, out of order, twice, and once
//! more after it was told to forget.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, futures::Notified};
use webhook_serializer::{
    engine::queue::{self, Depth, Queue, QueueError, Visibility},
    protocol::entity::EntityKey,
};

use super::{
    chance::{Dice, Roll, actor},
    history::What,
    mutation::Meddler,
    node::{Node, pause},
    outage::{How, Service},
    world::{World, entity_number},
};

#[derive(Debug, Clone)]
struct Message {
    entity: EntityKey,
    body: String,
    /// Read from the body once: the auditor asks at every write.
    is_deferred: bool,
    visible_at: Duration,
    times: u32,
    /// Deleted, and received once more all the same.
    ghost: bool,
    /// Another copy of it comes soon, which nobody can hide.
    copied: bool,
}

/// A received message.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// Which message.
    pub id: u64,
    /// Its entity.
    pub entity: EntityKey,
    /// What it says.
    pub body: String,
    /// How often it was received, as far as the queue says.
    pub times: u32,
}

/// Whether a message's body is a delivery, and no wake-up.
pub fn is_deferred(body: &str) -> bool {
    matches!(queue::Message::parse(body), Ok(queue::Message::Deferred(_)))
}

/// All messages.
#[derive(Debug)]
pub struct SimulatedQueue {
    messages: Mutex<(u64, BTreeMap<u64, Message>)>,
    // Not a watch channel, which wakes its waiters in an order of its own chance.
    changed: Notify,
}

impl Default for SimulatedQueue {
    fn default() -> Self {
        Self { messages: Mutex::default(), changed: Notify::new() }
    }
}

impl SimulatedQueue {
    fn with<T>(&self, act: impl FnOnce(&mut u64, &mut BTreeMap<u64, Message>) -> T) -> T {
        let mut messages = self.messages.lock().expect("no one panics while holding this");
        let (next, messages) = &mut *messages;
        act(next, messages)
    }

    /// How many messages there are, visible or not.
    pub fn len(&self) -> usize {
        self.with(|_, messages| messages.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a wake-up of `entity`, visible or not.
    pub fn holds(&self, entity: &EntityKey) -> bool {
        let is_one = |message: &Message| message.entity == *entity && !message.is_deferred;
        self.with(|_, messages| messages.values().any(is_one))
    }

    /// When the next message can be received.
    pub fn next_at(&self) -> Option<Duration> {
        self.with(|_, messages| messages.values().map(|message| message.visible_at).min())
    }

    /// Completes with the next message that comes after this call.
    pub fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// One more message.
    pub fn put(&self, world: &World, node: u32, message: &queue::Message, delay: Duration) {
        let entity = message.entity();
        let body = message.text();
        let visible_at = world.elapsed() + delay;
        let id = self.with(|next, messages| {
            *next += 1;
            messages.insert(
                *next,
                Message {
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
        world.tell(What::WakeUp { node, entity: entity_number(entity), message: id, delay });
        self.changed.notify_waiters();
    }

    /// Up to `most` messages, hidden from others for `visibility`, in any
    /// order.
    pub fn receive(&self, world: &World, roll: &mut Roll, most: u64, visibility: Duration) -> Vec<Receipt> {
        let now = world.elapsed();
        let mut received = Vec::new();
        let mut visible: Vec<u64> =
            self.with(|_, messages| messages.iter().filter(|(_, m)| m.visible_at <= now).map(|(id, _)| *id).collect());
        while !visible.is_empty() && (received.len() as u64) < most {
            let id = visible.swap_remove(roll.between(0, visible.len() as u64 - 1) as usize);
            let twice = world.is_active() && roll.happens(world.profile.copies) && world.may(roll.twist);
            let again_at = if twice { now + roll.millis(0, 4000) } else { now + visibility };
            let honest = !(world.is_active() && roll.happens(world.profile.dishonest) && world.may(roll.twist));
            let receipt = self.with(|_, messages| {
                let message = messages.get_mut(&id)?;
                message.times += 1;
                message.visible_at = again_at;
                message.copied = twice;
                let really = message.times;
                let times = if honest { really } else { 1 };
                let receipt = Receipt { id, entity: message.entity.clone(), body: message.body.clone(), times };
                if message.ghost {
                    messages.remove(&id);
                }
                Some((receipt, really))
            });
            if let Some((receipt, really)) = receipt {
                if receipt.times != really {
                    world.reach("a copy's receive count lies");
                    let entity = entity_number(&receipt.entity);
                    world.with_history(|history| history.lied.insert(entity));
                }
                received.push(receipt);
            }
        }
        received
    }

    /// Forgets a message, or seems to.
    pub fn delete(&self, world: &World, roll: &mut Roll, id: u64) {
        let stays = world.is_active() && roll.happens(world.profile.copies / 2) && world.may(roll.twist);
        let at = world.elapsed() + roll.millis(0, world.profile.again.as_millis() as u64);
        self.with(|_, messages| {
            if stays && let Some(message) = messages.get_mut(&id) {
                message.visible_at = at;
                message.ghost = true;
            } else {
                messages.remove(&id);
            }
        });
        if stays {
            world.reach("a deleted wake-up comes again");
        }
    }

    /// Hides messages that are hidden already until `at`; whether all of them
    /// were.
    fn hide(&self, world: &World, ids: &[u64], at: Duration) -> bool {
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

    /// Lets a message be received again at `at`.
    pub fn show(&self, id: u64, at: Duration) {
        self.with(|_, messages| {
            if let Some(message) = messages.get_mut(&id) {
                message.visible_at = at;
            }
        });
        self.changed.notify_waiters();
    }
}

/// The queue, from one node.
#[derive(Debug)]
pub struct NodeQueue {
    node: Node,
    meddler: Arc<Meddler>,
}

impl NodeQueue {
    /// The queue, from `node`.
    pub fn new(node: &Node, meddler: &Arc<Meddler>) -> Arc<Self> {
        Arc::new(Self { node: node.clone(), meddler: meddler.clone() })
    }
}

impl Queue for NodeQueue {
    fn send<'a>(&'a self, message: &'a queue::Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let node = &self.node;
            let world = &node.world;
            self.meddler.held_back().await;
            if self.meddler.lets_go(message, node.number) || self.meddler.swallows(message.entity()) {
                return Ok(());
            }
            let delay = Duration::from_secs(delay.as_millis().div_ceil(1000) as u64);
            let mut roll = node.dice.roll();
            let latency = roll.millis(1, 12);
            let put = |world: &World| world.queue.put(world, node.number, message, delay);
            if let Some(how) = world.out(&[Service::Sends], node.number) {
                pause(latency).await;
                if how == How::LosesReply {
                    put(world);
                }
                if how == How::Silent {
                    return std::future::pending().await;
                }
                return Err(QueueError::Unavailable("simulated outage".into()));
            }
            let failing = world.is_active() && roll.happens(world.profile.queue) && world.may(roll.twist);
            if !failing {
                pause(latency).await;
                put(world);
                return Ok(());
            }
            let how =
                roll.one_of(&["fails before", "done, reply lost", "done, silence", "silence", "slow", "done twice"]);
            world.tell(What::Fault { node: node.number, twist: roll.twist, how, call: "send" });
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
                    pause(roll.millis(100, 2000)).await;
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

impl Visibility for NodeQueue {
    fn hide<'a>(&'a self, receipts: &'a [String], time: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(async move {
            let Node { world, number, .. } = &self.node;
            let mut roll = Dice::new(world.plan.seed, actor::HIDING).roll_for(*number, world.elapsed());
            let ids: Vec<u64> = receipts.iter().map(|receipt| receipt.parse().expect("a message's number")).collect();
            let time = Duration::from_secs(time.as_millis().div_ceil(1000) as u64);
            let hide = || world.queue.hide(world, &ids, world.elapsed() + time);
            let failed = Err(QueueError::Unavailable("simulated".into()));
            let failing = world.is_active() && roll.happens(world.profile.queue) && world.may(roll.twist);
            let out = world.out(&[Service::Sends], *number);
            pause(roll.millis(1, 12)).await;
            let how = match out {
                None if !failing => return if hide() { Ok(()) } else { failed },
                None => roll.one_of(&[How::FailsBefore, How::LosesReply, How::Silent]),
                Some(how) => how,
            };
            match how {
                How::LosesReply => {
                    hide();
                    failed
                }
                How::Silent => std::future::pending().await,
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
