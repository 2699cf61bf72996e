//! The sources document in use. It is read when a function starts, and again while it runs.
//!
//! - The document is read again every [`REFRESH`], while a request is handled. The request waits for the read, because
//!   Lambda freezes a function between requests, but at most for [`PATIENCE`]. A read that failed because of such a
//!   freeze is ignored.
//! - If the document cannot be read or is invalid, the last valid one stays in use, and an
//!   event reports that.
//! - If a request names an unknown source or has an invalid signature, the document in use
//!   may be outdated, so the request first causes a read. Anybody can send such requests.
//!   Therefore they cause at most one read every [`SPACING`], and fewer while the reads find
//!   nothing new, down to one every [`REFRESH`].

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use futures_util::future::BoxFuture;

use super::{Source, Sources};
use crate::{
    protocol::entity::SourceName,
    telemetry::{Event, Observer},
    time::{CLOCKS_APART, Env, Timestamp, backoff::Backoff},
};

/// If the last read began this long ago, a request causes another read. If that last read failed, a request causes
/// another one after [`SPACING`].
pub const REFRESH: Duration = Duration::from_secs(60);

/// If the last successful read began this long ago, a request waits for a new read before its own work, at most for
/// [`PATIENCE`]. Otherwise an instance that was idle would still accept a revoked secret.
pub const STALE: Duration = Duration::from_secs(300);

/// The shortest time between two reads that unverified requests cause, and from the start of a failed read to the next
/// read.
pub const SPACING: Duration = Duration::from_secs(5);

/// The longest time that a request waits for a read of the document. This wait shortens the time for the
/// request's own work.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// The timeout of one read. A request waits for the read at most [`PATIENCE`]. Afterwards the read continues in the
/// background until it ends or this timeout expires.
const READ_TIMEOUT: Duration = Duration::from_millis(1500);

/// If a read failed after more than this time, the cause is that Lambda froze the function during the read. Such a
/// failure is not reported.
const FROZEN: Duration = Duration::from_secs(3);

/// The time during which a starting function retries its first read. Lambda allows ten seconds
/// for initialisation, and the last try needs some of them.
const INITIALISING: Duration = Duration::from_secs(8);

const LONGEST_WAIT: Duration = Duration::from_secs(2);

pub trait SourcesDocument: Send + Sync + 'static {
    /// Reads the document once. An error contains no value of the document.
    fn read(&self) -> BoxFuture<'_, Result<String, String>>;

    fn patience(&self) -> Duration {
        INITIALISING
    }
}

/// The sources in use, which may change while the function runs. Clones share them.
#[derive(Clone)]
pub struct LiveSources(Arc<SharedSources>);

struct SharedSources {
    state: Mutex<LiveState>,
    origin: Option<LiveDocument>,
}

/// The sources in use, and what is known about reads of their document. Each `Duration` is a time on the
/// monotonic clock.
struct LiveState {
    sources: Arc<Sources>,
    text: String,
    /// The start of the last successful read, on the monotonic clock.
    read: Duration,
    read_at: Timestamp,
    /// The start of the last read, even if that read failed, on the monotonic clock.
    tried: Duration,
    trouble: Option<String>,
    /// The number of reads that unverified requests caused since the document last changed or a read last
    /// failed.
    in_vain: u32,
}

struct LiveDocument {
    document: Box<dyn SourcesDocument>,
    env: Env,
    observer: Arc<dyn Observer>,
    demand: OnceLock<Demand>,
    reading: tokio::sync::Mutex<()>,
}

type Demand = Box<dyn Fn(&Sources) -> Result<(), String> + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewestDocument {
    /// A recent read confirmed the document in use. A read counts as recent for [`SPACING`]. This time
    /// grows up to [`REFRESH`] while reads find no change.
    Known,
    /// A newer document may exist. It could not be read in time, or is invalid.
    Unknown,
}

#[derive(Debug, Clone)]
pub enum SourceLookup {
    Source(Arc<Source>),
    /// The newest document does not contain the source.
    Gone,
    /// The source may have been added to the document after the last read.
    Unknown,
}

impl LiveSources {
    pub fn fixed(sources: Arc<Sources>) -> Self {
        Self(Arc::new(SharedSources { state: Mutex::new(LiveState::of(sources)), origin: None }))
    }

