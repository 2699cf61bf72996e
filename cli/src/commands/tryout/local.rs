//! `serializer local`: runs the engines, the webhook endpoint and the functions on this machine, or plays the
//! demonstration.

mod environment;
mod greet;
mod play;
mod stop;
mod tell;

use std::{
    future::ready,
    net::IpAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use serializer::{
    console::{Console, SourcesReader, Watched},
    document,
    local::{
        DEFAULT_WORKERS, FUNCTION_TIMEOUT, Invoker, LOOPBACK, LocalFunction, LocalOptions, LocalRun, OwnScheduler,
        SLOTS, demo,
        function_pool::FunctionPool,
        function_process::{FunctionSettings, ProcessIds, ProcessLogs},
        runtime_api::InvokeError,
        samples,
    },
    output::{self, local_option, quoted},
    say,
    view::recording::EventRecorder,
};
use tokio::sync::{
    mpsc::{self, UnboundedSender},
    oneshot,
};
use tracing::Level;
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};
use webhook_serializer::{
    aws::{Account, Parts},
    config::{Environment, FileDocument, Variables},
    engine::{append::Inbox, drain::DrainSettings, store::Store},
    functions::worker::check_handlers,
    handlers::{Handlers, fan_out::FanOut, forward::Forward, invoke::Invoke, log::Log},
    operator::Operator,
    sources::{FAN_OUT, LiveSources, Sources},
    telemetry::Quiet,
    time::Env,
    tls::Roots,
};

use stop::{Stops, stop_when_asked};
use tell::{EventPrinter, RefusalsPrinter, SourcesPrinter, print_queue, print_queue_as_json};

#[derive(Debug, Clone)]
pub struct OwnProject {
    pub program: PathBuf,
    pub events: &'static Path,
}

/// The options that conflict with `--demo`. They conflict with the options that need it, too: a conflict lifts clap's
/// requirements.
const NOT_WITH_DEMO: [&str; 10] = [
    "json",
    "listen",
    "port",
    "console_port",
    "queue_port",
    "worker",
    "no_functions",
    "invoke",
    "env_file",
    "scheduler",
];

#[derive(Debug, Args)]
pub struct Local {
    /// Play the demonstration, check its result, and end; in your own project, send the project's samples to its
    /// functions
    #[arg(long, conflicts_with_all = NOT_WITH_DEMO)]
    demo: bool,
    /// Only these acts of the demonstration
    #[arg(long, requires = "demo", conflicts_with_all = NOT_WITH_DEMO, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(demo::act_names().collect::<Vec<_>>()))]
    act: Vec<String>,
    /// Write a picture of the first act that is played
    #[arg(long, requires = "demo", conflicts_with_all = NOT_WITH_DEMO, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print lines instead of drawing lanes
    #[arg(long, requires = "demo", conflicts_with_all = NOT_WITH_DEMO)]
    plain: bool,
    /// Print events as JSON objects, one a line
    #[arg(long, conflicts_with_all = ["no_functions", "invoke"])]
    json: bool,
    /// Keep tables and queue in this folder, and continue with them
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Listen for webhooks and for the console on this address; in a container, 0.0.0.0
    #[arg(long, default_value_t = LOOPBACK, value_name = "IP")]
    listen: IpAddr,
    /// The webhook endpoint's port
    #[arg(long, default_value_t = 9000)]
    port: u16,
    /// The console's port; by default 9001, or a free port if 9001 is taken
    #[arg(long, value_name = "PORT")]
    console_port: Option<u16>,
    /// The port of the wake-ups' queue and of the sources' queues; by default a free one
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "PORT")]
    queue_port: u16,
    /// The sources document (TOML or JSON); the samples' own by default
    #[arg(long, value_name = "FILE")]
    sources: Option<PathBuf>,
    /// With --sources: accept webhooks signed with the samples' development keys, which everybody can read, to try
    /// senders that publish their keys
    #[arg(long, requires = "sources")]
    development_keys: bool,
    /// The largest number of workers at once
    #[arg(long, default_value_t = DEFAULT_WORKERS, value_name = "N")]
    workers: NonZeroUsize,
    /// Your worker binary, run as Lambda runs it, instead of the built-in worker with the included handlers
    #[arg(long, value_name = "FILE")]
    worker: Option<PathBuf>,
    /// Send wake-ups with their account's group, as with the stack's parameter FairQueue
    #[arg(long, env = "FAIR_QUEUE")]
    fair_queue: bool,
    /// Run only the engines, and print the environment for functions that you run, such as with `cargo lambda watch`
    #[arg(long, conflicts_with_all = ["worker", "scheduler"])]
    no_functions: bool,
    /// With --no-functions: the URL that invokes your functions, to which wake-ups and the scheduler's events are sent
    #[arg(long, requires = "no_functions", conflicts_with_all = ["worker", "scheduler"], default_value = "http://127.0.0.1:9200", value_name = "URL")]
    invoke: String,
    /// The URL of the Lambda endpoint that the handler `invoke` calls, such as that of `sam local start-lambda` or `cargo lambda watch`. Over http://, functions are called without a qualifier
    #[arg(long, env = "AWS_ENDPOINT_URL_LAMBDA", default_value = "http://127.0.0.1:3001", value_name = "URL")]
    lambda: String,
    /// Write the environment variables for functions and `Leases::from_env` to this file, as NAME=value lines
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Your scheduler binary, run as Lambda runs it, instead of the built-in scheduler, which only sweeps
    #[arg(long, value_name = "FILE")]
    scheduler: Option<PathBuf>,
    /// The scheduler's jobs to run: `on`, `off`, their names (`a,b`), or all but some (`-a,-b`)
    #[arg(long, value_name = "JOBS", allow_hyphen_values = true)]
    jobs: Option<String>,
}

