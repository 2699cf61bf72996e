//! Deterministic simulation: the project's own ingest, drain, lease, sweep and
//! operator code on a simulated clock, store and queue.
//!
//! One seed decides everything: who is slow, frozen or killed, which calls fail
//! before or after they took effect, which wake-ups come twice or late, what
//! handlers do. One run is a few simulated minutes on one thread. At its end,
//! and once more before any sweep, an auditor checks the history.
//!
//! | module | |
//! |---|---|
//! | [`chance`] | the seed, and the names of what it decides |
//! | [`profile`], [`outage`] | what kind of misfortune there is, and how much |
//! | [`world`] | true time and rows |
//! | [`history`], [`reasons`] | what happened; why deliveries are set aside |
//! | [`node`] | clocks that are off, crashes, freezes |
//! | [`table`], [`queue`] | the store and the queue as a node reaches them |
//! | [`handler`], [`play`], [`jobs`] | who acts |
//! | [`loss`] | tables that are lost and come back from a copy |
//! | [`unwell`] | what handlers need is out of reach; what breakers let start |
//! | [`mutation`] | the protocol with a rule left out |
//! | [`audit`], [`shrink`] | is it right; if not, the short story |

pub mod audit;
pub mod chance;
pub mod handler;
pub mod history;
pub mod jobs;
pub mod loss;
pub mod mutation;
pub mod node;
pub mod outage;
pub mod play;
pub mod profile;
pub mod queue;
pub mod reasons;
pub mod shrink;
pub mod table;
pub mod unwell;
pub mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;

use crate::rules::Rule;
use chance::{Allowed, Dice, Twist, actor};
use handler::seconds;
use history::{Entry, Name, What};
use node::pause;
use outage::Outage;
use profile::Profile;
use unwell::Unwell;
use world::World;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Decides everything.
    pub seed: u64,
    /// A rule to leave out.
    pub mutation: Option<Rule>,
    /// Has the misfortunes that the counterexample to this one needs.
    pub focus: Option<Rule>,
    /// The misfortunes that are allowed; `None`: all.
    pub allowed: Allowed,
    /// What kind of misfortune there is; `None`: as the seed says.
    pub profile: Option<Profile>,
}

/// What came of a run.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// What must not be.
    pub mistakes: Vec<String>,
    /// All that happened.
    pub trace: Vec<Entry>,
    /// The misfortunes and visits that happened.
    pub twists: BTreeSet<Twist>,
    /// Of the trace.
    pub hash: u64,
    /// How often interesting states were reached.
    pub reached: BTreeMap<&'static str, u32>,
}

impl Report {
    /// The trace as text, mistakes last.
    pub fn story(&self) -> String {
        let mut story: String = self.trace.iter().map(|entry| format!("{entry}\n")).collect();
        for mistake in &self.mistakes {
            story.push_str(&format!("    MISTAKE  {mistake}\n"));
        }
        story
    }
}

/// Runs `plan` to its end.
pub fn run(plan: Plan) -> Report {
    let seed = plan.seed;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    let (world, mistakes) = runtime.block_on(async {
        let world = World::new(plan);
        let mistakes = rounds(&world).await;
        (world, mistakes)
    });
    drop(runtime);
    let (trace, twists, hash) = world.close();
    let reached = world.with_history(|history| std::mem::take(&mut history.reached));
    Report { seed, mistakes, trace, twists, hash, reached }
}

async fn rounds(world: &Arc<World>) -> Vec<String> {
    let mut mistakes = Vec::new();
    for round in 0..world.profile.rounds {
        if round > 0 {
            idle(world).await;
        }
        trouble(world, round as u32).await;
        world.tell(What::Phase { text: "peace, without a sweep" });
        let mut healthy = healthy_workers(world);
        if !quiet(world).await {
            mistakes.push("it never comes to rest".into());
        }
        mistakes.extend(audit::nothing_is_stuck(world));
        world.tell(What::Phase { text: "peace, with the sweep" });
        for wait in [360, 360, 600, 7_200, 90_000] {
            pause(seconds(wait)).await;
            play::sweep(world, 97).await;
            quiet(world).await;
            if audit::is_at_rest(world) {
                break;
            }
        }
        healthy.shutdown().await;
        jobs::settle(world, round as u32).await;
        if !mistakes.is_empty() {
            break;
        }
    }
    mistakes.extend(audit::everything(world));
    mistakes
}

fn healthy_workers(world: &Arc<World>) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for number in 20..22 {
        workers.spawn(play::work(world.clone(), number, seconds(86_400 * 3650)));
    }
    workers
}

