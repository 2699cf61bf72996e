//! A worker that ignores its token: the negative control of this ring. It goes
//! by its lease long after others saw it expire, and what its handlers commit it
//! writes even where the settle beside it was refused.

use std::{sync::Arc, time::Duration};

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
        table::{Action, Change, Condition, Table, TableError, TableName, Transacted, Write},
    },
    sources::Sources,
    telemetry::Quiet,
    time::{Env, Timestamp},
};

use crate::forwarding::{Forwarding, Layer, Reply, Request};

/// How long it believes in a lease.
const BELIEF: Duration = Duration::from_secs(60);

/// As `worker::run`, but for the store.
pub(super) fn run(handler: impl Handler) -> Result<(), lambda_runtime::Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let config = StoreConfig::read(&Environment)?;
        let document = std::env::var("SOURCES_FILE")?;
        let sources = Arc::new(Sources::parse(&std::fs::read_to_string(document)?)?);
        let lease = WorkerConfig::read(&Environment, &sources)?.lease;
        let env = Env::system();
        let Parts { store, waker, queue } = Parts::connect(&Account::from_env()?, &config, &env, None);
        let careless = Careless { lease, env: env.clone() };
        let table = Forwarding::through(careless, store.table().clone());
        let store = Store::new(Arc::new(table), env.clone());
        let settings = DrainSettings { lease: BELIEF, retention: config.retention, ..DrainSettings::default() };
        let info = HolderInfo::new("a careless worker");
        let drainer = Drainer::new(store, waker, sources, handler, settings, info, Arc::new(Quiet));
        let worker = Worker::new(drainer, queue, env);
        lambda_runtime::run(lambda_runtime::service_fn(|event: LambdaEvent<SqsEvent>| {
            let worker = &worker;
            let deadline = Timestamp::from_millis(event.context.deadline);
            async move { Ok::<_, lambda_runtime::Error>(worker.process(event.payload, deadline).await) }
        }))
        .await
    })
}

struct Careless {
    /// How long its leases really are.
    lease: Duration,
    env: Env,
}

impl Careless {
    /// The same, with a lease as long as everybody's.
    fn shortened(&self, write: &Write) -> Write {
        let mut write = write.clone();
        let until = self.env.now() + self.lease;
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
}

impl Layer for Careless {
    async fn call(&self, inner: &Arc<dyn Table>, request: Request<'_>) -> Result<Reply, TableError> {
        let sent: Vec<Write> = request.writes().iter().map(|write| self.shortened(write)).collect();
        match request {
            Request::Write(_) => Request::Write(&sent[0]).of(inner).await,
            Request::Transact(_, token) => {
                let done = inner.transact(&sent, token).await?;
                if matches!(&done, Transacted::Refused(refusals) if refusals.first().is_some_and(Option::is_some)) {
                    for own in sent.into_iter().filter(|write| matches!(write.key.table, TableName::Named(_))) {
                        inner.write(&own.when(Condition::Always)).await?;
                    }
                }
                Ok(Reply::Transacted(done))
            }
            read => read.of(inner).await,
        }
    }
}
