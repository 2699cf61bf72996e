//! `serializer lease get`, `list` and `release`.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serializer::output::{Table, duration};
use webhook_serializer::{
    leases::{LeaseView, Leases, Show},
    protocol::{entity::EntityKey, keys::entity_row, lease::LeaseId, state::LeaseKind},
    time::Timestamp,
};

use super::{
    print_json,
    target::{Deployment, Target},
};

/// Options of `serializer lease`.
#[derive(Debug, Args)]
pub struct Lease {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the lease of one key, or one lease by its id
    Get(Get),
    /// List leases, a page at a time
    List(List),
    /// Take a lease from its holder by force: whatever the holder writes from then on is refused
    Release(Release),
}

/// What is seen may have changed by the time that it is read: a diagnosis, and
/// never a reason to go ahead without a lease.
#[derive(Debug, Args)]
struct Get {
    /// A key such as invoice_gen/SUB-1234, or a lease id
    key_or_id: String,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    target: Target,
}

/// What is seen may have changed by the time that it is read: a diagnosis, and
/// never a reason to go ahead without a lease.
#[derive(Debug, Args)]
struct List {
    /// Those that are free too
    #[arg(long)]
    all: bool,
    /// Look at so many rows
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Go on behind this key, as the page before said
    #[arg(long, value_name = "KEY")]
    after: Option<EntityKey>,
    #[command(flatten)]
    shown: Shown,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct Release {
    /// Whose lease
    key: EntityKey,
    /// Why; stays on the row until the next grant, with your name and the time
    #[arg(long, value_name = "TEXT")]
    why: String,
    /// Who you are
    #[arg(long, env = "USER", default_value = "operator", value_name = "NAME")]
    by: String,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Args)]
struct Shown {
    /// Keys and holders as they are, instead of hashed
    #[arg(long)]
    raw: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Shown {
    fn how(&self) -> Show {
        if self.raw { Show::Raw } else { Show::Hashed }
    }

    fn print(&self, leases: &[LeaseView], now: Timestamp) {
        let how = self.how();
        let mut table = Table::new(&["key", "lease", ">since", ">runs for", "by", ">token", ">waiting"]);
        for view in leases {
            if self.json {
                print_json(&serde_json::json!({
                    "key": view.key(how),
                    "held": view.is_held(),
                    "kind": view.kind().map(LeaseKind::as_str),
                    "id": view.id().filter(|_| how == Show::Raw).map(|id| id.to_string()),
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
                (Some(_), false) => "run out",
                (Some(kind), true) => kind.as_str(),
            };
            table.row([
                view.key(how),
                lease.to_owned(),
                view.since().map(|at| duration(now.since(at))).unwrap_or_default(),
                view.until().map(|at| duration(at.since(now))).unwrap_or_default(),
                view.by(how).unwrap_or_default(),
                view.token().to_string(),
                view.waiting().to_string(),
            ]);
        }
        if !self.json && !table.is_empty() {
            print!("{table}");
        }
    }
}

fn leases(deployment: &Deployment) -> Leases {
    let parts = deployment.parts.clone();
    Leases::new(parts.store, "serializer lease").waking(parts.waker).kept_for(deployment.retention)
}

impl Lease {
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Get(get) => get.run().await,
            Command::List(list) => list.run().await,
            Command::Release(release) => release.run().await,
        }
    }
}

impl Get {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let leases = leases(&deployment);
        let seen = match self.key_or_id.parse::<LeaseId>() {
            Ok(id) => leases.look_by_id(&id).await?,
            Err(_) => leases.look(&self.key_or_id.parse()?).await?,
        };
        let Some(seen) = seen else {
            eprintln!("nobody holds it");
            return Ok(ExitCode::FAILURE);
        };
        // Whoever asks by a key knows it, but not necessarily its holder.
        self.shown.print(std::slice::from_ref(&seen), deployment.surroundings.now());
        Ok(if seen.is_held() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl List {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let page = leases(&deployment).list(self.after.as_ref().map(entity_row), self.limit).await?;
        let wanted = |view: &LeaseView| self.all || view.kind().is_some();
        let seen: Vec<LeaseView> = page.leases.into_iter().filter(wanted).collect();
        self.shown.print(&seen, deployment.surroundings.now());
        if seen.is_empty() {
            eprintln!("no lease among the rows looked at");
        }
        if let Some(next) = page.next {
            let key = next.to_row();
            eprintln!("there are more: --after {}", key.text("entity").unwrap_or_default());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Release {
    async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let leases = leases(&deployment);
        let Some(seen) = leases.look(&self.key).await?.filter(|view| view.kind().is_some()) else {
            println!("{} is free", self.key);
            return Ok(ExitCode::SUCCESS);
        };
        match leases.force_release(&seen, &self.by, &self.why).await? {
            Some(freed) => {
                let by = seen.by(Show::Raw).unwrap_or_default();
                println!("{} was held by {by}; it is free, under token {}", self.key, freed.token());
                Ok(ExitCode::SUCCESS)
            }
            None => bail!("it is another lease by now; nothing was changed. `serializer lease get` shows it"),
        }
    }
}
