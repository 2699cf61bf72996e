//! Simulates the network between the program and its engines by delays.

use std::{io, time::Duration};

use anyhow::Result;
use serializer::local::Engines;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
};
use webhook_serializer::{aws::Account, time::Env};

#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Distance {
    /// Add this much to each request's round trip to the store
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = humantime::parse_duration)]
    store_delay: Duration,
    /// Add this much to each request's round trip to the queue
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = humantime::parse_duration)]
    queue_delay: Duration,
}

impl Distance {
    /// Returns an account whose clients reach `engines` with these delays.
    pub(crate) async fn account(self, engines: &Engines) -> Result<Account> {
        let store = relay(engines.dynamodb_url(), self.store_delay).await?;
        let queue = relay(engines.queue_endpoint(), self.queue_delay).await?;
        Ok(Account::local(store, queue))
    }
}

/// Starts a relay to `url` that adds `round_trip` to each exchange. Returns the relay's URL.
async fn relay(url: String, round_trip: Duration) -> Result<String> {
    if round_trip.is_zero() {
        return Ok(url);
    }
    let target = url.trim_start_matches("http://").to_owned();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(connect(near, target.clone(), round_trip / 2));
        }
    });
    Ok(format!("http://{address}"))
}

async fn connect(near: TcpStream, target: String, delay: Duration) -> io::Result<((), ())> {
    let far = TcpStream::connect(target).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_read, near_write) = near.into_split();
    let (far_read, far_write) = far.into_split();
    tokio::try_join!(carry(near_read, far_write, delay), carry(far_read, near_write, delay))
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration) -> io::Result<()> {
    let env = Env::system();
    let (sender, mut chunks) = mpsc::unbounded_channel();
    let read = async {
        let sender = sender;
        loop {
            let mut chunk = Vec::with_capacity(64 * 1024);
            if from.read_buf(&mut chunk).await? == 0 {
                return io::Result::Ok(());
            }
            // The receiver lives as long as this future, which is polled together with it.
            let _ = sender.send((env.monotonic() + delay, chunk));
        }
    };
    let write = async {
        while let Some((due, chunk)) = chunks.recv().await {
            env.sleep(due.saturating_sub(env.monotonic())).await;
            to.write_all(&chunk).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(drop)
}