impl Local {
    pub async fn run(mut self, own: Option<OwnProject>) -> Result<ExitCode> {
        if let Some(own) = own
            && !self.no_functions
        {
            self.worker.get_or_insert(own.program.clone());
            self.scheduler.get_or_insert(own.program);
            // Acts and pictures exist only in the built-in demonstration.
            if self.demo && self.act.is_empty() && self.svg.is_none() {
                return self.serve(Some(own.events)).await;
            }
        }
        ensure!(
            self.jobs.is_none() || self.scheduler.is_some(),
            "--jobs also needs --scheduler FILE, the binary that has the jobs"
        );
        self.check_ports()?;
        if self.demo {
            ensure!(self.sources.is_none(), "the demonstration has a sources document: leave out --demo or --sources");
            let Self { plain, svg, act, data, .. } = self;
            let clean = demo::run(demo::DemoOptions { plain, svg, acts: act, data }).await?;
            return Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        self.serve(None).await
    }

    fn check_ports(&self) -> Result<()> {
        // --no-functions serves no console.
        let console = self.console_port.filter(|_| !self.no_functions).unwrap_or_default();
        let ports = [("--port", self.port), ("--console-port", console), ("--queue-port", self.queue_port)];
        for (at, (option, port)) in ports.into_iter().enumerate() {
            let same = ports[..at].iter().find(|(_, earlier)| *earlier == port && port != 0);
            if let Some((earlier, _)) = same {
                bail!("{earlier} and {option} both name port {port}: choose another for one of them");
            }
        }
        Ok(())
    }

    async fn serve(self, samples_in: Option<&Path>) -> Result<ExitCode> {
        print_warnings();
        let file = self.sources_file()?;
        let sources = match &file {
            Some(file) => self.open(file).await?,
            None => LiveSources::fixed(Arc::new(Sources::parse(samples::SOURCES)?)),
        };
        let story = EventRecorder::new(Env::system());
        // The functions' output is read from the start, because it may say why a function does not start.
        let (lines, printed) = mpsc::unbounded_channel();
        let listening = tokio::spawn(tell::listen(printed, story.clone(), self.json));
        let scheduler = |program: &PathBuf| OwnScheduler {
            program: program.clone(),
            jobs: self.jobs.clone(),
            logs: ProcessLogs::Lines(lines.clone()),
        };
        let options = LocalOptions {
            data: self.data.clone(),
            listen: (self.listen, if samples_in.is_some() { 0 } else { self.port }).into(),
            queue_port: self.queue_port,
            queue_added: if self.json { print_queue_as_json } else { print_queue },
            workers: self.workers,
            sources: sources.clone(),
            sources_file: file.clone(),
            drain: DrainSettings::default(),
            scheduler: self.scheduler.as_ref().map(scheduler),
            fair_queue: self.fair_queue,
            samples: self.sources.is_none() || self.development_keys,
        };
        if let Some(file) = file.clone() {
            tokio::spawn(follow(file, sources.clone()));
        }
        if self.no_functions {
            return self.serve_elsewhere(options).await;
        }
        let observer = (story.clone(), RefusalsPrinter { json: self.json });
        let mut deployment = match LocalRun::start(options, Arc::new(observer)).await {
            Ok(deployment) => deployment.side_by_side(SLOTS),
            Err(error) => {
                // Prints the scheduler's own output before the error.
                drop(lines);
                let _ = listening.await;
                return Err(error);
            }
        };
        // The user's worker reads its sources document from a file.
        let directory = tempfile::tempdir()?;
        let file = in_a_file(file, &directory)?;
        let environment = self.environment(&deployment, &file);
        let processes = match &self.worker {
            None => {
                self.start_included_workers(&mut deployment, &sources)?;
                None
            }
            Some(program) => match self.start_processes(program, &mut deployment, &environment, lines).await {
                Ok(processes) => Some(processes),
                Err(error) => {
                    // Prints the worker's own output before the error.
                    drop(deployment);
                    let _ = listening.await;
                    return Err(error);
                }
            },
        };
        let stops = Stops::listen()?;
        let console = match samples_in {
            Some(_) => None,
            None => Some(
                Console::start(watched(&deployment, story.clone()), self.listen, self.console_port, "--console-port")
                    .await?,
            ),
        };
        self.announce(&deployment, console.as_ref(), &sources.current());
        self.write_environment(&environment)?;
        let (over, until_over) = oneshot::channel();
        let telling = tokio::spawn(teller(&deployment, story.clone(), self.json).print(until_over));
        let (code, verdict) = match samples_in {
            None => (stop_when_asked(stops, deployment, processes).await?, None),
            Some(folder) => play_samples(folder, deployment, &sources.current(), &story).await?,
        };
        // The task may have ended already.
        let _ = over.send(());
        telling.await?;
        if let Some(verdict) = verdict {
            say!("verdict: {verdict}");
        }
        Ok(code)
    }

    fn sources_file(&self) -> Result<Option<PathBuf>> {
        let Some(path) = &self.sources else { return Ok(None) };
        path.canonicalize().map(Some).with_context(|| format!("{} cannot be read", path.display()))
    }

    async fn start_processes(
        &self,
        program: &Path,
        deployment: &mut LocalRun,
        environment: &[(String, String)],
        lines: UnboundedSender<String>,
    ) -> Result<ProcessIds> {
        let shown = program.display();
        let settings = FunctionSettings {
            name: "worker".into(),
            program: program.canonicalize().with_context(|| format!("{shown} does not exist; build it first"))?,
            timeout: FUNCTION_TIMEOUT,
            memory_mb: 256,
            environment: environment.to_vec(),
            logs: ProcessLogs::Lines(lines),
        };
        let pool = Arc::new(FunctionPool::new(settings, self.workers));
        if let Err(error) = pool.start().await {
            bail!("{shown} {}", not_a_worker(&error));
        }
        for _ in 0..self.workers.get() {
            deployment.feed(LocalFunction::Processes(pool.clone()));
        }
        Ok(pool.process_ids())
    }

    fn start_included_workers(&self, deployment: &mut LocalRun, sources: &LiveSources) -> Result<()> {
        let forward = Forward::configured(sources, &Environment)?;
        let invoke = self.invoke_handler(deployment, sources);
        let fan_out = FanOut::new(sources, deployment.inbox());
        let handlers =
            Handlers::new().with("log", Log).with(FAN_OUT, fan_out).with("forward", forward).with("invoke", invoke);
        let make = {
            let handlers = handlers.clone();
            move |_: &Parts| handlers.clone()
        };
        // Later versions of the document must be valid for these workers too.
        let demanded = sources.demand(move |sources| {
            document::fits(sources, FUNCTION_TIMEOUT.as_secs()).map_err(|error| format!("{error:#}"))?;
            check_handlers(sources, &handlers)
        });
        demanded.map_err(anyhow::Error::msg)?;
        deployment.work(make);
        Ok(())
    }

    async fn open(&self, file: &Path) -> Result<LiveSources> {
        let document = Box::new(FileDocument(file.to_owned()));
        let opened = LiveSources::open(document, Env::system(), Arc::new(SourcesPrinter { json: self.json })).await;
        opened.map_err(|reason| anyhow!("{} is refused: {reason}", file.display()))
    }

    fn environment(&self, deployment: &LocalRun, sources_file: &Path) -> Vec<(String, String)> {
        let mut environment = deployment.environment(&sources_file.to_string_lossy());
        environment.push(("AWS_ENDPOINT_URL_LAMBDA".to_owned(), self.lambda.clone()));
        environment
    }

    /// Returns the handler `invoke` for functions on this machine. The handler never sends real credentials.
    fn invoke_handler(&self, deployment: &LocalRun, sources: &LiveSources) -> Invoke {
        let engines = &deployment.engines;
        let account = Account {
            lambda_endpoint: Some(self.lambda.clone()),
            roots: Some(Roots::mozilla()),
            ..Account::local(engines.dynamodb_url(), engines.queue_endpoint())
        };
        Invoke::new(sources, &account, &account.http_client(), &Env::system())
    }

    async fn serve_elsewhere(&self, options: LocalOptions) -> Result<ExitCode> {
        let directory = tempfile::tempdir()?;
        let sources_file = in_a_file(options.sources_file.clone(), &directory)?;
        let deployment =
            LocalRun::start_without_functions(options, Arc::new(Quiet), Invoker::new(&self.invoke)).await?;
        let environment = self.environment(&deployment, &sources_file);
        let stops = Stops::listen()?;
        // The environment file is written last: a program that waits for it finds everything ready.
        let exports = environment.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        self.greet_elsewhere(&deployment, &exports.collect::<String>());
        self.write_environment(&environment)?;
        stop_when_asked(stops, deployment, None).await
    }
}

fn print_warnings() {
    // The embedded DynamoDB logs a warning for every failed condition.
    let levels = Targets::new().with_default(Level::WARN).with_target("dynoxide", Level::ERROR);
    tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_writer(|| output::Complaints).with_filter(levels))
        .init();
}

