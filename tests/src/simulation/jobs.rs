//! Schedulers with two jobs, of which one is repeated after a crash and the other is not; and the audit of
//! their ticks.
//!
//! A simulated minute has ten seconds, so that leases expire while others compete for them.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;
use webhook_serializer::{
    engine::store::Store,
    handler::Isolation,
    jobs::{Context, Job, JobError, Jobs, Missed, OnCrash, Outcome, Ticker, switch::Switch},
    protocol::{
        entity::EntityKey,
        format::attribute as a,
        state::HolderInfo,
        table::{Action, Change, Key, TableName, Value, Write},
        tick::JobState,
    },
    time::Timestamp,
};

use crate::rules::ViolatedRule;

use super::{
    exclusion::WorkUnderWay,
    handler::seconds,
    history::TraceEvent,
    mutation::Mutator,
    node::{Node, NodeSlot, pause},
    random::{RandomStream, actor},
    table::NodeTable,
    world::{EPOCH, SimulatedWorld, relative},
};

const COUNTS: &str = "ticks";

const AGAIN: &str = "again";
const SKIP: &str = "skip";

const INSTANCES: u32 = 3;

const FIRST: u32 = 40;

#[derive(Debug, Clone)]
pub struct TickStart {
    pub job: String,
    pub tick: u64,
    pub token: u64,
}

#[derive(Debug, Clone)]
pub struct TickRecord {
    pub job: String,
    pub tick: u64,
    pub ending: String,
}

/// Returns whether the run has jobs. A run that is focused on a rule about deliveries has none.
pub fn has_jobs(world: &SimulatedWorld) -> bool {
    match world.plan.mutation.or(world.plan.focus) {
        None => RandomStream::new(world.plan.seed, actor::JOBS).at(u32::MAX).happens(400),
        Some(mutation) => matches!(mutation, ViolatedRule::StartWithoutTick | ViolatedRule::RestoreRunsTicksAgain),
    }
}

pub fn landed(world: &SimulatedWorld, node: u32, write: &Write) {
    let Action::Update(changes) = &write.action else { return };
    let (Some(tick), Some(Value::S(result))) = (set(changes, a::LAST_TICK), set(changes, a::LAST_RESULT)) else {
        return;
    };
    let (Value::N(tick), Value::S(entity)) = (tick, &write.key.partition.1) else { return };
    let ending = result.split(' ').next().unwrap_or_default().to_owned();
    let job = entity.trim_start_matches("cron/").to_owned();
    world.mark(match ending.as_str() {
        "done" => "a tick is done",
        "failed" => "a tick fails",
        _ => "a tick is recorded as crashed",
    });
    let how = match ending.as_str() {
        "done" => "is recorded as done",
        "failed" => "is recorded as failed",
        _ => "is recorded as crashed",
    };
    let tick = minute_of(*tick as u64);
    world.trace(TraceEvent::Tick { node, job: job.clone(), tick, how, token: 0 });
    let record = TickRecord { job, tick, ending };
    world.with_history(|history| history.ticks_recorded.push(record));
}

fn set<'a>(changes: &'a [Change], wanted: &str) -> Option<&'a Value> {
    changes.iter().find_map(|change| match change {
        Change::Set(name, value) if name == wanted => Some(value),
        _ => None,
    })
}

fn minute_of(tick: u64) -> u64 {
    (tick - EPOCH) / 60_000
}

fn due(minute: u64) -> Timestamp {
    Timestamp::from_millis(EPOCH + minute * 60_000)
}

fn jobs(node: &Node) -> Jobs {
    let job = |name, on_crash| {
        let node = node.clone();
        Job::new(name, "every minute", move |context| function(node.clone(), context))
            .lease(seconds(5))
            .time(seconds(6))
            .missed(Missed::Each)
            .on_crash(on_crash)
    };
    Jobs::new().add(job(AGAIN, OnCrash::Again)).add(job(SKIP, OnCrash::Skip))
}

async fn function(node: Node, context: Context) -> Result<Outcome, JobError> {
    let world = &node.world;
    let job = context.job().to_owned();
    let tick = minute_of(context.tick().as_millis());
    let token = context.token().0;
    let entity = EntityKey::parse(&format!("cron/{job}")).expect("a key");
    let _work = WorkUnderWay::begin(&node, &entity, token);
    world.trace(TraceEvent::Tick {
        node: node.number,
        job: job.clone(),
        tick,
        how: "is started",
        token: relative(token),
    });
    let starts = world.with_history(|history| {
        history.tick_starts.push(TickStart { job: job.clone(), tick, token });
        history.tick_starts.len() as u32
    });
    let mut draw = RandomStream::new(world.plan.seed, actor::JOBS).at(50_000 + starts);
    let took = draw.one_of(&[0, 50, 1000, 5000]);
    context.env().sleep(draw.millis(0, took)).await;
    if world.is_active() && draw.happens(world.profile.handler) && world.allows(draw.id) {
        match draw.between(0, 2) {
            0 => return Err("simulated failure".into()),
            1 => std::future::pending().await,
            _ if world.profile.crash > 0 => {
                world.mark("a job kills its process");
                node.kill();
                std::future::pending().await
            }
            _ => {}
        }
    }
    let key = Key::named(COUNTS, "tick", format!("{job} {tick}"));
    let count = Write::update(key, vec![Change::add("count", 1)]);
    Ok(Outcome::Commit(vec![count]))
}

fn ticker(node: &Node) -> Ticker {
    let mutator = Mutator::new(node.world.plan.mutation);
    let store = Store::new(NodeTable::new(node, &mutator), node.env.clone());
    let info = HolderInfo::new(&format!("scheduler {}", node.number));
    Ticker::new(store, &jobs(node), seconds(60), &Switch::On, info)
        .expect("the jobs are right")
        .isolated(Isolation::Inline)
}

