//! Deterministic simulation: the real ingest, drain, lease, sweep and operator code
//! on a simulated clock, store and queue.
//!
//! One seed decides every fault, delay and handler outcome. A run covers a few
//! simulated minutes on one thread. At its end, and before any sweep, the auditor
//! checks the history.
//!
//! | module | |
//! |---|---|
//! | [`random`] | random decisions, each with an id |
//! | [`profile`], [`outage`] | which faults a run has |
//! | [`world`] | true time and rows |
//! | [`history`], [`attempt_audit`] | what happened; why deliveries were parked |
//! | [`node`] | clock skew, crashes, freezes |
//! | [`table`], [`queue`] | store and queue as a node reaches them |
//! | [`handler`], [`workload`], [`jobs`] | handlers, senders, workers, operators, schedulers |
//! | [`loss`] | tables lost and restored from a copy |
//! | [`destination`] | unavailable destinations and breakers |
//! | [`fan_out`] | several handlers of one source |
//! | [`mutation`] | the protocol with one rule left out |
//! | [`audit`], [`shrink`] | the verdict; a smaller failing run |

pub mod attempt_audit;
pub mod audit;
pub mod destination;
pub mod exclusion;
pub mod fan_out;
pub mod handler;
pub mod history;
pub mod jobs;
pub mod loss;
pub mod mutation;
pub mod node;
pub mod outage;
pub mod profile;
pub mod queue;
pub mod random;
pub mod shrink;
pub mod table;
pub mod workload;
pub mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::task::JoinSet;

use crate::rules::ViolatedRule;
use destination::DestinationOutage;
use handler::seconds;
use history::{DeliveryName, TraceEvent, TraceLine};
use node::pause;
use outage::ServiceOutage;
use profile::Profile;
use random::{Allowed, DecisionId, RandomStream, actor};
use world::SimulatedWorld;

#[derive(Debug, Clone, Default)]
pub struct SimulationPlan {
    pub seed: u64,
    pub mutation: Option<ViolatedRule>,
    /// Draws the faults that this rule's counterexample needs.
    pub focus: Option<ViolatedRule>,
    /// The allowed decisions; `None` allows every decision.
    pub allowed: Allowed,
    pub profile: Option<Profile>,
}

#[derive(Debug)]
pub struct SimulationReport {
    pub seed: u64,
    pub mistakes: Vec<String>,
    pub trace: Vec<TraceLine>,
    pub decisions: BTreeSet<DecisionId>,
    pub hash: u64,
    pub reached: BTreeMap<&'static str, u32>,
}

impl SimulationReport {
    pub fn text(&self) -> String {
        let mut text: String = self.trace.iter().map(|entry| format!("{entry}\n")).collect();
        for mistake in &self.mistakes {
            text.push_str(&format!("    MISTAKE  {mistake}\n"));
        }
        text
    }
}

pub fn run(plan: SimulationPlan) -> SimulationReport {
    let seed = plan.seed;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O can be built");
    let (world, mistakes) = runtime.block_on(async {
        let world = SimulatedWorld::new(plan);
        let mistakes = rounds(&world).await;
        (world, mistakes)
    });
    drop(runtime);
    let (trace, decisions, hash) = world.close();
    let reached = world.with_history(|history| std::mem::take(&mut history.reached));
    SimulationReport { seed, mistakes, trace, decisions, hash, reached }
}

