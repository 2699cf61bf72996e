//! The leases of `webhook-serializer`, driven by a host in another language.
//!
//! All decisions are those of the Rust library: how long to wait, when to renew, what a lost reply means. The host
//! sends the requests, waits, and provides times and random bytes. `README.md` describes the interface.
//!
//! A [`Client`] is a process's connection to a table of leases. A [`Session`] is one lease, from its request to its
//! end, one look at a lease, or one call of a job.

mod commit;
mod dynamo;
mod effects;
mod failure;
mod job;
mod session;
mod tables;
#[cfg(target_family = "wasm")]
mod wasm;
mod zones;

pub use session::{Client, Session};
