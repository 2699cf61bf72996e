//! Both tables are lost and restored from a copy. Messages, senders, receivers and effects on their way
//! survive.

use std::{sync::Arc, time::Duration};

use webhook_serializer::{
    operator::{OperatorError, Restored},
    protocol::maintain::NextRestore,
    time::Timestamp,
};

use super::{
    handler::seconds,
    history::TraceEvent,
    node::{Node, NodeSlot, pause},
    profile::Skew,
    random::{DecisionId, RandomStream, actor},
    workload::{self, WorkloadParts, unblock_and_redrive, with_pending_wake_up},
    world::{SimulatedWorld, key},
};

pub const RESTORER: u32 = 94;

const PERSON: u32 = 95;

const AGAIN: u32 = 52;

/// The largest number of times that the restore is run, because a run may be killed or may not reach the
/// store.
const TRIES: u32 = 300;

/// A loss of the tables. `copied` and `lost_at` are times, in thousandths of the phase in which deliveries
/// arrive.
#[derive(Debug, Clone, Copy)]
pub struct TableLoss {
    pub copied: u64,
    pub inbox_later: Duration,
    pub lost_at: u64,
    pub takes: Duration,
    /// An operator redrives the parked deliveries before functions run again.
    pub is_put_back: bool,
    /// How many of a thousand deliveries are sent again.
    pub again: u64,
}

impl TableLoss {
    fn decision() -> DecisionId {
        DecisionId { actor: actor::LOSS, number: 0 }
    }

    pub fn drawn(seed: u64, rarely: u64, skew: Skew) -> Option<Self> {
        let mut draw = RandomStream::new(seed, actor::LOSS).at(0);
        let copied = draw.between(0, 1000);
        let later = draw.one_of(&[0, 500, 5000]);
        let takes = match draw.between(0, 2) {
            // A recreated row starts at the time of its claim, so a quick restore needs equal clocks.
            0 if skew == Skew::None => draw.millis(0, 3_000),
            1 => draw.millis(60_000, 600_000),
            _ => draw.millis(600_000, 10_800_000),
        };
        let drawn = Self {
            copied,
            inbox_later: draw.millis(0, later),
            lost_at: draw.between(copied, 1100),
            takes,
            is_put_back: draw.happens(500),
            again: draw.one_of(&[0, 300, 1000]),
        };
        (draw.happens(rarely) && matches!(skew, Skew::None | Skew::Seconds)).then_some(drawn)
    }
}

pub async fn simulate(world: Arc<SimulatedWorld>, loss: TableLoss, begin: Duration, lasts: Duration) {
    if !world.allows(TableLoss::decision()) {
        return;
    }
    let busy = world.begin();
    world.pause_until(begin + lasts.mul_f64(loss.copied as f64 / 1000.0)).await;
    world.copy_entities();
    pause(loss.inbox_later).await;
    world.copy_inbox();
    world.pause_until(begin + lasts.mul_f64(loss.lost_at as f64 / 1000.0)).await;
    let as_of = world.lose_tables();
    // Ticks are named after whole minutes, but a simulated minute has ten seconds, so the names run ahead of
    // the clock. The pause lets the clock catch up.
    let ticks = if super::jobs::has_jobs(&world) { world.elapsed() * 6 + seconds(600) } else { Duration::ZERO };
    pause(loss.takes.max(ticks)).await;
    world.trace(TraceEvent::Phase { text: "the copies are restored" });
    restore(&world, as_of).await;
    world.check_restored();
    if loss.is_put_back {
        put_back(&world).await;
    }
    world.resume();
    if !loss.is_put_back {
        pause(seconds(1)).await;
        put_back(&world).await;
    }
    drop(busy);
    let names = world.with_history(|history| {
        let first = history.calls.values().filter(|call| call.name.redrive == 0);
        first.map(|call| (call.name, call.entity)).collect::<Vec<_>>()
    });
    for (name, entity) in names {
        let mut draw = RandomStream::new(world.plan.seed, actor::LOSS).at(1000 + name.number);
        if draw.happens(loss.again) && world.allows(draw.id) {
            pause(draw.millis(0, 300)).await;
            if workload::append(&world, name, entity, AGAIN).await {
                world.mark("what was sent before the loss is sent again");
            }
        }
    }
}

async fn restore(world: &Arc<SimulatedWorld>, as_of: Timestamp) {
    let slot = NodeSlot::new(world, RESTORER);
    let mut draw = RandomStream::new(world.plan.seed, actor::LOSS).at(1);
    for _ in 0..TRIES {
        let node = slot.boot();
        let failure = slot.worker_failure();
        match node.run(&failure, restore_once(&node, as_of)).await {
            Some(Ok(true)) => return,
            Some(_) => {}
            None => world.mark("a restore is killed"),
        }
        pause(draw.millis(0, 2000)).await;
    }
    world.mistake("the restore comes to no end".into());
}

async fn restore_once(node: &Node, as_of: Timestamp) -> Result<bool, OperatorError> {
    let world = &node.world;
    let parts = WorkloadParts::on(node);
    let operator = parts.operator();
    let restoring = match operator.begin_restore(as_of).await? {
        NextRestore::GoOn(restoring) => restoring,
        NextRestore::Done(_) => return Ok(true),
        other => {
            world.mistake(format!("begin_restore returned {other:?}"));
            return Ok(true);
        }
    };
    world.set_restore(&restoring.nonce);
    let whole = operator.restore_all(&restoring, false, |key, restored| {
        match restored {
            Ok(Restored::Raised(report)) => {
                let reached = [
                    (report.parked, "a restore sets aside"),
                    (report.repeats, "a restore knows a repeat"),
                    (report.lost, "a restore gives a place up"),
                    (report.applied_before, "a restore leaves what was applied"),
                    (u64::from(report.was_held), "a restore takes a lease away"),
                    (u64::from(report.is_on_hold), "a restore puts on hold"),
                    (u64::from(report.job.is_some()), "a restore finds a job"),
                ];
                reached.iter().filter(|(times, _)| *times > 0).for_each(|(_, what)| world.mark(what));
            }
            Ok(Restored::Already | Restored::Gone) => {}
            // The store fails, or a late write of a killed restore is still to arrive.
            Err(OperatorError::Store(_) | OperatorError::InUse) => {}
            other => world.mistake(format!("{key}: its restore says {other:?}")),
        }
        true
    });
    whole.await
}

async fn put_back(world: &Arc<SimulatedWorld>) {
    let node = NodeSlot::new(world, PERSON).boot();
    let parts = WorkloadParts::on(&node);
    for entity in 0..world.profile.entities as usize {
        unblock_and_redrive(world, &parts, entity, PERSON).await;
        let operator = parts.operator();
        for _ in 0..TRIES {
            if with_pending_wake_up(world, entity, operator.resume(&key(entity))).await.is_some() {
                break;
            }
            pause(seconds(1)).await;
        }
    }
}
