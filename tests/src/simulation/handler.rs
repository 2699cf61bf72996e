//! Handlers that succeed, fail, hang, crash or have late effects.

use std::{
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use webhook_serializer::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    handlers::fan_out::FanOut,
    protocol::{
        delivery::Delivery,
        table::{Change, Condition, Key, Write},
    },
    sources::FAN_OUT,
};

use crate::rules::ViolatedRule;

use super::{
    destination::{DestinationStart, Reaction},
    exclusion::WorkUnderWay,
    fan_out::{self, CopiesUnderWay},
    history::{DeliveryName, PendingEffect, TraceEvent},
    mutation::Mutator,
    node::{Node, pause},
    profile::Profile,
    random::{Draw, RandomStream, actor},
    world::{EPOCH, entity_number, key, name_of, relative},
};

pub const EFFECTS: &str = "effects";

/// Returns an incompressible body that is too large for one row.
pub fn large_body() -> Bytes {
    static BODY: OnceLock<Bytes> = OnceLock::new();
    let noise = || {
        let mut noise = vec![0; 400 * 1024];
        fastrand::Rng::with_seed(7).fill(&mut noise);
        Bytes::from(noise)
    };
    BODY.get_or_init(noise).clone()
}

/// Traits that are drawn once for a delivery and hold for all its starts.
#[derive(Debug, Clone, Copy)]
pub struct DeliveryTraits {
    pub commits: bool,
    pub hopeless: bool,
    pub blocks: bool,
    pub large: bool,
    /// If this is below the profile's `unnamed`, the sender gives no id.
    unnamed: u64,
    source: &'static str,
}

impl DeliveryTraits {
    pub fn of(seed: u64, number: u32) -> Self {
        let mut draw = RandomStream::new(seed, actor::HANDLER + number).at(1_000_000);
        let commits = draw.happens(500);
        let hopeless = draw.happens(30);
        let blocks = draw.happens(300);
        let large = draw.happens(4);
        let unnamed = draw.between(0, 999);
        let source = if blocks { "block" } else { "park" };
        let drawn = Self { commits, hopeless, blocks, large, unnamed, source };
        match fan_out::source(number) {
            None => drawn,
            Some(source @ fan_out::PARENT) => Self { commits: false, hopeless: false, blocks: false, source, ..drawn },
            // A copy has its original's id and body.
            Some(source) => {
                let Self { large, unnamed, .. } = Self::of(seed, fan_out::original(number));
                Self { blocks: source == fan_out::FEW, large, unnamed, source, ..drawn }
            }
        }
    }

    pub fn is_unnamed(self, profile: &Profile) -> bool {
        self.unnamed < profile.unnamed
    }

    pub fn source(self) -> &'static str {
        self.source
    }

    pub fn body(self, number: u32) -> Bytes {
        let number = fan_out::original(number);
        if self.large { large_body() } else { Bytes::from(format!("{{\"n\":{number}}}")) }
    }
}

#[derive(Debug)]
pub struct SimulatedHandler {
    pub node: Node,
    pub mutator: Arc<Mutator>,
    pub fan_out: FanOut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SimulatedBehaviour {
    Well,
    Fails,
    AsksForTime,
    Rejects,
    Hangs,
    Unavailable,
    NotNow,
    Kills,
    Late,
    Refused,
}

impl Handler for SimulatedHandler {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let first = delivery.sequence().0 - u64::from(delivery.superseded());
        let run = self.begin(delivery, first, false, context)?;
        if run.traits.source() == fan_out::PARENT {
            return self.append_copies(delivery, &run, context).await;
        }
        self.go_on(vec![run], entity_number(delivery.entity()), first, context).await
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let first = deliveries.first().sequence().0;
        let runs = deliveries.iter().map(|delivery| self.begin(delivery, first, true, context));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        self.go_on(runs, entity_number(deliveries.first().entity()), first, context).await
    }

    fn runs_elsewhere(&self, name: &str) -> bool {
        name != FAN_OUT && self.node.world.profile.elsewhere
    }
}

struct SimulatedRun {
    name: DeliveryName,
    traits: DeliveryTraits,
    start: usize,
    behaviour: SimulatedBehaviour,
    took: Duration,
    draw: Draw,
}

