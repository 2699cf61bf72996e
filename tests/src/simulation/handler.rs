//! Handlers that do well, fail, hang, die, and do things late; and how their
//! effects are told apart.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::Bytes;
use webhook_serializer::{
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    protocol::{
        delivery::Delivery,
        table::{Change, Condition, Key, Write},
    },
};

use crate::rules::Rule;

use super::{
    chance::{Dice, Roll, actor},
    history::{Name, What},
    mutation::Meddler,
    node::{Node, pause},
    profile::Profile,
    unwell::{Reaction, Start},
    world::{EPOCH, entity_number, key, name_of, told},
};

/// The table that handlers commit to.
pub const EFFECTS: &str = "effects";

/// A body too large for one row, that does not shrink.
pub fn large_body() -> Bytes {
    static BODY: OnceLock<Bytes> = OnceLock::new();
    let noise = || {
        let mut noise = vec![0; 400 * 1024];
        fastrand::Rng::with_seed(7).fill(&mut noise);
        Bytes::from(noise)
    };
    BODY.get_or_init(noise).clone()
}

/// What is drawn for a delivery, for all its starts.
#[derive(Debug, Clone, Copy)]
pub struct Nature {
    /// Its effect goes through `commit`; else to the receiver.
    pub commits: bool,
    /// It fails whenever it is tried.
    pub hopeless: bool,
    /// Its source says to block.
    pub blocks: bool,
    /// Its body stands in parts.
    pub large: bool,
    /// Its sender gives it no id, if this is below the profile's `unnamed`.
    unnamed: u64,
}

impl Nature {
    /// Of delivery `number`.
    pub fn of(seed: u64, number: u32) -> Self {
        let mut roll = Dice::new(seed, actor::HANDLER + number).at(1_000_000);
        Self {
            commits: roll.happens(500),
            hopeless: roll.happens(30),
            blocks: roll.happens(300),
            large: roll.happens(4),
            unnamed: roll.between(0, 999),
        }
    }

    /// Whether its sender gives it no id.
    pub fn is_unnamed(self, profile: &Profile) -> bool {
        self.unnamed < profile.unnamed
    }

    /// The source it comes from.
    pub fn source(self) -> &'static str {
        if self.blocks { "block" } else { "park" }
    }

    /// Its body.
    pub fn body(self, number: u32) -> Bytes {
        if self.large { large_body() } else { Bytes::from(format!("{{\"n\":{number}}}")) }
    }
}

/// The handler of one worker node.
#[derive(Debug)]
pub struct Simulated {
    /// Where it runs.
    pub node: Node,
    /// Knows of its failures.
    pub meddler: Arc<Meddler>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Fails,
    AsksForTime,
    Rejects,
    Hangs,
    /// What it needs is out of reach.
    Unavailable,
    /// The same, and nothing is begun.
    NotNow,
    /// Dies with its process.
    Kills,
    /// Its effect is under way when it is given up.
    Late,
    /// Its own writes do not land.
    Refused,
}

impl Handler for Simulated {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let first = delivery.sequence().0 - u64::from(delivery.superseded());
        let run = self.begin(delivery, first, false, context)?;
        self.go_on(vec![run], entity_number(delivery.entity()), first, context).await
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let first = deliveries.first().sequence().0;
        let runs = deliveries.iter().map(|delivery| self.begin(delivery, first, true, context));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        self.go_on(runs, entity_number(deliveries.first().entity()), first, context).await
    }
}

/// A delivery that a start is about.
struct Run {
    name: Name,
    nature: Nature,
    /// Its position among the starts.
    start: usize,
    mood: Mood,
    took: Duration,
    roll: Roll,
}

impl Simulated {
    fn begin(&self, delivery: &Delivery, first: u64, is_group: bool, context: &Context) -> Result<Run, HandlerError> {
        let world = &self.node.world;
        let entity = entity_number(delivery.entity());
        let name = name_of(delivery.identity());
        let nature = Nature::of(world.plan.seed, name.number);
        let token = context.token().0;
        let sequence = delivery.sequence().0;
        let start = world.started(&self.node, name, entity, (first, sequence), token);
        // A start of a group is charged to none of it; of the latest, to what is in front.
        match delivery.superseded() {
            0 if !is_group => {
                world.with_history(|history| history.reasons.started(Some(name), entity, sequence, token))
            }
            0 => {}
            _ => world.with_history(|history| history.reasons.started(None, entity, first, token)),
        }
        if delivery.body() != &nature.body(name.number) {
            world.mistake(format!("{name}: the handler got another body than was sent"));
        }
        let starts = world.with_history(|history| history.starts.iter().filter(|start| start.name == name).count());
        let mut roll = Dice::new(world.plan.seed, actor::HANDLER + name.number).at(starts as u32 + 100 * name.redrive);
        let took = roll.one_of(&[0, 5, 50, 300, 1200]);
        let took = roll.millis(0, took);
        let mut mood = Mood::Well;
        if let Some(reaction) = world.unwell(nature.source()) {
            mood = match reaction {
                Reaction::Unavailable => Mood::Unavailable,
                Reaction::NotNow => Mood::NotNow,
                Reaction::Hang => Mood::Hangs,
            };
        } else if world.is_active() && roll.happens(world.profile.handler) {
            mood = roll.one_of(&[
                Mood::Fails,
                Mood::Fails,
                Mood::AsksForTime,
                Mood::Rejects,
                Mood::Hangs,
                Mood::Kills,
                Mood::Late,
                Mood::Late,
                Mood::Refused,
            ]);
            if !world.may(roll.twist) {
                mood = Mood::Well;
            } else if mood == Mood::Kills && world.profile.crash == 0 {
                mood = Mood::Fails;
            }
        } else if nature.hopeless
            && world.may(Dice::new(world.plan.seed, actor::HANDLER + name.number).at(1_000_000).twist)
        {
            mood = Mood::Fails;
        }
        Ok(Run { name, nature, start, mood, took, roll })
    }

