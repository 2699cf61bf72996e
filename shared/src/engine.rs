//! Runs the protocol's operations: appends, drains, sweeps.
//!
//! | module | |
//! |---|---|
//! | [`store`], [`queue`], [`wake`] | operations on the store, wake-ups |
//! | [`append`], [`drain`] | the two sides of an inbox |
//! | [`deferred`] | deliveries kept in the queue while the store is out |
//! | [`threads`], [`breaker`] | handler threads; circuit breakers |
//! | [`sweep`] | entities whose wake-up was lost |

pub mod append;
pub mod breaker;
pub mod deferred;
pub mod drain;
pub(crate) mod lease_renewer;
pub mod queue;
pub(crate) mod run;
pub mod store;
pub mod sweep;
pub mod threads;
pub mod wake;
