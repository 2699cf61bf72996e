//! The `serializer` command, as its binary runs it, and as a project of one's own
//! does: there `cargo run -- local` runs the project's functions.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Parser, Subcommand};
use webhook_serializer::{scheduler, worker};

use crate::commands::{
    self, bench, cost,
    look::{audit, entities, history, inspect, jobs, parked, show, status, tail},
    mend::{block, discard, erase, hold, lease, redrive, restore, rewind, skip},
    setup::{check, doctor, source},
    tryout::{local, replay, send, sign, verify},
};
use crate::output::complain;

/// Runs webhook inboxes, one per order, and looks after them
///
/// An order is whatever has its webhooks handled one after the other; its key, such as
/// shopify/order/450789469, names it in every command.
#[derive(Debug, Parser)]
#[command(name = "serializer", version, max_term_width = 100)]
#[command(
    after_help = "To begin: `serializer local --demo` plays a demonstration, `serializer local` serves on this machine.\n\
                       The other commands speak to that with --local, and to a stack in AWS with --stack NAME: docs/operating.md."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: DynamoDB, queue, webhook endpoint, workers
    Local(local::Local),
    /// Check a sources document, as the functions do when they read it
    Check(check::Check),
    /// Add a sender, roll its secret, try it out: changes to the sources document
    Source(source::Sources),
    /// Post sample webhooks, freshly signed
    Send(send::Send),
    /// Say whether a webhook's signature is good, and if not, why
    Verify(verify::Verify),
    /// Make the headers that a sender would sign a body with
    Sign(sign::Sign),
    /// Say what waits, what is parked and what is blocked, by source and by error
    Status(status::Status),
    /// List the orders that do not move, the oldest first: why, and what to type next
    Entities(entities::Entities),
    /// Show all of this in a browser: what does not move, lanes, orders, deliveries, figures
    Console(commands::look::console::Console),
    /// Show an order: how it stands, what waits, what is parked, what was settled
    Inspect(inspect::Inspect),
    /// Show one delivery: what became of it, and its body
    Show(show::Show),
    /// Tell what happens, as it happens: accepted, applied, failed, parked, …
    Tail(tail::Tail),
    /// List what is parked, of one order or of all
    Parked(parked::List),
    /// Put parked deliveries back, at the end of their order's inbox
    Redrive(redrive::Redrive),
    /// Post past deliveries once more to another URL, such as one on this machine; changes nothing
    Replay(replay::Replay),
    /// Remove a parked delivery for good
    Discard(discard::Discard),
    /// Let a blocked order go on
    Unblock(block::Unblock),
    /// Put an order on hold: what arrives waits, and nothing starts
    Hold(hold::Hold),
    /// Let an order that is on hold go on
    Resume(hold::Resume),
    /// Try what failed now, instead of when its next attempt is due
    Retry(hold::Retry),
    /// Set aside the delivery that is in the way, and let the rest of its order go on
    Skip(skip::Skip),
    /// Run what was applied once more, in order and before what waits
    Rewind(rewind::Rewind),
    /// Show what people did to an order: who, when and why
    History(history::History),
    /// Look at leases, run a program under one, end one by force
    Lease(lease::Lease),
    /// Delete all that is stored of an order
    Erase(erase::Erase),
    /// Make tables that were restored from a backup ready to be taken into use
    Restore(restore::Restore),
    /// List the jobs, or run one now
    Jobs(jobs::Jobs),
    /// Check a deployment: what is wrong with it, and what to do, a line for each check
    Doctor(doctor::Doctor),
    /// Check the receipts: was each order applied in order, each delivery once?
    Audit(audit::Audit),
    /// Measure on the embedded parts: time against a control, cost per delivery
    Bench(bench::Bench),
    /// Estimate the monthly bill, item by item, beside other designs
    Cost(cost::Cost),
}

