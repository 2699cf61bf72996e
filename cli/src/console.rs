//! Shows and operates a deployment in the browser. The server listens on 127.0.0.1 or the
//! address in `--listen`, and uses the command's AWS credentials.

mod budget;
mod bulk;
mod frame;
mod guard;
mod live;
mod pages;
mod plot;
mod problem;
mod reading;
mod request;
mod sources;

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::task::AbortHandle;
use webhook_serializer::{
    aws::meter::Meter,
    engine::store::Store,
    operator::{Operator, OperatorError},
    protocol::{entity::SourceName, state::EntityState},
    time::Env,
};

use crate::{
    local::{bind, reached_at},
    view::{
        order_status::{KnownSources, SourceDelay, SourceDelays},
        recording::EventRecorder,
    },
};
use budget::Budget;
use bulk::Works;
use guard::Access;
use reading::SharedReadings;
use sources::LastSources;
pub use sources::SourcesReader;

#[derive(Debug, Clone)]
pub struct Watched {
    pub operator: Operator,
    pub store: Store,
    pub env: Env,
    /// The command-line options that name this deployment, such as ` --local` or ` --stack …`. Without such options,
    /// the text is empty.
    pub option: String,
    /// Whether the engines run on this machine, where reading costs nothing.
    pub is_local: bool,
    /// The connection for pages that refresh by themselves. `None` on this machine, where reading costs nothing.
    pub refreshes: Option<MeteredConnection>,
    pub name: String,
    pub sources: SourcesReader,
    /// The recorded events, if the deployment runs in this process. Otherwise lanes are drawn from the orders' rows.
    pub story: Option<EventRecorder>,
    pub by: String,
}

/// A connection with a meter that counts its reads.
#[derive(Debug, Clone)]
pub struct MeteredConnection {
    pub operator: Operator,
    pub store: Store,
    pub meter: Arc<Meter>,
}

/// A running console. Dropping this value stops the server.
#[derive(Debug)]
pub struct Console {
    pub address: SocketAddr,
    /// The URL to open, including the token.
    pub url: String,
    task: AbortHandle,
}

/// The state that all requests share. Opened and refreshed pages differ only in the connection in `watched`.
#[derive(Debug, Clone)]
struct ConsoleState {
    watched: Watched,
    access: Arc<Access>,
    budget: Arc<Budget>,
    readings: Arc<SharedReadings>,
    sources: Arc<LastSources>,
    /// A page reuses a read of the sources document for this time.
    keeps_sources: Duration,
    works: Arc<Works>,
    flashes: Arc<std::sync::Mutex<VecDeque<Flash>>>,
}

#[derive(Debug, Clone)]
struct Flash {
    id: String,
    sentence: String,
    is_good: bool,
}

const MAX_FLASHES: usize = 32;

/// Refreshed pages reuse a read of the sources document for this time.
const REFRESHED_SOURCES: Duration = Duration::from_secs(15);

/// The port that the links in the runbooks use.
const DEFAULT_PORT: u16 = 9001;

impl Console {
    /// Serves the console on the address `listen`. Without `port`, the console listens on `DEFAULT_PORT` or, if that
    /// port is taken, on any free port. Requests must name 127.0.0.1 or localhost as their host. `option` is that of the
    /// port, for errors.
    pub async fn start(watched: Watched, listen: IpAddr, port: Option<u16>, option: &str) -> Result<Self> {
        let advice = format!("with {option}");
        let bind = |port| bind((listen, port).into(), &advice);
        let listener = match port {
            Some(port) => bind(port).await?,
            None => match bind(DEFAULT_PORT).await {
                Ok(listener) => listener,
                Err(_) => bind(0).await?,
            },
        };
        let address = reached_at(listener.local_addr()?);
        let access = Access::new(address.port()).context("no random token could be drawn")?;
        let url = access.url();
        let budget = Budget::new(watched.refreshes.as_ref().map(|refreshes| refreshes.meter.clone()));
        let shared = ConsoleState {
            watched,
            access: Arc::new(access),
            budget: Arc::new(budget),
            readings: Arc::default(),
            sources: Arc::default(),
            keeps_sources: Duration::ZERO,
            works: Arc::default(),
            flashes: Arc::default(),
        };
        let router = pages::router(&shared);
        let task = tokio::spawn(async move { axum::serve(listener, router).await }).abort_handle();
        Ok(Self { address, url, task })
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // Pages with lanes keep their connections open, so the server would not end by itself.
        self.task.abort();
    }
}

impl ConsoleState {
    fn with_metered_connection(&self) -> Self {
        let mut shared = self.clone();
        if let Some(MeteredConnection { operator, store, .. }) = &self.watched.refreshes {
            shared.watched.operator = operator.clone();
            shared.watched.store = store.clone();
            shared.keeps_sources = REFRESHED_SOURCES;
        }
        shared
    }

    async fn known_sources(&self) -> KnownSources {
        self.sources.get(&self.watched.sources, self.keeps_sources, &self.watched.env).await
    }

    /// Reads what may delay orders.
    async fn delays(&self) -> Result<SourceDelays, OperatorError> {
        Ok(SourceDelays { sources: self.known_sources().await, outages: self.watched.operator.outages().await? })
    }

    /// Returns the delay of an order whose next delivery is of the source `name`. Outages that cannot be read count as
    /// ended.
    async fn delay(&self, name: &SourceName, state: &EntityState) -> Option<SourceDelay> {
        let sources = self.known_sources().await;
        if !matches!(sources, Ok(Some(_))) {
            return None;
        }
        let outages = self.watched.operator.outages().await.unwrap_or_default();
        SourceDelays { sources, outages }.of_order(name, state, self.watched.env.now())
    }

    /// The time between two refreshes of a page.
    fn again(&self) -> Duration {
        if self.watched.refreshes.is_none() { Duration::from_secs(1) } else { Duration::from_secs(5) }
    }

    fn flash(&self, sentence: String, is_good: bool) -> String {
        let id = self.watched.env.nonce().as_str().to_owned();
        let mut flashes = self.flashes.lock().expect("no one panics while holding this");
        flashes.push_back(Flash { id: id.clone(), sentence, is_good });
        while flashes.len() > MAX_FLASHES {
            flashes.pop_front();
        }
        id
    }

    fn take_flash(&self, id: &str) -> Option<Flash> {
        let mut flashes = self.flashes.lock().expect("no one panics while holding this");
        let at = flashes.iter().position(|flash| flash.id == id)?;
        flashes.remove(at)
    }
}
