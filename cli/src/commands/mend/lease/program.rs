use std::{fs::File, io, process::ExitStatus};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::{
    process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process_group, waitid},
    termios::{tcgetpgrp, tcsetpgrp},
};
use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as Arrivals, SignalKind, signal},
};

/// A program in a separate process group. Dropping the value before the program has ended kills the group.
///
/// In a terminal, the group runs in the background. SIGTTIN stops a program that reads from the terminal. The program
/// then gets the foreground, and this process takes the foreground back at the end.
pub(super) struct Program {
    child: Child,
    group: Pid,
    has_ended: bool,
    terminal: Option<File>,
}

pub(super) struct PassedOn {
    interrupted: Arrivals,
    terminated: Arrivals,
    hung_up: Arrivals,
    continued: Arrivals,
    /// Receives the terminal's Ctrl-Z signal. This signal is not passed on, because a suspended program would lose its
    /// lease.
    suspended: Arrivals,
    child: Arrivals,
}

impl PassedOn {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            hung_up: signal(SignalKind::hangup())?,
            continued: signal(SignalKind::from_raw(Signal::CONT.as_raw()))?,
            suspended: signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
            child: signal(SignalKind::child())?,
        })
    }
}

impl Program {
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let child = command.process_group(0).spawn()?;
        let id = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let group = id.ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Self { child, group, has_ended: false, terminal: None })
    }

    pub(super) async fn wait(&mut self, signals: &mut PassedOn) -> io::Result<ExitStatus> {
        let status = loop {
            tokio::select! {
                status = self.child.wait() => break status?,
                _ = signals.interrupted.recv() => self.signal(Signal::INT),
                _ = signals.terminated.recv() => self.signal(Signal::TERM),
                _ = signals.hung_up.recv() => self.signal(Signal::HUP),
                _ = signals.continued.recv() => self.signal(Signal::CONT),
                _ = signals.suspended.recv() => {}
                _ = signals.child.recv() => self.go_on_if_stopped(),
            }
        };
        self.has_ended = true;
        self.take_terminal_back();
        Ok(status)
    }

    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        self.child.wait().await?;
        self.has_ended = true;
        self.take_terminal_back();
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // The call fails if all processes of the group have ended.
        let _ = kill_process_group(self.group, signal);
    }

    fn go_on_if_stopped(&mut self) {
        // `NOWAIT` leaves the program's exit status to be read by `wait`.
        let look = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Ok(Some(status)) = waitid(WaitId::Pid(self.group), look) else { return };
        let stopped_by = |signal: Signal| status.stopping_signal() == Some(signal.as_raw());
        let wants_terminal = stopped_by(Signal::TTIN) || stopped_by(Signal::TTOU);
        if wants_terminal && self.give_terminal().is_some() || stopped_by(Signal::TSTP) {
            self.signal(Signal::CONT);
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
            self.signal(Signal::KILL);
        }
    }
}
