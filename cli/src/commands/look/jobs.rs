//! `serializer jobs`: lists the registered jobs, requests a run of one, or runs a program once for each tick.

mod once;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::json;
use serializer::{
    output::{self, Table},
    say,
    view::job::{holder, last, next, result, schedule, time},
};
use webhook_serializer::{
    jobs::roster::{self, Listed},
    nearest,
    time::Timestamp,
};

use crate::commands::{print_json, target::Target};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct JobsArguments {
    #[command(subcommand)]
    action: Option<JobsCommand>,
    #[command(flatten)]
    list: JobsList,
}

#[derive(Debug, Subcommand)]
enum JobsCommand {
    /// Run a job within a minute, even if the job is switched off
    Run(JobsRun),
    /// Run a program once for each tick of a schedule, however many hosts call this
    Once(once::Once),
}

#[derive(Debug, Args)]
struct JobsList {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct JobsRun {
    /// The job's name, as `serializer jobs` lists it
    name: String,
    #[command(flatten)]
    target: Target,
}

impl JobsArguments {
    pub async fn run(self) -> Result<ExitCode> {
        match self.action {
            Some(JobsCommand::Run(run)) => run.run().await,
            Some(JobsCommand::Once(once)) => once.run().await,
            None => self.list.run().await,
        }
    }
}

impl JobsRun {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        if roster::request(&deployment.parts.store, &self.name).await?.is_none() {
            let jobs = roster::listed(&deployment.parts.store).await?;
            let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
            let hint = nearest::hint(&self.name, names.iter().copied());
            let known = match names.as_slice() {
                [] => "No job is registered yet".to_owned(),
                names => format!("The registered jobs are {}", names.join(", ")),
            };
            bail!("there is no job `{}`{hint}. {known}; a scheduler registers its jobs within a minute", self.name);
        }
        say!(
            "{} is requested: its scheduler starts it within a minute, or the next call of its `jobs once`. `{} jobs{}` \
             shows the result",
            self.name,
            output::this_command(),
            deployment.option
        );
        Ok(ExitCode::SUCCESS)
    }
}

impl JobsList {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let now = deployment.env.now();
        let jobs = roster::listed(&deployment.parts.store).await?;
        if self.json {
            jobs.iter().for_each(|job| print_json(&in_json(job, now)));
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["job", "schedule", "last", "result", "next", "holder"]);
        for job in &jobs {
            table.row([job.name.clone(), schedule(job), last(job), result(job), next(job, now), holder(job, now)]);
        }
        match table.is_empty() {
            true => say!("no job is registered: a scheduler registers its jobs when it first runs"),
            false => output::print(table),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn in_json(job: &Listed, now: Timestamp) -> serde_json::Value {
    let state = &job.state;
    let result = state.last_result.as_ref();
    json!({
        "job": job.name,
        "schedule": schedule(job),
        "on": job.plan.as_ref().map(|plan| plan.is_on),
        "next": job.next(now).map(time),
        "run_requested": state.run_requested.map(time),
        "last": result.and(state.last_tick).map(time),
        "result": result.map(|result| result.ending.as_str()),
        "ended_at": result.map(|result| time(result.at)),
        "took_ms": result.map(|result| result.took.as_millis() as u64),
        "error": result.map(|result| result.error.as_str()).filter(|error| !error.is_empty()),
        "tick": state.tick.map(time),
        "starts": state.tick.map(|_| state.starts),
        "token": state.entity.token.0,
        "held_until": state.entity.held.as_ref().map(|held| time(held.expires_at)),
        "holder": state.entity.held.as_ref().and(state.entity.holder_info.as_ref()).map(|info| info.as_str()),
    })
}
