//! The commands that stop, continue, repeat or remove orders and deliveries.

mod choice;
pub mod discard;
pub mod erase;
pub mod hold;
pub mod lease;
pub mod redrive;
pub mod restore;
pub mod resume;
pub mod retry;
pub mod rewind;
mod run;
pub mod skip;
