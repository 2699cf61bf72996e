//! The library's clocks, random numbers and requests, as effects that a host carries out.

use std::{
    cell::Cell,
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::BoxFuture;
use serde_json::{Value as Json, json};
use webhook_serializer::time::{Clock, Env, Random, Timestamp};

thread_local! {
    /// The time at which the session that is polled on this thread must be polled again, by the monotonic clock. The
    /// library awaits each of its timers, so every pending timer is polled.
    static WAKE: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// The clocks and the random generator, as the host reported them last. A client's sessions share them.
#[derive(Clone, Default)]
pub(crate) struct Machine(Arc<Mutex<Readings>>);

#[derive(Default)]
struct Readings {
    /// In milliseconds since the Unix epoch. Zero before the first reading.
    now: u64,
    /// The host's own monotonic clock.
    instant: Duration,
    passed: Duration,
    words: VecDeque<u64>,
    /// Draws numbers once the host's are used up.
    further: Option<fastrand::Rng>,
}

impl Machine {
    fn lock(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().expect("no one panics while holding this")
    }

    /// Notes the wall clock, the monotonic clock and random words of the host.
    ///
    /// A monotonic clock may stand still while a machine is frozen. So between two readings, the clock that advanced
    /// further counts, as in the Rust library.
    pub(crate) fn read(&self, now: u64, instant: Duration, words: impl IntoIterator<Item = u64>) {
        let mut readings = self.lock();
        let by_wall = match readings.now {
            0 => Duration::ZERO,
            before => Duration::from_millis(now.saturating_sub(before)),
        };
        let by_instant = instant.saturating_sub(readings.instant);
        readings.passed += by_wall.max(by_instant);
        readings.instant = instant.max(readings.instant);
        readings.now = now;
        // No word is kept for a later step: a process that is forked or restored from a snapshot would use it twice.
        readings.words.clear();
        for word in words {
            let mixed = word ^ readings.further.as_mut().map_or(0, |random| random.u64(..));
            readings.further = Some(fastrand::Rng::with_seed(mixed));
            readings.words.push_back(word);
        }
    }
}

impl Clock for Machine {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.lock().now)
    }

    fn monotonic(&self) -> Duration {
        self.lock().passed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.monotonic().saturating_add(duration);
        let machine = self.clone();
        Box::pin(std::future::poll_fn(move |_| {
            if machine.monotonic() >= until {
                return Poll::Ready(());
            }
            WAKE.set(Some(WAKE.get().map_or(until, |wake| wake.min(until))));
            Poll::Pending
        }))
    }
}

impl Random for Machine {
    fn next(&self) -> u64 {
        let mut readings = self.lock();
        let word = readings.words.pop_front();
        word.or_else(|| readings.further.as_mut().map(|random| random.u64(..))).expect("a step brings random words")
    }
}

/// Polls `poll`. Returns its result, and the time at which a timer that it awaits ends.
pub(crate) fn noting_timers<T>(poll: impl FnOnce() -> T) -> (T, Option<Duration>) {
    WAKE.set(None);
    (poll(), WAKE.take())
}

/// A session's requests, events and commands on their way between the library and the host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Effects(Arc<Mutex<Pending>>);

#[derive(Debug, Default)]
pub(crate) struct Pending {
    last_call: u64,
    pub(crate) calls: Vec<Json>,
    pub(crate) cancelled: Vec<u64>,
    pub(crate) events: Vec<Json>,
    pub(crate) replies: HashMap<u64, Json>,
    pub(crate) commands: VecDeque<Json>,
}

impl Effects {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Pending> {
        self.0.lock().expect("no one panics while holding this")
    }

    pub(crate) fn emit(&self, event: Json) {
        self.lock().events.push(event);
    }

    /// Takes the host's command `abandon` if it is next.
    pub(crate) fn is_abandoned(&self) -> bool {
        let mut pending = self.lock();
        pending.commands.pop_front_if(|command| command["do"] == "abandon").is_some()
    }

    /// Waits for the host's next command.
    pub(crate) fn command(&self) -> impl Future<Output = Json> + Send + use<> {
        let effects = self.clone();
        std::future::poll_fn(move |_| effects.lock().commands.pop_front().map_or(Poll::Pending, Poll::Ready))
    }

    /// Sends a request, and waits for the reply: `{"ok": …}` or `{"error": …}`. Dropping the call cancels it.
    ///
    /// The reply's `date` is the store's time, if `dates` is given.
    pub(crate) async fn call(&self, service: &str, operation: &str, input: Json, dates: Option<&Env>) -> Json {
        let sent = dates.map(Env::monotonic);
        let id = {
            let mut pending = self.lock();
            pending.last_call += 1;
            let id = pending.last_call;
            pending.calls.push(json!({ "id": id, "service": service, "operation": operation, "input": input }));
            id
        };
        let reply = Call { effects: self.clone(), id, is_open: true }.await;
        let date = reply["date"].as_u64().map(Timestamp::from_millis);
        if let (Some(env), Some(sent), Some(date)) = (dates, sent, date) {
            env.note_reply(date, sent);
        }
        reply
    }
}

struct Call {
    effects: Effects,
    id: u64,
    is_open: bool,
}

impl Future for Call {
    type Output = Json;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Json> {
        let reply = self.effects.lock().replies.remove(&self.id);
        self.is_open = reply.is_none();
        reply.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.is_open {
            self.effects.lock().cancelled.push(self.id);
        }
    }
}
