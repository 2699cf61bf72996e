use std::{
    ffi::OsString,
    io::ErrorKind,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Args;
use serializer::output;
use tokio::process::Command;
use webhook_serializer::{
    leases::{LeaseError, Terms},
    protocol::entity::EntityKey,
};

use super::{
    leases,
    program::{PassedOn, Program},
};
use crate::commands::target::Target;

/// The exit code if another holder has the lease. The program was not started.
const HELD: u8 = 75;

/// The exit code if the lease was lost. The program's process group was killed, unless the program had already ended.
const LOST: u8 = 76;

/// The exit code with which shells report a program that exists but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// The exit code with which shells report a program that was not found.
const NOT_FOUND: u8 = 127;

#[derive(Debug, Args)]
#[command(
    after_help = "The lease is renewed while the program runs, and released when it ends. The program's environment has\n\
                       SERIALIZER_KEY and SERIALIZER_TOKEN, the fencing token: a receiver that remembers the newest token\n\
                       can refuse effects that carry an older one.\n\n\
                       SIGINT, SIGTERM and SIGHUP are passed on to the program's process group. Ctrl-Z does not suspend\n\
                       it, because the lease would be lost. Background processes that outlive the program have no lease.\n\
                       If this command is killed by SIGKILL, the program continues without a lease, and only the fencing\n\
                       token keeps its late effects out.\n\n\
                       The program's exit code is passed on. Besides:\n  \
                       75   another holder had the lease for the whole wait; the program was not started\n  \
                       76   the lease was lost; the program was killed if it still ran; another holder may work already\n  \
                       126  the program exists, but cannot be executed\n  \
                       127  the program was not found\n\n\
                       serializer lease run --local invoice_gen/SUB-1234 -- python3 invoices.py SUB-1234"
)]
pub struct Run {
    /// The key: an order's, or any other such as invoice_gen/SUB-1234
    key: EntityKey,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
    /// Wait at most this long for the lease, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
    /// The lease's length, in seconds; if this machine dies, others wait up to this long
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(1..=900))]
    lease: u64,
    /// The holder's name, as `lease list` prints it; by default the program's
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    #[command(flatten)]
    target: Target,
}

impl Run {
    pub(super) async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let (program, arguments) = self.program.split_first().context("no program was given: write it after `--`")?;
        let name = program.to_string_lossy();
        let leases = leases(&deployment).held_by(self.by.as_deref().unwrap_or(&name));
        let terms = Terms::default().lease(Duration::from_secs(self.lease)).wait(Duration::from_secs(self.wait));
        let mut guard = match leases.acquire(&self.key, terms).await {
            Ok(guard) => guard,
            Err(error @ LeaseError::Contended { .. }) => {
                output::complain(format_args!("{} is {error}; {name} was not started", self.key));
                return Ok(ExitCode::from(HELD));
            }
            Err(error) => return Err(error.into()),
        };
        let token = guard.lease().token().to_string();
        // From here on, signals go to the program. The lease is released when the program ends.
        let mut signals = PassedOn::listen()?;
        let mut command = Command::new(program);
        command.args(arguments).env("SERIALIZER_KEY", self.key.as_str()).env("SERIALIZER_TOKEN", token);
        let mut running = match Program::start(command) {
            Ok(running) => running,
            Err(error) => {
                output::complain(format_args!("{name} cannot be started: {error}"));
                guard.release().await?;
                let is_missing = error.kind() == ErrorKind::NotFound;
                return Ok(ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE }));
            }
        };
        let (lost, end) = match guard.hold(running.wait(&mut signals)).await {
            Ok(status) => {
                let code = code_of(status?);
                match guard.release().await {
                    Ok(()) => return Ok(code),
                    Err(LeaseError::Lost) => (LeaseError::Lost, "had ended before"),
                    Err(error) => {
                        output::complain(format_args!(
                            "the lease may not have been released: {error}; it expires within {} s",
                            self.lease
                        ));
                        return Ok(code);
                    }
                }
            }
            Err(error) => {
                // Another holder may already work on the key.
                running.kill().await?;
                (error, "was killed")
            }
        };
        output::complain(format_args!("{lost}; {name} {end}, and another holder may already work on {}", self.key));
        Ok(ExitCode::from(LOST))
    }
}

fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
