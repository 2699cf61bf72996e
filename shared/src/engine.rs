//! What does the protocol's operations: appends, drains, sweeps, and the hand of
//! an operator.
//!
//! | module | |
//! |---|---|
//! | [`store`], [`queue`], [`wake`] | doing operations, sending wake-ups |
//! | [`append`], [`drain`] | the two sides of an inbox |
//! | [`threads`], [`breaker`] | where handlers run; what is done where a source's is unwell |
//! | [`sweep`], [`operator`] | wake-ups that were forgotten; what people do |

pub mod append;
pub mod breaker;
pub mod drain;
pub(crate) mod keeper;
pub mod operator;
pub mod queue;
pub(crate) mod run;
pub mod store;
pub mod sweep;
pub mod threads;
pub mod wake;
