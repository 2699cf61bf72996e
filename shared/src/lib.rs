//! Webhooks in order, one order at a time: deliveries of a shop's order (or any
//! other entity) are handled one after the other, in the order in which they
//! arrived, each settled exactly once, on Lambda, DynamoDB and SQS. The same
//! leases for everything else that touches an entity: a user's request, a job,
//! a script.
//!
//! The boundary of *exactly once*: what a handler returns in
//! [`Outcome::Commit`] lands exactly once, in one transaction with the settling
//! of its delivery. What it does elsewhere it does at least once, and sends the
//! fencing token along, so that a late effect can be refused.
//!
//! # A worker, whole
//!
#![cfg_attr(feature = "worker", doc = "```no_run")]
#![cfg_attr(not(feature = "worker"), doc = "```ignore")]
//! use webhook_serializer::{Context, Delivery, Handler, HandlerError, Key, Outcome, Row, Write, worker};
//!
//! struct Totals;
//!
//! impl Handler for Totals {
//!     async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
//!         let order: serde_json::Value = delivery.json()?;
//!         let Some(total) = order["total_price"].as_str() else {
//!             return Ok(Outcome::retry("no total yet"));
//!         };
//!         println!("{} costs {total}, under token {}", delivery.entity(), context.token());
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
//! That is a Lambda function, which the project's template deploys with the
//! others. On your own machine the command `serializer`, of the package
//! `webhook-serializer-cli`, runs it against embedded engines:
//! `serializer local --worker target/debug/my-worker`.
//!
//! # A lease
//!
#![cfg_attr(feature = "aws", doc = "```no_run")]
#![cfg_attr(not(feature = "aws"), doc = "```ignore")]
//! use std::convert::Infallible;
//! use webhook_serializer::{EntityKey, Leases, Terms};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let leases = Leases::from_env().await?;
//! let order = EntityKey::parse("shopify/order/450789469")?;
//! let change = async |_| Ok::<_, Infallible>("nobody else is here");
//! println!("{}", leases.run(&order, Terms::default(), change).await?);
//! # Ok(())
//! # }
//! ```
//!
//! # What is for what
//!
//! | you want to | look at |
//! |---|---|
//! | handle deliveries | [`Handler`], what it is given ([`Delivery`], [`Context`]), what it answers ([`Outcome`]) |
//! | write exactly once | [`Outcome::commit`], [`Write`], [`Condition`] |
//! | several at once, several handlers | [`Handler::handle_all`], [`handlers::Handlers`] |
//! | take an order's lease from anywhere else | [`Leases`], [`Guard`] |
//! | put deliveries into an inbox yourself | [`Inbox`], [`Incoming`] |
//! | run something on a schedule | `scheduler`, with that feature |
//! | test a handler | `testing`, with that feature |
//!
//! # Features
//!
//! | feature | what it is | brings |
//! |---|---|---|
//! | `worker` (default) | a function around a handler of your own | `aws`, `forward`, `invoke` |
//! | `scheduler` | a function around jobs that run once a tick | `aws`, `jobs` |
//! | `ingest` | the function that webhooks are posted to | `aws`, `verify` |
//! | `aws` | `Leases::from_env`, `Deployment`: clients of DynamoDB and SQS | |
//! | `credentials` | both outside Lambda: credentials of a profile, a container or an instance, renewed | `aws` |
//! | `forward` | the handler that posts deliveries to an HTTP endpoint | |
//! | `invoke` | the handler that calls a Lambda function with them | `aws` |
//! | `orders` | the handler of `examples/orders`, by that name: what the project's own worker and command run | |
//! | `verify` (default) | how each sender signs, and what its webhooks are about: without it a function reads its sources, and verifies nothing | |
//! | `jobs` | cron expressions, and the time zones of the world | |
//! | `otel` | one trace for each delivery, sent to an OpenTelemetry collector |  |
//! | `testing` | a kit to test handlers with; for `dev-dependencies` | |
//! | `internals` | the rooms below, for the project's own command and tests; without any promise | |
//!
//! A script that only takes leases is best served by `default-features = false,
//! features = ["aws"]`, or `["credentials"]` where its environment holds no keys.
//!
//! # The rooms
//!
//! For those who read on in the source. Every operation of the protocol is a
//! pure function that makes a conditional write, a value; everything else
//! carries such values out.
//!
//! | room | what lives there |
//! |---|---|
//! | `time`, `tls`, `config` | clock and chance as arguments; certificates; the environment |
//! | `protocol` | rows, writes, operations and what their replies mean. No input or output |
//! | `providers`, `sources` | who sends webhooks, and how they are verified and routed |
//! | `telemetry` | what is logged about it: events, log lines, metrics |
//! | `traces` | spans, and the place in a trace that goes with a delivery; empty without `otel` |
//! | `engine` | the protocol done: appends, drains, sweeps |
//! | `operator` | what people do: look at an entity, stop it, let it go on, put back, erase |
//! | `handler`, [`handlers`] | what runs for a delivery, and the handlers that come ready |
//! | `leases`, `jobs` | the same leases for everybody else; functions on a schedule |
//! | `aws` | everything that names an AWS client, and start-up |
//! | `functions` | ingest, worker and scheduler, as Lambda runs them |

