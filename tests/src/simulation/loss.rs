//! Both tables are lost, and come back as they were at a moment: from a copy that
//! is restored by the project's own code, while messages, senders, receivers and
//! effects under way live on.

use std::{sync::Arc, time::Duration};

use webhook_serializer::{
    operator::{OperatorError, Restored},
    protocol::maintain::NextRestore,
    time::Timestamp,
};

use super::{
    chance::{Dice, Twist, actor},
    handler::seconds,
    history::What,
    node::{Node, Place, pause},
    play::{self, Parts, lets_go_on, settle_by_hand},
    profile::Skew,
    world::{World, key},
};

/// The node that restores.
pub const RESTORER: u32 = 94;

/// The node of the person who looks at what was set aside.
const PERSON: u32 = 95;

/// The place at which what was sent before is sent again.
const AGAIN: u32 = 52;

/// How often a restore may be killed, or not get through to the store.
const TRIES: u32 = 300;

/// Times since the beginning are in thousandths of that in which deliveries come.
#[derive(Debug, Clone, Copy)]
pub struct Loss {
    /// When the entities are copied.
    pub copied: u64,
    /// How much later the inbox is.
    pub inbox_later: Duration,
    /// When the tables are lost.
    pub strikes: u64,
    /// How long it takes for the copies to be there.
    pub takes: Duration,
    /// Whether a person puts back what was set aside before functions run.
    pub is_put_back: bool,
    /// How many deliveries of a thousand are sent again afterwards.
    pub again: u64,
}

impl Loss {
    /// Its name among what a run may leave out.
    fn twist() -> Twist {
        Twist { actor: actor::LOSS, number: 0 }
    }

    /// That of a run: most have none. `rarely`: of a thousand runs so many have one.
    pub fn drawn(seed: u64, rarely: u64, skew: Skew) -> Option<Self> {
        let mut roll = Dice::new(seed, actor::LOSS).at(0);
        let copied = roll.between(0, 1000);
        let later = roll.one_of(&[0, 500, 5000]);
        let takes = match roll.between(0, 2) {
            // A row that is made anew begins at its time, so that clocks may not be further apart.
            0 if skew == Skew::None => roll.millis(0, 3_000),
            1 => roll.millis(60_000, 600_000),
            _ => roll.millis(600_000, 10_800_000),
        };
        let drawn = Self {
            copied,
            inbox_later: roll.millis(0, later),
            strikes: roll.between(copied, 1100),
            takes,
            is_put_back: roll.happens(500),
            again: roll.one_of(&[0, 300, 1000]),
        };
        (roll.happens(rarely) && matches!(skew, Skew::None | Skew::Seconds)).then_some(drawn)
    }
}

/// Copies the tables, loses them, and has them restored.
pub async fn strikes(world: Arc<World>, loss: Loss, begin: Duration, lasts: Duration) {
    if !world.may(Loss::twist()) {
        return;
    }
    let busy = world.begin();
    world.pause_until(begin + lasts.mul_f64(loss.copied as f64 / 1000.0)).await;
    world.copies_entities();
    pause(loss.inbox_later).await;
    world.copies_inbox();
    world.pause_until(begin + lasts.mul_f64(loss.strikes as f64 / 1000.0)).await;
    let as_of = world.loses_its_tables();
    // A simulated minute is shorter than those that ticks are named by.
    let ticks = if super::jobs::has_jobs(&world) { world.elapsed() * 6 + seconds(600) } else { Duration::ZERO };
    pause(loss.takes.max(ticks)).await;
    world.tell(What::Phase { text: "the copies are restored" });
    restore(&world, as_of).await;
    world.is_restored();
    if loss.is_put_back {
        put_back(&world).await;
    }
    world.goes_on();
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
        let mut roll = Dice::new(world.plan.seed, actor::LOSS).at(1000 + name.number);
        if roll.happens(loss.again) && world.may(roll.twist) {
            pause(roll.millis(0, 300)).await;
            if play::append(&world, name, entity, AGAIN).await {
                world.reach("what was sent before the loss is sent again");
            }
        }
    }
}

/// Asks until it is whole, however often it is killed.
async fn restore(world: &Arc<World>, as_of: Timestamp) {
    let place = Place::new(world, RESTORER);
    let mut roll = Dice::new(world.plan.seed, actor::LOSS).at(1);
    for _ in 0..TRIES {
        let node = place.boot();
        let fate = place.fate();
        match node.live(&fate, restore_once(&node, as_of)).await {
            Some(Ok(true)) => return,
            Some(_) => {}
            None => world.reach("a restore is killed"),
        }
        pause(roll.millis(0, 2000)).await;
    }
    world.mistake("the restore comes to no end".into());
}

async fn restore_once(node: &Node, as_of: Timestamp) -> Result<bool, OperatorError> {
    let (world, parts) = (&node.world, Parts::on(node));
    let operator = parts.operator();
    let restoring = match operator.begin_restore(as_of).await? {
        NextRestore::GoOn(restoring) => restoring,
        NextRestore::Done(_) => return Ok(true),
        other => {
            world.mistake(format!("the restore is told: {other:?}"));
            return Ok(true);
        }
    };
    world.restores(&restoring.nonce);
    let whole = operator.restore_all(&restoring, false, |key, restored| {
        match restored {
            Ok(Restored::Raised(told)) => {
                let reached = [
                    (told.set_aside, "a restore sets aside"),
                    (told.repeats, "a restore knows a repeat"),
                    (told.lost, "a restore gives a place up"),
                    (told.applied_before, "a restore leaves what was applied"),
                    (u64::from(told.was_held), "a restore takes a lease away"),
                    (u64::from(told.is_on_hold), "a restore puts on hold"),
                    (u64::from(told.job.is_some()), "a restore finds a job"),
                ];
                reached.iter().filter(|(times, _)| *times > 0).for_each(|(_, what)| world.reach(what));
            }
            Ok(Restored::Already | Restored::Gone) => {}
            // Its store fails; or a write of one that was killed comes late.
            Err(OperatorError::Store(_) | OperatorError::InUse) => {}
            other => world.mistake(format!("{key}: its restore says {other:?}")),
        }
        true
    });
    whole.await
}

/// A person puts back what was set aside, and lets go on what is on hold.
async fn put_back(world: &Arc<World>) {
    let node = Place::new(world, PERSON).boot();
    let parts = Parts::on(&node);
    for entity in 0..world.profile.entities as usize {
        settle_by_hand(world, &parts, entity, PERSON).await;
        let operator = parts.operator();
        for _ in 0..TRIES {
            if lets_go_on(world, entity, operator.resume(&key(entity))).await.is_some() {
                break;
            }
            pause(seconds(1)).await;
        }
    }
}
