//! A stand-in for Amazon SQS: standard and FIFO queues in SQLite, served over loopback in SQS's own JSON protocol.
//!
//! The stand-in has the actions that functions, command and senders use: `SendMessage`, `SendMessageBatch`,
//! `ReceiveMessage`, `DeleteMessageBatch`, `ChangeMessageVisibilityBatch` and `GetQueueAttributes`. Where SQS leaves an
//! outcome open, the stand-in chooses the one that a consumer must be ready for: an older receipt handle does not delete
//! the message. Unlike in SQS, messages never expire.

mod attribute;
pub mod clock;
mod error;
mod message;
mod queues;
mod server;
mod store;

pub use attribute::MessageAttribute;
pub use error::{Code, SqsError};
pub use message::{MessageAttributes, NewMessage, QueuedMessage};
pub use queues::{QueueFaults, QueueSettings, Queues, Receive, RedrivePolicy};
pub use server::{queue_url, serve};
pub use store::Counts;
