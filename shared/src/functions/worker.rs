//! The worker function, which drains the inboxes of the orders in a batch of wake-ups, in parallel.
//!
//! All wake-ups of one order lead to a single drain. The batch also contains deferred deliveries, which the
//! worker appends. The answer tells SQS which messages to deliver again.

pub mod batch;
mod deferred;
mod sqs;
mod visibility;

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::{
    aws::{
        Account, Http,
        boot::{Deployment, StartConfig},
    },
    config::{Environment, InvalidConfig, SourcesOrigin, WorkerConfig, deadline, instance_name},
    engine::{
        drain::{Acknowledgement, Drainer, InFlight, SuspectGate},
        queue::Visibility,
    },
    handler::Handler,
    handlers::{self, Handlers, fan_out::FanOut, forward::Forward, invoke::Invoke, log::Log},
    protocol::{entity::EntityKey, state::HolderInfo},
    sources::{FAN_OUT, LiveSources, Sources, deliver::Deliver},
    telemetry::Event,
    time::{Env, Timestamp},
    traces,
};
use batch::Batch;
use futures_util::future::{Either, join_all, select};
use lambda_runtime::{Error, Runtime, tower::util::ThenLayer};
use visibility::VisibilityExtension;

pub use super::sqs::{BatchResponse, Failure};
pub use sqs::{Attributes, SqsEvent, SqsRecord};

#[derive(Clone)]
pub struct Worker {
    drainer: Drainer,
    queue: Arc<dyn Visibility>,
    env: Env,
    throttled: deferred::Throttled,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("drainer", &self.drainer).finish_non_exhaustive()
    }
}

impl Worker {
    pub fn new(drainer: Drainer, queue: Arc<dyn Visibility>, env: Env) -> Self {
        Self { drainer, queue, env, throttled: deferred::Throttled::default() }
    }

    pub async fn process(&self, event: SqsEvent, deadline: Timestamp) -> BatchResponse {
        self.drainer.sources().beside(self.drain(event, deadline)).await
    }

    /// Stops starting handlers. From now on, this worker hands waiting deliveries over to other workers, and counts no
    /// attempt.
    pub fn close(&self) {
        self.drainer.threads().close();
    }

    /// Returns whether this process should end before the next batch, so that Lambda starts another one. This is
    /// so after a call of [`close`](Self::close), or if abandoned handlers block too many threads. Such a
    /// process starts no handler: until it ends, it hands over every delivery without counting an attempt.
    pub async fn is_spent(&self) -> bool {
        let threads = self.drainer.threads();
        if threads.are_closed() {
            return true;
        }
        let is_spent = threads.stay_spent(&self.env).await;
        if is_spent {
            self.drainer.observer().observe(&Event::ThreadsLost { lost: threads.lost(), is_end: true });
        }
        is_spent
    }

    async fn drain(&self, event: SqsEvent, deadline: Timestamp) -> BatchResponse {
        let time = deadline.since(self.env.machine_now());
        let deadline = self.env.monotonic() + time;
        let received = event.records.iter().filter(|record| !record.receipt_handle.is_empty());
        let receipts: BTreeMap<_, _> =
            received.map(|record| (record.message_id.clone(), record.receipt_handle.clone())).collect();
        let all: Vec<String> = receipts.values().cloned().collect();
        let queue = &self.queue;
        let env = &self.env;
        let visibility = VisibilityExtension { queue, env, lease: self.drainer.lease(), receipts: Mutex::new(all) };
        let batch = Batch::sort(event.records.into_iter().map(Into::into));
        let in_flight = InFlight::new(&self.env, !receipts.is_empty());
        for id in batch.unreadable() {
            self.drainer.observer().observe(&Event::NoWakeUp { message_id: id });
        }
        for (id, reason) in batch.undeliverable() {
            self.drainer.observer().observe(&Event::UnreadableDelivery { message_id: id, reason });
        }
        let orders = batch.orders(self.env.now());
        let gate = SuspectGate::new(orders.len());
        // Messages of a drain that does not return in time are kept, so that the answer for
        // the other messages does not wait.
        let limit = time.saturating_sub(TIME_TO_ANSWER);
        let drains = orders.iter().map(async |order| {
            let drain = self.drainer.process_among(order, deadline, &gate, &in_flight);
            let acknowledgement = self.env.within(limit, drain).await.unwrap_or(Acknowledgement::Keep);
            if acknowledgement == Acknowledgement::Keep {
                // Give these messages back at once: the rest of the batch may take long.
                let kept: Vec<String> = batch.ids(&order.entity).filter_map(|id| receipts.get(id).cloned()).collect();
                self.env.within(TIME_TO_ANSWER / 2, visibility.give_back(&kept)).await;
            }
            (order.entity.clone(), acknowledgement)
        });
        let appended = async {
            let kept = deferred::append_all(&self.drainer, &self.throttled, &batch, limit).await;
            let receipts: Vec<String> = kept.iter().filter_map(|id| receipts.get(id).cloned()).collect();
            self.env.within(TIME_TO_ANSWER / 2, visibility.give_back(&receipts)).await;
            kept
        };
        let both = async {
            let done = tokio::join!(join_all(drains), appended);
            self.env.within(TIME_TO_ANSWER / 2, in_flight.first_answer()).await;
            done
        };
        let (acknowledgements, kept) = match select(pin!(both), pin!(visibility.extend(&in_flight))).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => match never {},
        };
        let acknowledgements: BTreeMap<EntityKey, _> = acknowledgements.into_iter().collect();
        let lost = self.drainer.threads().lost();
        if lost > 0 {
            self.drainer.observer().observe(&Event::ThreadsLost { lost, is_end: false });
        }
        BatchResponse::failed(batch.failures(&acknowledgements).into_iter().chain(kept))
    }
}

