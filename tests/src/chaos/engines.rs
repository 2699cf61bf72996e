//! The process that has table and queue on disk, and the settings of the functions that use them.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serializer::local::{
    QUEUE, TOTALS_TABLE,
    function_process::{FunctionSettings, ProcessLogs},
    queue::queue_url,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use webhook_serializer::{
    aws::{Account, Parts},
    config::StoreConfig,
    time::Env,
};

use super::{FUNCTION_TIMEOUT, LEASE, VISIBILITY_TIMEOUT, roles::ROLE};

pub(super) struct EnginesProcess {
    program: PathBuf,
    data: PathBuf,
    pub(super) ports: [u16; 2],
    child: Option<Child>,
}

impl EnginesProcess {
    pub(super) fn new(program: &Path, data: PathBuf) -> Result<Self> {
        // Both ports are bound at the same time, so that they differ.
        let free = [TcpListener::bind(("127.0.0.1", 0))?, TcpListener::bind(("127.0.0.1", 0))?];
        let ports = [free[0].local_addr()?.port(), free[1].local_addr()?.port()];
        Ok(Self { program: program.to_owned(), data, ports, child: None })
    }

    pub(super) fn url(&self, which: usize) -> String {
        format!("http://127.0.0.1:{}", self.ports[which])
    }

    pub(super) fn config(&self) -> StoreConfig {
        StoreConfig {
            entities_table: "entities".into(),
            inbox_table: "inbox".into(),
            queue_url: queue_url(([127, 0, 0, 1], self.ports[1]).into(), QUEUE),
            fair_queue: false,
            retention: Duration::from_secs(30 * 86_400),
            parked_retention: None,
        }
    }

    pub(super) fn account(&self) -> Account {
        Account::local(self.url(0), self.url(1))
    }

    pub(super) fn parts(&self, env: &Env) -> Parts {
        Parts::connect(&self.account(), &self.config(), env, None)
    }

    pub(super) async fn restart(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        let mut child = Command::new(&self.program)
            .env(ROLE, "engines")
            .env("DATA", &self.data)
            .env("DYNAMODB_PORT", self.ports[0].to_string())
            .env("QUEUE_PORT", self.ports[1].to_string())
            .env("VISIBILITY_TIMEOUT_SECONDS", VISIBILITY_TIMEOUT.as_secs().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let ready = lines.next_line().await?;
        ensure!(ready.as_deref() == Some("ready"), "store and queue do not start: {ready:?}");
        self.child = Some(child);
        Ok(())
    }

    pub(super) fn function(&self, role: &str, store: &str, sources: &Path, journal: &Path) -> FunctionSettings {
        let config = self.config();
        let text = |path: &Path| path.display().to_string();
        let environment = [
            (ROLE, role.to_owned()),
            ("JOURNAL", text(journal)),
            ("SOURCES", format!("file:{}", text(sources))),
            ("AWS_ACCESS_KEY_ID", "local".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", store.to_owned()),
            ("AWS_ENDPOINT_URL_SQS", self.url(1)),
            ("ENTITIES_TABLE", config.entities_table),
            ("INBOX_TABLE", config.inbox_table),
            ("TOTALS_TABLE", TOTALS_TABLE.to_owned()),
            ("QUEUE_URL", config.queue_url),
            ("LEASE_SECONDS", LEASE.as_secs().to_string()),
            ("FUNCTION_TIMEOUT_SECONDS", FUNCTION_TIMEOUT.as_secs().to_string()),
            ("VISIBILITY_TIMEOUT_SECONDS", VISIBILITY_TIMEOUT.as_secs().to_string()),
            ("AWS_LAMBDA_LOG_LEVEL", "ERROR".to_owned()),
        ];
        FunctionSettings {
            name: role.to_owned(),
            program: self.program.clone(),
            timeout: FUNCTION_TIMEOUT,
            memory_mb: 128,
            environment: environment.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            logs: ProcessLogs::Discarded,
        }
    }
}