/// Deliveries come, and things go wrong.
async fn trouble(world: &Arc<World>, round: u32) {
    world.set_active(true);
    world.tell(What::Phase { text: "trouble" });
    let profile = &world.profile;
    let begin = world.played();
    // So that several of a group wait at once.
    let lasts = if profile.deliver.is_grouped() { profile.lasts / 4 } else { profile.lasts };
    let of_deliveries = begin + lasts + seconds(10);
    let outages: Vec<&Outage> = profile.outages.iter().filter(|outage| world.may(outage.twist())).collect();
    let out = outages.iter().map(|outage| begin + outage.until() + seconds(10)).max().unwrap_or_default();
    let unwell = profile.unwell.filter(|_| world.may(Unwell::twist()));
    let well = unwell.map(|unwell| begin + unwell.until() + seconds(10)).unwrap_or_default();
    let until = of_deliveries.max(out).max(well);
    let mut actors = JoinSet::new();
    if let Some(loss) = profile.loss.filter(|_| round == 0) {
        actors.spawn(loss::strikes(world.clone(), loss, begin, lasts));
    }
    for outage in outages {
        actors.spawn(play::outage(world.clone(), *outage, begin));
    }
    if let Some(unwell) = unwell {
        actors.spawn(unwell.strikes(world.clone(), begin));
    }
    for number in 1..=profile.workers as u32 {
        actors.spawn(play::work(world.clone(), number, until));
    }
    let seed = world.plan.seed;
    let visits = |whose: u32, count: u64, visit: &mut dyn FnMut(u32, usize, Duration)| {
        let dice = Dice::new(seed, whose);
        for number in 0..count as u32 {
            let number = 1 + number + 100 * round;
            let mut roll = dice.at(10_000 + number);
            let entity = roll.between(0, profile.entities - 1) as usize;
            let at = begin + roll.millis(0, lasts.as_millis() as u64);
            if world.may(roll.twist) {
                visit(number, entity, at);
            }
        }
    };
    visits(actor::DELIVERIES, profile.deliveries, &mut |number, entity, at| {
        let name = Name { number, redrive: 0 };
        actors.spawn(play::send(world.clone(), name, entity, at));
    });
    visits(actor::EXCLUSIVE, profile.exclusive, &mut |number, entity, at| {
        actors.spawn(play::exclusive(world.clone(), number, entity, at));
    });
    visits(actor::OPERATOR, profile.operator, &mut |number, entity, at| {
        actors.spawn(play::operate(world.clone(), number, entity, at));
    });
    if round > 0 && profile.erases > 0 {
        visits(actor::ERASER, profile.entities, &mut |number, _, at| {
            // Before or while it comes to life again.
            let (entity, at) = ((number - 1) as usize % 100, begin + (at - begin).min(Duration::from_millis(300)));
            actors.spawn(play::forget(world.clone(), number, entity, at));
        });
    }
    if profile.sweep {
        visits(actor::SWEEP, 3, &mut |_, _, at| {
            let world = world.clone();
            actors.spawn(async move {
                world.pause_until(at).await;
                play::sweep(&world, 98).await;
            });
        });
    }
    actors.spawn(jobs::schedule(world.clone(), round, of_deliveries));
    let purges = Dice::new(seed, actor::PURGE);
    while world.played() < until {
        pause(seconds(5)).await;
        if round > 0 {
            world.purge(&purges, 200);
        }
    }
    world.set_active(false);
    while actors.join_next().await.is_some() {}
}

/// Nobody sends anything for a while.
async fn idle(world: &Arc<World>) {
    if world.profile.hours == 0 {
        return idle_for_weeks(world).await;
    }
    world.tell(What::Phase { text: "hours go by" });
    let mut workers = healthy_workers(world);
    pause(seconds(3600 * world.profile.hours)).await;
    quiet(world).await;
    workers.shutdown().await;
}

/// Nobody sends anything; TTL has its way, and the sweep goes on.
async fn idle_for_weeks(world: &Arc<World>) {
    world.tell(What::Phase { text: "weeks go by" });
    let purges = Dice::new(world.plan.seed, actor::PURGE);
    let mut roll = Dice::new(world.plan.seed, actor::PROFILE).at(2);
    let mut workers = healthy_workers(world);
    for _ in 0..roll.between(40, 150) {
        pause(seconds(43_200)).await;
        world.purge(&purges, 300);
        play::sweep(world, 97).await;
    }
    quiet(world).await;
    workers.shutdown().await;
}

/// Waits until nothing is under way; `false`: that takes days.
async fn quiet(world: &World) -> bool {
    let from = world.elapsed();
    loop {
        if world.busy.load(std::sync::atomic::Ordering::Relaxed) == 0 && world.queue.is_empty() {
            return true;
        }
        let waited = world.elapsed() - from;
        if waited > seconds(4 * 86_400) {
            return false;
        }
        pause((waited / 20).clamp(Duration::from_millis(200), seconds(60))).await;
    }
}
