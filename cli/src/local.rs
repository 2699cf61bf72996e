//! Runs a deployment on this machine: an embedded DynamoDB and queue, the webhook endpoint, and workers. The functions
//! reach DynamoDB and the queue over loopback with AWS clients of their own. The workers share only the tables and the
//! queue.

pub mod demo;
mod endpoint;
mod engines;
mod event_source;
mod folder;
pub mod function_pool;
pub mod function_process;
pub mod handler_log;
pub mod indexes;
mod invoker;
pub mod queue;
pub mod runtime_api;
pub mod samples;
mod schedule;
pub mod sender;
mod source_queues;

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, anyhow};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use webhook_serializer::{
    alerts::DeploymentNaming,
    aws::Parts,
    config::{SourcesOrigin, StoreConfig},
    engine::{
        append::Inbox,
        drain::{DrainSettings, Drainer},
        sweep::mend_all,
    },
    functions::{
        ingest::{Ingest, keys::PublishedKeys},
        worker::Worker,
    },
    handler::Handler,
    protocol::{entity::SourceName, state::HolderInfo},
    sources::{LiveSources, QueueArn, Source},
    telemetry::Observer,
    time::Env,
};

use crate::{
    local::{queue::QueueFaults, samples::DevelopmentKeys},
    output::local_option,
};

pub use engines::{EnginePorts, Engines, MAX_RECEIVES, QUEUE, TOTALS_TABLE};
pub use event_source::{AtWork, BATCH, EventSource, GROWTH, LocalFunction};
pub use invoker::Invoker;
pub use schedule::OwnScheduler;
use schedule::ScheduledFunction;
pub use source_queues::{INGEST_TIMEOUT, SOURCE_VISIBILITY, local_queue_url};
use source_queues::{IngestFunction, SourceQueues};

/// The timeout of workers and schedulers. It is the template's default for a worker; the template's scheduler has 300
/// s.
pub const FUNCTION_TIMEOUT: Duration = Duration::from_secs(60);

/// The address that only programs on this machine reach.
pub const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub const DEFAULT_WORKERS: NonZeroUsize = NonZeroUsize::new(8).expect("it is not 0");

/// The largest number of batches that a worker in this process runs concurrently. With the default number of workers,
/// 500 orders with hanging handlers leave slots to other orders. In Lambda a worker runs one batch, because an idle
/// slot would cost money.
pub const SLOTS: usize = 80;

/// The queue's visibility timeout, which is longer than a function may run.
pub const VISIBILITY_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Debug, Clone)]
pub struct LocalOptions {
    pub data: Option<PathBuf>,
    /// The webhook endpoint's address. The engines always listen on 127.0.0.1.
    pub listen: SocketAddr,
    /// The port of the queues' HTTP interface; 0 takes a free one.
    pub queue_port: u16,
    /// Is given the source and the URL of each queue that is added during the run.
    pub queue_added: fn(&str, &str),
    pub workers: NonZeroUsize,
    pub sources: LiveSources,
    pub sources_file: Option<PathBuf>,
    pub drain: DrainSettings,
    pub scheduler: Option<OwnScheduler>,
    /// If true, messages carry their account's group, as with the template's parameter `FairQueue`.
    pub fair_queue: bool,
    /// If true, ingest accepts webhooks that are signed with the samples' private key, which everybody knows.
    pub samples: bool,
}

#[derive(Debug)]
pub struct LocalRun {
    pub engines: Engines,
    pub webhooks: SocketAddr,
    pub sources: LiveSources,
    drain: DrainSettings,
    workers: NonZeroUsize,
    slots: usize,
    observer: Arc<dyn Observer>,
    at_work: AtWork,
    functions: Vec<Arc<LocalFunction>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<Result<()>>,
}

/// Listens on `address`. If that fails because of the port, the error ends with `advice`.
pub(crate) async fn bind(address: SocketAddr, advice: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => anyhow!("port {} is taken; choose another {advice}", address.port()),
        _ if address.ip() == LOOPBACK => {
            anyhow!("nothing can listen on {address}: {error}; choose another port {advice}")
        }
        _ => anyhow!("nothing can listen on {address}: {error}; check --listen"),
    })
}

/// Returns the address at which a client on this machine reaches a listener: 127.0.0.1 if it listens on all addresses.
pub(crate) fn reached_at(listening: SocketAddr) -> SocketAddr {
    match listening.ip() {
        ip if ip.is_unspecified() => (LOOPBACK, listening.port()).into(),
        _ => listening,
    }
}

fn keys(samples: bool, env: Env) -> PublishedKeys {
    match samples {
        true => PublishedKeys::beside(env, Arc::new(DevelopmentKeys)),
        false => PublishedKeys::new(env),
    }
}

