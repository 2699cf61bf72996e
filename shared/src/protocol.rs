//! The protocol, pure: rows, and operations that make writes and judge replies.
//!
//! In reading order:
//!
//! | module | |
//! |---|---|
//! | [`entity`] | keys, identities, sequences, tokens |
//! | [`table`] | rows, and writes as values; the trait that a store implements |
//! | [`format`], [`keys`], [`receipt`], [`state`], [`delivery`] | the protocol's rows: what they have in common, their keys, what is remembered, the entity's, a delivery's |
//! | [`operation`], [`lease`], [`inbox`], [`tick`], [`maintain`] | the operations: one conditional write each |
//! | [`attempt`], [`rate`] | when a delivery is tried again, and how soon the next one starts |
//! | [`history`], [`budget`] | receipts checked; what each path costs |

pub mod attempt;
pub mod budget;
pub mod delivery;
pub mod entity;
pub mod format;
pub mod history;
pub mod hold;
pub mod inbox;
pub mod keys;
pub mod lease;
pub mod maintain;
pub mod memory;
pub mod operation;
pub mod rate;
pub mod receipt;
pub mod state;
pub mod table;
pub mod tick;
pub mod trace;