/// A handler that hangs keeps its thread, and each of many workers may have a
/// batch of those.
const MOST_HANDLERS: usize = 10_000;

/// A project of one's own: what `serializer local` runs and plays there.
///
/// Its functions run as Lambda runs them, in processes of their own: those of
/// the command itself, which is then the function that it is started as.
#[derive(Debug, Clone, Copy)]
pub struct Project {
    /// What the worker function's `main` calls.
    pub worker: fn() -> Result<(), worker::Error>,
    /// What the scheduler function's `main` calls.
    pub scheduler: fn() -> Result<(), scheduler::Error>,
    /// The folder with its sample events, which `local --demo` posts.
    pub events: &'static str,
}

/// A project's own programs and samples, on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    /// Worker and scheduler in one.
    pub(crate) program: PathBuf,
    pub(crate) events: &'static Path,
}

/// The command, as this process's arguments ask for it.
pub fn run() -> ExitCode {
    on_a_runtime(None)
}

/// The command with a project's own functions: the whole `main` of a program.
pub fn run_with(project: Project) -> ExitCode {
    // Lambda, and what stands for it here, say which function a process is.
    let function = match std::env::var("AWS_LAMBDA_RUNTIME_API") {
        Ok(_) => std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default(),
        Err(_) => String::new(),
    };
    let ended = match function.as_str() {
        "worker" => (project.worker)(),
        "scheduler" => (project.scheduler)(),
        _ => {
            return match std::env::current_exe() {
                Ok(program) => on_a_runtime(Some(Own { program, events: Path::new(project.events) })),
                Err(error) => failed(&error.into()),
            };
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&anyhow::Error::from_boxed(error)),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    complain(format_args!("{} {error:#}", console::style("error:").red().bold()));
    ExitCode::FAILURE
}

fn on_a_runtime(own: Option<Own>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(MOST_HANDLERS).enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(carry_out(own));
            // As at the end of `main`: what still runs is not waited for.
            runtime.shutdown_background();
            code
        }
        Err(error) => failed(&error.into()),
    }
}

async fn carry_out(own: Option<Own>) -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Local(local) => local.run(own).await,
        Command::Check(check) => check.run(),
        Command::Source(source) => source.run().await,
        Command::Send(send) => send.run().await,
        Command::Verify(verify) => verify.run().await,
        Command::Sign(sign) => sign.run(),
        Command::Status(status) => status.run().await,
        Command::Entities(entities) => entities.run().await,
        Command::Console(console) => console.run().await,
        Command::Inspect(inspect) => inspect.run().await,
        Command::Show(show) => show.run().await,
        Command::Tail(tail) => tail.run().await,
        Command::Parked(parked) => parked.run().await,
        Command::Redrive(redrive) => redrive.run().await,
        Command::Replay(replay) => replay.run().await,
        Command::Discard(discard) => discard.run().await,
        Command::Unblock(unblock) => unblock.run().await,
        Command::Hold(hold) => hold.run().await,
        Command::Resume(resume) => resume.run().await,
        Command::Retry(retry) => retry.run().await,
        Command::Skip(skip) => skip.run().await,
        Command::Rewind(rewind) => rewind.run().await,
        Command::History(history) => history.run().await,
        Command::Lease(lease) => lease.run().await,
        Command::Erase(erase) => erase.run().await,
        Command::Restore(restore) => restore.run().await,
        Command::Jobs(jobs) => jobs.run().await,
        Command::Doctor(doctor) => doctor.run().await,
        Command::Audit(audit) => audit.run().await,
        Command::Bench(bench) => bench.run().await,
        Command::Cost(cost) => cost.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let code = failed(&error);
            if format!("{error:#}").contains("AccessDenied") {
                complain(
                    "docs/deploying.md lists the permissions to operate a stack; with them, the same command goes on.",
                );
            }
            code
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_command_line_is_well_formed() {
        super::Arguments::command().debug_assert();
    }
}
