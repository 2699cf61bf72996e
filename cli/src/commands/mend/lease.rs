//! `serializer lease`: shows leases, runs a program under a lease, or ends a lease by force.

mod run;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serializer::{
    output::{self, Table, duration},
    say,
};
use webhook_serializer::{
    leases::{KeyDisplay, LeaseView, Leases},
    protocol::{entity::EntityKey, keys::entity_row, lease::LeaseId, state::LeaseKind},
    time::Timestamp,
};

use crate::commands::{
    print_json,
    target::{Deployment, Target},
};

#[derive(Debug, Args)]
pub struct LeaseArguments {
    #[command(subcommand)]
    command: LeaseCommand,
}

#[derive(Debug, Subcommand)]
enum LeaseCommand {
    /// Show the lease of one key, or one lease by its id
    Get(Get),
    /// List the leases that are held
    List(LeaseList),
    /// Run a program while holding the lease of a key
    Run(run::Run),
    #[command(hide = true)]
    Exec(run::Exec),
    /// Take a lease away, so that later writes of its holder are refused
    Release(ReleaseArguments),
}

const SEEN: &str = "The lease may change at any time: work on its key only while you hold the lease.";

#[derive(Debug, Args)]
#[command(after_help = SEEN)]
struct Get {
    /// A key such as invoice_gen/SUB-1234, a printed hash of a key, or a lease id
    key: String,
    #[command(flatten)]
    shown: OutputOptions,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
#[command(after_help = SEEN)]
struct LeaseList {
    /// Also list keys whose lease is free
    #[arg(long)]
    all: bool,
    /// Read at most N keys
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Continue after this key, which the previous list printed
    #[arg(long, value_name = "KEY")]
    after: Option<EntityKey>,
    #[command(flatten)]
    shown: OutputOptions,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
#[command(after_help = "Later writes of the old holder are refused, because its fencing token is older. The command \
                       does not stop the holder, whose work outside these tables continues.")]
struct ReleaseArguments {
    /// A key, a printed hash of a key, or a lease id
    key: String,
    /// The reason; `lease get` shows it with your name and the time, until the lease is granted again
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// Your name
    #[arg(long, env = "USER", default_value = "operator", value_name = "NAME")]
    by: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct OutputOptions {
    /// Print keys and holders unhashed; a local run always does
    #[arg(long)]
    raw: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

impl OutputOptions {
    /// Decides whether leases' keys and holders are printed as hashes. Keys and holders may name customers, so only a
    /// local run prints them in clear by default.
    fn how(&self, deployment: &Deployment) -> KeyDisplay {
        if self.raw || deployment.is_local() { KeyDisplay::Raw } else { KeyDisplay::Hashed }
    }

    fn print(&self, leases: &[LeaseView], deployment: &Deployment) {
        let how = self.how(deployment);
        let now = deployment.env.now();
        let mut table = Table::new(&["key", "lease", ">held for", "expires", "by", ">token", ">waiting"]);
        for view in leases {
            if self.json {
                print_json(&serde_json::json!({
                    "key": view.key(how),
                    "held": view.is_held(),
                    "kind": view.kind().map(LeaseKind::as_str),
                    "id": view.id().filter(|_| how == KeyDisplay::Raw).map(|id| id.to_string()),
                    "by": view.by(how),
                    "since": view.since().map(|at| at.to_string()),
                    "until": view.until().map(|at| at.to_string()),
                    "token": view.token().0,
                    "waiting": view.waiting(),
                }));
                continue;
            }
            let lease = match (view.kind(), view.is_held()) {
                (None, _) => "free",
                (Some(_), false) => "expired",
                (Some(kind), true) => kind.as_str(),
            };
            table.row([
                view.key(how),
                lease.to_owned(),
                view.since().map(|at| duration(now.since(at))).unwrap_or_default(),
                view.until().map(|at| expires(at, now)).unwrap_or_default(),
                view.by(how).unwrap_or_default(),
                view.token().to_string(),
                view.waiting().to_string(),
            ]);
        }
        if !self.json && !table.is_empty() {
            output::print(table);
        }
    }
}

fn expires(at: Timestamp, now: Timestamp) -> String {
    if at > now { format!("in {}", duration(at.since(now))) } else { format!("{} ago", duration(now.since(at))) }
}

async fn find(leases: &Leases, name: &str) -> Result<Option<LeaseView>> {
    if let Ok(id) = name.parse::<LeaseId>() {
        return Ok(leases.look_by_id(&id).await?);
    }
    let found = leases.look(&name.parse::<EntityKey>()?).await?;
    if found.is_some() || !KeyDisplay::may_be_hashed(name) {
        return Ok(found);
    }
    let mut from = None;
    loop {
        let page = leases.list(from, PAGE).await?;
        if let Some(found) = page.leases.into_iter().find(|view| view.key(KeyDisplay::Hashed) == name) {
            return Ok(Some(found));
        }
        from = page.next;
        if from.is_none() {
            return Ok(None);
        }
    }
}

const PAGE: u32 = 1000;

fn leases(deployment: &Deployment) -> Leases {
    let parts = deployment.parts.clone();
    Leases::new(parts.store, "serializer lease").waking(parts.waker).kept_for(deployment.retention)
}

impl LeaseArguments {
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            LeaseCommand::Get(get) => get.run().await,
            LeaseCommand::List(list) => list.run().await,
            LeaseCommand::Run(run) => run.run().await,
            LeaseCommand::Exec(exec) => exec.run(),
            LeaseCommand::Release(release) => release.run().await,
        }
    }
}

impl Get {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let Some(seen) = find(&leases(&deployment), &self.key).await? else {
            output::complain(format_args!(
                "nobody holds a lease on {}: no row with this key or id is stored",
                self.key
            ));
            return Ok(ExitCode::FAILURE);
        };
        // The user typed the key, but does not necessarily know the holder.
        self.shown.print(std::slice::from_ref(&seen), &deployment);
        Ok(if seen.is_held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl LeaseList {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let page = leases(&deployment).list(self.after.as_ref().map(entity_row), self.limit).await?;
        let looked_at = page.leases.len() + page.unreadable.len();
        let wanted = |view: &LeaseView| self.all || view.kind().is_some();
        let seen: Vec<LeaseView> = page.leases.into_iter().filter(wanted).collect();
        self.shown.print(&seen, &deployment);
        for (key, error) in &page.unreadable {
            output::complain(format_args!("{} cannot be read: {error}", self.shown.how(&deployment).key(key)));
        }
        if seen.is_empty() {
            let all = if self.all || looked_at == 0 { "" } else { "; --all lists free leases too" };
            let keys = if looked_at == 1 { "key" } else { "keys" };
            output::complain(format_args!("the command read {looked_at} {keys}, and found no held lease{all}"));
        }
        if let Some(next) = page.next {
            let key = next.to_row();
            output::complain(format_args!("more keys follow: add --after {}", key.text("entity").unwrap_or_default()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ReleaseArguments {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let leases = leases(&deployment);
        let Some(seen) = find(&leases, &self.key).await?.filter(|view| view.kind().is_some()) else {
            say!("nothing was changed: nobody holds a lease on {}", self.key);
            return Ok(ExitCode::SUCCESS);
        };
        match leases.force_release(&seen, &self.by, &self.why).await? {
            Some(freed) => {
                let by = seen.by(KeyDisplay::Raw).unwrap_or_default();
                say!("{} was held by {by}, and is free now; its token is now {}", self.key, freed.token());
                Ok(ExitCode::SUCCESS)
            }
            None => bail!(
                "another holder has the lease now; nothing was changed. `{}` shows it",
                deployment.command("lease get", &self.key)
            ),
        }
    }
}
