//! Stop, continue, repeat or remove.

pub mod block;
pub mod discard;
pub mod erase;
pub mod hold;
pub mod lease;
pub mod redrive;
pub mod restore;
pub mod rewind;
pub mod skip;
