//! Tables that lost everything since their backup, and a receiver that remembers.

use std::sync::MutexGuard;

use tests::prelude::*;
use webhook_serializer::{
    jobs::{Context, switch::Switch},
    operator::{RestoreFindings, Restored},
    protocol::keys::is_parked,
};

use super::{HOUR, PATIENCE, entity, restore};

/// The receiver of effects. It remembers tokens and sequences, and no backup contains it.
#[derive(Debug, Clone, Default)]
pub struct EffectReceiver(Arc<Mutex<Remembered>>);

#[derive(Debug, Clone, Default)]
struct Remembered {
    tokens: BTreeMap<EntityKey, FencingToken>,
    places: BTreeMap<(EntityKey, Sequence), String>,
    refused: Vec<String>,
    applied: Vec<String>,
}

impl EffectReceiver {
    pub fn handler(&self) -> impl Handler + Clone {
        let receiver = self.clone();
        answering(move |delivery, context| {
            let mut it = receiver.remembered();
            let it = &mut *it;
            let key = delivery.entity().clone();
            let id = delivery.delivery_id().to_string();
            if id.starts_with("bad") {
                return Outcome::retry("bad");
            }
            let newest = it.tokens.entry(key.clone()).or_insert(FencingToken(0));
            let is_stale = context.token() <= *newest;
            *newest = context.token().max(*newest);
            let known = it.places.entry((key.clone(), delivery.sequence())).or_insert_with(|| id.clone());
            if is_stale || *known != id {
                it.refused.push(format!("{key} {id} at {} under {}", delivery.sequence(), context.token()));
            }
            it.applied.push(format!("{key} {id}"));
            Outcome::Done
        })
    }

    fn remembered(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().expect("no panic under the lock")
    }

    pub fn refused(&self) -> Vec<String> {
        self.remembered().refused.clone()
    }

    pub fn applied(&self, key: &str) -> Vec<String> {
        let it = self.remembered();
        it.applied.iter().filter_map(|one| one.strip_prefix(&format!("{key} "))).map(str::to_owned).collect()
    }

    pub fn forget_what_was_applied(&self) {
        self.remembered().applied.clear();
    }
}

pub async fn copied(from: &MemoryTable, table: TableName, to: &MemoryTable) {
    for row in from.rows(&table) {
        let key = key_of(&table, &row).expect("one of ours");
        to.write(&Write::put(key, row)).await.expect("it is written");
    }
}

/// The state after a disaster: the tables are those of the backup; queue and receiver stay as they were.
pub struct Disaster {
    pub world: TestWorld,
    pub receiver: EffectReceiver,
    pub as_of: Timestamp,
}

pub const LONG_AGO: usize = 25;

pub async fn nightly(world: &TestWorld, at: Timestamp) -> usize {
    let job = Job::new("nightly", "every minute", async |_: Context| Ok::<_, JobError>(()));
    let time = Duration::from_secs(300);
    let info = HolderInfo::new("test");
    let ticker = Ticker::new(world.store(), &Jobs::new().add(job), time, &Switch::On, info).expect("a ticker");
    let ticker = ticker.isolated(Isolation::Inline);
    ticker.tick(at, world.env.monotonic() + Duration::from_secs(50)).await.expect("it ticks");
    let row = world.memory.get(&entity_row(&entity("cron/nightly"))).await.expect("memory answers").expect("a job");
    let job = JobState::parse(&row).expect("it can be read");
    usize::from(
        job.last_result.is_some_and(|result| result.ending == TickOutcome::Done && result.at == world.env.now()),
    )
}

