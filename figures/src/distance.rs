//! Simulates the network between the program and its engines by delays.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::HttpRequest,
    runtime_components::RuntimeComponents,
};
use figures::sheet::{Sheet, SheetCell};
use serializer::local::Engines;
use tokio::sync::{mpsc, oneshot};
use webhook_serializer::{
    aws::{Account, Http, Parts, meter::Meter},
    config::StoreConfig,
    protocol::entity::EntityKey,
    time::Env,
};

use crate::engines::SeparateEngines;
use timer::Timer;

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Distance {
    /// Add this much to each request's round trip to the store
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = humantime::parse_duration)]
    store_delay: Duration,
    /// Add this much to each request's round trip to the queue
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = humantime::parse_duration)]
    queue_delay: Duration,
}

/// The requests that the control sends with and without a delay.
const CONTROL_REQUESTS: usize = 200;
/// The waits that measure by how much a delay line is late.
const TRIAL_WAITS: usize = 30;

impl Distance {
    pub(crate) fn is_zero(self) -> bool {
        self.store_delay.is_zero() && self.queue_delay.is_zero()
    }

    /// Measures what the delays add to a request: sends the same request with and without them, by turns.
    pub(crate) async fn control(self) -> Result<Sheet> {
        let engines = SeparateEngines::start().await?;
        let near = Distance { store_delay: Duration::ZERO, queue_delay: Duration::ZERO };
        let networks = [Network::to(&engines, near).await?, Network::to(&engines, self).await?];
        let config = engines.config();
        let env = Env::system();
        let key = EntityKey::parse("bench/nothing")?;
        let parts = networks.each_ref().map(|network| network.parts(&env, Arc::default()));
        let queues = networks.each_ref().map(Network::sqs);
        let store = by_turns(&env, async |side| {
            parts[side].store.entity(&key, Duration::from_secs(5)).await?;
            Ok(())
        });
        let store = store.await?;
        let queue = by_turns(&env, async |side| {
            queues[side].get_queue_attributes().queue_url(&config.queue_url).send().await?;
            Ok(())
        });
        let queue = queue.await?;
        let mut sheet = Sheet::new(&[
            ("request", "one request at a time"),
            ("bare_ms", ">bare ms"),
            ("delayed_ms", ">delayed ms"),
            ("added_ms", ">added ms"),
            ("delay_ms", ">delay ms"),
        ]);
        for (name, [bare, delayed], delay) in [("store", store, self.store_delay), ("queue", queue, self.queue_delay)] {
            let ms = |time: f64| SheetCell::number(time * 1e3, format!("{:.2}", time * 1e3));
            let [bare, delayed, delay] = [bare, delayed, delay].map(|time| time.as_secs_f64());
            sheet.row([SheetCell::text(name), ms(bare), ms(delayed), ms(delayed - bare), ms(delay)]);
        }
        engines.stop().await;
        Ok(sheet)
    }
}

/// Returns the median time of `request` on each of two sides, which take turns.
async fn by_turns(env: &Env, request: impl AsyncFn(usize) -> Result<()>) -> Result<[Duration; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    // The first requests connect.
    request(0).await?;
    request(1).await?;
    for _ in 0..CONTROL_REQUESTS {
        for (side, times) in times.iter_mut().enumerate() {
            let began = env.monotonic();
            request(side).await?;
            times.push(env.monotonic() - began);
        }
    }
    Ok(times.map(median))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// The way to engines. Each of its clients has a connection pool, as each function has.
#[derive(Debug)]
pub(crate) struct Network {
    account: Account,
    config: StoreConfig,
    to_store: Option<DelayLine>,
    to_queue: Option<DelayLine>,
}

impl Network {
    /// Returns the way to `engines` at this distance. The current runtime waits for its delays.
    pub(crate) async fn to(engines: &Engines, distance: Distance) -> Result<Self> {
        Ok(Self {
            account: engines.account(),
            config: engines.config(),
            to_store: DelayLine::start(distance.store_delay).await?,
            to_queue: DelayLine::start(distance.queue_delay).await?,
        })
    }

    pub(crate) fn parts(&self, env: &Env, meter: Arc<Meter>) -> Parts {
        let http = self.account.http_client();
        let store = DelayedHttp { http: http.dated(env), line: self.to_store.clone() };
        let queue = DelayedHttp { http, line: self.to_queue.clone() };
        Parts::of(self.account.dynamodb(&store), self.account.sqs(&queue), &self.config, env, Some(meter))
    }

    pub(crate) fn sqs(&self) -> aws_sdk_sqs::Client {
        self.account.sqs(&DelayedHttp { http: self.account.http_client(), line: self.to_queue.clone() })
    }
}

#[derive(Debug, Clone)]
struct DelayedHttp {
    http: Http,
    line: Option<DelayLine>,
}

impl HttpClient for DelayedHttp {
    fn http_connector(&self, settings: &HttpConnectorSettings, components: &RuntimeComponents) -> SharedHttpConnector {
        let connector = self.http.http_connector(settings, components);
        match self.line.clone() {
            None => connector,
            Some(line) => SharedHttpConnector::new(DelayedConnector { connector, line }),
        }
    }
}

#[derive(Debug, Clone)]
struct DelayedConnector {
    connector: SharedHttpConnector,
    line: DelayLine,
}

impl HttpConnector for DelayedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Self { connector, line } = self.clone();
        HttpConnectorFuture::new(async move {
            line.wait().await;
            let answer = connector.call(request).await;
            line.wait().await;
            answer
        })
    }
}

