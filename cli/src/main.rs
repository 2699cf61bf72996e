//! The `serializer` command.

mod commands;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use commands::{audit, bench, block, cost, inspect, local, parked, send, target::Target};

/// Runs and looks after per-order webhook inboxes.
#[derive(Debug, Parser)]
#[command(name = "serializer", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run everything on this machine: DynamoDB, queue, webhook endpoint, workers
    Local(local::Local),
    /// Post a sample event, freshly signed
    Send(send::Send),
    /// Show an entity: its row, what waits, what is parked, what was settled
    Inspect {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        inspect: inspect::Inspect,
    },
    /// List what is parked, of one entity or of all
    Parked {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        parked: parked::List,
    },
    /// Put parked deliveries back at the end of their inbox
    Redrive {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        redrive: parked::Redrive,
    },
    /// Let a blocked entity go on
    Unblock {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        unblock: block::Unblock,
    },
    /// Check an entity's receipts: was it applied in order, each delivery once?
    Audit {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        audit: audit::Audit,
    },
    /// Measure on the embedded parts: time against a control, cost per delivery
    Bench(bench::Bench),
    /// Estimate the monthly bill, item by item, beside other designs
    Cost(cost::Cost),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Local(local) => local.run().await,
        Command::Send(send) => send.run().await,
        Command::Inspect { target, inspect } => inspect.run(&target).await,
        Command::Parked { target, parked } => parked.run(&target).await,
        Command::Redrive { target, redrive } => redrive.run(&target).await,
        Command::Unblock { target, unblock } => unblock.run(&target).await,
        Command::Audit { target, audit } => audit.run(&target).await,
        Command::Bench(bench) => bench.run().await,
        Command::Cost(cost) => cost.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{} {error:#}", console::style("error:").red().bold());
            ExitCode::FAILURE
        }
    }
}
