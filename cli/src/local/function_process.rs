//! A function's process: started when there is an event for it, replaced when it dies, killed when it is too slow.
//!
//! As in Lambda, an error that the handler returns leaves the process in place; a crash or a timeout ends it, and the
//! next invocation gets a fresh one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::runtime_api::{Abandoned, InvokeError, RuntimeApi};

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct FunctionSettings {
    /// The function's name, in its ARN and its environment.
    pub name: String,
    /// The function's binary.
    pub program: PathBuf,
    /// How long one invocation may take.
    pub timeout: Duration,
    /// The memory it is told it has; nothing holds it to that.
    pub memory_mb: u32,
    /// The function's environment variables. Of ours it gets only `PATH`: a developer's AWS credentials stay out.
    pub environment: Vec<(String, String)>,
    /// Where its output goes.
    pub logs: Logs,
}

/// How long the last output of a process that has ended is waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Where a function's output goes.
#[derive(Debug, Clone, Default)]
pub enum Logs {
    /// To this process's own output.
    #[default]
    Inherited,
    /// Line by line to whoever has the other end.
    Lines(mpsc::UnboundedSender<String>),
    /// Nowhere.
    Discarded,
}

/// The ids of the live processes, for tests that kill or stop them. A change can be waited for.
///
/// What is borrowed from it holds a lock that the start and the end of a process need: copy it out.
pub type ProcessIds = watch::Receiver<BTreeSet<u32>>;

/// One process at a time of one function.
///
/// The process lives until this is dropped, and is killed then. If this process itself is killed, its functions end by
/// themselves at their next poll.
#[derive(Debug)]
pub struct FunctionProcess {
    settings: Arc<FunctionSettings>,
    process_ids: Arc<watch::Sender<BTreeSet<u32>>>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    api: RuntimeApi,
    child: Child,
    /// Whether it has answered before: then its end while idle is no fault of the next event's.
    has_answered: bool,
    /// What reads its output.
    readers: JoinSet<()>,
    _listed: Listed,
}

impl FunctionProcess {
    /// A function without a process yet: the first invocation starts it.
    pub fn new(settings: FunctionSettings) -> Self {
        Self::listed_in(Arc::new(settings), Arc::default())
    }

    /// The same, with the process listed together with others'.
    pub(super) fn listed_in(settings: Arc<FunctionSettings>, process_ids: Arc<watch::Sender<BTreeSet<u32>>>) -> Self {
        Self { settings, process_ids, running: None }
    }

    /// The id of the live process, if there is one.
    pub fn process_ids(&self) -> ProcessIds {
        self.process_ids.subscribe()
    }

    /// Has the function handle one event.
    ///
    /// After [`InvokeError::Function`] the process is still there; after any other error the next invocation starts a
    /// fresh one. If this is dropped half-way, the process is killed at once; the event may have been handled or not.
    pub async fn invoke(&mut self, payload: Vec<u8>) -> Result<Vec<u8>, InvokeError> {
        loop {
            // Out of `self` while it has an event: if this is dropped, so is the process with its unfinished event.
            let mut running = self.idle_process().await?;
            let (outcome, abandoned) = running.handle(payload.clone(), self.settings.timeout).await;
            match outcome {
                Ok(_) | Err(InvokeError::Function { .. }) => {
                    running.has_answered = true;
                    self.running = Some(running);
                }
                // A process that ended while idle never saw the event: a fresh one, once, has it instead.
                Err(_) if abandoned == Abandoned::Untouched && running.has_answered => continue,
                Err(_) => running.end().await,
            }
            return outcome;
        }
    }

    /// Starts the process ahead of its first event, and waits until it asks for one: what is no function, or cannot
    /// work with its environment, fails here. What it printed has been read by then.
    pub async fn start(&mut self) -> Result<(), InvokeError> {
        let mut running = self.idle_process().await?;
        let ended = tokio::select! {
            biased;
            polled = running.api.until_polled() => polled,
            status = running.child.wait() => Err(InvokeError::Exited { how: in_words(status) }),
        };
        match ended {
            Ok(()) => self.running = Some(running),
            Err(_) => running.end().await,
        }
        ended
    }