    /// The worst that befalls one of them befalls all.
    async fn go_on(
        &self,
        runs: Vec<Run>,
        entity: usize,
        first: u64,
        context: &Context,
    ) -> Result<Outcome, HandlerError> {
        let world = &self.node.world;
        let token = context.token().0;
        let worst = runs.iter().position(|run| run.mood != Mood::Well).unwrap_or(0);
        let (mood, took) = (runs[worst].mood, runs.iter().map(|run| run.took).max().unwrap_or_default());
        let source = runs[0].nature.source();
        let now = self.node.env.monotonic();
        let start = match self.node.held_back.started(source, entity, token, now) {
            Ok(start) => Some(start),
            Err(mistake) => {
                world.mistake(format!("node {}: {} {mistake}", self.node.number, runs[0].name));
                None
            }
        };
        if start.as_ref().is_some_and(Start::is_trial) {
            world.reach("a start tries whether its source is well");
        }
        let answered = |how| {
            for run in &runs {
                world.tell(What::Answered { name: run.name, how });
            }
        };
        let one_for_all = world.plan.mutation == Some(Rule::OneTokenForADrain);
        let claimed = if one_for_all { world.ledger(entity).granted } else { token };
        let remembers = world.plan.mutation != Some(Rule::ReceiversIgnoreTokens);
        // What a group did elsewhere may come again from its first place on.
        let sequence = Some(first);
        let mut roll = runs[worst].roll.clone();
        if mood == Mood::Late {
            let (node, late) = (self.node.clone(), roll.millis(0, 15_000));
            let busy = world.begin();
            // What is under way to the receiver does not come back when the handler is given up.
            tokio::spawn(async move {
                pause(took + late).await;
                node.world.reach("an effect lands late");
                node.world.effect(&node, entity, claimed, token, sequence, remembers);
                drop(busy);
            });
        }
        context.env().sleep(took).await;
        let failed = || self.meddler.handler_failed(&key(entity));
        match mood {
            Mood::Fails => {
                answered("fails");
                failed();
                Err("simulated failure".into())
            }
            Mood::AsksForTime => {
                answered("asks for time");
                failed();
                Ok(Outcome::retry_after(roll.millis(0, 4000), "simulated"))
            }
            Mood::Unavailable => {
                answered("says that what it needs is out of reach");
                failed();
                world.with_history(|history| history.reasons.is_not_now(entity, token));
                Ok(Outcome::unavailable("simulated"))
            }
            Mood::NotNow => {
                answered("begins nothing");
                failed();
                self.meddler.begins_nothing(&key(entity));
                world.reach("a handler begins nothing");
                world.with_history(|history| history.reasons.is_not_now(entity, token));
                Ok(Outcome::not_now("simulated"))
            }
            Mood::Rejects => {
                answered("rejects");
                world.with_history(|history| history.reasons.rejects(entity, token));
                Ok(Outcome::Reject("simulated".into()))
            }
            Mood::Hangs => {
                answered("hangs");
                failed();
                std::future::pending().await
            }
            Mood::Kills => {
                answered("takes its process with it");
                world.reach("a handler kills its process");
                self.node.kill();
                std::future::pending().await
            }
            Mood::Late if roll.happens(500) => {
                answered("hangs, its effect under way");
                failed();
                std::future::pending().await
            }
            Mood::Late => {
                answered("fails, its effect under way");
                failed();
                Err("simulated failure".into())
            }
            Mood::Refused => {
                answered("commits what cannot land");
                failed();
                Ok(Outcome::Commit(vec![
                    self.count(runs[0].name).when(Condition::equal("count", told(token).unsigned_abs() + EPOCH)),
                ]))
            }
            Mood::Well => {
                world.with_history(|history| {
                    for run in &runs {
                        history.starts[run.start].done = true;
                    }
                    history.reasons.is_done(entity, token);
                });
                let commits: Vec<Write> =
                    runs.iter().filter(|run| run.nature.commits).map(|run| self.count(run.name)).collect();
                if commits.len() < runs.len() {
                    world.effect(&self.node, entity, claimed, token, sequence, remembers);
                }
                if commits.is_empty() {
                    answered("is done");
                    return Ok(Outcome::Done);
                }
                answered("commits");
                Ok(Outcome::Commit(commits))
            }
        }
    }

    fn count(&self, name: Name) -> Write {
        let key = Key::named(EFFECTS, "name", format!("{}.{}", name.number, name.redrive));
        Write::update(key, vec![Change::Add { attribute: "count".into(), base: 0, by: 1 }])
    }
}

/// How long a wait in a test may be said in one line.
pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
