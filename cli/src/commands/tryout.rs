//! The commands that run a deployment on this machine, and that send, sign or verify webhooks.

pub mod local;
pub mod send;
pub mod sign;
pub mod verify;
pub mod webhook;