#![cfg_attr(
    not(feature = "internals"),
    allow(dead_code, unused_imports, reason = "the command and the tests use what a function does not")
)]

// Handlers.
pub use handler::{Context, Deliveries, Handler, HandlerError, Outcome};
pub use protocol::{
    delivery::{Age, Delivery, Incoming},
    entity::{
        DeliveryId, EntityKey, FencingToken, Identity, InvalidEntityKey, InvalidSourceName, Sequence, SourceName,
    },
};
pub use time::{Clock, Env, Random, Timestamp};

// What a commit is made of.
pub use protocol::table::{Action, Attribute, Change, Comparison, Condition, Key, Operand, Row, Value, Write};

// Leases.
pub use leases::{Guard, LeaseError, Leases, NotCommitted, RunError, Terms};
pub use protocol::lease::Lease;

// A deployment, for code that no webhook starts.
#[cfg(feature = "aws")]
pub use aws::boot::Deployment;
pub use config::InvalidConfig;
pub use engine::{
    append::{AppendError, Appended, Inbox},
    queue::QueueError,
    store::StoreError,
};
pub use protocol::{format::CorruptRow, table::TableError};

pub mod handlers;

/// The ingest function: it verifies webhooks, appends them to their entity's
/// inbox and wakes a worker.
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

/// The worker function around a [`Handler`] of your own: see the [crate's
/// first example](crate).
#[cfg(feature = "worker")]
pub mod worker {
    #[doc(no_inline)]
    pub use lambda_runtime::Error;

    pub use crate::functions::worker::{Setup, run, run_with};
}

/// The scheduler function around [`Jobs`](scheduler::Jobs) of your own: each
/// tick of a job runs once, however many schedulers there are and however often
/// they are invoked.
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

// The rooms. Written out one by one, so that formatters and editors find them.
#[cfg(all(feature = "aws", feature = "internals"))]
#[doc(hidden)]
pub mod aws;
#[cfg(all(feature = "aws", not(feature = "internals")))]
mod aws;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod config;
#[cfg(not(feature = "internals"))]
mod config;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod engine;
#[cfg(not(feature = "internals"))]
mod engine;
#[cfg(all(any(feature = "ingest", feature = "scheduler", feature = "worker"), feature = "internals"))]
#[doc(hidden)]
pub mod functions;
#[cfg(all(any(feature = "ingest", feature = "scheduler", feature = "worker"), not(feature = "internals")))]
mod functions;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod handler;
#[cfg(not(feature = "internals"))]
mod handler;
#[cfg(all(feature = "jobs", feature = "internals"))]
#[doc(hidden)]
pub mod jobs;
#[cfg(all(feature = "jobs", not(feature = "internals")))]
mod jobs;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod leases;
#[cfg(not(feature = "internals"))]
mod leases;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod operator;
#[cfg(not(feature = "internals"))]
mod operator;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod protocol;
#[cfg(not(feature = "internals"))]
mod protocol;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod providers;
#[cfg(not(feature = "internals"))]
mod providers;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod sources;
#[cfg(not(feature = "internals"))]
mod sources;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod telemetry;
#[cfg(not(feature = "internals"))]
mod telemetry;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod time;
#[cfg(not(feature = "internals"))]
mod time;
#[cfg(all(any(feature = "aws", feature = "forward", feature = "otel"), feature = "internals"))]
#[doc(hidden)]
pub mod tls;
#[cfg(all(any(feature = "aws", feature = "forward", feature = "otel"), not(feature = "internals")))]
mod tls;
mod traces;
