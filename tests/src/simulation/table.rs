//! The store as one node reaches it: slow, throttled, silent, or with lost replies.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use webhook_serializer::{
    protocol::{
        format::attribute as a,
        table::{Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName, Transacted, Write, Written},
    },
    time::Timestamp,
};

use super::{
    history::TraceEvent,
    mutation::{Mutator, entity_of, is_claim, is_put, written_start},
    node::{Node, pause},
    outage::{FailureMode, SimulatedService},
    random::Draw,
    world::entity_number,
};
use crate::rules::sets;

// The names of the store's calls in traces.
const CLAIM: &str = "claim";
const ENTITY_WRITE: &str = "entity write";
const PUT: &str = "put";
const INBOX_WRITE: &str = "inbox write";
const TRANSACTION: &str = "transaction";
const QUERY: &str = "query";
const BATCH_READ: &str = "batch read";

fn name_of(write: &Write) -> &'static str {
    match write.key.table {
        TableName::Entities if is_claim(write) => CLAIM,
        TableName::Entities => ENTITY_WRITE,
        _ if is_put(write) => PUT,
        _ => INBOX_WRITE,
    }
}

#[derive(Debug)]
pub struct NodeTable {
    node: Node,
    mutator: Arc<Mutator>,
    puts: AtomicU32,
}

/// Only this many of a node's first puts may get lost, so that an append still has enough time for the next
/// put.
const ASTRAY: u32 = 2;

/// The delay above which a write may land after its sender lost the lease.
const LATE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SimulatedFault {
    None,
    FailsBefore,
    LosesReply,
    Silent,
    SilentBefore,
    Throttled,
    Conflict,
    Slow,
    Late(Duration),
}

impl From<FailureMode> for SimulatedFault {
    fn from(how: FailureMode) -> Self {
        match how {
            FailureMode::Throttled => SimulatedFault::Throttled,
            FailureMode::FailsBefore => SimulatedFault::FailsBefore,
            FailureMode::Silent => SimulatedFault::SilentBefore,
            FailureMode::LosesReply => SimulatedFault::LosesReply,
        }
    }
}

fn services(name: &str) -> &'static [SimulatedService] {
    match name {
        CLAIM | ENTITY_WRITE => &[SimulatedService::EntityWrites],
        PUT | INBOX_WRITE => &[SimulatedService::InboxWrites],
        TRANSACTION => &[SimulatedService::EntityWrites, SimulatedService::InboxWrites],
        QUERY => &[SimulatedService::Queries],
        BATCH_READ => &[SimulatedService::BatchReads],
        _ => &[],
    }
}

impl SimulatedFault {
    fn name(self) -> &'static str {
        match self {
            SimulatedFault::None => "none",
            SimulatedFault::FailsBefore => "fails before",
            SimulatedFault::LosesReply => "done, reply lost",
            SimulatedFault::Silent => "done, silence",
            SimulatedFault::SilentBefore => "silence",
            SimulatedFault::Throttled => "throttled",
            SimulatedFault::Conflict => "transaction conflict",
            SimulatedFault::Slow => "slow",
            SimulatedFault::Late(_) => "done much later",
        }
    }
}

impl NodeTable {
    pub fn new(node: &Node, mutator: &Arc<Mutator>) -> Arc<Self> {
        Arc::new(Self { node: node.clone(), mutator: mutator.clone(), puts: AtomicU32::new(0) })
    }

