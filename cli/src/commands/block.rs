//! `serializer unblock`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use webhook_serializer::protocol::{entity::EntityKey, inbox::Unblocked};

use super::target::Target;

/// Options of `serializer unblock`.
#[derive(Debug, Args)]
pub struct Unblock {
    /// Which
    entity: EntityKey,
    #[command(flatten)]
    target: Target,
}

impl Unblock {
    pub async fn run(self) -> Result<ExitCode> {
        match self.target.connect().await?.operator().unblock(&self.entity).await? {
            Unblocked::Unblocked(state) => {
                println!("{} goes on: {} waiting", self.entity, state.waiting());
                Ok(ExitCode::SUCCESS)
            }
            Unblocked::NotBlocked(Some(state)) => {
                println!("{} was not blocked; woken all the same, {} waiting", self.entity, state.waiting());
                Ok(ExitCode::SUCCESS)
            }
            Unblocked::NotBlocked(None) => {
                println!("{} has no row", self.entity);
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