impl Disaster {
    pub async fn strikes() -> Self {
        let mut world = TestWorld::new();
        let receiver = EffectReceiver::default();
        world.append_all("test/idle", (0..LONG_AGO).map(|number| format!("i{number}"))).await;
        for key in ["test/waits", "test/held", "test/gap", "test/on-hold"] {
            world.append(key, "first").await;
        }
        world.append("test/parked", "bad1").await;
        world.append_from("block", "block/stopped", "bad2").await;
        let leased = world.leases("a script").acquire(&entity("test/leased"), Terms::at_once()).await.expect("free");
        leased.release().await.expect("it is released");
        world.work(&[world.drainer(receiver.handler())]).await;
        let minute = Timestamp::from_millis(world.env.now().as_millis() / 60_000 * 60_000);
        nightly(&world, minute).await;

        world.append_all("test/waits", ["w1", "w2", "first", "w1"]).await;
        world.append("test/held", "h1").await;
        let now = world.env.now();
        let holder = world.env.nonce();
        let info = HolderInfo::new("a worker that dies");
        let length = Duration::from_secs(15);
        let request = Acquire { entity: entity("test/held"), kind: LeaseKind::Drain, holder, info, now, length };
        world.store().run(&request, PATIENCE).await.expect("it answers");
        let nonce = world.env.nonce();
        let claim = Claim { entity: &entity("test/gap"), nonce: &nonce, now };
        world.store().run(&claim, PATIENCE).await.expect("it is claimed");
        world.append("test/gap", "g1").await;
        world.operator().hold(&entity("test/on-hold")).await.expect("it is on hold");
        world.append("test/on-hold", "o1").await;
        world.append_from("block", "block/stopped", "behind").await;

        // Each table is copied separately, the inbox a moment later.
        let backup = Arc::new(MemoryTable::new());
        let as_of = world.env.now();
        copied(&world.memory, TableName::Entities, &backup).await;
        world.env.sleep(Duration::from_millis(500)).await;
        world.append("test/idle", "late").await;
        copied(&world.memory, TableName::Inbox, &backup).await;

        // Three more hours of deliveries, which only the receiver remembers.
        world.work(&[world.drainer(receiver.handler())]).await;
        world.operator().resume(&entity("test/on-hold")).await.expect("it continues");
        for round in 0..10 {
            world.env.sleep(HOUR / 4).await;
            for key in ["test/idle", "test/waits", "test/held", "test/gap", "test/on-hold", "test/leased", "test/new"] {
                world.append(key, &format!("gone{round}")).await;
            }
            world.work(&[world.drainer(receiver.handler())]).await;
        }
        world.append("test/idle", "gone").await;
        world.env.sleep(HOUR).await;
        assert_eq!(receiver.refused(), [""; 0]);
        receiver.forget_what_was_applied();
        (world.table, world.memory) = (backup.clone(), backup);
        Self { world, receiver, as_of }
    }

    /// Returns a copy of everything except the wake-ups.
    pub async fn again(&self) -> Self {
        let mut world = TestWorld::by(self.world.env.clone());
        let tables = Arc::new(MemoryTable::new());
        for table in [TableName::Entities, TableName::Inbox] {
            copied(&self.world.memory, table, &tables).await;
        }
        (world.table, world.memory) = (tables.clone(), tables);
        let receiver = EffectReceiver(Arc::new(Mutex::new(self.receiver.remembered().clone())));
        Self { world, receiver, as_of: self.as_of }
    }

    pub async fn restore(&self) -> BTreeMap<String, Restored> {
        restore(&self.world.operator(), self.as_of).await.expect("the store answers").1
    }

    /// Returns the report of all runs: parked deliveries, the newest delivery of each source, and jobs.
    pub async fn report(&self, told: &BTreeMap<String, Restored>) -> (u64, RestoreFindings) {
        let operator = self.world.operator();
        let restoring = operator.restoring().await.expect("it answers").expect("one was begun");
        let mut parked = 0;
        for (key, restored) in told {
            parked += match restored {
                Restored::Raised(told) => told.parked,
                Restored::Already => {
                    let told = operator.restored_before(&restoring, &entity(key)).await;
                    told.expect("it answers").parked
                }
                other => panic!("{key}: {other:?}"),
            };
        }
        (parked, RestoreFindings::by(&restoring))
    }