    /// Draws the fault of a call and traces it.
    fn drawn_fault(&self, name: &'static str, writes: bool, draw: &mut Draw) -> SimulatedFault {
        let world = &self.node.world;
        if !world.is_active() {
            return SimulatedFault::None;
        }
        let profile = &world.profile;
        let own = match name {
            CLAIM => Some((profile.claims, SimulatedFault::Silent)),
            PUT if self.puts.fetch_add(1, Relaxed) < ASTRAY => Some((profile.puts, SimulatedFault::SilentBefore)),
            _ => None,
        };
        let mut fault = SimulatedFault::None;
        if let Some((permille, own)) = own.filter(|(permille, _)| *permille > 0)
            && draw.happens(permille)
        {
            fault = own;
        } else if writes && draw.happens(profile.late) {
            let longest = draw.one_of(&[2_000, 6_000, 30_000]);
            fault = SimulatedFault::Late(draw.millis(500, longest));
        } else if draw.happens(profile.table) {
            fault = draw.one_of(&[
                SimulatedFault::FailsBefore,
                SimulatedFault::LosesReply,
                SimulatedFault::LosesReply,
                SimulatedFault::Silent,
                SimulatedFault::SilentBefore,
                SimulatedFault::Throttled,
                SimulatedFault::Conflict,
                SimulatedFault::Slow,
            ]);
        }
        if !writes && matches!(fault, SimulatedFault::Conflict) {
            fault = SimulatedFault::Throttled;
        }
        if fault == SimulatedFault::None || !world.allows(draw.id) {
            return SimulatedFault::None;
        }
        let node = self.node.number;
        let decision = draw.id;
        let how = fault.name();
        world.trace(TraceEvent::Fault { node, decision, how, call: name });
        fault
    }

    /// Makes a call. Its reply has a `Date`, which shows the true time to the second.
    async fn call<T: Send + 'static>(
        &self,
        name: &'static str,
        writes: bool,
        act: impl FnOnce() -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, TableError> {
        let sent = self.node.env.monotonic();
        let date = Arc::new(AtomicU64::new(0));
        let world = self.node.world.clone();
        let seconds = date.clone();
        let act = move || {
            seconds.store(world.true_millis() / 1000, Relaxed);
            act()
        };
        let replied = self.perform(name, writes, act).await;
        if replied.is_ok() && self.node.world.profile.dated && !self.mutator.ignores_dates() {
            self.node.env.note_reply(Timestamp::from_secs(date.load(Relaxed)), sent);
        }
        replied
    }

    async fn perform<T: Send + 'static>(
        &self,
        name: &'static str,
        writes: bool,
        act: impl FnOnce() -> Result<T, TableError> + Send + 'static,
    ) -> Result<T, TableError> {
        let world = &self.node.world;
        let generation = self.node.generation;
        let act = {
            let world = world.clone();
            move || {
                if generation == world.generation() { act() } else { Err(TableError::Invalid("no such table".into())) }
            }
        };
        let mut draw = self.node.stream.draw();
        let latency = draw.millis(1, 12);
        let mut fault = self.drawn_fault(name, writes, &mut draw);
        if let Some(how) = world.out(services(name), self.node.number) {
            fault = how.into();
        }
        match fault {
            // A request that was sent lands even if its caller freezes or is dropped.
            SimulatedFault::None if writes && draw.happens(250) => {
                let (reply, replied) = tokio::sync::oneshot::channel();
                tokio::spawn(async move {
                    pause(latency).await;
                    let _ = reply.send(act());
                });
                replied.await.unwrap_or(Err(TableError::Throttled))
            }
            SimulatedFault::None => {
                let begun = world.elapsed();
                pause(latency).await;
                // The caller froze while its request was on the way.
                let is_late = world.elapsed().saturating_sub(begun) > LATE;
                world.with_history(|history| history.is_late = is_late);
                let reply = act();
                world.with_history(|history| history.is_late = false);
                reply
            }
            SimulatedFault::FailsBefore => {
                pause(latency).await;
                Err(TableError::Unknown("simulated: never sent".into()))
            }
            SimulatedFault::LosesReply => {
                pause(latency).await;
                let _ = act();
                pause(latency).await;
                Err(TableError::Unknown("simulated: reply lost".into()))
            }
            SimulatedFault::Silent => {
                pause(latency).await;
                let _ = act();
                std::future::pending().await
            }
            SimulatedFault::SilentBefore => std::future::pending().await,
            SimulatedFault::Throttled => {
                pause(latency).await;
                Err(TableError::Throttled)
            }
            SimulatedFault::Conflict => {
                pause(latency).await;
                Err(TableError::Conflict)
            }
            SimulatedFault::Slow => {
                pause(draw.millis(100, 2_000)).await;
                act()
            }
            SimulatedFault::Late(delay) => {
                let busy = world.begin();
                let world = world.clone();
                tokio::spawn(async move {
                    pause(delay).await;
                    world.with_history(|history| history.is_late = true);
                    let _ = act();
                    world.with_history(|history| history.is_late = false);
                    drop(busy);
                });
                std::future::pending().await
            }
        }
    }

    fn ready<T>(future: BoxFuture<'_, Result<T, TableError>>) -> Result<T, TableError> {
        future.now_or_never().expect("a table in memory answers at once")
    }
}