impl SimulatedHandler {
    fn begin(
        &self,
        delivery: &Delivery,
        first: u64,
        is_group: bool,
        context: &Context,
    ) -> Result<SimulatedRun, HandlerError> {
        let world = &self.node.world;
        let entity = entity_number(delivery.entity());
        let name = name_of(delivery.identity());
        let traits = DeliveryTraits::of(world.plan.seed, name.number);
        let token = context.token().0;
        let sequence = delivery.sequence().0;
        let start = world.record_start(&self.node, name, entity, (first, sequence), token);
        // A group's start counts for none of its deliveries. A start of the latest counts for the delivery in
        // front.
        match delivery.superseded() {
            0 if !is_group => {
                world.with_history(|history| history.attempts.started(Some(name), entity, sequence, token))
            }
            0 => {}
            _ => world.with_history(|history| history.attempts.started(None, entity, first, token)),
        }
        if delivery.body() != &traits.body(name.number) {
            world.mistake(format!("{name}: the handler got another body than was sent"));
        }
        let starts = world.with_history(|history| history.starts.iter().filter(|start| start.name == name).count());
        let mut draw =
            RandomStream::new(world.plan.seed, actor::HANDLER + name.number).at(starts as u32 + 100 * name.redrive);
        let took = draw.one_of(&[0, 5, 50, 300, 1200]);
        let took = draw.millis(0, took);
        let mut behaviour = SimulatedBehaviour::Well;
        if traits.source() == fan_out::PARENT {
            // The real handler decides.
        } else if let Some(reaction) = world.destination_reaction(traits.source()) {
            behaviour = match reaction {
                Reaction::Unavailable => SimulatedBehaviour::Unavailable,
                Reaction::NotNow => SimulatedBehaviour::NotNow,
                Reaction::Hang => SimulatedBehaviour::Hangs,
            };
        } else if world.is_active() && draw.happens(world.profile.handler) {
            behaviour = draw.one_of(&[
                SimulatedBehaviour::Fails,
                SimulatedBehaviour::Fails,
                SimulatedBehaviour::AsksForTime,
                SimulatedBehaviour::Rejects,
                SimulatedBehaviour::Hangs,
                SimulatedBehaviour::Kills,
                SimulatedBehaviour::Late,
                SimulatedBehaviour::Late,
                SimulatedBehaviour::Refused,
            ]);
            if !world.allows(draw.id) {
                behaviour = SimulatedBehaviour::Well;
            } else if behaviour == SimulatedBehaviour::Kills && (world.profile.crash == 0 || world.profile.elsewhere) {
                behaviour = SimulatedBehaviour::Fails;
            }
        } else if traits.hopeless
            && world.allows(RandomStream::new(world.plan.seed, actor::HANDLER + name.number).at(1_000_000).id)
        {
            behaviour = SimulatedBehaviour::Fails;
        }
        Ok(SimulatedRun { name, traits, start, behaviour, took, draw })
    }

    /// Notes that a start reaches its destination, which a breaker must allow.
    fn begin_at_destination(&self, run: &SimulatedRun, entity: usize, token: u64) -> Option<DestinationStart> {
        let world = &self.node.world;
        let now = self.node.env.monotonic();
        let start = match self.node.breakers.started(run.traits.source(), entity, token, now) {
            Ok(start) => Some(start),
            Err(mistake) => {
                world.mistake(format!("node {}: {} {mistake}", self.node.number, run.name));
                None
            }
        };
        if start.as_ref().is_some_and(DestinationStart::is_probe) {
            world.mark("a start tries whether its source is well");
        }
        if start.as_ref().is_some_and(DestinationStart::is_claimed) {
            world.mark("a claimed probe starts");
        }
        start
    }

    /// Runs the real handler `fan-out`.
    async fn append_copies(
        &self,
        delivery: &Delivery,
        run: &SimulatedRun,
        context: &Context,
    ) -> Result<Outcome, HandlerError> {
        let world = &self.node.world;
        let entity = entity_number(delivery.entity());
        let token = context.token().0;
        let _work = WorkUnderWay::begin(&self.node, &key(entity), token);
        let start = self.begin_at_destination(run, entity, token);
        let copies = CopiesUnderWay::begin(&self.node, delivery);
        let outcome = self.fan_out.handle(delivery, context).await?;
        drop(copies);
        let is_done = matches!(outcome, Outcome::Done);
        world.trace(TraceEvent::Answered { name: run.name, how: if is_done { "is done" } else { "misses a copy" } });
        if !is_done && !self.mutator.ignores_missing_copies() {
            world.mark("a copy is not appended");
            world.with_history(|history| history.attempts.record_not_now(entity, token));
            return Ok(outcome);
        }
        if let Some(start) = &start {
            let now = self.node.env.monotonic();
            self.node.breakers.succeeded(fan_out::PARENT, entity, token, start, now);
        }
        world.with_history(|history| {
            history.starts[run.start].done = true;
            history.attempts.record_done(entity, token);
        });
        Ok(Outcome::Done)
    }

