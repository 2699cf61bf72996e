//! The commands that change sources and check deployments.

mod check;
mod doctor;
pub mod source;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum SetUp {
    /// Add, change, try and remove sources: the senders in the sources document
    Source(source::Sources),
    /// Check a sources document, as the functions do when they read it
    Check(check::Check),
    /// Check a deployment, and print how to fix each problem
    Doctor(doctor::Doctor),
}

impl SetUp {
    pub async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Source(source) => source.run().await,
            Self::Check(check) => check.run(),
            Self::Doctor(doctor) => doctor.run().await,
        }
    }
}