impl Table for NodeTable {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        Box::pin(async move {
            if let Some(invented) = self.mutator.invented_reply(write) {
                return Ok(invented);
            }
            if let Some((entity, token)) = written_start(write) {
                self.node.breakers.writes(entity, token, self.node.env.monotonic());
            }
            let settles = sets(write, a::HEAD).then(|| entity_of(&write.key)).flatten();
            let settles = settles.map(|entity| entity_number(&entity));
            if let Err(mistake) = self.node.breakers.sends(write, settles) {
                self.node.world.mistake(format!("node {}: {mistake}", self.node.number));
            }
            let mut sent = write.clone();
            let world = self.node.world.clone();
            let node = self.node.number;
            self.mutator.outgoing(&mut sent, || world.read(&write.key));
            let mut tries = 0;
            loop {
                let world = world.clone();
                let sent_now = sent.clone();
                let name = name_of(&sent);
                let patience = self.mutator.hidden_retry(&sent);
                let call = self.call(name, true, move || world.write(node, &sent_now));
                let replied = match patience {
                    Some(patience) => self.node.env.within(patience, call).await,
                    None => Some(call.await),
                };
                match replied {
                    Some(Ok(mut reply)) => {
                        self.node.breakers.replied(write, &reply, self.node.env.monotonic());
                        self.mutator.reply(write, &mut reply, &self.node);
                        return Ok(reply);
                    }
                    Some(Err(error)) if patience.is_none() || tries > 2 => return Err(error),
                    Some(Err(_)) | None => tries += 1,
                }
            }
        })
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        let world = self.node.world.clone();
        let node = self.node.number;
        let writes = writes.to_vec();
        let token = token.to_owned();
        Box::pin(self.call(TRANSACTION, true, move || world.transact(node, &writes, &token)))
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        let world = self.node.world.clone();
        let number = self.node.number;
        let wanted = key.clone();
        Box::pin(async move {
            let read = move || {
                world.record_read(number, &wanted);
                Self::ready(world.rows.get(&wanted))
            };
            let mut row = self.call("read", false, read).await?;
            self.node.breakers.learns(key, row.as_ref(), self.node.env.monotonic());
            self.mutator.read(key, &mut row);
            Ok(row)
        })
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        let world = self.node.world.clone();
        let keys = keys.to_vec();
        Box::pin(async move {
            let mut rows = self.call(BATCH_READ, false, move || Self::ready(world.rows.get_many(&keys))).await?;
            self.mutator.batch(&mut rows);
            Ok(rows)
        })
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        let world = self.node.world.clone();
        let wanted = range.clone();
        Box::pin(async move {
            let mut page = self.call(QUERY, false, move || Self::ready(world.rows.query(&wanted))).await?;
            self.mutator.page(range, &mut page);
            Ok(page)
        })
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        let world = self.node.world.clone();
        let table = table.clone();
        let segment = segment.clone();
        Box::pin(async move {
            let stale = world.is_active() && self.node.stream.draw().happens(300);
            let entities = table == TableName::Entities;
            let seen = world.clone();
            let mut found = self.call("scan", false, move || Self::ready(seen.rows.scan(&table, &segment))).await?;
            if stale && entities {
                found.rows = found.rows.into_iter().filter_map(|row| world.stale(row)).collect();
            }
            Ok(found)
        })
    }
}
