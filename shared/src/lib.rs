//! Per-entity ordering for webhooks, and the same leases for everything else
//! that touches an entity, on DynamoDB conditional writes.
//!
//! In reading order:
//!
//! | module | |
//! |---|---|
//! | [`entity`], [`time`] | keys, identities, sequences, tokens; time and chance as arguments |
//! | [`table`] | rows, and writes as values; the trait that a store implements |
//! | [`rows`] | the protocol's rows |
//! | [`operation`], [`lease`], [`inbox`], [`attempt`], [`rate`] | the protocol's operations: pure functions that make writes and judge replies |
//! | [`delivery`], [`providers`], [`template`], [`destination`], [`sources`] | webhooks, from bytes to deliveries; where they are configured to go |
//! | [`store`], [`queue`], [`wake`] | doing operations, sending wake-ups |
//! | [`append`], [`drain`] | the two sides of an inbox |
//! | [`leases`] | leases for everything else: requests, jobs, scripts |
//! | [`handler`], [`threads`], [`breaker`] | what a user implements; where it runs; what is done where it is unwell |
//! | [`tick`], `jobs` | runs of jobs as operations; jobs on a schedule, with the feature of that name |
//! | [`telemetry`] | what is told about each decision |
//! | [`history`], [`budget`] | receipts checked; what each path costs |

pub mod append;
pub mod attempt;
#[cfg(feature = "aws")]
pub mod aws;
pub mod batch;
pub mod breaker;
pub mod budget;
pub mod config;
pub mod delivery;
pub mod destination;
pub mod drain;
pub mod entity;
pub mod handler;
pub mod handlers;
pub mod history;
pub mod inbox;
#[cfg(feature = "jobs")]
pub mod jobs;
mod keeper;
pub mod lease;
pub mod leases;
#[cfg(feature = "aws")]
pub mod meter;
pub mod operation;
pub mod operator;
pub mod providers;
pub mod queue;
pub mod rate;
pub mod rows;
pub mod sources;
pub mod store;
pub mod sweep;
pub mod table;
pub mod telemetry;
pub mod template;
pub mod threads;
pub mod tick;
pub mod time;
#[cfg(any(feature = "aws", feature = "forward"))]
pub mod tls;
pub mod wake;
