//! Leases under contention: how soon a waiter comes in, and for how many
//! requests, beside the ways in which other clients wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use anyhow::Result;
use futures_util::future::try_join_all;
use serde::Serialize;
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

use crate::local::Engines;

/// How long a caller works inside.
const WORK: Duration = Duration::from_millis(50);

/// How callers wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Ours,
    EverySecond,
    Doubling,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::EverySecond => "asking every second",
            Self::Doubling => "asking after 100 ms, doubling",
        }
    }
}

/// What came out; counts are for each caller.
#[derive(Debug, Clone, Serialize)]
pub struct MeasuredLeases {
    /// `lease`.
    pub scenario: &'static str,
    /// How callers wait.
    pub way: &'static str,
    /// How many came at once, each with clients of its own.
    pub callers: usize,
    /// For so many keys.
    pub keys: usize,
    /// From the first to the last.
    pub wall_ms: f64,
    /// The callers of the busiest key, one after the other.
    pub ideal_ms: f64,
    /// From the end of one's work to the start of the next one's.
    pub handoff_ms_p50: Option<f64>,
    /// The same, 95th percentile.
    pub handoff_ms_p95: Option<f64>,
    /// Write requests, refused ones included.
    pub writes: f64,
    /// Read requests.
    pub reads: f64,
    /// How often two were inside at once.
    pub overlaps: usize,
    /// How often a token was not greater than the one before it.
    pub stale_tokens: usize,
}

impl MeasuredLeases {
    /// Whether nothing went wrong.
    pub fn is_clean(&self) -> bool {
        self.overlaps + self.stale_tokens == 0
    }
}

/// One key, and who was there.
#[derive(Default)]
struct Room {
    inside: AtomicUsize,
    overlaps: AtomicUsize,
    visits: Mutex<Vec<(FencingToken, Duration, Duration)>>,
}

impl Room {
    async fn visit(&self, lease: Lease, env: &Env) -> Result<(), LeaseError> {
        if self.inside.fetch_add(1, SeqCst) > 0 {
            self.overlaps.fetch_add(1, SeqCst);
        }
        let started = env.monotonic();
        env.sleep(WORK).await;
        self.visits.lock().await.push((lease.token(), started, env.monotonic()));
        self.inside.fetch_sub(1, SeqCst);
        Ok(())
    }
}

/// Measures one caller alone, five of one key, and thirty-two of twenty keys,
/// in each way of waiting.
///
/// # Errors
///
/// The engines do not start, or refuse a lease.
pub async fn run(progress: impl Fn(usize)) -> Result<Vec<MeasuredLeases>> {
    let engines = Engines::start(None).await?;
    let mut all = Vec::new();
    for way in [Way::Ours, Way::EverySecond, Way::Doubling] {
        for (callers, keys) in [(1, 1), (5, 1), (32, 20)] {
            all.push(measure(&engines, way, callers, keys).await?);
            progress(all.len());
        }
    }
    Ok(all)
}

/// How many measurements [`run`] makes.
pub const MEASUREMENTS: usize = 9;

async fn measure(engines: &Engines, way: Way, callers: usize, keys: usize) -> Result<MeasuredLeases> {
    let env = Env::system();
    let meter: Arc<Meter> = Arc::default();
    let rooms: Vec<Room> = (0..keys).map(|_| Room::default()).collect();
    let mut clients = Vec::new();
    for number in 0..callers {
        let parts = engines.connect(&env, Some(meter.clone()));
        let key = EntityKey::parse(&format!("bench/{way:?}-{callers}-{}", number % keys))?;
        let leases = Leases::new(parts.store, "bench").observed_by(Arc::new(Quiet));
        leases.look(&key).await?;
        clients.push((leases, key, number % keys));
    }
    let before = meter.reading();
    let began = env.monotonic();
    try_join_all(clients.iter().map(async |(leases, key, room)| {
        let visit = |lease| rooms[*room].visit(lease, &env);
        match way {
            Way::Ours => leases.run(key, Terms::default(), visit).await.map_err(anyhow::Error::from),
            Way::EverySecond => asking(leases, key, &env, Duration::from_secs(1), 1, visit).await,
            Way::Doubling => asking(leases, key, &env, Duration::from_millis(100), 2, visit).await,
        }
    }))
    .await?;
    let wall = env.monotonic() - began;
    let counted = meter.reading() - before;
    let (mut hand_overs, mut overlaps, mut stale_tokens) = (Vec::new(), 0, 0);
    for room in rooms {
        overlaps += room.overlaps.into_inner();
        let mut visits = room.visits.into_inner();
        visits.sort_by_key(|(_, started, _)| *started);
        for pair in visits.windows(2) {
            hand_overs.push(pair[1].1.saturating_sub(pair[0].2));
            stale_tokens += usize::from(pair[1].0 <= pair[0].0);
        }
    }
    hand_overs.sort_unstable();
    let ms = |time: Duration| (time.as_secs_f64() * 1e4).round() / 10.0;
    let share =
        |percent: usize| hand_overs.get((hand_overs.len() * percent).div_ceil(100).saturating_sub(1)).copied().map(ms);
    let each = |count: u64| (count as f64 / callers as f64 * 100.0).round() / 100.0;
    Ok(MeasuredLeases {
        scenario: "lease",
        way: way.name(),
        callers,
        keys,
        wall_ms: ms(wall),
        ideal_ms: ms(WORK * u32::try_from(callers.div_ceil(keys))?),
        handoff_ms_p50: share(50),
        handoff_ms_p95: share(95),
        writes: each(counted.writes + counted.refusals),
        reads: each(counted.reads),
        overlaps,
        stale_tokens,
    })
}

/// Waits as other clients do: asks, by a write, until it is granted.
async fn asking<W: Future<Output = Result<(), LeaseError>>>(
    leases: &Leases,
    key: &EntityKey,
    env: &Env,
    first: Duration,
    factor: u32,
    visit: impl FnOnce(Lease) -> W,
) -> Result<()> {
    let mut wait = first;
    loop {
        match leases.acquire(key, Terms::at_once()).await {
            Ok(guard) => {
                visit(guard.lease().clone()).await?;
                return Ok(guard.release().await?);
            }
            Err(LeaseError::Contended { .. }) => env.sleep(env.jittered(wait)).await,
            Err(error) => return Err(error.into()),
        }
        wait = (wait * factor).min(Duration::from_secs(2));
    }
}
