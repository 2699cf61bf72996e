//! Prepares orders, deliveries and jobs for display in the commands and the console.

pub mod activity;
pub mod audit;
pub mod body;
pub mod delivery;
pub mod job;
pub mod lanes;
pub mod limits;
pub mod order_status;
pub mod outage;
pub mod overview;
pub mod position;
pub mod recording;
pub mod similar;
pub mod summary;
pub mod throughput;
pub mod timeline;
pub mod tone;
