//! The commands that change sources and check deployments.

pub mod check;
pub mod doctor;
pub mod source;
