//! Runs a program in a separate process group, passes signals on to it, and lends it the terminal.

use std::{
    ffi::OsStr,
    fs::File,
    future::poll_fn,
    io::{self, ErrorKind},
    process::ExitStatus,
    task::Poll,
};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process_group, waitid},
    termios::{tcgetpgrp, tcsetpgrp},
};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as Arrivals, SignalKind, signal},
};

use serializer::output;

/// The exit code if the lease was lost. The program's process group was killed, unless the program had already ended.
pub const LOST: u8 = 76;

/// The exit code with which shells report a program that exists but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// The exit code with which shells report a program that was not found.
const NOT_FOUND: u8 = 127;

/// A program in a separate process group. Dropping the value before the program has ended kills the group.
///
/// In a terminal, the group runs in the background. SIGTTIN stops a program that reads from the terminal. The program
/// then gets the foreground, and this process takes the foreground back at the end.
pub struct Program {
    child: Child,
    group: Pid,
    has_ended: bool,
    terminal: Option<File>,
    /// A signal that ends programs was passed on.
    is_asked_to_end: bool,
}

/// The result of [`Program::kill`].
pub enum Killed {
    /// The signal ended the program.
    BySignal,
    /// The program runs as another user, so this process may not kill it. It ended later, by itself.
    NotAllowed,
}

/// The signals that are passed on to the program. All but SIGCONT would end this process, and the program would continue
/// without a lease.
const PASSED_ON: &[Signal] = &[
    Signal::HUP,
    Signal::INT,
    Signal::QUIT,
    Signal::TRAP,
    Signal::ABORT,
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::TERM,
    Signal::CONT,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::SYS,
    #[cfg(target_os = "linux")]
    Signal::POWER,
    #[cfg(target_os = "linux")]
    Signal::STKFLT,
];

/// The signals with which a host, a terminal or an operator ends a program.
const ENDING: &[Signal] = &[Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

pub struct Signals {
    passed_on: Vec<(Signal, Arrivals)>,
    /// Receives the terminal's Ctrl-Z signal. This signal is not passed on, because a suspended program would lose its
    /// lease.
    suspended: Arrivals,
    child: Arrivals,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let arrivals = |signal_: Signal| signal(SignalKind::from_raw(signal_.as_raw()));
        let passed_on = PASSED_ON.iter().map(|passed_on| Ok((*passed_on, arrivals(*passed_on)?)));
        Ok(Self {
            passed_on: passed_on.collect::<io::Result<_>>()?,
            suspended: arrivals(Signal::TSTP)?,
            child: signal(SignalKind::child())?,
        })
    }
}

/// Waits for the next signal to pass on.
async fn next(passed_on: &mut [(Signal, Arrivals)]) -> Signal {
    poll_fn(|context| {
        let mut arrived = passed_on.iter_mut();
        let arrived = arrived.find_map(|(signal, arrivals)| arrivals.poll_recv(context).is_ready().then_some(*signal));
        arrived.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Returns a command that runs `program` in a process that ends when this process ends, even by SIGKILL.
///
/// Only Linux offers this. The process must ask for it itself, so `lease exec` does, and then becomes the program.
#[cfg(target_os = "linux")]
pub fn ending_with_this_process(program: &OsStr) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["lease", "exec", &std::process::id().to_string(), "--"]).arg(program);
    command
}

#[cfg(not(target_os = "linux"))]
pub fn ending_with_this_process(program: &OsStr) -> Command {
    Command::new(program)
}

impl Program {
    pub fn start(mut command: Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let group = id.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self { child, group, has_ended: false, terminal: None, is_asked_to_end: false })
    }

    pub async fn wait(&mut self, signals: &mut Signals) -> io::Result<ExitStatus> {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status?,
                signal = next(&mut signals.passed_on) => {
                    match self.signal(signal) {
                        Ok(()) => self.is_asked_to_end |= ENDING.contains(&signal),
                        Err(_) => output::complain(
                            "the program runs as another user, so a signal could not be passed on to it",
                        ),
                    }
                }
                _ = signals.suspended.recv() => {}
                _ = signals.child.recv() => self.go_on_if_stopped(),
            }
        };
        self.has_ended = true;
        self.take_terminal_back();
        Ok(status)
    }

    /// Kills the program's process group, and waits for the program's end.
    pub async fn kill(&mut self) -> io::Result<Killed> {
        let sent = self.signal(Signal::KILL);
        if sent.is_err() {
            output::complain(
                "the lease is lost, but the program runs as another user and cannot be killed: it goes on, and another \
                 holder may already work",
            );
        }
        self.child.wait().await?;
        self.has_ended = true;
        self.take_terminal_back();
        Ok(if sent.is_ok() { Killed::BySignal } else { Killed::NotAllowed })
    }

    /// Returns whether a signal that ends programs was passed on to the program.
    pub fn is_asked_to_end(&self) -> bool {
        self.is_asked_to_end
    }

    /// Sends a signal to the process group. Fails only if the group belongs to another user.
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        match kill_process_group(self.group, signal) {
            Err(Errno::PERM) => Err(Errno::PERM),
            // Otherwise the call fails only if all processes of the group have ended.
            _ => Ok(()),
        }
    }

    fn go_on_if_stopped(&mut self) {
        // `NOWAIT` leaves the program's exit status to be read by `wait`.
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Ok(Some(status)) = waitid(WaitId::Pid(self.group), look) else { return };
        let stopped_by = |signal: Signal| status.stopping_signal() == Some(signal.as_raw());
        let wants_terminal = stopped_by(Signal::TTIN) || stopped_by(Signal::TTOU);
        if wants_terminal && self.give_terminal().is_some() || stopped_by(Signal::TSTP) {
            let _ = self.signal(Signal::CONT);
        }
    }

    /// Makes the program's process group the terminal's foreground group. Returns `None` without a change if there is
    /// no terminal, or if this process is in the background.
    fn give_terminal(&mut self) -> Option<()> {
        let terminal = File::options().read(true).write(true).open("/dev/tty").ok()?;
        if tcgetpgrp(&terminal).ok()? != self.group {
            (tcgetpgrp(&terminal).ok()? == getpgrp()).then_some(())?;
            tcsetpgrp(&terminal, self.group).ok()?;
            self.terminal = Some(terminal);
        }
        Some(())
    }

    fn take_terminal_back(&mut self) {
        let Some(terminal) = self.terminal.take() else { return };
        // From the background, this call stops a process that does not block SIGTTOU.
        let background_call = SigSet::from(Blocked::SIGTTOU);
        if background_call.thread_block().is_ok() {
            let _ = tcsetpgrp(&terminal, getpgrp());
            let _ = background_call.thread_unblock();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.has_ended {
            let _ = self.signal(Signal::KILL);
        }
    }
}

/// Says that `program` could not be started. Returns the exit code with which shells report this.
pub fn not_started(program: &OsStr, error: &io::Error) -> u8 {
    output::complain(format_args!("{} cannot be started: {error}", program.to_string_lossy()));
    if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Returns the exit code of a program, or 128 and the number of the signal that ended it, as shells do.
pub fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
