//! Runs the protocol: appends deliveries, drains inboxes, and sweeps the table.
//!
//! | module | |
//! |---|---|
//! | [`store`] | runs operations on the store, with retries |
//! | [`queue`], [`wake`] | queue messages; sending them, with retries |
//! | [`append`], [`drain`] | write deliveries to an inbox; run its deliveries |
//! | [`deferred`] | deliveries kept in the queue while the store is unreachable |
//! | [`threads`], [`breaker`] | handler threads; circuit breakers |
//! | `outages` | outages of destinations, which all processes share |
//! | [`sweep`] | wakes entities whose wake-up was lost |

pub mod append;
pub mod breaker;
pub mod deferred;
pub mod drain;
pub mod lease_renewer;
pub(crate) mod outages;
pub mod pages;
pub mod queue;
pub(crate) mod run;
pub mod store;
pub mod sweep;
pub mod threads;
pub mod wake;
