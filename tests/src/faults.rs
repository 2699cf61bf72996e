//! A store and a queue that fail when a test tells them to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use webhook_serializer::{
    engine::queue::{Message, Queue, QueueError},
    protocol::table::{Table, TableError, Transacted, Write, Written},
    time::Env,
};

use crate::forwarding::{Forwarding, Layer, TableReply, TableRequest};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    None,
    /// Refuses the call with this error.
    Before(TableError),
    /// Refuses the call with this error, after this time.
    SlowBefore(Duration, TableError),
    /// Does the call and loses its reply.
    ReplyLost,
    /// Does nothing and never answers.
    Silent,
    /// Does the call and never answers.
    SilentAfter,
    Slow(Duration),
    /// Does nothing and reports success.
    Forgotten,
    /// Never answers; the write lands after this time.
    Late(Duration),
}

#[derive(Debug, Clone, Copy)]
pub struct TableCall<'a> {
    /// The request's number among all requests, counted from 1.
    pub request: u64,
    /// The request's number among the writing requests, counted from 1; 0 for a read.
    pub write: u64,
    /// The request's number among the reading requests, counted from 1; 0 for a write.
    pub read: u64,
    pub writes: &'a [Write],
}

pub type FaultPlan = dyn Fn(&TableCall<'_>) -> Fault + Send + Sync;

pub type FaultyTable = Forwarding<Faults>;

pub struct Faults {
    env: Env,
    plan: Box<FaultPlan>,
    requests: AtomicU64,
    writes: AtomicU64,
    reads: AtomicU64,
    late: Arc<Late>,
}

#[derive(Debug, Default)]
struct Late {
    landed: AtomicU64,
    refused: AtomicU64,
}

impl FaultyTable {
    pub fn new(
        inner: Arc<dyn Table>,
        env: &Env,
        plan: impl Fn(&TableCall<'_>) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let (requests, writes, reads, late) = Default::default();
        let env = env.clone();
        let plan = Box::new(plan);
        Self::through(Faults { env, plan, requests, writes, reads, late }, inner)
    }
}

impl Faults {
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub fn writes(&self) -> u64 {
        self.writes.load(Relaxed)
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// Returns how many late writes landed, and how many were refused.
    pub fn late(&self) -> (u64, u64) {
        (self.late.landed.load(Relaxed), self.late.refused.load(Relaxed))
    }

    fn arrive(&self, inner: &Arc<dyn Table>, after: Duration, request: TableRequest<'_>) {
        let inner = inner.clone();
        let late = self.late.clone();
        let writes = request.writes().to_vec();
        let token = if let TableRequest::Transact(_, token) = request { Some(token.to_owned()) } else { None };
        let wait = self.env.sleep(after);
        tokio::spawn(async move {
            wait.await;
            let landed = match (token, &*writes) {
                (Some(token), _) => inner.transact(&writes, &token).await == Ok(Transacted::Landed),
                (None, [write]) => matches!(inner.write(write).await, Ok(Written::Landed(_))),
                _ => unreachable!("several writes are a transaction"),
            };
            if landed { &late.landed } else { &late.refused }.fetch_add(1, Relaxed);
        });
    }
}

impl Layer for Faults {
    async fn call(&self, inner: &Arc<dyn Table>, request: TableRequest<'_>) -> Result<TableReply, TableError> {
        let number = self.requests.fetch_add(1, Relaxed) + 1;
        let writes = request.writes();
        let (write, read) = match writes {
            [] => (0, self.reads.fetch_add(1, Relaxed) + 1),
            _ => (self.writes.fetch_add(1, Relaxed) + 1, 0),
        };
        let act = request.of(inner);
        match (self.plan)(&TableCall { request: number, write, read, writes }) {
            Fault::None => act.await,
            Fault::Before(error) => Err(error),
            Fault::SlowBefore(time, error) => {
                self.env.sleep(time).await;
                Err(error)
            }
            Fault::ReplyLost => {
                act.await?;
                Err(TableError::Unknown("the reply was lost".into()))
            }
            Fault::Silent => std::future::pending().await,
            Fault::SilentAfter => {
                act.await?;
                std::future::pending().await
            }
            Fault::Slow(time) => {
                self.env.sleep(time).await;
                act.await
            }
            Fault::Forgotten => match request {
                TableRequest::Write(_) => Ok(TableReply::Written(Written::Landed(None))),
                TableRequest::Transact(..) => Ok(TableReply::Transacted(Transacted::Landed)),
                _ => Err(TableError::Throttled),
            },
            Fault::Late(after) => {
                self.arrive(inner, after, request);
                std::future::pending().await
            }
        }
    }
}

/// A queue that fails as its plan says. The plan gets the number of each send, counted from 1.
pub struct FaultyQueue {
    inner: Arc<dyn Queue>,
    env: Env,
    plan: Box<dyn Fn(u64) -> Fault + Send + Sync>,
    copied: u64,
    sends: AtomicU64,
}

impl FaultyQueue {
    pub fn new(inner: Arc<dyn Queue>, env: &Env, plan: impl Fn(u64) -> Fault + Send + Sync + 'static) -> Self {
        Self { inner, env: env.clone(), plan: Box::new(plan), copied: 0, sends: AtomicU64::new(0) }
    }

    /// Creates a queue that sends each of its first `first` messages twice. If it also copied all requeued
    /// messages, a run on a slow machine would never end.
    pub fn copying(inner: Arc<dyn Queue>, env: &Env, first: u64) -> Self {
        Self { copied: first, ..Self::new(inner, env, |_| Fault::None) }
    }

    pub fn sends(&self) -> u64 {
        self.sends.load(Relaxed)
    }

    async fn send_once(&self, message: &Message, delay: Duration) -> Result<(), QueueError> {
        let lost = || QueueError::Unavailable("the reply was lost".into());
        let number = self.sends.fetch_add(1, Relaxed) + 1;
        match (self.plan)(number) {
            Fault::None => {
                if number <= self.copied {
                    self.inner.send(message, delay).await?;
                }
                self.inner.send(message, delay).await
            }
            Fault::Before(error) => Err(QueueError::Unavailable(error.to_string())),
            Fault::SlowBefore(time, error) => {
                self.env.sleep(time).await;
                Err(QueueError::Unavailable(error.to_string()))
            }
            Fault::ReplyLost => self.inner.send(message, delay).await.and_then(|()| Err(lost())),
            Fault::Silent => std::future::pending().await,
            Fault::SilentAfter => {
                self.inner.send(message, delay).await?;
                std::future::pending().await
            }
            Fault::Slow(time) => {
                self.env.sleep(time).await;
                self.inner.send(message, delay).await
            }
            Fault::Forgotten => Ok(()),
            Fault::Late(after) => self.inner.send(message, delay + after).await.and_then(|()| Err(lost())),
        }
    }
}

impl Queue for FaultyQueue {
    fn send<'a>(&'a self, message: &'a Message, delay: Duration) -> BoxFuture<'a, Result<(), QueueError>> {
        Box::pin(self.send_once(message, delay))
    }
}