    /// Reads `document` for the first time. The error says that the document could not be read within
    /// [`SourcesDocument::patience`], or is invalid. The error contains no value of the document.
    pub async fn open(
        document: Box<dyn SourcesDocument>,
        env: Env,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, String> {
        let state = Mutex::new(LiveState::of(Arc::default()));
        let origin = LiveDocument { document, env, observer, demand: OnceLock::new(), reading: Default::default() };
        // The pauses are jittered, because many instances may start at once.
        let mut tries = Backoff::within(origin.document.patience(), &origin.env, PATIENCE, LONGEST_WAIT);
        loop {
            let begun = ReadStart::now(&origin.env);
            let refused = match origin.read().await {
                Ok(text) => {
                    let sources = Sources::parse(&text).map_err(|error| error.to_string())?;
                    lock(&state).take(sources, text, begun);
                    return Ok(Self(Arc::new(SharedSources { state, origin: Some(origin) })));
                }
                Err(refused) => refused,
            };
            if !tries.pause().await {
                return Err(refused);
            }
        }
    }

    /// Makes later reads refuse every document that `demand` does not accept. If `demand` refuses even the current
    /// document, returns its error and changes nothing. Only the first accepted `demand` is used.
    pub fn demand(
        &self,
        demand: impl Fn(&Sources) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<(), String> {
        demand(&self.current())?;
        if let Some(origin) = &self.0.origin {
            // Only the first `demand` is kept, because only one function uses these sources.
            let _ = origin.demand.set(Box::new(demand));
        }
        Ok(())
    }

    pub async fn read_now(&self) {
        self.begin(Cause::Age).await;
    }

    pub fn current(&self) -> Arc<Sources> {
        self.0.lock().sources.clone()
    }

    /// Runs `work`, and reads the document if a read is due. If the document in use is older than [`STALE`],
    /// the read comes before `work`. Otherwise the read runs at the same time, and may end after `work`. The
    /// caller waits for the read at most [`PATIENCE`].
    pub async fn beside<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(origin) = &self.0.origin else { return work.await };
        let begun = origin.env.monotonic();
        let patience = || PATIENCE.saturating_sub(origin.env.monotonic().saturating_sub(begun));
        let (age, since_tried, is_troubled) = {
            let state = self.0.lock();
            (begun.saturating_sub(state.read), begun.saturating_sub(state.tried), state.trouble.is_some())
        };
        if since_tried < if is_troubled { SPACING } else { REFRESH } {
            return work.await;
        }
        let mut reading = std::pin::pin!(self.begin(Cause::Age));
        let mut is_read = false;
        if age >= STALE {
            is_read = origin.env.within(patience(), &mut reading).await.is_some();
        }
        let done = work.await;
        if !is_read {
            let _ = origin.env.within(patience(), reading).await;
        }
        done
    }

    /// Reads the document for a request that only a newer document could accept. If the last read began less than
    /// [`SPACING`] ago, only waits for that read. This limit grows while such reads find no change.
    pub async fn newest(&self) -> NewestDocument {
        let Some(origin) = &self.0.origin else { return NewestDocument::Known };
        let (since_tried, spacing) = {
            let state = self.0.lock();
            (origin.env.monotonic().saturating_sub(state.tried), state.spacing())
        };
        let reading = async {
            if since_tried >= spacing {
                self.begin(Cause::Unverified).await;
            } else {
                // A recent read may still be running.
                drop(origin.reading.lock().await);
            }
        };
        let asked = origin.env.monotonic();
        if origin.env.within(PATIENCE, reading).await.is_none() {
            return NewestDocument::Unknown;
        }
        let state = self.0.lock();
        if state.read + state.spacing() >= asked { NewestDocument::Known } else { NewestDocument::Unknown }
    }

    /// Looks up the source of a delivery. Another instance, perhaps with a newer document, accepted the delivery at
    /// `since` by its own clock. A missing source counts as gone only if the document was read after this call began,
    /// or later than [`CLOCKS_APART`] after `since`. Otherwise this method reads the document again. It also does so
    /// for a paused source, which may have been resumed, if the last read is not recent.
    pub async fn find(&self, name: &SourceName, since: Timestamp) -> SourceLookup {
        let asked = self.0.origin.as_ref().map(|origin| origin.env.monotonic()).unwrap_or_default();
        let known = || {
            let state = self.0.lock();
            let is_newer = state.read >= asked || state.read_at >= since + CLOCKS_APART;
            match state.sources.get(name.as_str()) {
                Some(source) => SourceLookup::Source(source.clone()),
                None if self.0.origin.is_none() || is_newer => SourceLookup::Gone,
                None => SourceLookup::Unknown,
            }
        };
        let found = known();
        let Some(origin) = &self.0.origin else { return found };
        let (is_recent, is_troubled) = {
            let state = self.0.lock();
            (asked.saturating_sub(state.tried) < SPACING, state.trouble.is_some())
        };
        let is_due = match &found {
            SourceLookup::Source(source) => source.is_paused && !is_recent,
            SourceLookup::Gone => false,
            SourceLookup::Unknown => !is_troubled || !is_recent,
        };
        if !is_due {
            return found;
        }
        let _ = origin.env.within(READ_TIMEOUT, self.begin(Cause::Age)).await;
        known()
    }

    fn begin(&self, cause: Cause) -> impl Future<Output = ()> + use<> {
        let this = self.clone();
        let asked = this.0.origin.as_ref().map(|origin| origin.env.monotonic()).unwrap_or_default();
        let reading = tokio::spawn(async move { this.read_again(asked, cause).await });
        async {
            // An error means that the runtime is shutting down.
            let _ = reading.await;
        }
    }

    async fn read_again(&self, asked: Duration, cause: Cause) {
        let Some(origin) = &self.0.origin else { return };
        let _turn = origin.reading.lock().await;
        let begun = ReadStart::now(&origin.env);
        {
            let mut state = self.0.lock();
            if state.tried >= asked {
                return;
            }
            state.tried = begun.monotonic;
        }
        let read = origin.read().await;
        if read.is_err() && origin.env.monotonic().saturating_sub(begun.monotonic) > FROZEN {
            return;
        }
        let read = read.and_then(|text| self.judge(origin, text));
        let mut state = self.0.lock();
        match read {
            Ok(DocumentJudgement::Same) => {
                (state.read, state.read_at) = (begun.monotonic, begun.at);
                state.trouble = None;
                state.in_vain += u32::from(cause == Cause::Unverified);
            }
            Ok(DocumentJudgement::New(sources, text)) => {
                state.take(sources, text, begun);
                let count = state.sources.iter().count();
                drop(state);
                origin.observer.observe(&Event::SourcesChanged { count });
            }
            Err(reason) => {
                let is_news = state.trouble.as_ref() != Some(&reason);
                state.trouble = Some(reason.clone());
                state.in_vain = 0;
                drop(state);
                origin.observer.observe(&Event::SourcesKept { reason: &reason, is_news });
            }
        }
    }

    fn judge(&self, origin: &LiveDocument, text: String) -> Result<DocumentJudgement, String> {
        if self.0.lock().text == text {
            return Ok(DocumentJudgement::Same);
        }
        let sources = Sources::parse(&text).map_err(|error| error.to_string())?;
        origin.demand.get().map_or(Ok(()), |demand| demand(&sources))?;
        Ok(DocumentJudgement::New(sources, text))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    Age,
    /// A request could not be verified. Anybody can send such a request.
    Unverified,
}

enum DocumentJudgement {
    Same,
    New(Sources, String),
}

struct ReadStart {
    monotonic: Duration,
    at: Timestamp,
}

impl ReadStart {
    fn now(env: &Env) -> Self {
        Self { monotonic: env.monotonic(), at: env.now() }
    }
}

impl LiveDocument {
    async fn read(&self) -> Result<String, String> {
        let read = self.env.within(READ_TIMEOUT, self.document.read()).await;
        read.unwrap_or_else(|| Err("no answer in time".to_owned()))
    }
}

impl LiveState {
    fn of(sources: Arc<Sources>) -> Self {
        let read = Duration::ZERO;
        let tried = Duration::ZERO;
        Self {
            sources,
            text: String::new(),
            read,
            read_at: Timestamp::from_millis(0),
            tried,
            trouble: None,
            in_vain: 0,
        }
    }

    fn take(&mut self, sources: Sources, text: String, begun: ReadStart) {
        self.sources = Arc::new(sources);
        self.text = text;
        (self.read, self.read_at, self.tried) = (begun.monotonic, begun.at, begun.monotonic);
        (self.trouble, self.in_vain) = (None, 0);
    }

    /// Returns the shortest time between two reads that unverified requests cause. The time doubles only from
    /// the second read that finds no change, because an operator may be configuring a source at the first.
    fn spacing(&self) -> Duration {
        SPACING.saturating_mul(1 << self.in_vain.saturating_sub(1).min(6)).min(REFRESH)
    }
}

impl SharedSources {
    fn lock(&self) -> MutexGuard<'_, LiveState> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<LiveState>) -> MutexGuard<'_, LiveState> {
    state.lock().expect("no one panics while holding this")
}

impl From<Arc<Sources>> for LiveSources {
    fn from(sources: Arc<Sources>) -> Self {
        Self::fixed(sources)
    }
}

impl From<&Arc<Sources>> for LiveSources {
    fn from(sources: &Arc<Sources>) -> Self {
        Self::fixed(sources.clone())
    }
}

impl From<&LiveSources> for LiveSources {
    fn from(sources: &LiveSources) -> Self {
        sources.clone()
    }
}

impl fmt::Debug for LiveSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveSources").field(&self.current()).finish()
    }
}
