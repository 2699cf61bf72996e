//! The commands that show orders, deliveries and jobs.

mod audit;
mod console;
mod jobs;
mod list;
mod listen;
mod show;
mod status;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum Look {
    /// Count waiting and parked deliveries and blocked orders, by source and error
    Status(status::Status),
    /// List orders with their state, why they wait, and the next command
    List(list::List),
    /// Show an order, one of its deliveries, or what operators did to it
    Show(show::Show),
    /// Print events as they happen, or post each accepted delivery to a URL, such as one on this machine
    Listen(listen::Listen),
    /// Serve these views and actions for the browser
    Console(console::Console),
    /// Check by the receipts that deliveries were settled in order, and none was applied twice
    Audit(audit::Audit),
    /// List the jobs, or run one now
    Jobs(jobs::Jobs),
}

impl Look {
    pub async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Status(status) => status.run().await,
            Self::List(list) => list.run().await,
            Self::Show(show) => show.run().await,
            Self::Listen(listen) => listen.run().await,
            Self::Console(console) => console.run().await,
            Self::Audit(audit) => audit.run().await,
            Self::Jobs(jobs) => jobs.run().await,
        }
    }
}
