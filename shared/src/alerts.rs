//! Alerts that name the orders in trouble.
//!
//! Each minute, a job reads the indexes of trouble, and compares the groups that it finds with those that it recorded
//! before (`compare.rs`). One message reports the groups that have lasted, have grown tenfold, or have ended
//! (`message.rs`). It sends the message, then records it. If the send fails, the next minute looks again, so nothing
//! waits to be sent.

mod compare;
pub mod form;
mod group;
mod indexes;
mod job;
mod message;

pub use compare::{ChangeKind, Comparison, GroupChange, KnownGroups, compare, message_id};
pub use group::{Common, Group, Look, OrderInTrouble, Trouble, alike};
pub use indexes::look;
pub use job::{AlertSender, Alerting, AlertsDocument, AlertsError};
pub use message::{AlertMessage, Contents, DeploymentNaming, OutageOf};
#[cfg(test)]
mod tests;
