//! `serializer jobs once`: runs a program once for each tick, however many hosts call it.

use std::{
    ffi::OsString,
    future::pending,
    os::unix::process::ExitStatusExt,
    process::ExitCode,
    sync::{Arc, Mutex},
};

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use serializer::{
    output, say,
    view::job::{holder, last, next, result, time},
};
use tokio::sync::Notify;
use webhook_serializer::{
    jobs::{
        Context, Job, JobError, OnCrash,
        once::{self, OnceError},
        roster,
    },
    protocol::tick::TickOutcome,
};

use crate::commands::{
    program::{LOST, Program, Signals, code_of, ending_with_this_process, not_started},
    target::{Deployment, Target},
};

#[derive(Debug, Args)]
#[command(
    after_help = "Call it on each host, more often than the schedule says, with the same schedule everywhere:\n\n  \
                       * * * * *  serializer jobs once nightly-report --stack shop --schedule '0 3 * * *' -- python3 report.py\n\n\
                       The first call that finds a tick due runs the program; the others end at once with exit code 0.\n\
                       The program's environment has SERIALIZER_JOB, SERIALIZER_TICK (when the tick was due, the same for\n\
                       each start) and SERIALIZER_TOKEN, the fencing token.\n\n\
                       The job's lease is renewed while the program runs, for at most a day. If the host dies, a\n\
                       signal kills the program, or it fails after HUP, INT, QUIT or TERM, a later call runs the tick again, unless --on-crash is skip; a tick starts three\n\
                       times at most. Any other failure is recorded, and the tick does not run again. `serializer jobs`\n\
                       shows schedule and result.\n\n\
                       The name must not be that of a job in Rust. The program's exit code is passed on. Besides:\n  \
                       76   the job's lease was lost; the program was killed; another host may run it already\n  \
                       126  the program exists, but cannot be executed\n  \
                       127  the program was not found"
)]
pub struct Once {
    /// The job's name: a-z, 0-9, - and _
    name: String,
    /// When it is due: five cron fields, or a rate such as `every 6 hours`
    #[arg(long)]
    schedule: String,
    /// The time zone of the cron fields, such as Europe/Berlin; by default UTC
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Whether a tick runs again if its host died
    #[arg(long, value_enum, default_value_t = AfterCrash::Again)]
    on_crash: AfterCrash,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AfterCrash {
    Again,
    Skip,
}

impl From<AfterCrash> for OnCrash {
    fn from(crash: AfterCrash) -> Self {
        match crash {
            AfterCrash::Again => Self::Again,
            AfterCrash::Skip => Self::Skip,
        }
    }
}

impl Once {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let store = &deployment.parts.store;
        let code = Arc::new(Mutex::new(None));
        let killed = Arc::new(Notify::new());
        let program: Arc<[OsString]> = self.program.into();
        let shown = program.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default();
        let ended = code.clone();
        let by_signal = killed.clone();
        let start = move |context: Context| {
            let program = program.clone();
            let ended = ended.clone();
            let by_signal = by_signal.clone();
            async move {
                let run = run_for(&context, &program).await?;
                *ended.lock().expect("no one panics while holding this") = Some(run.code);
                if run.is_killed {
                    by_signal.notify_one();
                    pending::<()>().await;
                }
                if run.code == 0 { Ok(()) } else { Err(JobError::from(format!("exit code {}", run.code))) }
            }
        };
        let mut job = Job::new(&self.name, &self.schedule, start).on_crash(self.on_crash.into());
        if let Some(zone) = &self.zone {
            job = job.in_zone(zone);
        }
        // Its sources repeat its text.
        let once = once::Once::new(store.clone(), job, &shown).map_err(|error| anyhow!("{error}"))?;
        let report = tokio::select! {
            report = once.run() => report,
            () = killed.notified() => {
                output::complain(format_args!(
                    "{shown} was ended by a signal, or failed after one, so the tick counts as crashed; once the lease has \
                     expired, a later call decides about it"
                ));
                return Ok(ExitCode::from(code.lock().expect("no one panics while holding this").unwrap_or(1)));
            }
        };
        let report = match report {
            Ok(report) => report,
            Err(OnceError::Unrecorded(error)) => {
                let code = code.lock().expect("no one panics while holding this").unwrap_or(1);
                let later = match self.on_crash {
                    AfterCrash::Again => {
                        "a later call runs the tick again once the lease has expired, up to three starts in all"
                    }
                    AfterCrash::Skip => "the tick counts as crashed, and does not run again",
                };
                output::complain(format_args!(
                    "{shown} ended with exit code {code}. It is unknown whether that was recorded: {error}. If not, {later}"
                ));
                return Ok(ExitCode::from(code));
            }
            // Its source repeats its text.
            Err(error) => bail!("{error}"),
        };
        for run in &report.ran {
            say!("{} of {} {}", self.name, time(run.tick), run.ending);
        }
        match report.ran.last().map(|run| run.ending) {
            None => not_run(&deployment, &self.name).await,
            Some(TickOutcome::Crashed) => {
                output::complain(
                    "the job's lease was lost; the program was killed, and another host may run it already",
                );
                Ok(ExitCode::from(LOST))
            }
            Some(TickOutcome::Done) => Ok(ExitCode::SUCCESS),
            Some(_) => Ok(ExitCode::from(code.lock().expect("no one panics while holding this").unwrap_or(1))),
        }
    }
}

struct ProgramRun {
    code: u8,
    /// The program was ended by a signal, or failed after one that asked it to end, as when its host shuts down.
    is_killed: bool,
}

/// Runs the program for one tick. The program is killed if this future is dropped.
async fn run_for(context: &Context, program: &[OsString]) -> Result<ProgramRun, JobError> {
    let (program, arguments) = program.split_first().ok_or("no program was given: write it after `--`")?;
    let mut signals = Signals::listen()?;
    let mut command = ending_with_this_process(program);
    command.args(arguments).env("SERIALIZER_JOB", context.job());
    command.env("SERIALIZER_TICK", time(context.tick())).env("SERIALIZER_TOKEN", context.token().to_string());
    match Program::start(command) {
        Ok(mut running) => {
            let status = running.wait(&mut signals).await?;
            let is_asked_to_end = running.is_asked_to_end() && !status.success();
            Ok(ProgramRun { code: code_of(status), is_killed: status.signal().is_some() || is_asked_to_end })
        }
        Err(error) => Ok(ProgramRun { code: not_started(program, &error), is_killed: false }),
    }
}

/// Says why the program was not run.
async fn not_run(deployment: &Deployment, name: &str) -> Result<ExitCode> {
    let now = deployment.env.now();
    let jobs = roster::listed(&deployment.parts.store).await?;
    let Some(job) = jobs.iter().find(|job| job.name == name) else { bail!("the job `{name}` has no row") };
    match holder(job, now) {
        by if by.is_empty() => {
            let before = last(job);
            let before = if before.is_empty() { String::new() } else { format!("; {before} {}", result(job)) };
            say!("{name} has nothing to run; next {}{before}", next(job, now));
        }
        by => match job.state.expires_everywhere() {
            Some(from) if !job.state.entity.held.as_ref().is_some_and(|held| held.runs(now)) => {
                say!("{name} is held by {by}; a call after {} takes it over", time(from));
            }
            _ => say!("{name} is held by {by}"),
        },
    }
    Ok(ExitCode::SUCCESS)
}