    /// Returns all rows after a restore, without times and nonces.
    pub fn left(&self) -> BTreeSet<String> {
        let of_entity = |row: &Row| {
            let names: Vec<_> = row.iter().map(|(name, _)| name.to_string()).collect();
            format!("{} {}", row.text(a::ENTITY).expect("a key"), names.join(" "))
        };
        let of_inbox = |row: &Row| {
            let item = row.text(a::ITEM).expect("a key");
            let item = if item.starts_with("o#") { "o#" } else { item };
            let told = [a::OUTCOME, a::ERROR, a::SEQUENCE].map(|name| match row.get(name) {
                _ if item == "o#" => String::new(),
                value => format!("{value:?}"),
            });
            format!("{} {item} {}", row.text(a::ENTITY).expect("a key"), told.join(" "))
        };
        let restoring = |row: &&Row| row.get(a::AS_OF).is_none();
        let entities = self.world.memory.rows(&TableName::Entities);
        let inbox = self.world.memory.rows(&TableName::Inbox);
        entities.iter().map(of_entity).chain(inbox.iter().filter(restoring).map(of_inbox)).collect()
    }

    fn parked(&self) -> Vec<String> {
        let rows = self.world.memory.rows(&TableName::Inbox);
        let told = |row: &Row| {
            format!("{} {}", row.text(a::ENTITY).expect("a key"), row.text(a::DELIVERY_ID).expect("a delivery"))
        };
        rows.iter().filter(|row| is_parked(row)).map(told).collect()
    }

    pub async fn goes_on(&self) {
        let world = &self.world;
        let aside: Vec<_> = world.operator().parked(&entity("test/waits")).await.expect("it answers");
        let list: Vec<_> = aside.iter().map(|one| (entity("test/waits"), one.sequence)).collect();
        let back = |_: &EntityKey, _, became: &Redriven| {
            assert!(became.is_ok(), "{became:?}");
            true
        };
        world.operator().redrive_all(&list, back).await.expect("it answers");
        world.append_all("test/idle", (0..LONG_AGO).map(|number| format!("i{number}"))).await;
        for key in ["test/idle", "test/waits", "test/held", "test/gap", "test/on-hold", "test/leased", "test/new"] {
            world.append(key, "gone3").await;
            world.append(key, "gone7").await;
            world.append(key, "fresh").await;
        }
        world.append_all("test/waits", ["first", "w1"]).await;
        world.append("test/held", "h1").await;
        world.append("test/parked", "after").await;
        world.append_from("block", "block/stopped", "after").await;
        world.work(&[world.drainer(self.receiver.handler())]).await;
    }

    pub async fn went_on_well(&self) {
        assert_eq!(self.receiver.refused(), [""; 0], "by a receiver that remembers");
        assert_eq!(self.receiver.applied("test/idle"), ["gone3", "gone7", "fresh"], "what was applied is remembered");
        assert_eq!(self.receiver.applied("test/waits"), ["w1", "w2", "gone3", "gone7", "fresh"], "before all newer");
        for key in ["test/held", "test/gap", "test/leased", "test/new"] {
            assert_eq!(self.receiver.applied(key), ["gone3", "gone7", "fresh"], "{key}");
        }
        assert_eq!(self.receiver.applied("test/parked"), ["after"]);
        for key in ["test/on-hold", "block/stopped"] {
            assert_eq!(self.receiver.applied(key), [""; 0], "{key} waits for a person, as it did");
        }
        let still = ["block/stopped bad2", "block/stopped behind", "test/gap g1", "test/held h1", "test/idle late"];
        assert_eq!(self.parked(), [&still[..], &["test/on-hold o1", "test/parked bad1"]].concat());
        assert_eq!(self.world.state("test/on-hold").await.waiting(), 3);
    }
}
