//! The `serializer` command. In a user's own project, `cargo run -- local` runs the same command with the project's
//! Lambda functions.

use std::{fmt::Write, path::Path, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use console::style;
use webhook_serializer::{
    InvalidKind, LeaseError, QueueError, StoreError, jobs::TickError, operator::OperatorError, scheduler, worker,
};

use crate::{
    commands::{
        look::Look,
        mend::Mend,
        setup::SetUp,
        tryout::{TryOut, local::OwnProject},
    },
    output::complain,
    stack::api::Refusal,
};

/// Serializes webhooks by order, and operates deployments.
///
/// The webhooks of one order are handled one after the other. Every command names an order by its key, such as
/// shopify/order/450789469.
#[derive(Parser)]
#[command(name = "serializer", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    TryOut(TryOut),
    #[command(flatten)]
    Look(Look),
    #[command(flatten)]
    Mend(Mend),
    #[command(flatten)]
    SetUp(SetUp),
}

/// The groups of the command's help.
const GROUPS: [(&str, fn(clap::Command) -> clap::Command); 4] = [
    ("Try", TryOut::augment_subcommands),
    ("Look", Look::augment_subcommands),
    ("Mend", Mend::augment_subcommands),
    ("Set up", SetUp::augment_subcommands),
];

const FOOTER: &str = "\
To begin: `serializer local --demo` plays a demonstration, `serializer local` serves on this machine.
With --local, the other commands use that local run; with --stack NAME, they use a stack in AWS: docs/operating.md.";

fn grouped() -> clap::Command {
    let mut groups = String::new();
    for (name, augment) in GROUPS {
        let _ = writeln!(groups, "{}", style(format_args!("{name}:")).bold().underlined());
        for command in augment(clap::Command::new(name)).get_subcommands() {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {}  {about}", style(format_args!("{:8}", command.get_name())).bold());
        }
        groups.push('\n');
    }
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n{FOOTER}\n");
    Arguments::command().help_template(template)
}

/// The largest number of threads for handlers. A handler that hangs keeps its thread, and in each of many workers the
/// handlers of all batches may hang.
const MOST_HANDLERS: usize = 10_000;

/// The Lambda functions and sample events of a user's own project, for `serializer local`.
///
/// `serializer local` runs the functions in separate processes, as Lambda does. Each process runs this same program,
/// which then calls one of the two fields `worker` and `scheduler`.
#[derive(Debug, Clone, Copy)]
pub struct Project {
    /// The body of the worker function's `main`.
    pub worker: fn() -> Result<(), worker::Error>,
    /// The body of the scheduler function's `main`.
    pub scheduler: fn() -> Result<(), scheduler::Error>,
    /// The folder with the project's sample events. `serializer local --demo` posts these events.
    pub events: &'static str,
}

pub fn run() -> ExitCode {
    on_a_runtime(None)
}

/// Runs the `serializer` command for a user's own project. In a process that Lambda or a local run started as the
/// project's worker or scheduler, runs that Lambda function instead. The project's `main` only calls `run_with`.
pub fn run_with(project: Project) -> ExitCode {
    // Lambda, or a local run that stands in for it, sets the name of this process's function.
    let function = match std::env::var("AWS_LAMBDA_RUNTIME_API") {
        Ok(_) => std::env::var("AWS_LAMBDA_FUNCTION_NAME").unwrap_or_default(),
        Err(_) => String::new(),
    };
    let ended = match function.as_str() {
        "worker" => (project.worker)(),
        "scheduler" => (project.scheduler)(),
        _ => {
            return match std::env::current_exe() {
                Ok(program) => on_a_runtime(Some(OwnProject { program, events: Path::new(project.events) })),
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
    complain(format_args!("{} {error:#}", style("error:").red().bold()));
    ExitCode::FAILURE
}

fn on_a_runtime(own: Option<OwnProject>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().max_blocking_threads(MOST_HANDLERS).enable_all().build();
    match runtime {
        Ok(runtime) => {
            let code = runtime.block_on(carry_out(own));
            // The process does not wait for tasks that still run.
            runtime.shutdown_background();
            code
        }
        Err(error) => failed(&error.into()),
    }
}

/// Returns the URL that follows `--local` as a separate argument. The command refuses such a URL, because clap would
/// take it for an order's key.
fn url_after_local(arguments: &[String]) -> Option<&str> {
    let own = arguments.split(|argument| argument == "--").next()?;
    let is_it = |pair: &&[String]| pair[0] == "--local" && pair[1].starts_with("http");
    own.windows(2).find(is_it).map(|pair| pair[1].as_str())
}

async fn carry_out(own: Option<OwnProject>) -> ExitCode {
    let typed: Vec<String> = std::env::args_os().map(|typed| typed.to_string_lossy().into_owned()).collect();
    if let Some(url) = url_after_local(&typed) {
        let error = format!("--local takes its URL after `=`; use: --local={url}");
        grouped().error(ErrorKind::ValueValidation, error).exit();
    }
    let arguments = Arguments::from_arg_matches(&grouped().get_matches());
    let done = match arguments.unwrap_or_else(|error| error.exit()).command {
        Command::TryOut(command) => command.run(own).await,
        Command::Look(command) => command.run().await,
        Command::Mend(command) => command.run().await,
        Command::SetUp(command) => command.run().await,
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let code = failed(&error);
            if error.chain().any(lacks_permission) {
                complain(
                    "Get the permissions that docs/deploying.md lists for operating a stack, then run the same \
                     command again.",
                );
            }
            code
        }
    }
}

/// Returns whether AWS refused a request because the caller lacks a permission.
fn lacks_permission(error: &(dyn std::error::Error + 'static)) -> bool {
    let kind = error
        .downcast_ref()
        .and_then(StoreError::invalid_kind)
        .or_else(|| error.downcast_ref().and_then(OperatorError::invalid_kind))
        .or_else(|| error.downcast_ref().and_then(LeaseError::invalid_kind))
        .or_else(|| error.downcast_ref().and_then(TickError::invalid_kind))
        .or_else(|| error.downcast_ref().and_then(QueueError::invalid_kind));
    kind == Some(InvalidKind::Permission) || matches!(error.downcast_ref(), Some(Refusal::Denied { .. }))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_definition_is_valid() {
        super::Arguments::command().debug_assert();
    }
}