/// The part of an invocation's time that is reserved for the answer. Without an answer in time, Lambda stops the
/// function, and SQS delivers the whole batch again.
const TIME_TO_ANSWER: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
#[error("handlers that do not return occupy too many threads")]
struct ThreadsExhausted;

/// Checks that `handler` accepts the handler name of every source, and can take several deliveries at once where a
/// source has `deliver = { up_to = … }`. The error names the first source that fails this check.
pub fn check_handlers(sources: &Sources, handler: &impl Handler) -> Result<(), String> {
    for source in sources.iter() {
        let name = &source.handler;
        if !handler.answers_to(name) {
            return Err(format!("source `{}`: {}", source.name, handlers::unknown(name, &handler.names())));
        }
        if matches!(source.deliver, Deliver::UpTo(_)) && !handler.handles_all(name) {
            return Err(format!(
                "source `{}`: the handler `{name}` takes one delivery at a time: remove `deliver`, set it to \
                 \"latest\", or implement `handle_all`",
                source.name
            ));
        }
    }
    Ok(())
}

/// Runs the worker function in Lambda with `handler`.
///
/// Returns without an error if handlers have blocked too many threads for good. `main` should
/// then return, so that Lambda starts another process.
///
/// # Errors
///
/// The configuration is invalid, or Lambda's runtime API cannot be reached.
pub fn run(handler: impl Handler) -> Result<(), Error> {
    run_with(|_| Ok(handler))
}

/// The connected parts of a worker, from which [`run_with`] lets you create a handler.
#[derive(Debug)]
pub struct Setup {
    deployment: Deployment,
    sources: LiveSources,
    account: Account,
    http: Http,
    env: Env,
}

impl Setup {
    /// Returns the deployment that this worker is connected to.
    pub fn deployment(&self) -> &Deployment {
        &self.deployment
    }

    /// Returns the built-in handlers `log`, `fan-out`, `forward` and `invoke`. Call [`Handlers::with`] to add
    /// your own.
    ///
    /// # Errors
    ///
    /// `FORWARD_CA_BUNDLE` does not name a file of valid certificates.
    pub fn handlers(&self) -> Result<Handlers, InvalidConfig> {
        let Self { sources, account, http, env, deployment } = self;
        Ok(Handlers::new()
            .with("log", Log)
            .with(FAN_OUT, FanOut::new(sources, deployment.inbox()))
            .with("forward", Forward::configured(sources, &Environment)?)
            .with("invoke", Invoke::new(sources, account, http, env)))
    }
}

