//! A stand-in for Amazon SQS: standard queues in SQLite, served in SQS's own JSON protocol over loopback.
//!
//! [`Queues`] holds the rules, [`serve`] speaks the protocol, so that the real SDK and the real function binaries work
//! against it. It is for development: held to one check list with an independent server, but not SQS. Where SQS leaves
//! an outcome open, this takes the one a consumer must be ready for (an older receipt handle does not delete).
//!
//! Not here: FIFO queues, binary message attributes, tags, policies, encryption, message move tasks, the limit of
//! 120,000 messages in flight, a stale or partial answer to `ReceiveMessage`.
//!
//! In reading order: [`clock`], [`settings`], `limits`, `error`, [`message`], `store` (the only file with SQL),
//! `queues`, then the protocol: `wire`, `batch`, `operations`, `server`.

mod batch;
pub mod clock;
mod error;
mod limits;
pub mod message;
mod operations;
mod queues;
mod server;
pub mod settings;
mod store;
mod wire;

pub use error::{Code, QueueError};
pub use queues::{Counts, Faults, Queues, Receive};
pub use server::{queue_url, serve};
pub use settings::{QueueSettings, Redrive};
