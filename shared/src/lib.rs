//! Handles webhooks one order at a time, in sequence of arrival, on AWS Lambda,
//! DynamoDB and SQS.
//!
//! Each delivery is verified, stored in the inbox of the order that it is about, and
//! answered. A worker then takes a lease on the order and runs your [`Handler`] on its
//! deliveries, one after the other. Different orders run in parallel. Instead of an
//! order, the *entity* can be anything that a key names: a customer, an invoice, a
//! subscription.
//!
//! - **Writes that land exactly once.** What a handler returns in [`Outcome::commit`]
//!   is written in the transaction that settles its delivery. Other effects happen at
//!   least once; a receiver can refuse late ones by the [fencing token](Context::token).
//! - **Failures stay with their order.** A failing delivery is retried. After its last
//!   attempt it is parked, or its order is blocked. Other orders go on.
//! - **One lease for everything.** Requests, jobs and scripts take the same lease on an
//!   order, with [`Leases`] and `scheduler`.
//!
//! # Example
//!
//! A worker function that keeps each order's newest total:
//!
#![cfg_attr(feature = "worker", doc = "```no_run")]
#![cfg_attr(not(feature = "worker"), doc = "```ignore")]
//! use webhook_serializer::{Age, Context, Delivery, Handler, HandlerError, Key, Outcome, Row, Write, worker};
//!
//! struct Totals;
//!
//! impl Handler for Totals {
//!     async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
//!         // Providers may deliver events out of order.
//!         if delivery.age() == Age::Older {
//!             return Ok(Outcome::Done);
//!         }
//!         let order: serde_json::Value = delivery.json()?;
//!         let Some(total) = order["total_price"].as_str() else {
//!             return Ok(Outcome::Reject("the order has no total".into()));
//!         };
//!         let key = Key::named("totals", "order", delivery.entity().as_str());
//!         Ok(Outcome::commit([Write::put(key, Row::new().with("total", total))]))
//!     }
//! }
//!
//! fn main() -> Result<(), worker::Error> {
//!     worker::run(Totals)
//! }
//! ```
//!
//! The command `serializer`, of the package `webhook-serializer-cli`, runs this worker on
//! your machine, on embedded engines: `serializer local --worker target/debug/my-worker`.
//! The project's template deploys it.
//!
//! Code that runs outside a worker acquires an order's lease itself:
//!
#![cfg_attr(feature = "aws", doc = "```no_run")]
#![cfg_attr(not(feature = "aws"), doc = "```ignore")]
//! use std::convert::Infallible;
//! use webhook_serializer::{EntityKey, Leases, Terms};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let leases = Leases::from_env().await?;
//! let order = EntityKey::parse("shopify/order/450789469")?;
//! let change = async |_lease| Ok::<_, Infallible>("changed, while no worker had the order");
//! println!("{}", leases.run(&order, Terms::default(), change).await?);
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | handle deliveries | [`Handler`], which gets a [`Delivery`] and a [`Context`] and returns an [`Outcome`] |
//! | write exactly once | [`Outcome::commit`] with [`Write`], [`Change`] and [`Condition`] |
//! | handle several deliveries at once | [`Handler::handle_all`] |
//! | choose among several handlers by name | [`handlers::Handlers`] |
//! | hold an order's lease elsewhere | [`Leases`], [`Guard`] |
//! | append deliveries yourself | [`Deployment`], [`Inbox`], [`Incoming`] |
//! | run a function on a schedule | `scheduler`, with that feature |
//! | test a handler under faults | `testing`, with that feature |
//!
//! # Features
//!
//! | feature | adds | enables |
//! |---|---|---|
//! | `worker` (default) | the worker function | `aws`, `forward`, `invoke` |
//! | `verify` (default) | how each provider signs and what its webhooks are about | |
//! | `ingest` | the function that receives webhooks | `aws`, `verify` |
//! | `scheduler` | the function that runs jobs and sends alerts | `aws`, `forward`, `jobs`, `zones` |
//! | `aws` | clients of DynamoDB and SQS: `Leases::from_env`, `Deployment` | |
//! | `credentials` | credentials from profiles, containers and instances, outside Lambda | `aws` |
//! | `forward` | a handler that posts deliveries to an HTTP endpoint | |
//! | `invoke` | a handler that calls a Lambda function | `aws` |
//! | `jobs` | cron expressions | |
//! | `zones` | the time zones of cron expressions | |
//! | `otel` | a trace for each delivery, sent to an OpenTelemetry collector | |
//! | `testing` | a test kit for handlers, for `dev-dependencies` | |
//!
//! A script that only takes leases needs `default-features = false` and the feature
//! `aws`, or `credentials` if the environment holds no access key.
//!
//! Modules that this page does not list are the project's own and may change in any
//! release.