/// Runs the worker function in Lambda with the handler that `make` creates. See [`run`].
///
/// # Errors
///
/// Those of [`run`] and of `make`.
pub fn run_with<H: Handler>(make: impl FnOnce(&Setup) -> Result<H, Error>) -> Result<(), Error> {
    super::start(Box::pin(async {
        let start = StartConfig::read(&Environment)?;
        let log = super::log(&start.env);
        super::trace(&start.env);
        let sources = start.warm_and_open(SourcesOrigin::read(&Environment)?, log.clone()).await?;
        let config = WorkerConfig::read(&Environment, &sources.current())?;
        let (account, http) = start.account_and_http();
        let env = start.env.clone();
        let setup = Setup { deployment: start.connect(log.clone()), sources, account, http, env };
        let handler = Arc::new(make(&setup)?);
        let Setup { deployment: Deployment { parts, .. }, sources, .. } = setup;
        let handlers = handler.clone();
        // A newer version of the sources must fit this worker too.
        sources.demand(move |sources| {
            WorkerConfig::read(&Environment, sources).map_err(|error| error.to_string())?;
            check_handlers(sources, &handlers)
        })?;
        let settings = config.drain_settings(&start.config);
        let info = HolderInfo::new(&instance_name(&Environment));
        let drainer = Drainer::new(parts.store, parts.waker, sources, handler, settings, info, log.clone());
        let worker = Worker::new(drainer, parts.queue, start.env.clone());
        let answered = Runtime::new(lambda_runtime::service_fn(|event: lambda_runtime::LambdaEvent<SqsEvent>| {
            let worker = &worker;
            let log = &log;
            let given = Timestamp::from_millis(event.context.deadline);
            let deadline = deadline(given, start.env.machine_now(), config.function_timeout);
            async move {
                let response = super::logged(log, &event.context, worker.process(event.payload, deadline)).await;
                Ok::<_, Error>(response)
            }
        }));
        // This runs between the answer to a batch and the request for the next one. If the
        // process ended with an unanswered batch, its messages would stay invisible until
        // their visibility timeout.
        let runtime = answered.layer(ThenLayer::new(|posted: Result<(), Error>| async {
            posted?;
            traces::flush().await;
            if worker.is_spent().await { Err(ThreadsExhausted.into()) } else { Ok(()) }
        }));
        match runtime.run().await {
            Err(reason) if reason.is::<ThreadsExhausted>() => Ok(()),
            ended => ended,
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        handler::{Context, Deliveries, HandlerError, Outcome},
        protocol::delivery::Delivery,
    };

    struct Either;

    impl Handler for Either {
        async fn handle(&self, _: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
            Ok(Outcome::Done)
        }

        async fn handle_all(&self, _: Deliveries, _: &Context) -> Result<Outcome, HandlerError> {
            Ok(Outcome::Done)
        }

        fn answers_to(&self, name: &str) -> bool {
            ["one", "many"].contains(&name)
        }

        fn handles_all(&self, name: &str) -> bool {
            name == "many"
        }
    }

    #[test]
    fn source_with_groups_needs_handler_that_accepts_groups() {
        let check = |options: &str| {
            let sources = Sources::parse(&format!("[sources.shop]\nprovider = 'shopify'\n{options}\n")).unwrap();
            let handlers = Handlers::new().with("one", Either).with("many", Either);
            [check_handlers(&sources, &Either), check_handlers(&sources, &handlers)]
        };
        let fine = [Ok(()), Ok(())];
        assert_eq!(check("handler = 'one'"), fine);
        assert_eq!(check("handler = 'one'\ndeliver = 'latest'"), fine);
        assert_eq!(check("handler = 'many'\ndeliver = { up_to = 3 }"), fine);
        for refused in check("handler = 'one'\ndeliver = { up_to = 3 }") {
            assert!(refused.unwrap_err().contains("`one` takes one delivery at a time: remove `deliver`"));
        }
        let [bare, registry] = check("handler = 'ones'").map(Result::unwrap_err);
        assert_eq!(bare, "source `shop`: this worker has no handler `ones`");
        assert_eq!(
            registry,
            "source `shop`: this worker has no handler `ones` (did you mean `one`?); its handlers are many, one"
        );
    }

    fn setup(handler: &str) -> Setup {
        let variables: &[(&str, &str)] = &[
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "a"),
            ("AWS_SECRET_ACCESS_KEY", "b"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("ENTITIES_TABLE", "entities"),
            ("INBOX_TABLE", "inbox"),
            ("QUEUE_URL", "http://127.0.0.1:1/000000000000/wake-ups"),
        ];
        let start = StartConfig::read(&variables).expect("all of it is set");
        let document = format!("[sources.shop]\nprovider = 'shopify'\nhandler = '{handler}'\n");
        let sources = Arc::new(Sources::parse(&document).unwrap());
        let (account, http) = start.account_and_http();
        let deployment = start.connect(Arc::new(crate::telemetry::TracingLog));
        let env = start.env;
        Setup { deployment, sources: sources.into(), account, http, env }
    }

    /// Promise: a deployment starts with the handler `log`.
    #[tokio::test]
    async fn worker_setup_includes_ready_made_handlers() {
        let handlers = setup("printer").handlers().unwrap();
        for (name, is_ready) in [("log", true), ("forward", true), ("invoke", true), ("printer", false)] {
            assert_eq!([handlers.answers_to(name), handlers.handles_all(name)], [is_ready; 2], "{name}");
        }
        assert!(!Log.answers_to("printer") && !Log.handles_all("printer"));
        assert!(handlers.with("printer", Either).answers_to("printer"));
    }
}
