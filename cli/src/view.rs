//! Orders, deliveries and jobs as data for people, used by the commands and the console.

pub mod activity;
pub mod audit;
pub mod body;
pub mod delivery;
pub mod job;
pub mod lanes;
pub mod order_status;
pub mod overview;
pub mod position;
pub mod recording;
pub mod throughput;
pub mod timeline;
