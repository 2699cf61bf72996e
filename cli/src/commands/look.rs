//! The commands that show orders, deliveries and jobs.

pub mod audit;
pub mod console;
pub mod export;
pub mod find;
pub mod jobs;
pub mod list;
pub mod listen;
pub mod show;
pub mod status;
