//! The commands that erase orders, end leases and repair tables. The other commands of this group are verbs.

pub mod erase;
pub mod lease;
pub mod restore;