impl LocalRun {
    /// Starts the embedded DynamoDB and queue, the endpoint and the scheduler, but no workers.
    pub async fn start(mut options: LocalOptions, observer: Arc<dyn Observer>) -> Result<Self> {
        let own = options.scheduler.take();
        let samples = options.samples;
        let file = options.sources_file.take();
        let queue_added = options.queue_added;
        let (mut local, listener) = Self::start_engines(options, observer).await?;
        let env = Env::system();
        let retention = local.drain.retention;
        let inbox = local.inbox();
        let keys = keys(samples, env.clone());
        let ingest = Arc::new(Ingest::new(local.sources.clone(), inbox, env.clone()).with_keys(keys));
        local.feed_ingest(IngestFunction::Here(ingest.clone()), queue_added)?;
        let mut environment = environment(&local.engines, &local.drain);
        environment.extend(file.map(sources_variable));
        let until = stopped(local.stop.subscribe());
        local.tasks.spawn(endpoint::serve(listener, ingest, environment.clone(), until));
        let Parts { store, waker, queue } = local.engines.connect(&env, None);
        let function = match own {
            None => {
                let sources = local.sources.clone();
                let name = "the local run".to_owned();
                let option = local_option(&format!("http://{}", local.webhooks));
                let naming = DeploymentNaming { name, option };
                ScheduledFunction::here(store, waker, queue, retention, sources, local.observer.clone(), naming)?
            }
            Some(own) => ScheduledFunction::own(&own, environment).await?,
        };
        local.tasks.spawn(schedule::run(function, env, local.stop.subscribe()));
        Ok(local)
    }

    /// Starts the embedded DynamoDB and queue for functions that run elsewhere. `invoker` calls the functions for the
    /// queue and the schedule. The HTTP endpoint takes no webhooks. It serves only the functions' environment
    /// variables, under `GET /local`.
    pub async fn start_without_functions(
        options: LocalOptions,
        observer: Arc<dyn Observer>,
        invoker: Invoker,
    ) -> Result<Self> {
        let file = options.sources_file.clone();
        let queue_added = options.queue_added;
        let (mut local, listener) = Self::start_engines(options, observer).await?;
        let mut environment = environment(&local.engines, &local.drain);
        environment.extend(file.map(sources_variable));
        local.tasks.spawn(endpoint::serve_environment(listener, environment, stopped(local.stop.subscribe())));
        let stopping = local.stop.subscribe();
        local.tasks.spawn(schedule::run(ScheduledFunction::Invoked(invoker.clone()), Env::system(), stopping));
        local.feed_ingest(IngestFunction::Invoked(invoker.clone()), queue_added)?;
        local.feed(LocalFunction::Invoked(invoker));
        Ok(local)
    }

    async fn start_engines(options: LocalOptions, observer: Arc<dyn Observer>) -> Result<(Self, TcpListener)> {
        let ports = EnginePorts { queue: options.queue_port, ..EnginePorts::default() };
        let engines = Engines::start_at(options.data.as_deref(), QueueFaults::default(), ports).await?;
        let engines = engines.with_groups(options.fair_queue);
        mend_all(&engines.connect(&Env::system(), None).store).await?;
        let listener = bind(options.listen, "with --port").await?;
        let webhooks = reached_at(listener.local_addr()?);
        let LocalOptions { sources, drain, workers, .. } = options;
        let stop = watch::Sender::new(false);
        let tasks = JoinSet::new();
        let at_work = AtWork::default();
        let functions = Vec::new();
        let slots = 1;
        let local =
            Self { engines, webhooks, sources, drain, workers, slots, observer, at_work, functions, stop, tasks };
        Ok((local, listener))
    }

    /// Connects to the inbox, with new clients.
    pub fn inbox(&self) -> Inbox {
        let Parts { store, waker, .. } = self.engines.connect(&Env::system(), None);
        Inbox::new(store, waker, self.drain.retention, self.observer.clone())
    }

