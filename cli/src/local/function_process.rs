//! A function's process. The process is started for the function's first event, replaced when it dies, and killed when
//! it times out.
//!
//! The process survives an error that its handler returns, as in Lambda. After a crash or timeout, the next invocation
//! starts another process.

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

#[derive(Debug, Clone)]
pub struct FunctionSettings {
    pub name: String,
    pub program: PathBuf,
    pub timeout: Duration,
    /// The memory size that the function's environment states. The size is not enforced.
    pub memory_mb: u32,
    /// The function's environment variables. From this process's own variables the function gets only `PATH`, so that a
    /// developer's AWS credentials stay out.
    pub environment: Vec<(String, String)>,
    pub logs: ProcessLogs,
}

/// The longest wait for the last output of a process that has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default)]
pub enum ProcessLogs {
    #[default]
    Inherited,
    Lines(mpsc::UnboundedSender<String>),
    Discarded,
}

/// The ids of the live processes. Tests use the ids to kill or freeze processes.
///
/// A borrow of this value holds a lock that is needed to start and to end processes, so copy the ids.
pub type ProcessIds = watch::Receiver<BTreeSet<u32>>;

/// A function with one process at a time. Dropping the value kills the process.
///
/// If this program itself is killed, the function's process ends at its next poll.
#[derive(Debug)]
pub struct FunctionProcess {
    settings: Arc<FunctionSettings>,
    process_ids: Arc<watch::Sender<BTreeSet<u32>>>,
    running: Option<RunningProcess>,
}

#[derive(Debug)]
struct RunningProcess {
    api: RuntimeApi,
    child: Child,
    /// True once the process has responded to an event. If such a process ends while it is idle, the next event is not
    /// the cause.
    has_answered: bool,
    readers: JoinSet<()>,
    _listed: ListedProcess,
}

impl FunctionProcess {
    pub fn new(settings: FunctionSettings) -> Self {
        Self::listed_in(Arc::new(settings), Arc::default())
    }

    pub(super) fn listed_in(settings: Arc<FunctionSettings>, process_ids: Arc<watch::Sender<BTreeSet<u32>>>) -> Self {
        Self { settings, process_ids, running: None }
    }

    pub fn process_ids(&self) -> ProcessIds {
        self.process_ids.subscribe()
    }

    /// Invokes the function with an event.
    ///
    /// The process survives [`InvokeError::Function`]. After any other error, the next invocation starts a new process.
    /// Dropping this future kills the process; the event may or may not have been handled.
    pub async fn invoke(&mut self, payload: Vec<u8>) -> Result<Vec<u8>, InvokeError> {
        loop {
            // The process is taken out of `self`, so that dropping this future drops the process with its unfinished
            // event.
            let mut running = self.idle_process().await?;
            let (outcome, abandoned) = running.handle(payload.clone(), self.settings.timeout).await;
            match outcome {
                Ok(_) | Err(InvokeError::Function { .. }) => {
                    running.has_answered = true;
                    self.running = Some(running);
                }
                // A process that ended while idle never saw the event, so another process gets the event, once.
                Err(_) if abandoned == Abandoned::Untouched && running.has_answered => continue,
                Err(_) => running.end().await,
            }
            return outcome;
        }
    }

    /// Starts the process and waits for its first poll. The start fails if the program is not a function or rejects its
    /// environment. Before this function returns an error, it reads the output of the failed process, for at most a
    /// second.
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

    async fn idle_process(&mut self) -> Result<RunningProcess, InvokeError> {
        if let Some(mut running) = self.running.take()
            && let Ok(None) = running.child.try_wait()
        {
            return Ok(running);
        }
        let not_started = |error| format!("{}: {error}", self.settings.program.display());
        let started = RunningProcess::start(&self.settings, &self.process_ids).await;
        started.map_err(|error| InvokeError::NotStarted { why: not_started(error) })
    }
}

impl RunningProcess {
    async fn start(
        settings: &FunctionSettings,
        process_ids: &Arc<watch::Sender<BTreeSet<u32>>>,
    ) -> std::io::Result<Self> {
        let api = RuntimeApi::start(TcpListener::bind(("127.0.0.1", 0)).await?, &settings.name)?;
        let output = || match settings.logs {
            ProcessLogs::Inherited => Stdio::inherit(),
            ProcessLogs::Lines(_) => Stdio::piped(),
            ProcessLogs::Discarded => Stdio::null(),
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
            // Ctrl-C in a terminal must reach only this process, which lets functions finish.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut readers = JoinSet::new();
        if let ProcessLogs::Lines(lines) = &settings.logs {
            if let Some(output) = child.stdout.take() {
                readers.spawn(pass_on(output, lines.clone()));
            }
            if let Some(output) = child.stderr.take() {
                readers.spawn(pass_on(output, lines.clone()));
            }
        }
        let listed = ListedProcess::in_list(process_ids, child.id());
        tracing::debug!(function = settings.name, process = child.id(), "started");
        Ok(Self { api, child, has_answered: false, readers, _listed: listed })
    }

    /// Sends the process an event and returns its response. If the process ended before the response, the second value
    /// is the progress of the invocation; otherwise it is [`Abandoned::Idle`].
    async fn handle(&mut self, payload: Vec<u8>, timeout: Duration) -> (Result<Vec<u8>, InvokeError>, Abandoned) {
        let mut answer = std::pin::pin!(self.api.invoke(payload, timeout));
        tokio::select! {
            // A response counts even if the process ended right after it.
            biased;
            outcome = &mut answer => (outcome, Abandoned::Idle),
            status = self.child.wait() => {
                let abandoned = self.api.abandon(&in_words(status));
                (answer.await, abandoned)
            }
        }
    }

    async fn end(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::debug!(%error, "the process had ended");
        }
        // The process's last output says why it ended. Children of the process may keep the pipe open, so the
        // wait is limited.
        let read = async { while self.readers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(LAST_WORDS, read).await;
    }
}

#[derive(Debug)]
struct ListedProcess {
    list: Arc<watch::Sender<BTreeSet<u32>>>,
    id: Option<u32>,
}

impl ListedProcess {
    fn in_list(list: &Arc<watch::Sender<BTreeSet<u32>>>, id: Option<u32>) -> Self {
        list.send_modify(|ids| ids.extend(id));
        Self { list: list.clone(), id }
    }
}

impl Drop for ListedProcess {
    fn drop(&mut self) {
        self.list.send_modify(|ids| ids.retain(|id| Some(*id) != self.id));
    }
}

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