async fn play_samples(
    folder: &Path,
    deployment: LocalRun,
    sources: &Sources,
    story: &EventRecorder,
) -> Result<(ExitCode, Option<String>)> {
    let url = format!("http://{}", deployment.webhooks);
    let verdict = play::play(folder, &url, sources, story).await;
    deployment.stop().await?;
    let verdict = verdict?;
    Ok((if verdict.is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }, Some(verdict.says)))
}

/// A changed document must stay unchanged for this time before it is read: an editor may still be writing it.
const WRITTEN: Duration = Duration::from_millis(500);

/// Reads the document after each change of its file, so that the author of an invalid change sees the error at once.
async fn follow(file: PathBuf, sources: LiveSources) {
    let modified = || std::fs::metadata(&file).and_then(|file| file.modified()).ok();
    let mut read = modified();
    let mut before = read;
    loop {
        Env::system().sleep(WRITTEN).await;
        let now = modified();
        if now != read && now == before {
            read = now;
            sources.read_now().await;
        }
        before = now;
    }
}

fn in_a_file(file: Option<PathBuf>, directory: &tempfile::TempDir) -> Result<PathBuf> {
    match file {
        Some(file) => Ok(file),
        None => {
            let file = directory.path().join("sources.toml");
            std::fs::write(&file, samples::SOURCES).with_context(|| format!("{} cannot be written", file.display()))?;
            Ok(file)
        }
    }
}

