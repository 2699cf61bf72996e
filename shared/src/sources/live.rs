//! The sources in use: read when a function starts, and again while it runs.
//!
//! The document is read again a minute after it was last, beside the work that
//! is under way, which waits for it a moment before it is over: between two
//! pieces of work a function is frozen, and a reading with it. One that was
//! frozen all the same tells nothing of the document. One that cannot be read,
//! or that is wrong, changes nothing: the last good one stays in use, and that
//! is told. What only a newer document could decide (a signature that no known
//! secret makes, a source that is not known) asks for a reading first; those
//! who can make us ask, such as anybody on the internet, cause one every
//! [`SPACING`] at most, and fewer and fewer while these find nothing new: down
//! to one every [`REFRESH`], which there would be without them.

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
    time::{CLOCKS_APART, Env, Timestamp},
};

/// How long a document is used before it is read again.
pub const REFRESH: Duration = Duration::from_secs(60);

/// An instance that was idle for so long waits, for [`PATIENCE`], for what is
/// new: a secret that was taken back is not to be believed by the first request
/// of every idle instance.
pub const STALE: Duration = Duration::from_secs(300);

/// The least time between two readings that outsiders can cause, at first, and
/// after a reading that failed.
pub const SPACING: Duration = Duration::from_secs(5);

/// How long a request waits for a reading. The time for its answer is short of
/// what it waited.
pub const PATIENCE: Duration = Duration::from_millis(250);

/// The longest that one reading may take. Where nobody waits for it, it goes on
/// in the background.
const ATTEMPT: Duration = Duration::from_millis(1500);

/// A reading that failed after longer than this was frozen meanwhile.
const FROZEN: Duration = Duration::from_secs(3);

/// How long a starting function tries: it has nothing to go on with. Lambda lets
/// it initialise for ten seconds, and the last try takes some of them.
const INITIALISING: Duration = Duration::from_secs(8);

/// The longest that it waits in between.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Where the document stands.
pub trait Document: Send + Sync + 'static {
    /// Reads it, once. The error says why not, without a value of the
    /// document's.
    fn read(&self) -> BoxFuture<'_, Result<String, String>>;

    /// For how long it is read again and again by whoever has nothing yet to go on
    /// with.
    fn patience(&self) -> Duration {
        INITIALISING
    }
}

/// The sources in use. Clones are the same.
#[derive(Clone)]
pub struct LiveSources(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    origin: Option<Origin>,
}

/// What is known, and since when.
struct State {
    sources: Arc<Sources>,
    /// What they were read from, to know a newer document by.
    text: String,
    /// When the last reading that told what is in use was begun.
    read: Duration,
    read_at: Timestamp,
    /// When the last reading was begun, however it ended.
    tried: Duration,
    /// Why the last one was of no use.
    trouble: Option<String>,
    /// How many in a row were begun for strangers and found nothing new.
    in_vain: u32,
}

struct Origin {
    document: Box<dyn Document>,
    env: Env,
    observer: Arc<dyn Observer>,
    demand: OnceLock<Demand>,
    /// Held while the document is read.
    reading: tokio::sync::Mutex<()>,
}

type Demand = Box<dyn Fn(&Sources) -> Result<(), String> + Send + Sync>;

/// What became of a wish for the newest document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newest {
    /// What is in use is the newest, or was some seconds ago.
    Known,
    /// There may be a newer one: it could not be read in time, or is wrong.
    Unknown,
}

/// What is known of a source that a delivery names.
#[derive(Debug, Clone)]
pub enum Found {
    /// It is configured.
    Source(Arc<Source>),
    /// It is not configured any more.
    Gone,
    /// It may have been configured since the document was last read.
    Unknown,
}

impl LiveSources {
    /// Sources that never change.
    pub fn fixed(sources: Arc<Sources>) -> Self {
        Self(Arc::new(Inner { state: Mutex::new(State::of(sources)), origin: None }))
    }

