//! The commands that try the serializer on this machine, and check signatures.

pub mod local;
pub mod send;
pub mod sign;
pub mod verify;
pub mod webhook;
