//! The harness of the tests: a deployment of our own parts, taken apart so that
//! each part can be watched, slowed or broken.

pub mod handlers;
pub mod simulation;
pub mod stage;
