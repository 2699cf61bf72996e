//! The `serializer` command. In a user's own project, `cargo run -- local` runs the same command with the project's
//! Lambda functions.

mod variables;

use std::{ffi::OsString, fmt::Write, path::Path, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind};
use console::style;
use webhook_serializer::{
    InvalidKind, LeaseError, QueueError, StoreError, jobs::TickError, operator::OperatorError, scheduler, worker,
};

use crate::commands::{
    self,
    look::{audit, export, find, jobs, list, listen, show, status},
    mend::{erase, lease, restore},
    setup::{alerts, check, doctor, init, source},
    tryout::{
        local::{self, OwnProject},
        send, sign, verify,
    },
};
use crate::{
    output::complain,
    stack::api::Refusal,
    verbs::{self, VERBS, Verb},
};

/// Serializes webhooks by order, and operates deployments.
///
/// The webhooks of one order are handled one after the other. Every command names an order by its key, such as
/// shopify/order/450789469.
#[derive(Debug, Parser)]
#[command(name = "serializer", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run everything on this machine: tables, queue, webhook endpoint, workers
    Local(local::Local),
    /// Post sample webhooks, freshly signed
    Send(send::Send),
    /// Check a webhook's signature, and say why it is wrong
    Verify(verify::Verify),
    /// Print the signed headers that a sender would send with a body
    Sign(sign::Sign),
    /// Count waiting and parked deliveries and blocked orders, by source and error
    Status(status::Status),
    /// List orders with their state, why they wait, and the next command
    List(list::ListArguments),
    /// Show an order, one of its deliveries, or what operators did to it
    Show(show::Show),
    /// Print events as they happen, or post each accepted delivery to a URL, such as one on this machine
    Listen(listen::Listen),
    /// Serve these views and actions for the browser
    Console(commands::look::console::ConsoleArguments),
    /// Check by the receipts that deliveries were settled in order, and none was applied twice
    Audit(audit::Audit),
    /// Find deliveries by a value in their bodies, such as a customer's e-mail address
    Find(find::Find),
    /// Print all stored deliveries of orders, with their bodies
    Export(export::Export),
    /// Delete all stored data of an order
    Erase(erase::Erase),
    /// Show leases, run a program under a lease, or end a lease by force
    Lease(lease::LeaseArguments),
    /// List the jobs, or run one now
    Jobs(jobs::JobsArguments),
    /// Write a first sources document, receiver, Procfile and sample events
    Init(init::Init),
    /// Add, change, try and remove sources: the senders in the sources document
    Source(source::SourceArguments),
    /// Check a sources document, as the functions do when they read it
    Check(check::Check),
    /// Send a test to the receiver of alerts about orders in trouble
    Alerts(alerts::AlertsArguments),
    /// Check a deployment, and print how to fix each problem
    Doctor(doctor::Doctor),
    /// Make tables usable again after a restore from a backup
    Restore(restore::Restore),
}

/// The groups of the command's help, with their verbs and their other commands.
static GROUPS: [(&str, &[&Verb], &[&str]); 4] = [
    ("Try", &[], &["local", "send", "verify", "sign"]),
    ("Look", &[], &["status", "list", "show", "listen", "find", "export", "console", "audit", "jobs"]),
    ("Mend", VERBS, &["erase", "lease", "restore"]),
    ("Set up", &[], &["init", "source", "check", "alerts", "doctor"]),
];

