//! The commands that run a deployment on this machine, and that send, sign or verify webhooks.

pub mod local;
pub mod send;
mod sign;
mod verify;
pub mod webhook;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum TryOut {
    /// Run everything on this machine: tables, queue, webhook endpoint, workers
    Local(local::Local),
    /// Post sample webhooks, freshly signed
    Send(send::Send),
    /// Check a webhook's signature, and say why it is wrong
    Verify(verify::Verify),
    /// Print the signed headers that a sender would send with a body
    Sign(sign::Sign),
}

impl TryOut {
    pub async fn run(self, own: Option<local::OwnProject>) -> Result<ExitCode> {
        match self {
            Self::Local(local) => local.run(own).await,
            Self::Send(send) => send.run().await,
            Self::Verify(verify) => verify.run().await,
            Self::Sign(sign) => sign.run(),
        }
    }
}
