//! A worker that ignores its token: the negative control of this ring. It goes
//! by its lease long after others saw it expire, and what its handlers commit it
//! writes even where the settle beside it was refused.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use lambda_runtime::LambdaEvent;
use webhook_serializer::{
    aws::{Account, Parts},
    config::{Environment, StoreConfig, WorkerConfig},
    engine::{
        drain::{DrainSettings, Drainer},
        store::Store,
    },
    functions::worker::{SqsEvent, Worker},
    handler::Handler,
    protocol::{
        format::attribute as a,
        state::HolderInfo,
        table::{
            Action, Change, Condition, Key, Page, Range, Row, Scanned, Segment, Table, TableError, TableName,
            Transacted, Write, Written,
        },
    },
    sources::Sources,
    telemetry::Quiet,
    time::{Surroundings, Timestamp},
};

/// How long it believes in a lease.
const BELIEF: Duration = Duration::from_secs(60);

/// As `worker::run`, but for the store.
pub(super) fn run(handler: impl Handler) -> Result<(), lambda_runtime::Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = StoreConfig::read(&Environment)?;
        let document = std::env::var("SOURCES_FILE")?;
        let sources = Arc::new(Sources::parse(&std::fs::read_to_string(document)?)?);
        let lease = WorkerConfig::read(&Environment, &sources)?.lease;
        let surroundings = Surroundings::system();
        let Parts { store, waker } = Parts::connect(&Account::from_env()?, &config, &surroundings, None);
        let table = Careless { inner: store.table().clone(), lease, surroundings: surroundings.clone() };
        let store = Store::new(Arc::new(table), surroundings.clone());
        let settings = DrainSettings { lease: BELIEF, retention: config.retention, ..DrainSettings::default() };
        let info = HolderInfo::new("a careless worker");
        let drainer = Drainer::new(store, waker, sources, handler, settings, info, Arc::new(Quiet));
        let worker = Worker::new(drainer, surroundings);
        lambda_runtime::run(lambda_runtime::service_fn(|event: LambdaEvent<SqsEvent>| {
            let worker = &worker;
            let deadline = Timestamp::from_millis(event.context.deadline);
            async move { Ok::<_, lambda_runtime::Error>(worker.attend(event.payload, deadline).await) }
        }))
        .await
    })
}

struct Careless {
    inner: Arc<dyn Table>,
    /// How long its leases really are.
    lease: Duration,
    surroundings: Surroundings,
}

impl Careless {
    /// The same, with a lease as long as everybody's.
    fn shortened(&self, write: &Write) -> Write {
        let mut write = write.clone();
        let until = self.surroundings.now() + self.lease;
        if write.key.table == TableName::Entities
            && let Action::Update(changes) = &mut write.action
        {
            for change in changes {
                if matches!(change, Change::Set(name, _) if name == a::EXPIRES_AT) {
                    *change = Change::set(a::EXPIRES_AT, until.as_millis());
                }
            }
        }
        write
    }

    async fn commit(&self, writes: &[Write], token: &str) -> Result<Transacted, TableError> {
        let sent: Vec<Write> = writes.iter().map(|write| self.shortened(write)).collect();
        let done = self.inner.transact(&sent, token).await?;
        if matches!(&done, Transacted::Refused(refusals) if refusals.first().is_some_and(Option::is_some)) {
            for own in sent.into_iter().filter(|write| matches!(write.key.table, TableName::Named(_))) {
                self.inner.write(&own.when(Condition::Always)).await?;
            }
        }
        Ok(done)
    }
}

impl Table for Careless {
    fn write<'a>(&'a self, write: &'a Write) -> BoxFuture<'a, Result<Written, TableError>> {
        Box::pin(async move { self.inner.write(&self.shortened(write)).await })
    }

    fn transact<'a>(&'a self, writes: &'a [Write], token: &'a str) -> BoxFuture<'a, Result<Transacted, TableError>> {
        Box::pin(self.commit(writes, token))
    }

    fn get<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Result<Option<Row>, TableError>> {
        self.inner.get(key)
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> BoxFuture<'a, Result<Vec<Row>, TableError>> {
        self.inner.get_many(keys)
    }

    fn query<'a>(&'a self, range: &'a Range) -> BoxFuture<'a, Result<Page, TableError>> {
        self.inner.query(range)
    }

    fn scan<'a>(&'a self, table: &'a TableName, segment: &'a Segment) -> BoxFuture<'a, Result<Scanned, TableError>> {
        self.inner.scan(table, segment)
    }
}