fn group(verbs: &[&Verb], others: &[&'static str]) -> impl Iterator<Item = &'static str> {
    verbs.iter().filter(|verb| verb.subcommand.is_some()).map(|verb| verb.name).chain(others.iter().copied())
}

const FOOTER: &str = "\
To begin: `serializer local --demo` plays a demonstration, `serializer local` serves on this machine.
With --local, the other commands use that local run; with --stack NAME, they use a stack in AWS: docs/operating.md.
SERIALIZER_LOCAL=URL replaces --local=URL.";

fn grouped() -> clap::Command {
    let command = Arguments::command().subcommands(VERBS.iter().filter_map(|verb| verb.command()));
    let mut groups = String::new();
    for (name, verbs, others) in &GROUPS {
        let _ = writeln!(groups, "{}", style(format_args!("{name}:")).bold().underlined());
        for name in group(verbs, others) {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {}  {about}", style(format_args!("{name:8}")).bold());
        }
        groups.push('\n');
    }
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n{FOOTER}\n");
    variables::without_empty(command.help_template(template))
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
fn url_after_local(arguments: &[OsString]) -> Option<&str> {
    let own = arguments.split(|argument| argument == "--").next()?;
    let mut after = own.windows(2).filter(|pair| pair[0] == "--local").filter_map(|pair| pair[1].to_str());
    after.find(|argument| argument.starts_with("http"))
}

async fn carry_out(own: Option<OwnProject>) -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    if let Some(url) = url_after_local(&typed) {
        let error = format!("--local takes its URL after `=`; use: --local={url}");
        grouped().error(ErrorKind::ValueValidation, error).exit();
    }
    let mut command = grouped();
    let matches = command.try_get_matches_from_mut(&typed);
    let matches = matches.unwrap_or_else(|error| variables::named_in(error, &mut command, &typed).exit());
    let done = match verbs::parse(&matches) {
        Some(verb) => verb.unwrap_or_else(|error| error.exit()).await,
        None => {
            run_command(Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command, own).await
        }
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

async fn run_command(command: Command, own: Option<OwnProject>) -> anyhow::Result<ExitCode> {
    match command {
        Command::Local(local) => local.run(own).await,
        Command::Alerts(alerts) => alerts.run().await,
        Command::Check(check) => check.run(),
        Command::Init(init) => init.run(),
        Command::Source(source) => source.run().await,
        Command::Send(send) => send.run().await,
        Command::Verify(verify) => verify.run().await,
        Command::Sign(sign) => sign.run(),
        Command::Status(status) => status.run().await,
        Command::List(list) => list.run().await,
        Command::Console(console) => console.run().await,
        Command::Show(show) => show.run().await,
        Command::Listen(listen) => listen.run().await,
        Command::Lease(lease) => lease.run().await,
        Command::Erase(erase) => erase.run().await,
        Command::Restore(restore) => restore.run().await,
        Command::Jobs(jobs) => jobs.run().await,
        Command::Doctor(doctor) => doctor.run().await,
        Command::Audit(audit) => audit.run().await,
        Command::Find(find) => find.run().await,
        Command::Export(export) => export.run().await,
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
    use clap::Parser;

    /// An argument that conflicts with the needed one lifts clap's requirement.
    #[test]
    fn option_without_the_option_it_needs_is_refused() {
        for (line, part) in [
            ("local --act five", "--demo"),
            ("local --json --act five", "'--json' cannot be used with '--act <NAME>'"),
            ("local --queue-port 9123 --svg FILE", "'--queue-port <PORT>' cannot be used with '--svg <FILE>'"),
            ("local --no-functions --plain", "'--no-functions' cannot be used with '--plain'"),
            ("local --demo --json", "'--demo' cannot be used with '--json'"),
            ("local --demo --port 9100", "'--demo' cannot be used with '--port <PORT>'"),
            ("local --invoke http://127.0.0.1:9200 --demo", "--no-functions"),
            ("local --invoke http://127.0.0.1:9200 --worker FILE", "--no-functions"),
            ("show shop/order/1 --raw --settled 5", "'--raw' cannot be used with '--settled <N>'"),
            ("show shop/order/1 --diff --history", "'--diff' cannot be used with '--history'"),
            ("listen --outcome parked --timeout 5", "cannot be used with '--timeout"),
            ("doctor --local --detect-drift", "cannot be used with '--detect-drift'"),
        ] {
            let line = std::iter::once("serializer").chain(line.split(' '));
            let error = super::Arguments::try_parse_from(line.clone()).map(drop).unwrap_err().to_string();
            assert!(error.contains(part), "{}: {error}", line.collect::<Vec<_>>().join(" "));
        }
    }

    #[test]
    fn command_line_definition_is_valid() {
        super::grouped().debug_assert();
    }

    #[test]
    fn each_command_is_listed_in_exactly_one_help_group() {
        let mut grouped: Vec<&str> =
            super::GROUPS.iter().flat_map(|(_, verbs, others)| super::group(verbs, others)).collect();
        grouped.sort_unstable();
        let command = super::grouped();
        let mut verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        verbs.sort_unstable();
        assert_eq!(grouped, verbs);
    }
}