/// Delays each request and each answer by the same time. So they are due in the order in which they come, and one timer
/// is enough for all. New connections are not delayed.
#[derive(Debug, Clone)]
struct DelayLine {
    delay: Duration,
    env: Env,
    waiting: mpsc::UnboundedSender<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    due: Duration,
    release: oneshot::Sender<()>,
}

impl DelayLine {
    /// Returns a line that adds `round_trip` to each exchange. The line subtracts its lateness on this machine.
    async fn start(round_trip: Duration) -> Result<Option<Self>> {
        if round_trip.is_zero() {
            return Ok(None);
        }
        let (waiting, requests) = mpsc::unbounded_channel();
        let mut line = Self { delay: round_trip / 2, env: Env::system(), waiting };
        tokio::spawn(release(requests, Timer::new()?, line.env.clone()));
        let mut times = Vec::new();
        for _ in 0..TRIAL_WAITS {
            let began = line.env.monotonic();
            line.wait().await;
            times.push(line.env.monotonic() - began);
        }
        line.delay = line.delay.saturating_sub(median(times).saturating_sub(line.delay));
        Ok(Some(line))
    }

    async fn wait(&self) {
        let (release, released) = oneshot::channel();
        let waiting = Waiting { due: self.env.monotonic() + self.delay, release };
        self.waiting.send(waiting).expect("the line runs");
        released.await.expect("the line runs");
    }
}

async fn release(mut requests: mpsc::UnboundedReceiver<Waiting>, timer: Timer, env: Env) {
    while let Some(Waiting { due, release }) = requests.recv().await {
        timer.wait(due.saturating_sub(env.monotonic())).await.expect("the timer runs");
        // A request that was given up no longer waits.
        let _ = release.send(());
    }
}

/// A timer of the kernel, because the runtime's own timers are rounded up to whole milliseconds: a round trip with two
/// of them would take 2.5 ms too long.
#[cfg(target_os = "linux")]
mod timer {
    use std::{io, os::fd::OwnedFd, time::Duration};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    #[derive(Debug)]
    pub(super) struct Timer(AsyncFd<OwnedFd>);

    impl Timer {
        #[expect(deprecated, reason = "the new constructor is unsafe; this file stays open as long as the timer")]
        pub(super) fn new() -> io::Result<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            Ok(Self(AsyncFd::new(timerfd_create(TimerfdClockId::Monotonic, flags)?)?))
        }

        pub(super) async fn wait(&self, time: Duration) -> io::Result<()> {
            // Zero would stop the timer.
            if time.is_zero() {
                return Ok(());
            }
            let once = Timespec::default();
            let it_value = Timespec::try_from(time).map_err(io::Error::other)?;
            timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: once, it_value })?;
            loop {
                let mut ready = self.0.readable().await?;
                if let Ok(fired) = ready.try_io(|timer| Ok(rustix::io::read(timer, &mut [0; 8])?)) {
                    return fired.map(drop);
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod timer {
    use std::{io, time::Duration};

    use webhook_serializer::time::Env;

    #[derive(Debug)]
    pub(super) struct Timer;

    impl Timer {
        pub(super) fn new() -> io::Result<Self> {
            Ok(Self)
        }

        pub(super) async fn wait(&self, time: Duration) -> io::Result<()> {
            Env::system().sleep(time).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn line_releases_in_order_after_its_delay() {
        let line = DelayLine::start(Duration::from_millis(2)).await.unwrap().unwrap();
        assert!(line.delay <= Duration::from_millis(1));
        let began = line.env.monotonic();
        let mut waits = JoinSet::new();
        let wait = |number: u32| {
            let line = line.clone();
            async move {
                line.wait().await;
                number
            }
        };
        let given_up = waits.spawn(wait(0));
        tokio::task::yield_now().await;
        given_up.abort();
        for number in 1..=3 {
            waits.spawn(wait(number));
        }
        let mut released = Vec::new();
        while let Some(ended) = waits.join_next().await {
            // On a busy machine, the first may end before it is given up.
            released.extend(ended.ok().filter(|number| *number > 0));
        }
        assert_eq!(released, [1, 2, 3]);
        assert!(line.env.monotonic() - began >= line.delay);
    }

    #[tokio::test]
    async fn without_a_delay_there_is_no_line() {
        assert!(DelayLine::start(Duration::ZERO).await.unwrap().is_none());
    }
}
