//! A store whose replies have a `Date`, and processes whose clocks are wrong.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use webhook_serializer::{
    protocol::table::{Table, TableError},
    testing::clock::TokioClock,
    time::{Clock, Env, SeededRandom, Timestamp},
};

use crate::forwarding::{Forwarding, Layer, Reply, Request};

/// A clock that is ahead by a number of milliseconds, or behind if the number is negative.
#[derive(Debug, Clone, Copy)]
pub struct WrongClock(pub TokioClock, pub i64);

impl WrongClock {
    pub fn env(self, seed: u64) -> Env {
        Env::new(self, SeededRandom::new(seed))
    }
}

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.now().as_millis().saturating_add_signed(self.1))
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

pub type DatedTable = Forwarding<Dates>;

pub struct Dates {
    process: Env,
    clock: TokioClock,
}

impl DatedTable {
    /// Creates a table as one process reaches it. Its replies are dated by `clock`.
    pub fn new(inner: Arc<dyn Table>, process: &Env, clock: TokioClock) -> Self {
        Self::through(Dates { process: process.clone(), clock }, inner)
    }
}

impl Layer for Dates {
    async fn call(&self, inner: &Arc<dyn Table>, request: Request<'_>) -> Result<Reply, TableError> {
        let sent = self.process.monotonic();
        let reply = request.of(inner).await?;
        self.process.note_reply(Timestamp::from_secs(self.clock.now().as_millis() / 1000), sent);
        Ok(reply)
    }
}