fn not_a_worker(error: &InvokeError) -> String {
    let hint = "A worker's `main` calls `webhook_serializer::worker::run`";
    match error {
        InvokeError::NotStarted { why } => format!("is not an executable program: {why}"),
        InvokeError::Exited { how } => {
            format!("is not a worker, or cannot start: it ended ({how}) before it polled for an event. {hint}")
        }
        InvokeError::TimedOut => format!("is not a worker: it did not poll for an event within ten seconds. {hint}"),
        other => format!("does not start: {other}"),
    }
}

fn looking(deployment: &LocalRun) -> (Store, Operator) {
    let Parts { store, waker, .. } = deployment.engines.connect(&Env::system(), None);
    let retention = deployment.engines.config().retention;
    let inbox = Inbox::new(store.clone(), waker.clone(), retention, Arc::new(Quiet));
    (store.clone(), Operator::new(store, waker, inbox, retention).in_one_part())
}

fn teller(deployment: &LocalRun, story: EventRecorder, json: bool) -> EventPrinter {
    let (store, operator) = looking(deployment);
    EventPrinter { story, store, operator, url: format!("http://{}", deployment.webhooks), json }
}

fn watched(deployment: &LocalRun, story: EventRecorder) -> Watched {
    let (store, operator) = looking(deployment);
    let url = format!("http://{}", deployment.webhooks);
    let option = local_option(&url);
    let name = format!("the local run at {url}");
    let by = Environment.value("USER").unwrap_or_else(|| "operator".to_owned());
    let env = Env::system();
    let is_local = true;
    let refreshes = None;
    let live = deployment.sources.clone();
    let sources = SourcesReader::new(move || Box::pin(ready(Ok(Some(live.current())))));
    Watched { operator, store, env, option, is_local, refreshes, name, sources, story: Some(story), by }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    fn local(options: &[&str]) -> super::Local {
        let asked = crate::command::Arguments::try_parse_from([&["serializer", "local"], options].concat());
        let crate::command::Command::Local(local) = asked.expect("it is well formed").command else { panic!("local") };
        local
    }

    #[tokio::test]
    async fn jobs_option_without_scheduler_is_refused() {
        let error = local(&["--demo", "--jobs", "on"]).run(None).await.expect_err("there is none");
        assert!(error.to_string().contains("--jobs also needs --scheduler"), "{error}");
    }

    #[test]
    fn only_ports_that_are_opened_must_differ() {
        assert!(local(&["--console-port", "9000"]).check_ports().is_err());
        assert!(local(&["--no-functions", "--console-port", "9000"]).check_ports().is_ok());
        assert!(local(&["--no-functions", "--queue-port", "9000"]).check_ports().is_err());
    }
}
