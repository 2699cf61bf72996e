//! Measures leases under contention: how soon a waiting caller gets the lease, and with how
//! many requests. Compares this library with lock clients that poll.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;
use figures::sheet::{Sheet, SheetCell};
use futures_util::future::try_join_all;
use tokio::sync::Mutex;
use webhook_serializer::{
    aws::meter::Meter,
    leases::{LeaseError, Leases, Terms},
    protocol::{
        entity::{EntityKey, FencingToken},
        lease::Lease,
    },
    telemetry::Quiet,
    time::Env,
};

use crate::{
    bench::{ms, percentile},
    distance::{Distance, Network},
    engines::SeparateEngines,
};

pub(crate) const NAME: &str = "leases";

/// The time for which a caller holds its lease.
const WORK: Duration = Duration::from_millis(50);

const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What a caller does while another holder has the lease.
#[derive(Debug, Clone, Copy)]
enum Waiting {
    /// The caller waits as this library does.
    Library,
    /// The caller tries again after `first`, and then after `factor` times the last wait.
    Polling { first: Duration, factor: u32 },
}

const WAITING: [(&str, Waiting); 3] = [
    ("this library", Waiting::Library),
    ("polling every second", Waiting::Polling { first: Duration::from_secs(1), factor: 1 }),
    ("polling after 100 ms, doubling", Waiting::Polling { first: Duration::from_millis(100), factor: 2 }),
];

/// The grants of one key's lease.
#[derive(Default)]
struct Record {
    holders: AtomicUsize,
    overlaps: AtomicUsize,
    grants: Mutex<Vec<(FencingToken, Duration, Duration)>>,
}

impl Record {
    async fn hold(&self, lease: Lease, env: &Env) -> Result<(), LeaseError> {
        if self.holders.fetch_add(1, SeqCst) > 0 {
            self.overlaps.fetch_add(1, SeqCst);
        }
        let started = env.monotonic();
        env.sleep(WORK).await;
        self.grants.lock().await.push((lease.token(), started, env.monotonic()));
        self.holders.fetch_sub(1, SeqCst);
        Ok(())
    }
}

/// Measures each way of waiting with one caller, with five callers on one key, and with 32
/// callers on twenty keys. Returns the sheet, and whether all leases were exclusive and all
/// tokens grew.
pub(crate) async fn run(distance: Distance) -> Result<(Sheet, bool)> {
    let engines = SeparateEngines::start().await?;
    let network = Network::to(&engines, distance).await?;
    let mut sheet = Sheet::new(&[
        ("waiting", "leases"),
        ("callers", ">callers"),
        ("keys", ">keys"),
        ("wall_ms", ">wall ms"),
        ("ideal_ms", ">ideal ms"),
        ("hand_over_p50_ms", ">hand-over p50"),
        ("hand_over_p95_ms", ">p95"),
        ("writes_each", ">writes each"),
        ("reads_each", ">reads each"),
        ("verdict", "verdict"),
    ]);
    let mut is_exclusive = true;
    for (name, waiting) in WAITING {
        for (callers, keys) in [(1, 1), (5, 1), (32, 20)] {
            let (cells, is_clean) = measure(&network, name, waiting, callers, keys).await?;
            sheet.row(cells);
            is_exclusive &= is_clean;
        }
    }
    engines.stop().await;
    Ok((sheet, is_exclusive))
}

async fn measure(
    network: &Network,
    name: &str,
    waiting: Waiting,
    callers: u32,
    keys: u32,
) -> Result<(Vec<SheetCell>, bool)> {
    let env = Env::system();
    let meter: Arc<Meter> = Arc::default();
    let records: Vec<Record> = (0..keys).map(|_| Record::default()).collect();
    let mut clients = Vec::new();
    for number in 0..callers {
        let parts = network.parts(&env, meter.clone());
        let number = number % keys;
        let key = EntityKey::parse(&format!("bench/{}-{callers}-{number}", name.replace(' ', "-")))?;
        let leases = Leases::new(parts.store, "bench").observed_by(Arc::new(Quiet));
        // The client connects before the measurement begins.
        leases.look(&key).await?;
        clients.push((leases, key, &records[number as usize]));
    }
    let before = meter.reading();
    let began = env.monotonic();
    try_join_all(clients.iter().map(async |(leases, key, record)| {
        let hold = |lease| record.hold(lease, &env);
        match waiting {
            Waiting::Library => leases.run(key, Terms::default(), hold).await.map_err(anyhow::Error::from),
            Waiting::Polling { first, factor } => poll(leases, key, &env, first, factor, hold).await,
        }
    }))
    .await?;
    let wall = env.monotonic() - began;
    let counted = meter.reading() - before;
    let mut hand_overs = Vec::new();
    let mut overlaps = 0;
    let mut stale_tokens = 0;
    for record in records {
        overlaps += record.overlaps.into_inner();
        let mut grants = record.grants.into_inner();
        grants.sort_by_key(|(_, started, _)| *started);
        for pair in grants.windows(2) {
            hand_overs.push(pair[1].1.saturating_sub(pair[0].2));
            stale_tokens += usize::from(pair[1].0 <= pair[0].0);
        }
    }
    hand_overs.sort_unstable();
    let is_clean = overlaps + stale_tokens == 0;
    let each = |count: u64| {
        let each = count as f64 / f64::from(callers);
        SheetCell::number(each, format!("{each:.2}"))
    };
    let cells = vec![
        SheetCell::text(name),
        SheetCell::count(callers),
        SheetCell::count(keys),
        ms(wall),
        ms(WORK * callers.div_ceil(keys)),
        percentile(&hand_overs, 50),
        percentile(&hand_overs, 95),
        each(counted.writes + counted.refusals),
        each(counted.reads),
        SheetCell::text(match is_clean {
            true => "one at a time".to_owned(),
            false => format!("{overlaps} overlaps, {stale_tokens} stale tokens"),
        }),
    ];
    Ok((cells, is_clean))
}

async fn poll<W: Future<Output = Result<(), LeaseError>>>(
    leases: &Leases,
    key: &EntityKey,
    env: &Env,
    first: Duration,
    factor: u32,
    hold: impl FnOnce(Lease) -> W,
) -> Result<()> {
    let mut wait = first;
    loop {
        match leases.acquire(key, Terms::at_once()).await {
            Ok(guard) => {
                hold(guard.lease().clone()).await?;
                return Ok(guard.release().await?);
            }
            Err(LeaseError::Contended { .. }) => env.sleep(env.jittered(wait)).await,
            Err(error) => return Err(error.into()),
        }
        wait = (wait * factor).min(LONGEST_WAIT);
    }
}
