//! `serializer local`: a whole deployment on this machine.

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, sync::Arc};

use anyhow::{Context, Result};
use clap::Args;
use serializer::{
    demo,
    local::{
        DEFAULT_WORKERS, FUNCTION_TIMEOUT, Function, Invoker, Local as Deployment, ORDERS_TABLE, Options, OwnScheduler,
        SLOTS,
        function_pool::FunctionPool,
        function_process::{FunctionSettings, Logs},
    },
    samples,
    story::Story,
};
use tracing::Level;
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};
use webhook_serializer::{
    aws::Parts,
    config::Environment,
    engine::drain::DrainSettings,
    functions::worker::check_handlers,
    handlers::{Handlers, forward::Forward, orders::Orders},
    sources::Sources,
    telemetry::Quiet,
    time::Surroundings,
};

/// Options of `serializer local`.
#[derive(Debug, Args)]
pub struct Local {
    /// Play the demonstration, judge it, and end
    #[arg(long)]
    demo: bool,
    /// Only these acts of the demonstration
    #[arg(long, requires = "demo", value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(demo::act_names().collect::<Vec<_>>()))]
    act: Vec<String>,
    /// Write a picture of the first act, or of the one chosen
    #[arg(long, requires = "demo", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Plain lines instead of lanes
    #[arg(long, requires = "demo")]
    plain: bool,
    /// Keep tables and queue here, and go on with what is there
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The webhook endpoint's port on 127.0.0.1
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// The sources document (TOML or JSON); the samples' own by default
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    /// How many workers run at most
    #[arg(long, default_value_t = DEFAULT_WORKERS, value_name = "N")]
    workers: NonZeroUsize,
    /// A worker binary of yours, run as Lambda runs it, instead of the one with the ready handlers
    #[arg(long, value_name = "FILE", conflicts_with = "demo")]
    worker: Option<PathBuf>,
    /// Engines only: the functions run elsewhere, as under `cargo lambda watch`, with the environment printed
    #[arg(long, conflicts_with_all = ["demo", "worker", "scheduler"])]
    no_functions: bool,
    /// Where they are invoked, for wake-ups and the schedule
    #[arg(long, requires = "no_functions", default_value = "http://127.0.0.1:9200", value_name = "URL")]
    invoke: String,
    /// Write their environment here too, a NAME=value a line
    #[arg(long, requires = "no_functions", value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// A scheduler binary of yours, run as Lambda runs it, instead of the one that only sweeps
    #[arg(long, value_name = "FILE", conflicts_with = "demo")]
    scheduler: Option<PathBuf>,
    /// Which of its jobs are on: `on`, `off`, their names (`a,b`), or those to leave out (`-a,-b`);
    /// none, unless asked for
    #[arg(long, value_name = "JOBS", requires = "scheduler", allow_hyphen_values = true)]
    jobs: Option<String>,
}

