//! What does the protocol's operations: appends, drains, sweeps.
//!
//! | module | |
//! |---|---|
//! | [`store`], [`queue`], [`wake`] | doing operations, sending wake-ups |
//! | [`append`], [`drain`] | the two sides of an inbox |
//! | [`deferred`] | what waits in the queue while the store is out |
//! | [`threads`], [`breaker`] | where handlers run; what is done where a source's is unwell |
//! | [`sweep`] | wake-ups that were forgotten |

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