/// Invokes the schedulers minute by minute: several times, early, late, and by different clocks.
pub async fn schedule(world: Arc<SimulatedWorld>, round: u32, until: Duration) {
    if !has_jobs(&world) {
        return;
    }
    let mut invocations = JoinSet::new();
    let first = u64::from(round) * 1000;
    let stream = RandomStream::new(world.plan.seed, actor::JOBS);
    let mut minute = first;
    while world.running_time() < until {
        world.until_running().await;
        for instance in 0..INSTANCES {
            let mut draw = stream.at(round * 10_000 + (minute - first) as u32 * 10 + instance);
            for copy in 0..draw.between(1, 2) as u32 {
                let late = draw.one_of(&[0, 100, 12_000]);
                let late = draw.millis(0, late);
                let world = world.clone();
                invocations.spawn(async move {
                    pause(late).await;
                    world.until_running().await;
                    // Each invocation is a separate process. Two processes must not draw the same nonce.
                    let number = (FIRST + instance) * 100_000 + (minute % 1000) as u32 * 10 + copy;
                    invoke(&world, number, minute).await;
                });
            }
        }
        minute += 1;
        pause(seconds(10)).await;
    }
    while invocations.join_next().await.is_some() {}
}

async fn invoke(world: &Arc<SimulatedWorld>, number: u32, minute: u64) {
    let slot = NodeSlot::new(world, number);
    let node = slot.boot();
    let ticker = ticker(&node);
    let deadline = node.env.monotonic() + world.profile.function;
    let limit = world.profile.function;
    let work = ticker.tick(due(minute), deadline);
    let failure = slot.worker_failure();
    let ended = {
        let alive = node.run(&failure, work);
        let mut alive = std::pin::pin!(alive);
        tokio::select! {
            biased;
            ended = &mut alive => ended,
            () = pause(limit), if !failure.outlives_deadline => None,
        }
    };
    if ended.is_none() {
        world.mark("a scheduler does not live to its end");
    }
}

/// Lets one healthy scheduler finish the remaining ticks.
pub async fn settle(world: &Arc<SimulatedWorld>, round: u32) {
    if !has_jobs(world) {
        return;
    }
    let node = NodeSlot::new(world, FIRST + INSTANCES).boot();
    let ticker = ticker(&node);
    let newest = |states: Vec<(String, JobState)>| states.into_iter().filter_map(|(_, state)| state.last_tick).max();
    for look in 0..40 {
        let behind = newest(states(world)).map_or(0, |tick| minute_of(tick.as_millis()) + 1);
        let minute = behind.max(u64::from(round) * 1000);
        let deadline = node.env.monotonic() + seconds(3600);
        let _ = ticker.tick(due(minute), deadline).await;
        if states(world).iter().all(|(_, state)| state.entity.held.is_none() && state.is_recorded(due(minute))) {
            return;
        }
        // Clocks are wrong by at most a day, so the longer pauses suffice.
        pause(seconds(if look < 20 { 70 } else { 8000 })).await;
    }
    world.mistake("ticks: a job never comes to rest".into());
}

fn states(world: &SimulatedWorld) -> Vec<(String, JobState)> {
    let rows = world.rows.rows(&TableName::Entities).into_iter();
    let jobs = rows.filter(|row| row.text(a::ENTITY).is_some_and(|entity| entity.starts_with("cron/")));
    let parsed = jobs.map(|row| JobState::parse(&row).expect("our own rows can be read"));
    parsed.map(|state| (state.entity.entity.as_str().trim_start_matches("cron/").to_owned(), state)).collect()
}

/// Checks that each token of a job has one start, and that a tick is recorded as done as often as its effects
/// are committed. Except for ticks that were lost with the tables, also checks that no tick's effects are
/// committed twice, and that no tick of a job without repetition starts twice.
pub fn audit(world: &SimulatedWorld) -> Vec<String> {
    let mut mistakes = Vec::new();
    let counts = world.rows.rows(&TableName::Named(COUNTS.into()));
    let committed = |job: &str, tick: u64| {
        let name = format!("{job} {tick}");
        let row = counts.iter().find(|row| row.text("tick") == Some(&name));
        row.and_then(|row| row.number("count")).unwrap_or(0)
    };
    world.with_history(|history| {
        let starts = &history.tick_starts;
        for (number, start) in starts.iter().enumerate() {
            let job = &start.job;
            let tick = start.tick;
            let before = &starts[..number];
            let is_forgotten = history.ticks_forgotten.contains(&(job.clone(), tick));
            if before.iter().any(|other| other.job == *job && other.token == start.token) {
                mistakes.push(format!("{job} {tick}: two starts under token {}", relative(start.token)));
            }
            if is_forgotten {
                continue;
            }
            if job == SKIP && before.iter().any(|other| other.job == SKIP && other.tick == tick) {
                mistakes.push(format!("{job} {tick}: started twice"));
            }
            if committed(job, tick) > 1 {
                mistakes.push(format!("{job} {tick}: its effects were committed {} times", committed(job, tick)));
            }
        }
        for record in &history.ticks_recorded {
            let job = &record.job;
            let tick = record.tick;
            let done = history.ticks_recorded.iter().filter(|other| other.job == *job && other.tick == tick);
            let done = done.filter(|other| other.ending == "done").count() as u64;
            if done != committed(job, tick) {
                let times = committed(job, tick);
                mistakes.push(format!("{job} {tick}: recorded as done {done} times, committed {times} times"));
            }
        }
    });
    mistakes
}
