//! The whole path on the embedded engines, through the AWS clients.

mod bad_input;
mod bodies;
mod budgets;
mod charging;
mod dependencies;
mod erase;
mod fairness;
mod handlers;
mod hot_order;
mod isolation;
mod jobs;
mod layout;
mod leases;
mod lost_replies;
mod misfortunes;
mod modules;
mod operators;
mod order;
mod outages;
mod outside_input;
mod rates;
mod repair;
mod slices;
mod sweep;
mod threads;
mod wiring;
