//! The commands that begin a deployment, change its sources, and check it.

pub mod alerts;
pub mod check;
pub mod doctor;
pub mod init;
pub mod source;