impl Local {
    pub async fn run(self) -> Result<ExitCode> {
        if self.demo {
            let Self { plain, svg, act, data, .. } = self;
            let clean = demo::play(demo::DemoOptions { plain, svg, acts: act, data }).await?;
            return Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        self.serve().await
    }

    async fn serve(self) -> Result<ExitCode> {
        // The embedded DynamoDB warns of every condition that does not hold.
        let levels = Targets::new().with_default(Level::WARN).with_target("dynoxide", Level::ERROR);
        tracing_subscriber::registry()
            .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(levels))
            .init();
        let document = match &self.sources {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("{}", path.display()))?,
            None => samples::SOURCES.to_owned(),
        };
        let sources = Arc::new(Sources::parse(&document)?);
        let story = Story::new(Surroundings::system());
        let options = Options {
            data: self.data.clone(),
            port: self.port,
            workers: self.workers,
            sources: sources.clone(),
            drain: DrainSettings::default(),
            scheduler: self.scheduler.clone().map(|program| OwnScheduler { program, jobs: self.jobs.clone() }),
        };
        if self.no_functions {
            return self.serve_elsewhere(options, &document).await;
        }
        let mut deployment = Deployment::start(options, Arc::new(story.clone())).await?.side_by_side(SLOTS);
        // A worker of the user's reads the document from a file.
        let directory = tempfile::tempdir()?;
        match &self.worker {
            Some(program) => {
                let file = directory.path().join("sources");
                std::fs::write(&file, &document)?;
                let settings = FunctionSettings {
                    name: "worker".into(),
                    program: program.canonicalize().with_context(|| format!("{}", program.display()))?,
                    timeout: FUNCTION_TIMEOUT,
                    memory_mb: 256,
                    environment: deployment.environment(&file.to_string_lossy()),
                    logs: Logs::Inherited,
                };
                let pool = Arc::new(FunctionPool::new(settings, self.workers));
                for _ in 0..self.workers.get() {
                    deployment.feed(Function::Processes(pool.clone()));
                }
            }
            None => {
                let forward = Forward::configured(&sources, &Environment)?;
                let make = |parts: &Parts| {
                    Handlers::new()
                        .with("orders", Orders::new(parts.store.table().clone(), ORDERS_TABLE))
                        .with("forward", forward.clone())
                };
                let parts = deployment.engines.connect(&Surroundings::system(), None);
                check_handlers(&sources, &make(&parts)).map_err(anyhow::Error::msg)?;
                deployment.work(make);
            }
        }
        self.greet(&deployment);
        let lines = tokio::spawn(print_lines(story));
        tokio::signal::ctrl_c().await?;
        lines.abort();
        println!("stopping …");
        deployment.stop().await?;
        Ok(ExitCode::SUCCESS)
    }

    /// Engines for functions that somebody else runs.
    async fn serve_elsewhere(&self, options: Options, document: &str) -> Result<ExitCode> {
        let directory = tempfile::tempdir()?;
        let sources_file = match &self.sources {
            Some(path) => path.canonicalize()?,
            None => {
                let file = directory.path().join("sources.toml");
                std::fs::write(&file, document)?;
                file
            }
        };
        let deployment =
            Deployment::start_without_functions(options, Arc::new(Quiet), Invoker::new(&self.invoke)).await?;
        let environment = deployment.environment(&sources_file.to_string_lossy());
        let lines = |start: &str| -> String {
            environment.iter().map(|(name, value)| format!("{start}{name}={value}\n")).collect()
        };
        // The file last: whoever waits for it finds everything ready.
        self.greet_elsewhere(&deployment, &lines("export "));
        if let Some(file) = &self.env_file {
            std::fs::write(file, lines("")).with_context(|| format!("{}", file.display()))?;
        }
        tokio::signal::ctrl_c().await?;
        println!("stopping …");
        deployment.stop().await?;
        Ok(ExitCode::SUCCESS)
    }

    fn greet_elsewhere(&self, deployment: &Deployment, exports: &str) {
        self.greet_engines(deployment);
        let invoke = self.invoke.trim_end_matches('/');
        println!("functions  invoked at {invoke}\n");
        println!("Their environment:\n\n{exports}");
        let port = invoke.rsplit(':').next().unwrap_or_default();
        println!("With that, in another terminal:\n\ncargo lambda watch -A 127.0.0.1 -P {port} --ignore-changes\n");
        if self.sources.is_none() {
            println!("and in a third:\n\n{}\n", samples::curl(&format!("{invoke}/lambda-url/ingest")));
            println!("then: {}\n", inspect_line(&format!("http://{}", deployment.webhooks)));
        }
        println!("Ctrl-C stops.\n");
    }

    fn greet_engines(&self, deployment: &Deployment) {
        println!("DynamoDB   {}", deployment.engines.dynamodb_url());
        println!("queue      {}", deployment.engines.queue_endpoint());
        match &self.data {
            Some(directory) => println!("data       {}", directory.display()),
            None => println!("data       in memory; --data DIR keeps it"),
        }
    }

    fn greet(&self, deployment: &Deployment) {
        let url = format!("http://{}", deployment.webhooks);
        println!("webhooks   {url}/webhooks/{{source}}");
        self.greet_engines(deployment);
        if self.scheduler.is_some() {
            println!(
                "jobs       {}; `serializer jobs --local={url}` lists them",
                self.jobs.as_deref().unwrap_or("off")
            );
        }
        if self.sources.is_none() {
            println!("\nTry it, in another terminal:\n\n{}\n", samples::curl(&url));
            println!("then: {}\n", inspect_line(&url));
        }
        println!("Ctrl-C stops.\n");
    }
}

/// A command line that shows what became of the sample.
fn inspect_line(url: &str) -> String {
    format!("serializer inspect --local={url} {}", samples::CURL_ENTITY)
}

async fn print_lines(story: Story) {
    let mut length = story.length();
    let mut next = 0;
    loop {
        for happening in story.since(next) {
            next += 1;
            if let Some(line) = demo::line(&happening) {
                println!("{line}");
            }
        }
        if length.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    #[test]
    fn the_line_that_it_prints_is_a_command_line() {
        let line = super::inspect_line("http://127.0.0.1:9000");
        crate::Arguments::try_parse_from(line.split(' ')).unwrap();
    }
}