async fn rounds(world: &Arc<SimulatedWorld>) -> Vec<String> {
    let mut mistakes = Vec::new();
    for round in 0..world.profile.rounds {
        if round > 0 {
            idle(world).await;
        }
        trouble(world, round as u32).await;
        world.trace(TraceEvent::Phase { text: "peace, without a sweep" });
        let mut healthy = healthy_workers(world);
        if !quiet(world).await {
            mistakes.push("it never comes to rest".into());
        }
        mistakes.extend(audit::stuck_deliveries(world));
        world.trace(TraceEvent::Phase { text: "peace, with owed wake-ups" });
        let owed = audit::owed_orders(world);
        workload::send_owed(world, 97).await;
        quiet(world).await;
        mistakes.extend(audit::waiting_of(world, &owed));
        world.trace(TraceEvent::Phase { text: "peace, with the sweep" });
        for wait in [360, 360, 600, 7_200, 90_000] {
            pause(seconds(wait)).await;
            workload::run_sweep(world, 97).await;
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
    mistakes.extend(audit::final_audit(world));
    mistakes
}

fn healthy_workers(world: &Arc<SimulatedWorld>) -> JoinSet<()> {
    let mut workers = JoinSet::new();
    for number in 20..22 {
        workers.spawn(workload::run_worker(world.clone(), number, seconds(86_400 * 3650)));
    }
    workers
}

async fn trouble(world: &Arc<SimulatedWorld>, round: u32) {
    world.set_active(true);
    world.trace(TraceEvent::Phase { text: "trouble" });
    let profile = &world.profile;
    let begin = world.running_time();
    // If a source delivers groups, the phase is shorter, so that several deliveries of an order wait at the
    // same time.
    let lasts = if profile.deliver.is_grouped() { profile.lasts / 4 } else { profile.lasts };
    let of_deliveries = begin + lasts + seconds(10);
    let outages: Vec<&ServiceOutage> =
        profile.outages.iter().filter(|outage| world.allows(outage.decision())).collect();
    let out = outages.iter().map(|outage| begin + outage.until() + seconds(10)).max().unwrap_or_default();
    let destination_outage = profile.destination_outage.filter(|_| world.allows(DestinationOutage::decision()));
    let well = destination_outage
        .map(|destination_outage| begin + destination_outage.until() + seconds(10))
        .unwrap_or_default();
    let until = of_deliveries.max(out).max(well);
    let mut actors = JoinSet::new();
    if let Some(loss) = profile.loss.filter(|_| round == 0) {
        actors.spawn(loss::simulate(world.clone(), loss, begin, lasts));
    }
    for outage in outages {
        actors.spawn(workload::run_outage(world.clone(), *outage, begin));
    }
    if let Some(destination_outage) = destination_outage {
        actors.spawn(destination_outage.simulate(world.clone(), begin));
    }
    for number in 1..=profile.workers as u32 {
        actors.spawn(workload::run_worker(world.clone(), number, until));
    }
    let seed = world.plan.seed;
    let visits = |whose: u32, count: u64, visit: &mut dyn FnMut(u32, usize, Duration)| {
        let stream = RandomStream::new(seed, whose);
        for number in 0..count as u32 {
            let number = 1 + number + 100 * round;
            let mut draw = stream.at(10_000 + number);
            let entity = draw.between(0, profile.entities - 1) as usize;
            let at = begin + draw.millis(0, lasts.as_millis() as u64);
            if world.allows(draw.id) {
                visit(number, entity, at);
            }
        }
    };
    visits(actor::DELIVERIES, profile.deliveries, &mut |number, entity, at| {
        let name = DeliveryName { number: fan_out::sent(profile, number), redrive: 0 };
        actors.spawn(workload::run_sender(world.clone(), name, entity, at));
    });
    visits(actor::EXCLUSIVE, profile.exclusive, &mut |number, entity, at| {
        let entity = fan_out::visited(profile, number, entity);
        actors.spawn(workload::run_exclusive_holder(world.clone(), number, entity, at));
    });
    visits(actor::OPERATOR, profile.operator, &mut |number, entity, at| {
        let entity = fan_out::visited(profile, number, entity);
        actors.spawn(workload::run_operator(world.clone(), number, entity, at));
    });
    if round > 0 && profile.erases > 0 {
        visits(actor::ERASER, profile.entities, &mut |number, _, at| {
            // Erases each order before it gets new deliveries, or while it does.
            let entity = fan_out::visited(profile, number, (number - 1) as usize % 100);
            let at = begin + (at - begin).min(Duration::from_millis(300));
            actors.spawn(workload::run_eraser(world.clone(), number, entity, at));
        });
    }
    if profile.sweep {
        visits(actor::SWEEP, 3, &mut |_, _, at| {
            let world = world.clone();
            actors.spawn(async move {
                world.pause_until(at).await;
                workload::run_sweep(&world, 98).await;
            });
        });
    }
    actors.spawn(jobs::schedule(world.clone(), round, of_deliveries));
    let purges = RandomStream::new(seed, actor::PURGE);
    while world.running_time() < until {
        pause(seconds(5)).await;
        if round > 0 {
            world.purge(&purges, 200);
        }
    }
    world.set_active(false);
    while actors.join_next().await.is_some() {}
}

async fn idle(world: &Arc<SimulatedWorld>) {
    if world.profile.hours == 0 {
        return idle_for_weeks(world).await;
    }
    world.trace(TraceEvent::Phase { text: "hours go by" });
    let mut workers = healthy_workers(world);
    pause(seconds(3600 * world.profile.hours)).await;
    quiet(world).await;
    workers.shutdown().await;
}

async fn idle_for_weeks(world: &Arc<SimulatedWorld>) {
    world.trace(TraceEvent::Phase { text: "weeks go by" });
    let purges = RandomStream::new(world.plan.seed, actor::PURGE);
    let mut draw = RandomStream::new(world.plan.seed, actor::PROFILE).at(2);
    let mut workers = healthy_workers(world);
    for _ in 0..draw.between(40, 150) {
        pause(seconds(43_200)).await;
        world.purge(&purges, 300);
        workload::run_sweep(world, 97).await;
    }
    quiet(world).await;
    workers.shutdown().await;
}

async fn quiet(world: &SimulatedWorld) -> bool {
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
