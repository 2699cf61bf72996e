//! Simulates the network between the program and its engines by delays.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use figures::sheet::{Sheet, SheetCell};
use serializer::local::Engines;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};
use webhook_serializer::{
    aws::{Account, Parts},
    protocol::entity::EntityKey,
    time::Env,
};

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

/// The requests that the control sends with and without the relay.
const CONTROL_REQUESTS: usize = 200;
/// The exchanges with and without a relay that measure its excess.
const EXCHANGES: usize = 30;

impl Distance {
    /// Returns an account whose clients reach `engines` with these delays.
    pub(crate) async fn account(self, engines: &Engines) -> Result<Account> {
        let store = relay(engines.dynamodb_url(), self.store_delay).await?;
        let queue = relay(engines.queue_endpoint(), self.queue_delay).await?;
        Ok(Account::local(store, queue))
    }

    pub(crate) fn is_zero(self) -> bool {
        self.store_delay.is_zero() && self.queue_delay.is_zero()
    }

    /// Measures what the relays add to a request: sends the same request with and without the relay, by turns.
    pub(crate) async fn control(self) -> Result<Sheet> {
        let engines = Engines::start(None).await?;
        let accounts = [engines.account(), self.account(&engines).await?];
        let config = engines.config();
        let env = Env::system();
        let key = EntityKey::parse("bench/nothing")?;
        let parts = accounts.each_ref().map(|account| Parts::connect(account, &config, &env, None));
        let queues = accounts.each_ref().map(|account| account.sqs(&account.http_client()));
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

/// Starts a relay to `url` that adds `round_trip` to each exchange. Returns the relay's URL.
async fn relay(url: String, round_trip: Duration) -> Result<String> {
    if round_trip.is_zero() {
        return Ok(url);
    }
    let target = url.trim_start_matches("http://").to_owned();
    let delay = round_trip.saturating_sub(excess(round_trip).await?);
    Ok(format!("http://{}", listen(target, delay).await?))
}

/// Measures by how much a relay's delay exceeds `round_trip`, because of the relay's own connections and the machine's
/// time to wake a thread.
async fn excess(round_trip: Duration) -> Result<Duration> {
    let env = Env::system();
    let echo = TcpListener::bind(("127.0.0.1", 0)).await?;
    let direct = echo.local_addr()?;
    let echoes = tokio::spawn(async move {
        while let Ok((mut stream, _)) = echo.accept().await {
            tokio::spawn(async move {
                stream.set_nodelay(true)?;
                let (mut from, mut to) = stream.split();
                tokio::io::copy(&mut from, &mut to).await
            });
        }
    });
    let relayed = listen(direct.to_string(), round_trip).await?;
    let mut sides = [TcpStream::connect(direct).await?, TcpStream::connect(relayed).await?];
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..EXCHANGES {
        for (stream, times) in sides.iter_mut().zip(&mut times) {
            let began = env.monotonic();
            let mut bytes = [0; 256];
            stream.write_all(&bytes).await?;
            stream.read_exact(&mut bytes).await?;
            times.push(env.monotonic() - began);
        }
    }
    let [direct, relayed] = times.map(median);
    echoes.abort();
    Ok(relayed.saturating_sub(direct).saturating_sub(round_trip))
}

/// Starts a relay to `target` that adds `round_trip` or a little more to each exchange. Returns the relay's address.
async fn listen(target: String, round_trip: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let timer = Timer::new()?;
    let (chunks, due) = mpsc::unbounded_channel();
    let line = DelayLine { delay: round_trip / 2, env: Env::system(), chunks };
    tokio::spawn(deliver(due, timer, line.env.clone()));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(connect(near, target.clone(), line.clone()));
        }
    });
    Ok(address)
}

async fn connect(near: TcpStream, target: String, line: DelayLine) -> io::Result<((), ())> {
    let far = TcpStream::connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::try_join!(line.carry(near_read, far_write), line.carry(far_read, near_write))
}

/// The way through a relay, which all its connections share. Each chunk of bytes takes the same time, so the chunks are
/// due in the order in which they come, and one timer is enough. With a timer for each connection, relays took more
/// processor time than the engines. A peer that reads nothing would stop all connections.
#[derive(Clone)]
struct DelayLine {
    delay: Duration,
    env: Env,
    chunks: mpsc::UnboundedSender<DelayedChunk>,
}

struct DelayedChunk {
    due: Duration,
    bytes: Vec<u8>,
    /// The last chunk of a connection's side closes it.
    to: Arc<OwnedWriteHalf>,
}

impl DelayLine {
    async fn carry(&self, mut from: OwnedReadHalf, to: OwnedWriteHalf) -> io::Result<()> {
        let to = Arc::new(to);
        loop {
            let mut bytes = Vec::with_capacity(8 * 1024);
            let is_end = from.read_buf(&mut bytes).await? == 0;
            let chunk = DelayedChunk { due: self.env.monotonic() + self.delay, bytes, to: to.clone() };
            if self.chunks.send(chunk).is_err() || is_end {
                return Ok(());
            }
        }
    }
}

async fn deliver(mut chunks: mpsc::UnboundedReceiver<DelayedChunk>, timer: Timer, env: Env) {
    while let Some(DelayedChunk { due, bytes, to }) = chunks.recv().await {
        timer.wait(due.saturating_sub(env.monotonic())).await.expect("the timer runs");
        // A side that was closed gets no more.
        let _ = write_all(&to, &bytes).await;
    }
}

async fn write_all(to: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
    use super::*;

    #[tokio::test]
    async fn relay_keeps_bytes_in_order_until_both_sides_end() {
        let server = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let address = relay(url, Duration::from_micros(200)).await.unwrap();
        let served = tokio::spawn(async move {
            for _ in 0..2 {
                let (mut stream, _) = server.accept().await.unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).await.unwrap();
                // The first client has left.
                let _ = stream.write_all(&received).await;
            }
        });
        let address = address.trim_start_matches("http://");
        let mut leaving = TcpStream::connect(address).await.unwrap();
        leaving.write_all(b"gone").await.unwrap();
        drop(leaving);
        let mut client = TcpStream::connect(address).await.unwrap();
        let sent: Vec<u8> = (0..=255).cycle().take(300_000).collect();
        for chunk in sent.chunks(10_000) {
            client.write_all(chunk).await.unwrap();
        }
        client.shutdown().await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer == sent, "{} bytes of {}", answer.len(), sent.len());
        served.await.unwrap();
    }

    #[tokio::test]
    async fn without_a_delay_there_is_no_relay() {
        let url = "http://127.0.0.1:1".to_owned();
        assert_eq!(relay(url.clone(), Duration::ZERO).await.unwrap(), url);
    }
}