    /// Reads `document` for the first time.
    ///
    /// # Errors
    ///
    /// It could not be read for as long as a function may initialise, or is wrong;
    /// without a value of its.
    pub async fn open(document: Box<dyn Document>, env: Env, observer: Arc<dyn Observer>) -> Result<Self, String> {
        let state = Mutex::new(State::of(Arc::default()));
        let origin = Origin { document, env, observer, demand: OnceLock::new(), reading: Default::default() };
        let give_up = origin.env.monotonic() + origin.document.patience();
        let mut wait = PATIENCE;
        loop {
            let begun = Begun::now(&origin.env);
            let refused = match origin.read().await {
                Ok(text) => {
                    let sources = Sources::parse(&text).map_err(|error| error.to_string())?;
                    lock(&state).take(sources, text, begun);
                    return Ok(Self(Arc::new(Inner { state, origin: Some(origin) })));
                }
                Err(refused) => refused,
            };
            // Of many that start at once, each at a time of its own.
            let pause = origin.env.jittered(wait);
            if origin.env.monotonic() + pause >= give_up {
                return Err(refused);
            }
            origin.env.sleep(pause).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// From now on a document is taken only if `demand` agrees to it.
    ///
    /// # Errors
    ///
    /// It does not agree to the one in use. That stays in use all the same.
    pub fn demand(
        &self,
        demand: impl Fn(&Sources) -> Result<(), String> + Send + Sync + 'static,
    ) -> Result<(), String> {
        demand(&self.current())?;
        if let Some(origin) = &self.0.origin {
            // A second demand would be a second function around the same sources.
            let _ = origin.demand.set(Box::new(demand));
        }
        Ok(())
    }

    /// The sources in use now.
    pub fn current(&self) -> Arc<Sources> {
        self.0.lock().sources.clone()
    }

    /// Does `work`, and reads the document again beside it if that is due.
    /// Before the work, the reading is waited for after long idleness only;
    /// behind it, until it has had [`PATIENCE`].
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

    /// Makes sure of the newest document, for whom only that could help: waits
    /// for a reading, unless there was one in the last [`SPACING`]; in a longer
    /// time, where several such readings have found nothing new.
    pub async fn newest(&self) -> Newest {
        let Some(origin) = &self.0.origin else { return Newest::Known };
        let (since_tried, spacing) = {
            let state = self.0.lock();
            (origin.env.monotonic().saturating_sub(state.tried), state.spacing())
        };
        let reading = async {
            if since_tried >= spacing {
                self.begin(Cause::Stranger).await;
            } else {
                // One that was begun just now may still be under way.
                drop(origin.reading.lock().await);
            }
        };
        let asked = origin.env.monotonic();
        if origin.env.within(PATIENCE, reading).await.is_none() {
            return Newest::Unknown;
        }
        let state = self.0.lock();
        if state.read + state.spacing() >= asked { Newest::Known } else { Newest::Unknown }
    }

    /// The source of a delivery that was accepted at `since`, by another instance's
    /// clock, and maybe by a newer document. A reading shows that the source is
    /// gone if it began after this call, or [`CLOCKS_APART`] after `since`.
    pub async fn find(&self, name: &SourceName, since: Timestamp) -> Found {
        let asked = self.0.origin.as_ref().map(|origin| origin.env.monotonic()).unwrap_or_default();
        let known = || {
            let state = self.0.lock();
            let is_newer = state.read >= asked || state.read_at >= since + CLOCKS_APART;
            match state.sources.get(name.as_str()) {
                Some(source) => Found::Source(source.clone()),
                None if self.0.origin.is_none() || is_newer => Found::Gone,
                None => Found::Unknown,
            }
        };
        match known() {
            Found::Unknown => {
                let Some(origin) = &self.0.origin else { return Found::Gone };
                let is_troubled = self.0.lock().trouble.is_some();
                let since_tried = origin.env.monotonic().saturating_sub(self.0.lock().tried);
                if !is_troubled || since_tried >= SPACING {
                    let _ = origin.env.within(ATTEMPT, self.begin(Cause::Age)).await;
                }
                known()
            }
            found => found,
        }
    }

    /// Begins a reading in the background. What is returned ends with it.
    fn begin(&self, cause: Cause) -> impl Future<Output = ()> + use<> {
        let this = self.clone();
        let asked = this.0.origin.as_ref().map(|origin| origin.env.monotonic()).unwrap_or_default();
        let reading = tokio::spawn(async move { this.read_again(asked, cause).await });
        async {
            // An error: the runtime is ending, and with it whoever waits.
            let _ = reading.await;
        }
    }

    /// Reads the document, unless somebody began to after `asked`.
    async fn read_again(&self, asked: Duration, cause: Cause) {
        let Some(origin) = &self.0.origin else { return };
        let _turn = origin.reading.lock().await;
        let begun = Begun::now(&origin.env);
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
            Ok(Judged::Same) => {
                (state.read, state.read_at) = (begun.monotonic, begun.at);
                state.trouble = None;
                state.in_vain += u32::from(cause == Cause::Stranger);
            }
            Ok(Judged::New(sources, text)) => {
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

    fn judge(&self, origin: &Origin, text: String) -> Result<Judged, String> {
        if self.0.lock().text == text {
            return Ok(Judged::Same);
        }
        let sources = Sources::parse(&text).map_err(|error| error.to_string())?;
        origin.demand.get().map_or(Ok(()), |demand| demand(&sources))?;
        Ok(Judged::New(sources, text))
    }
}

/// Why a reading is begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// It is time, or a delivery that was accepted may know more.
    Age,
    /// Somebody asks who has proved nothing.
    Stranger,
}

enum Judged {
    Same,
    New(Sources, String),
}

/// When a reading was begun.
struct Begun {
    monotonic: Duration,
    at: Timestamp,
}

impl Begun {
    fn now(env: &Env) -> Self {
        Self { monotonic: env.monotonic(), at: env.now() }
    }
}

impl Origin {
    async fn read(&self) -> Result<String, String> {
        let read = self.env.within(ATTEMPT, self.document.read()).await;
        read.unwrap_or_else(|| Err("no answer in time".to_owned()))
    }
}

impl State {
    fn of(sources: Arc<Sources>) -> Self {
        let (read, tried) = (Duration::ZERO, Duration::ZERO);
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

    fn take(&mut self, sources: Sources, text: String, begun: Begun) {
        self.sources = Arc::new(sources);
        self.text = text;
        (self.read, self.read_at, self.tried) = (begun.monotonic, begun.at, begun.monotonic);
        (self.trouble, self.in_vain) = (None, 0);
    }

    /// The least time until strangers cause the next reading: the first two may be
    /// about what is being configured right now.
    fn spacing(&self) -> Duration {
        SPACING.saturating_mul(1 << self.in_vain.saturating_sub(1).min(6)).min(REFRESH)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
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
