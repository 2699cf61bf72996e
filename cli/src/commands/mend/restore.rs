//! `serializer restore`: tables that were restored from a backup are made ready to
//! be taken into use.

mod copies;
mod report;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::ProgressBar;
use serializer::{
    output::{self, duration},
    say,
};
use webhook_serializer::{
    operator::{Operator, RESTORED},
    protocol::{
        maintain::{NextRestore, Restoring, is_claimed_after},
        state::EntityState,
        table::TableName,
    },
    time::Timestamp,
};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    reason::Because,
    target::{Deployment, Target},
};
use report::{Report, counted};

/// So many orders are named that stand in the way.
const NAMED: usize = 10;

/// Options of `serializer restore`.
#[derive(Debug, Args)]
#[command(
    after_help = "Run it on the restored tables while no function uses them: docs/runbooks/restore.md goes through all \
                  of it. Numbers of every order go on above all that were given out since the backup. What waited at \
                  its moment is parked, because it may have been applied since; what was blocked is on hold. It says \
                  what to reconcile with the senders.\n\n\
                  It can be stopped by Ctrl-C, or killed: the same command goes on. Run again when it is done, it \
                  changes nothing."
)]
pub struct Restore {
    /// The moment of the backup, such as 2026-11-22T12:00:00Z; the tables in AWS know it
    #[arg(long, value_name = "TIME")]
    as_of: Option<Timestamp>,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also the orders of which something was accepted on these tables since the backup; that is set aside, too
    #[arg(long)]
    even_if_used: bool,
    /// Restore without asking
    #[arg(long, short = 'y')]
    yes: bool,
    /// What became of it as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    because: Because,
    #[command(flatten)]
    target: Target,
}

/// What the orders' rows say before anything is done.
#[derive(Debug, Default)]
struct Found {
    orders: usize,
    jobs: usize,
    waiting: u64,
    waiting_of: usize,
    blocked: usize,
    /// Claimed after the backup, and not restored.
    in_use: Vec<String>,
    unreadable: usize,
}

impl Restore {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let now = deployment.env.now();
        let as_of = copies::moment(&deployment, self.as_of).await?;
        ensure!(
            as_of <= now,
            "{as_of} is in the future by this machine's clock: which moment were the tables restored to?"
        );
        let interrupt = Interrupt::listen();
        let operator = deployment.operator().because(self.because.reason());
        let before = operator.restoring().await?;
        let next = Restoring::next(before.clone(), as_of);
        match &next {
            NextRestore::Done(done) => {
                let ended = done.ended.unwrap_or(done.begun);
                say!(
                    "These tables were restored to {as_of} already, {} ago; nothing is left to do.",
                    duration(now.since(ended))
                );
                say!("`{}` lists what was set aside and is not decided.", set_aside(&deployment));
                return Ok(ExitCode::SUCCESS);
            }
            NextRestore::Another(other) => bail!(
                "a restore of these tables to {} was begun at {}: give --as-of {} to go on with that, or name other tables",
                other.as_of,
                other.begun,
                other.as_of
            ),
            NextRestore::Begin | NextRestore::GoOn(_) => {}
        }
        let found = self.look(&operator, &next, as_of, now).await?;
        if !found.in_use.is_empty() && !self.even_if_used {
            bail!("{}", in_use(&found.in_use, as_of, &deployment));
        }
        if !self.json || self.dry_run {
            self.announce(&found, as_of, now, matches!(next, NextRestore::GoOn(_)));
        }
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !self.yes
            && !interrupt.ask("nothing is changed yet", &format!("Restore {}?", deployment.config.entities_table))?
        {
            output::complain("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let NextRestore::GoOn(restoring) = operator.begin_restore(as_of).await? else {
            bail!("somebody else began a restore at this moment; run this again")
        };
        self.restore(&operator, &restoring, &found, &interrupt, &deployment).await
    }

