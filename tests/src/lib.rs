//! The harness of the tests: a deployment of our own parts, taken apart so that
//! each part can be watched, slowed or broken.

pub mod browser;
pub mod chaos;
pub mod faults;
pub mod forwarding;
pub mod handlers;
pub mod invoke_types;
pub mod lane;
pub mod lines;
pub mod metered;
pub mod not_run;
#[cfg(doctest)]
mod pages;
pub mod rules;
pub mod settled;
pub mod shop;
pub mod simulation;
pub mod slots;
pub mod stage;
pub mod unguarded;
pub mod webhooks;
pub mod world;

pub use webhook_serializer::testing::clock;
