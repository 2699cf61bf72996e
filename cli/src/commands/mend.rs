//! The commands that stop, continue, repeat or remove orders and deliveries.

mod erase;
mod lease;
mod restore;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::verbs::VerbCommand;

#[derive(Subcommand)]
pub enum Mend {
    #[command(flatten)]
    Verb(VerbCommand),
    /// Delete all stored data of an order
    Erase(erase::Erase),
    /// Show leases, run a program under a lease, or end a lease by force
    Lease(lease::Lease),
    /// Make tables usable again after a restore from a backup
    Restore(restore::Restore),
}

impl Mend {
    pub async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Verb(verb) => verb.run().await,
            Self::Erase(erase) => erase.run().await,
            Self::Lease(lease) => lease.run().await,
            Self::Restore(restore) => restore.run().await,
        }
    }
}
