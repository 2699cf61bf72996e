//! `serializer restore`: makes tables usable again after a restore from a backup.

mod copies;
mod report;

use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::ProgressBar;
use serializer::{
    output::{self, counted, duration},
    say,
};
use webhook_serializer::{
    operator::{Operator, RESTORED},
    protocol::{
        maintain::{NextRestore, RestoreRecord, is_claimed_after},
        state::EntityState,
        table::TableName,
    },
    time::Timestamp,
};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    reason::{ReasonOptions, RequiredReason},
    target::{Deployment, Target},
};
use report::RestoreSummary;

const NAMED: usize = 10;

#[derive(Debug, Args)]
#[command(
    after_help = "Run it on the restored tables while no function uses them, as docs/runbooks/restore.md describes. It \
                  raises each order's sequences and tokens above all that were used since the backup. It parks the \
                  deliveries that waited at the backup's time, because they may have been applied since. It puts \
                  blocked orders on hold. Its report says what to reconcile with the senders.\n\n\
                  After Ctrl-C, or a crash, the same command continues. After a completed restore, it changes nothing."
)]
pub struct Restore {
    /// The time of the backup, such as 2026-11-22T12:00:00Z; not needed if AWS restored the tables
    #[arg(long, value_name = "TIME")]
    as_of: Option<Timestamp>,
    /// List the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Also restore orders that accepted deliveries since the backup, and park these deliveries
    #[arg(long)]
    even_if_used: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    because: RequiredReason,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Default)]
struct RestoreTotals {
    orders: usize,
    jobs: usize,
    waiting: u64,
    waiting_of: usize,
    blocked: usize,
    /// The keys of orders in which a sequence was claimed more than five minutes after the backup. Earlier claims do
    /// not count, because clocks differ.
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
            "{as_of} is in the future by this machine's clock; give the time to which the tables were restored"
        );
        let interrupt = Interrupt::listen();
        let operator = deployment.operator().because(self.because.reason());
        let before = operator.restoring().await?;
        let next = RestoreRecord::next(before.clone(), as_of);
        match &next {
            NextRestore::Done(done) => {
                let ended = done.ended.unwrap_or(done.begun);
                say!(
                    "These tables were restored to {as_of} already, {} ago; nothing is left to do.",
                    duration(now.since(ended))
                );
                say!("`{}` lists the deliveries that are still parked.", list_parked(&deployment));
                return Ok(ExitCode::SUCCESS);
            }
            NextRestore::Another(other) => bail!(
                "a restore of these tables to {} began at {} and has not ended: continue it with --as-of {}, or name other \
                 tables",
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
            && !interrupt
                .ask("nothing has been changed yet", &format!("Restore {}?", deployment.config.entities_table))?
        {
            output::complain("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        let NextRestore::GoOn(restoring) = operator.begin_restore(as_of).await? else {
            bail!("another operator began a restore at the same time; run this again")
        };
        self.restore(&operator, &restoring, &found, &interrupt, &deployment).await
    }

    async fn look(
        &self,
        operator: &Operator,
        next: &NextRestore,
        as_of: Timestamp,
        now: Timestamp,
    ) -> Result<RestoreTotals> {
        let mut found = RestoreTotals::default();
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

    fn announce(&self, found: &RestoreTotals, as_of: Timestamp, now: Timestamp, goes_on: bool) {
        let left = if goes_on { " are left" } else { "" };
        say!(
            "{} and {}{left}, as of {as_of}, {} ago. The restore raises their sequences and tokens above all that were \
             used since.",
            counted(found.orders as u64, "order", "orders"),
            counted(found.jobs as u64, "job", "jobs"),
            duration(now.since(as_of)),
        );
        if found.waiting > 0 {
            say!(
                "{} of {} waited. They may have been applied since, so the restore parks them, except repeats.",
                counted(found.waiting, "delivery", "deliveries"),
                counted(found.waiting_of as u64, "order", "orders"),
            );
        }
        if found.blocked > 0 {
            let resume = format!("`{} resume`", output::this_command());
            say!("{} blocked; the restore puts them on hold until {resume}.", was(found.blocked));
        }
        if !found.in_use.is_empty() {
            say!(
                "{} changed since the backup; the restore parks their waiting deliveries too.",
                was(found.in_use.len())
            );
        }
        if found.unreadable > 0 {
            say!(
                "{} cannot be read; the restore does not change them.",
                counted(found.unreadable as u64, "row", "rows")
            );
        }
    }

    async fn restore(
        &self,
        operator: &Operator,
        restoring: &RestoreRecord,
        found: &RestoreTotals,
        interrupt: &Interrupt,
        deployment: &Deployment,
    ) -> Result<ExitCode> {
        let mut report = RestoreSummary::default();
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
                "{} restored before this failed; run the same command again to continue",
                counted(report.raised(), "order or job", "orders and jobs")
            )
        })?;
        report.add_earlier_runs(operator, restoring).await?;
        match self.json {
            true => print_json(&report.json(restoring, is_whole)),
            false => report.print(restoring, is_whole, deployment),
        }
        if interrupt.came() {
            output::complain("stopped; run the same command again to continue");
        }
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn list_parked(deployment: &Deployment) -> String {
    deployment.line("list", &["--parked", "--error", RESTORED])
}

fn was(count: usize) -> String {
    if count == 1 { "1 order was".to_owned() } else { format!("{count} orders were") }
}

fn in_use(keys: &[String], as_of: Timestamp, deployment: &Deployment) -> String {
    let named = keys.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    let more = if keys.len() > NAMED { format!(" and {} more", keys.len() - NAMED) } else { String::new() };
    format!(
        "nothing was changed: {} written to after {as_of}: {named}{more}. Check that {} and {} are the restored \
         tables, and that the time is right. If functions used the restored tables too early, stop them and add \
         --even-if-used",
        was(keys.len()),
        deployment.config.entities_table,
        deployment.config.inbox_table,
    )
}
