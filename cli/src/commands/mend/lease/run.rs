//! `serializer lease run`: holds the lease of a key while a program runs.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::{Args, builder::NonEmptyStringValueParser};
use nix::sys::signal::{SigSet, Signal};
use serializer::output;
use webhook_serializer::{
    leases::{LeaseError, Terms},
    protocol::entity::EntityKey,
};

use super::leases;
use crate::commands::{
    program::{Killed, LOST, Program, Signals, code_of, ending_with_this_process, not_started},
    target::Target,
};

/// The exit code if another holder has the lease. The program was not started.
const HELD: u8 = 75;

#[derive(Debug, Args)]
#[command(
    after_help = "The lease is renewed while the program runs, and released when it ends. The program's environment has\n\
                       SERIALIZER_KEY and SERIALIZER_TOKEN, the fencing token: a receiver that remembers the newest token\n\
                       can refuse effects that carry an older one.\n\n\
                       Signals that would end this command are passed on to the program's process group, except FPE, ILL,\n\
                       SEGV and the real-time signals. Ctrl-Z does not suspend it, because the lease would be lost. If\n\
                       SIGKILL ends this command, Linux kills the program too. A program of another user, such as sudo,\n\
                       gets no signals and is not killed: run `sudo serializer lease run` instead. Its child processes, and on other systems the program itself, then continue without a lease, as\n\
                       do background processes that outlive the program: only the fencing token keeps late effects out.\n\n\
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
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
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
        let mut signals = Signals::listen()?;
        let mut command = ending_with_this_process(program);
        command.args(arguments).env("SERIALIZER_KEY", self.key.as_str()).env("SERIALIZER_TOKEN", token);
        let mut running = match Program::start(command) {
            Ok(running) => running,
            Err(error) => {
                guard.release().await?;
                return Ok(ExitCode::from(not_started(program, &error)));
            }
        };
        let (lost, end) = match guard.hold(running.wait(&mut signals)).await {
            Ok(status) => {
                let code = ExitCode::from(code_of(status?));
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
                match running.kill().await? {
                    Killed::BySignal => (error, "was killed"),
                    Killed::NotAllowed => (error, "could not be killed, and has ended by itself"),
                }
            }
        };
        output::complain(format_args!("{lost}; {name} {end}, and another holder may already work on {}", self.key));
        Ok(ExitCode::from(LOST))
    }
}

/// Becomes the program of a `lease run`. If the process of that `lease run` ends, the kernel kills this process.
#[derive(Debug, Args)]
pub struct Exec {
    /// The process of `lease run`
    parent: u32,
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

impl Exec {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (program, arguments) = self.program.split_first().context("no program was given: write it after `--`")?;
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // The parent may have ended before the kernel knew.
        ensure!(std::os::unix::process::parent_id() == self.parent, "`lease run` starts this command, and nobody else");
        let error = Command::new(program).args(arguments).exec();
        // The failed call has reset SIGPIPE, which would end this process if nobody reads the message.
        SigSet::from(Signal::SIGPIPE).thread_block()?;
        Ok(ExitCode::from(not_started(program, &error)))
    }
}
