//! Look at orders, deliveries and jobs.

pub mod audit;
pub mod console;
pub mod entities;
pub mod history;
pub mod inspect;
pub mod jobs;
pub mod parked;
pub mod show;
pub mod status;
pub mod tail;