    async fn look(&self, operator: &Operator, next: &NextRestore, as_of: Timestamp, now: Timestamp) -> Result<Found> {
        let mut found = Found::default();
        let mut pass = operator.pass(TableName::Entities);
        while let Some(rows) = pass.page().await? {
            for row in &rows {
                let Ok(state) = EntityState::parse(row) else {
                    found.unreadable += 1;
                    continue;
                };
                let is_used = match next {
                    NextRestore::GoOn(restoring) if restoring.is_done(&state, now) => continue,
                    NextRestore::GoOn(restoring) => restoring.is_in_use(&state, now),
                    _ => is_claimed_after(&state, as_of),
                };
                match state.entity.is_kept_forever() {
                    true => found.jobs += 1,
                    false => found.orders += 1,
                }
                found.waiting += state.waiting();
                found.waiting_of += usize::from(!state.is_empty());
                found.blocked += usize::from(state.blocked.is_some());
                found.in_use.extend(is_used.then(|| state.entity.to_string()));
            }
        }
        Ok(found)
    }

    fn announce(&self, found: &Found, as_of: Timestamp, now: Timestamp, goes_on: bool) {
        let left = if goes_on { " are left" } else { "" };
        say!(
            "{} and {}{left}, as of {as_of}, {} ago. Their numbers will be raised above all that were given out since.",
            counted(found.orders as u64, "order", "orders"),
            counted(found.jobs as u64, "job", "jobs"),
            duration(now.since(as_of)),
        );
        if found.waiting > 0 {
            say!(
                "{} of {} waited. What is no repeat is set aside: it may have been applied since.",
                counted(found.waiting, "delivery", "deliveries"),
                counted(found.waiting_of as u64, "order", "orders"),
            );
        }
        if found.blocked > 0 {
            say!("{} blocked: on hold, until you say `resume`.", was(found.blocked));
        }
        if !found.in_use.is_empty() {
            say!("{} written to since; what waits of them is set aside, too.", was(found.in_use.len()));
        }
        if found.unreadable > 0 {
            say!("{} cannot be read, and stay as they are.", counted(found.unreadable as u64, "row", "rows"));
        }
    }

    async fn restore(
        &self,
        operator: &Operator,
        restoring: &Restoring,
        found: &Found,
        interrupt: &Interrupt,
        deployment: &Deployment,
    ) -> Result<ExitCode> {
        let mut report = Report::default();
        let bar = ProgressBar::new((found.orders + found.jobs) as u64);
        let done = operator.restore_all(restoring, self.even_if_used, |key, restored| {
            report.add(key, restored);
            bar.inc(1);
            !interrupt.came()
        });
        let done = done.await;
        bar.finish_and_clear();
        let is_whole = done.with_context(|| {
            format!(
                "{} were restored; the same command goes on",
                counted(report.raised(), "order or job", "orders and jobs")
            )
        })?;
        report.add_earlier_runs(operator, restoring).await?;
        match self.json {
            true => print_json(&report.json(restoring, is_whole)),
            false => report.print(restoring, is_whole, deployment),
        }
        if interrupt.came() {
            output::complain("stopped; the same command goes on");
        }
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// What lists what a restore has set aside.
fn set_aside(deployment: &Deployment) -> String {
    deployment.line("entities", &["--parked", "--error", RESTORED])
}

fn was(count: usize) -> String {
    if count == 1 { "1 order was".to_owned() } else { format!("{count} orders were") }
}

fn in_use(keys: &[String], as_of: Timestamp, deployment: &Deployment) -> String {
    let named = keys.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if keys.len() > NAMED { format!(" and {} more", keys.len() - NAMED) } else { String::new() };
    format!(
        "{} written to after {as_of}: {named}{more}. So {} and {} are no restored tables, or functions use them already. \
         Are the names right? Is the time? If functions ran on them too early: stop them, and add --even-if-used. \
         Nothing was changed",
        was(keys.len()),
        deployment.config.entities_table,
        deployment.config.inbox_table,
    )
}
