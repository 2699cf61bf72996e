//! The ordering protocol as pure functions: each operation builds one conditional write and
//! interprets the store's reply.
//!
//! The modules in reading order:
//!
//! | module | contents |
//! |---|---|
//! | [`entity`] | keys, identities, sequences, tokens |
//! | [`table`] | rows, writes as values, and the trait that a store implements |
//! | [`format`], [`keys`] | attributes, the row format's version, row keys |
//! | [`state`], [`delivery`], [`receipt`] | the rows of entities, deliveries and receipts |
//! | [`hold`], [`trace`] | an entity's hold; a delivery's trace |
//! | [`operation`], [`lease`], [`inbox`], [`tick`], [`maintain`] | the operations: one conditional write each |
//! | [`attempt`], [`rate`] | retries and rate limits |
//! | [`memory`] | the in-memory table |
//! | [`history`], [`budget`] | checks of an entity's receipts; the cost of each path |

pub mod attempt;
pub mod budget;
pub mod delivery;
pub mod entity;
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
pub mod rate;
pub mod receipt;
pub mod state;
pub mod table;
pub mod tick;
pub mod trace;