#![cfg_attr(
    not(all(feature = "ingest", feature = "scheduler", feature = "worker")),
    allow(dead_code, unused_imports, reason = "some features need only a part of a module")
)]

// Handlers.
pub use handler::{Context, Deliveries, Handler, HandlerError, Outcome};
#[doc(inline)]
pub use protocol::{
    delivery::{Age, Delivery, Incoming, InvalidBody},
    entity::{
        DeliveryId, EntityKey, FencingToken, Identity, InvalidEntityKey, InvalidSourceName, Sequence, SourceName,
    },
};
#[doc(inline)]
pub use time::{Clock, Env, Random, Timestamp};

// The parts of a commit.
#[doc(inline)]
pub use protocol::table::{
    Action, Attribute, Change, Comparison, Condition, ConditionResult, Key, Operand, Row, Value, Write,
};

// Leases.
pub use leases::{CommitOutcome, Guard, LeaseError, Leases, NotCommitted, RunError, Terms};
#[doc(inline)]
pub use protocol::lease::Lease;

// A deployment, for code that runs outside the functions.
#[cfg(feature = "aws")]
pub use aws::boot::Deployment;
pub use config::InvalidConfig;
pub use engine::{
    append::{AppendError, Appended, Inbox},
    queue::QueueError,
    store::StoreError,
};
#[doc(inline)]
pub use protocol::{
    format::CorruptRow,
    table::{InvalidKind, InvalidRequest, TableError},
};

pub mod handlers;

/// The ingest function, which verifies webhooks, appends each to the inbox of its entity, and wakes
/// a worker.
///
/// ```no_run
/// fn main() -> Result<(), webhook_serializer::ingest::Error> {
///     webhook_serializer::ingest::run()
/// }
/// ```
#[cfg(feature = "ingest")]
pub mod ingest {
    #[doc(no_inline)]
    pub use lambda_runtime::Error;

    pub use crate::functions::ingest::run;
}

/// The worker function, which runs your [`Handler`]. See the [example](crate#example).
#[cfg(feature = "worker")]
pub mod worker {
    #[doc(no_inline)]
    pub use lambda_runtime::Error;

    pub use crate::functions::worker::{Setup, run, run_with};
}

/// The scheduler function, which runs your [`Jobs`](scheduler::Jobs). Each scheduled run of a job
/// happens once, however many schedulers there are and however often they are invoked. Only a run
/// that crashes may be repeated ([`OnCrash`](scheduler::OnCrash)).
///
/// ```no_run
/// use webhook_serializer::scheduler::{self, Context, Job, JobError, Jobs, OnCrash};
///
/// async fn report(context: Context) -> Result<(), JobError> {
///     println!("the report of {}, under token {}", context.tick(), context.token());
///     Ok(())
/// }
///
/// fn main() -> Result<(), scheduler::Error> {
///     scheduler::run(
///         Jobs::new()
///             .add(Job::new("nightly-report", "0 3 * * *", report).in_zone("Europe/Berlin"))
///             .add(Job::new("reminders", "every 5 minutes", report).on_crash(OnCrash::Skip)),
///     )
/// }
/// ```
#[cfg(feature = "scheduler")]
pub mod scheduler {
    #[doc(no_inline)]
    pub use lambda_runtime::Error;

    pub use crate::{
        functions::scheduler::{run, run_with},
        jobs::{Context, Job, JobError, Jobs, Missed, OnCrash, Outcome},
    };
}

#[cfg(feature = "testing")]
pub mod testing;

// The project's own modules, which its command and tests use.
#[cfg(feature = "scheduler")]
#[doc(hidden)]
pub mod alerts;
#[cfg(feature = "aws")]
#[doc(hidden)]
pub mod aws;
#[doc(hidden)]
pub mod config;
#[doc(hidden)]
pub mod engine;
#[cfg(any(feature = "ingest", feature = "scheduler", feature = "worker"))]
#[doc(hidden)]
pub mod functions;
#[doc(hidden)]
pub mod handler;
#[cfg(feature = "jobs")]
#[doc(hidden)]
pub mod jobs;
#[doc(hidden)]
pub mod leases;
#[doc(hidden)]
pub mod nearest;
#[doc(hidden)]
pub mod operator;
#[doc(hidden)]
pub use webhook_serializer_protocol as protocol;
#[doc(hidden)]
pub mod providers;
#[doc(hidden)]
pub mod sources;
#[doc(hidden)]
pub mod telemetry;
#[doc(hidden)]
pub mod time;
#[cfg(any(feature = "aws", feature = "forward", feature = "otel"))]
#[doc(hidden)]
pub mod tls;
mod traces;
