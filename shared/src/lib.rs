//! Per-entity ordering for webhooks, and the same leases for everything else
//! that touches an entity, on DynamoDB conditional writes.

#[cfg(feature = "aws")]
pub mod aws;
pub mod config;
pub mod engine;
pub mod handler;
pub mod handlers;
#[cfg(feature = "jobs")]
pub mod jobs;
pub mod leases;
pub mod protocol;
pub mod providers;
pub mod sources;
pub mod telemetry;
pub mod time;
#[cfg(any(feature = "aws", feature = "forward"))]
pub mod tls;