    /// A process that has no event: the one from before, or a fresh one.
    async fn idle_process(&mut self) -> Result<Running, InvokeError> {
        if let Some(mut running) = self.running.take()
            && let Ok(None) = running.child.try_wait()
        {
            return Ok(running);
        }
        let not_started = |error| format!("{}: {error}", self.settings.program.display());
        let started = Running::start(&self.settings, &self.process_ids).await;
        started.map_err(|error| InvokeError::NotStarted { why: not_started(error) })
    }
}

impl Running {
    async fn start(
        settings: &FunctionSettings,
        process_ids: &Arc<watch::Sender<BTreeSet<u32>>>,
    ) -> std::io::Result<Self> {
        let api = RuntimeApi::start(TcpListener::bind(("127.0.0.1", 0)).await?, &settings.name)?;
        let output = || match settings.logs {
            Logs::Inherited => Stdio::inherit(),
            Logs::Lines(_) => Stdio::piped(),
            Logs::Discarded => Stdio::null(),
        };
        let mut child = Command::new(&settings.program)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("AWS_LAMBDA_FUNCTION_NAME", &settings.name)
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", settings.memory_mb.to_string())
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
            .envs(settings.environment.iter().map(|(name, value)| (name, value)))
            .env("AWS_LAMBDA_RUNTIME_API", api.address().to_string())
            .stdin(Stdio::null())
            .stdout(output())
            .stderr(output())
            // A terminal's Ctrl-C is for this process, which lets them finish.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut readers = JoinSet::new();
        if let Logs::Lines(lines) = &settings.logs {
            if let Some(output) = child.stdout.take() {
                readers.spawn(pass_on(output, lines.clone()));
            }
            if let Some(output) = child.stderr.take() {
                readers.spawn(pass_on(output, lines.clone()));
            }
        }
        let listed = Listed::in_list(process_ids, child.id());
        tracing::debug!(function = settings.name, process = child.id(), "started");
        Ok(Self { api, child, has_answered: false, readers, _listed: listed })
    }

    /// Has the process handle one event, for as long as it lives. Tells how far it had come if it ended first.
    async fn handle(&mut self, payload: Vec<u8>, timeout: Duration) -> (Result<Vec<u8>, InvokeError>, Abandoned) {
        let mut answer = std::pin::pin!(self.api.invoke(payload, timeout));
        tokio::select! {
            // First what was answered, even if the process ended right after.
            biased;
            outcome = &mut answer => (outcome, Abandoned::Idle),
            status = self.child.wait() => {
                let abandoned = self.api.abandon(&in_words(status));
                (answer.await, abandoned)
            }
        }
    }

    /// Kills the process if it still lives, also a stopped one, and waits for its end.
    async fn end(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::debug!(%error, "the process had ended");
        }
        // Its last words say why. What it started itself may keep the pipe open.
        let read = async { while self.readers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, read).await;
    }
}

/// A process id's place in the list, for as long as the process is ours.
#[derive(Debug)]
struct Listed {
    list: Arc<watch::Sender<BTreeSet<u32>>>,
    id: Option<u32>,
}

impl Listed {
    fn in_list(list: &Arc<watch::Sender<BTreeSet<u32>>>, id: Option<u32>) -> Self {
        list.send_modify(|ids| ids.extend(id));
        Self { list: list.clone(), id }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.list.send_modify(|ids| ids.retain(|id| Some(*id) != self.id));
    }
}

/// Passes a function's output on, line by line, until its end.
async fn pass_on(output: impl AsyncRead + Unpin, lines: mpsc::UnboundedSender<String>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).await.is_ok_and(|read| read > 0) {
        let text = String::from_utf8_lossy(&line);
        if lines.send(text.trim_end_matches(['\r', '\n']).to_owned()).is_err() {
            return;
        }
        line.clear();
    }
}

fn in_words(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its status is unknown: {error}"),
    }
}