    /// Lets each worker of this process run up to `slots` batches concurrently. The default is one, as in Lambda.
    #[must_use]
    pub fn side_by_side(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Starts the workers. Each worker has its own clients, and its own handler from `make`.
    pub fn work<H: Handler>(&mut self, make: impl Fn(&Parts) -> H) -> Vec<AbortHandle> {
        let one = |number: usize| {
            let env = Env::system();
            let parts = self.engines.connect(&env, None);
            let handler = make(&parts);
            let info = HolderInfo::new(&format!("local worker {number}"));
            let drainer = Drainer::new(
                parts.store,
                parts.waker,
                self.sources.clone(),
                handler,
                self.drain.clone(),
                info,
                self.observer.clone(),
            );
            LocalFunction::Here(Box::new(Worker::new(drainer, parts.queue, env)))
        };
        let functions: Vec<LocalFunction> = (1..=self.workers.get()).map(one).collect();
        functions.into_iter().map(|function| self.feed(function)).collect()
    }

    /// Feeds `function` from the queue, as an event source mapping does. An abort of the returned task has the effect
    /// of a crash.
    pub fn feed(&mut self, function: LocalFunction) -> AbortHandle {
        let slots = if matches!(function, LocalFunction::Here(_)) { self.slots } else { 1 };
        let source = EventSource::new(&self.engines, function, FUNCTION_TIMEOUT)
            .side_by_side(slots)
            .noting(self.at_work.clone());
        self.functions.push(source.function());
        self.tasks.spawn(source.run(self.stop.subscribe()))
    }

    /// Creates the queues of the sources, and feeds ingest from them.
    fn feed_ingest(&mut self, ingest: IngestFunction, queue_added: fn(&str, &str)) -> Result<()> {
        let queues = SourceQueues::create(self.engines.queues().clone(), self.sources.clone(), ingest)?;
        let endpoint = self.engines.queue_endpoint();
        let added = move |source: &SourceName, queue: &QueueArn| {
            queue_added(source.as_str(), &local_queue_url(&endpoint, queue));
        };
        self.tasks.spawn(queues.run(added, self.stop.subscribe()));
        Ok(())
    }

    /// Returns each source that has a queue, and the queue's URL in this run.
    pub fn source_queues(&self) -> Vec<(String, String)> {
        let endpoint = self.engines.queue_endpoint();
        let url =
            |source: &Arc<Source>| Some((source.name.to_string(), local_queue_url(&endpoint, source.queue.as_ref()?)));
        self.sources.current().iter().filter_map(url).collect()
    }

    pub fn environment(&self, sources_file: &str) -> Vec<(String, String)> {
        let mut variables = environment(&self.engines, &self.drain);
        variables.push(sources_variable(sources_file.into()));
        variables
    }

    pub fn at_work(&self) -> AtWork {
        self.at_work.clone()
    }

    /// Stops the endpoint, the scheduler, and further handler starts in this process. Running handlers continue.
    /// Functions in other processes finish their batches.
    pub fn finish(&self) {
        self.functions.iter().for_each(|function| function.finish());
        self.stop.send_replace(true);
    }

    /// Waits for running handlers, then stops everything. Fails if a part of the deployment had failed before.
    pub async fn stop(mut self) -> Result<()> {
        self.finish();
        while let Some(ended) = self.tasks.join_next().await {
            match ended {
                Err(aborted) if aborted.is_cancelled() => {}
                ended => ended??,
            }
        }
        self.engines.stop().await
    }
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // An error means that the sender is gone.
    let _ = stopping.wait_for(|stop| *stop).await;
}

fn sources_variable(file: PathBuf) -> (String, String) {
    (SourcesOrigin::VARIABLE.to_owned(), SourcesOrigin::File(file).to_string())
}

fn environment(engines: &Engines, drain: &DrainSettings) -> Vec<(String, String)> {
    let StoreConfig { entities_table, inbox_table, queue_url, fair_queue, retention, .. } = engines.config();
    [
        ("AWS_ACCESS_KEY_ID", "local".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        // The AWS SDK for Python reads only this one.
        ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
        ("AWS_ENDPOINT_URL_DYNAMODB", engines.dynamodb_url()),
        ("AWS_ENDPOINT_URL_SQS", engines.queue_endpoint()),
        ("ENTITIES_TABLE", entities_table),
        ("INBOX_TABLE", inbox_table),
        ("TOTALS_TABLE", TOTALS_TABLE.to_owned()),
        ("QUEUE_URL", queue_url),
        ("FAIR_QUEUE", fair_queue.to_string()),
        ("RETENTION_DAYS", (retention.as_secs() / 86_400).max(1).to_string()),
        ("LEASE_SECONDS", drain.lease.as_secs().max(1).to_string()),
        ("FUNCTION_TIMEOUT_SECONDS", FUNCTION_TIMEOUT.as_secs().to_string()),
        ("VISIBILITY_TIMEOUT_SECONDS", VISIBILITY_TIMEOUT.as_secs().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{
        functions::ingest::HttpRequest,
        providers::{self, Keys, Unverified, Verified},
        sources::Sources,
        time::Timestamp,
    };

    use super::*;

    #[test]
    fn development_key_is_accepted_for_samples_only() {
        let sources = Sources::parse(crate::local::samples::SOURCES).expect("the samples' own");
        for event in [
            include_str!("../events/paypal-checkout-order-approved.json"),
            include_str!("../events/adobe-io-events-sales-order.json"),
            include_str!("../events/shipstation-v2-track.json"),
        ] {
            let event: HttpRequest = serde_json::from_str(event).expect("an event");
            let source = sources.get(event.source().expect("a webhook")).expect("it is configured");
            let headers = event.headers();
            let body = event.bytes().expect("a body");
            let verified = |keys: &dyn Keys| {
                let webhook = providers::Request { headers: &headers, body: &body };
                source.verify_with(webhook, keys, Timestamp::from_secs(1_767_900_000))
            };
            let of = |samples| keys(samples, Env::system());
            assert_eq!(verified(&of(true)), Ok(Verified::Delivery), "{}", source.name);
            assert!(matches!(verified(&of(false)), Err(Unverified::Unfetched(_))), "{}", source.name);
        }
    }
}