    /// Runs the handler for all deliveries of a start. The first behaviour other than `Well` decides the
    /// answer, and the longest of the deliveries' times is the time of the start.
    async fn go_on(
        &self,
        runs: Vec<SimulatedRun>,
        entity: usize,
        first: u64,
        context: &Context,
    ) -> Result<Outcome, HandlerError> {
        let world = &self.node.world;
        if world.profile.elsewhere && self.node.hiding.load(Relaxed) > 0 {
            world.mark("a handler starts before the queue has answered");
        }
        let token = context.token().0;
        let _work = WorkUnderWay::begin(&self.node, &key(entity), token);
        let worst = runs.iter().position(|run| run.behaviour != SimulatedBehaviour::Well).unwrap_or(0);
        let behaviour = runs[worst].behaviour;
        let took = runs.iter().map(|run| run.took).max().unwrap_or_default();
        let source = runs[0].traits.source();
        let start = self.begin_at_destination(&runs[0], entity, token);
        let one_for_all = world.plan.mutation == Some(ViolatedRule::OneTokenPerDrain);
        let claimed = if one_for_all { world.observed(entity).granted } else { token };
        let remembers = world.plan.mutation != Some(ViolatedRule::ReceiversIgnoreTokens);
        // If a group runs again, its effects are repeated from its first sequence on.
        let effect = PendingEffect { entity, claimed, token, sequence: Some(first), remembers };
        let mut draw = runs[worst].draw.clone();
        if behaviour == SimulatedBehaviour::Late {
            let node = self.node.clone();
            let late = draw.millis(0, 15_000);
            let busy = world.begin();
            // An effect that is on its way survives if its handler is cancelled.
            tokio::spawn(async move {
                pause(took + late).await;
                node.world.mark("an effect lands late");
                node.world.apply_effect(&node, effect);
                drop(busy);
            });
        }
        context.env().sleep(took).await;
        if behaviour == SimulatedBehaviour::Well
            && let Some(start) = &start
        {
            self.node.breakers.succeeded(source, entity, token, start, self.node.env.monotonic());
        }
        self.answer(&runs, behaviour, effect, draw).await
    }

    /// Answers as the behaviour says, and traces the answer.
    async fn answer(
        &self,
        runs: &[SimulatedRun],
        behaviour: SimulatedBehaviour,
        effect: PendingEffect,
        mut draw: Draw,
    ) -> Result<Outcome, HandlerError> {
        let world = &self.node.world;
        let PendingEffect { entity, token, .. } = effect;
        let answered = |how| {
            for run in runs {
                world.trace(TraceEvent::Answered { name: run.name, how });
            }
        };
        let failed = || self.mutator.handler_failed(&key(entity));
        match behaviour {
            SimulatedBehaviour::Fails => {
                answered("fails");
                failed();
                Err("simulated failure".into())
            }
            SimulatedBehaviour::AsksForTime => {
                answered("asks for time");
                failed();
                Ok(Outcome::retry_after(draw.millis(0, 4000), "simulated"))
            }
            SimulatedBehaviour::Unavailable => {
                answered("says that what it needs is out of reach");
                failed();
                world.with_history(|history| history.attempts.record_not_now(entity, token));
                Ok(Outcome::unavailable("simulated"))
            }
            SimulatedBehaviour::NotNow => {
                answered("begins nothing");
                failed();
                self.mutator.handler_not_now(&key(entity));
                world.mark("a handler begins nothing");
                world.with_history(|history| history.attempts.record_not_now(entity, token));
                Ok(Outcome::not_now("simulated"))
            }
            SimulatedBehaviour::Rejects => {
                answered("rejects");
                world.with_history(|history| history.attempts.record_reject(entity, token));
                Ok(Outcome::Reject("simulated".into()))
            }
            SimulatedBehaviour::Hangs => {
                answered("hangs");
                failed();
                std::future::pending().await
            }
            SimulatedBehaviour::Kills => {
                answered("takes its process with it");
                world.mark("a handler kills its process");
                self.node.kill();
                std::future::pending().await
            }
            SimulatedBehaviour::Late if draw.happens(500) => {
                answered("hangs, its effect under way");
                failed();
                std::future::pending().await
            }
            SimulatedBehaviour::Late => {
                answered("fails, its effect under way");
                failed();
                Err("simulated failure".into())
            }
            SimulatedBehaviour::Refused => {
                answered("commits what cannot land");
                failed();
                Ok(Outcome::Commit(vec![
                    self.count(runs[0].name).when(Condition::equal("count", relative(token).unsigned_abs() + EPOCH)),
                ]))
            }
            SimulatedBehaviour::Well => Ok(self.finish(runs, effect, answered)),
        }
    }

    /// Applies the effects of a start that goes well.
    fn finish(&self, runs: &[SimulatedRun], effect: PendingEffect, answered: impl Fn(&'static str)) -> Outcome {
        let world = &self.node.world;
        world.with_history(|history| {
            for run in runs {
                history.starts[run.start].done = true;
            }
            history.attempts.record_done(effect.entity, effect.token);
        });
        let commits: Vec<Write> =
            runs.iter().filter(|run| run.traits.commits).map(|run| self.count(run.name)).collect();
        if commits.len() < runs.len() {
            world.apply_effect(&self.node, effect);
        }
        if commits.is_empty() {
            answered("is done");
            return Outcome::Done;
        }
        answered("commits");
        Outcome::Commit(commits)
    }

    fn count(&self, name: DeliveryName) -> Write {
        let key = Key::named(EFFECTS, "name", format!("{}.{}", name.number, name.redrive));
        Write::update(key, vec![Change::add("count", 1)])
    }
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
