//! The ordering protocol as pure functions: each operation builds one conditional write and
//! interprets the store's reply.
//!
//! The crate performs no I/O and reads no clock, so it also builds for WebAssembly. Programs use
//! [`webhook-serializer`](https://docs.rs/webhook-serializer), which performs the operations and
//! re-exports the types that its users need. The items of this crate may change in any release.
//!
//! The modules in reading order:
//!
//! | module | contents |
//! |---|---|
//! | [`time`] | timestamps, nonces; clock and randomness, which code gets as arguments |
//! | [`entity`] | keys, identities, sequences, tokens |
//! | [`table`] | rows, writes as values, and the trait that a store implements |
//! | [`mod@format`], [`keys`] | attributes, the row format's version, row keys |
//! | [`state`], [`delivery`], [`receipt`] | the rows of entities, deliveries and receipts |
//! | [`hold`], [`waits`], [`trace`] | an entity's hold, and why its first delivery waits; a delivery's trace |
//! | [`operation`], [`lease`], [`inbox`], [`tick`], [`maintain`] | the operations: one conditional write each |
//! | [`outage`], [`alert`] | outages of destinations, and the record of alerts: operations, row |
//! | [`attempt`], [`rate`] | retries and rate limits |
//! | [`expression`] | writes as DynamoDB's expressions |
//! | [`memory`] | the in-memory table |
//! | [`native`] | writes in DynamoDB's own form |
//! | [`history`], [`budget`] | checks of an entity's receipts; the cost of each path |

#![expect(missing_docs, reason = "many items are named for what they hold, and only the engine uses them")]

pub mod alert;
pub mod attempt;
pub mod budget;
pub mod delivery;
pub mod entity;
pub mod expression;
#[cfg(test)]
mod fixtures;
pub mod format;
pub mod history;
pub mod hold;
pub mod inbox;
pub mod keys;
pub mod lease;
pub mod maintain;
pub mod memory;
pub mod native;
pub mod operation;
pub mod outage;
pub mod rate;
pub mod receipt;
pub mod state;
pub mod table;
pub mod tick;
pub mod time;
pub mod trace;
pub mod waits;
