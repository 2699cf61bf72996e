//! Runs an operation, such as redrive or skip, for one order or many. Lists the targets and the cost, asks for consent,
//! and shows the progress.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use webhook_serializer::protocol::{entity::EntityKey, maintain::Reason};

use super::{Effect, OperationTarget, Report, Verb, choice::DeliveryChoice, plan::OperationPlan, probe::ProbeWatch};
use crate::{
    commands::{
        interrupt::Interrupt, print_json, setup::source::whereabouts, similar, survey::bar, target::Deployment,
    },
    output::{self, Table, counted},
    say,
    view::position::marked,
};

const LISTED: usize = 50;

pub struct OperationRequest {
    pub verb: &'static Verb,
    pub choice: DeliveryChoice,
    pub reason: Reason,
}

impl OperationRequest {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.choice.many.target.connect().await?;
        let interrupt = Interrupt::listen();
        let plan = self.plan(&deployment, &interrupt).await?;
        if plan.targets.is_empty() {
            bail!("{}", self.nothing(&deployment).await?);
        }
        let is_agreed = self.choice.many.yes || !self.asks();
        if self.choice.many.dry_run || !is_agreed {
            self.list(&plan);
        }
        if self.choice.many.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_agreed {
            let question = format!("{} {}?", capital(self.verb.name), self.counted(plan.targets.len()));
            if !interrupt.ask("nothing has been changed yet", &question)? {
                output::complain("nothing was changed");
                return Ok(ExitCode::FAILURE);
            }
        }
        self.act(&plan, &deployment, &interrupt).await
    }

    fn is_many(&self) -> bool {
        self.choice.order.is_none() || !self.choice.many.selection.is_empty()
    }

    fn asks(&self) -> bool {
        self.is_many() || self.verb.asks_for_one
    }

    fn counted(&self, targets: usize) -> String {
        match self.verb.takes_deliveries() {
            true => counted(targets as u64, "delivery", "deliveries"),
            false => counted(targets as u64, "order", "orders"),
        }
    }

    async fn nothing(&self, deployment: &Deployment) -> Result<String> {
        if let Some(source) = &self.choice.many.selection.source
            && let Some(unknown) = whereabouts::unknown_in(deployment, source).await
        {
            bail!(unknown);
        }
        if let Some(order) = &self.choice.order
            && !deployment.operator().is_known(order).await?
        {
            return Ok(similar::unknown(order, deployment).await);
        }
        let of = match (&self.choice.order, self.choice.sequence) {
            (Some(order), Some(named)) => {
                let sequence = deployment.sequence(order, named).await?;
                let state = deployment.operator().single(order, sequence).await?.state;
                let what = match state {
                    Some(state) if state.head < sequence && sequence <= state.tail => "the delivery waits for its turn",
                    Some(state) if sequence <= state.head => {
                        "the delivery was settled, redriven or discarded, or the sequence was never used"
                    }
                    _ => "no delivery has this sequence",
                };
                format!("{order} {} is not parked: {what}", marked(sequence))
            }
            (Some(order), None) => format!("no delivery of {order} is parked"),
            _ => format!("there is no order or delivery to {}", self.verb.name),
        };
        let matching =
            if self.choice.many.selection.is_empty() { "" } else { " that matches --source, --error and --since" };
        let next = match &self.choice.order {
            Some(order) => deployment.command("show", order.as_str()),
            None => deployment.line("list", &[]),
        };
        Ok(format!("{of}{matching}; nothing was changed. `{next}` shows the current state"))
    }

    fn list(&self, plan: &OperationPlan) {
        if self.choice.many.json {
            plan.rows.iter().for_each(|(_, json)| print_json(json));
            return;
        }
        let mut table = Table::new(plan.columns);
        plan.rows.iter().take(LISTED).for_each(|(cells, _)| table.row(cells.clone()));
        output::print(table);
        if plan.rows.len() > LISTED {
            say!("and {} more", plan.rows.len() - LISTED);
        }
        say!();
        plan.notes.iter().for_each(|note| say!("{note}"));
        if plan.left_out > 0 {
            say!("--limit leaves out {}.", self.counted(plan.left_out));
        }
        let units = self.verb.write_units * plan.targets.len() as u64;
        say!(
            "{} `{}` costs at least {units} write units; large bodies cost more.",
            self.verb.description,
            self.verb.name
        );
    }

    async fn act(
        &self,
        OperationPlan { targets, left_out, .. }: &OperationPlan,
        deployment: &Deployment,
        interrupt: &Interrupt,
    ) -> Result<ExitCode> {
        let operator = deployment.operator().because(self.reason.clone());
        let is_many = self.is_many();
        let json = self.choice.many.json;
        let is_one = !is_many && targets.len() == 1;
        let bar = bar(targets.len() as u64, self.verb.name);
        let (mut done, mut nothing, mut refused) = (0, 0, 0);
        let mut is_started = false;
        let mut last = None;
        let mut report = |target: &OperationTarget, report: Report| {
            is_started |= report.effect == Effect::Done;
            match report.effect {
                Effect::Done | Effect::StaysStopped => done += 1,
                Effect::Nothing => nothing += 1,
                Effect::Refused | Effect::Unknown => refused += 1,
            }
            bar.inc(1);
            bar.suspend(|| match report.effect {
                _ if json => print_json(&report.json(&self.reason)),
                Effect::Done if is_many => {}
                Effect::Refused | Effect::Unknown if is_one => {}
                _ => say!("{}", report.sentence),
            });
            last = Some((target.order.clone(), report));
            !interrupt.came()
        };
        let watch = match self.verb.waits_for_probe && !json {
            true => ProbeWatch::of(targets, deployment).await.ok(),
            false => None,
        };
        let ended = self.verb.run(&operator, targets, &mut report).await;
        bar.finish_and_clear();
        let left = targets.len() - done - nothing - refused;
        if is_many && !json {
            say!("{}: {done} done, {nothing} needed no change, {} remain", self.verb.name, left + refused + left_out);
        }
        ended.with_context(|| format!("{done} done, {left} remain; run the same command again to continue"))?;
        let starts_all = watch.as_ref().is_none_or(ProbeWatch::starts_all);
        if let Some(watch) = watch.filter(|_| is_started) {
            watch.wait(deployment, interrupt).await?;
        }
        if is_many && is_started && self.verb.waits_for_probe && !json {
            let workers = if starts_all { "Workers handle them by themselves; " } else { "" };
            say!("{workers}`{}` shows what is still in trouble", deployment.line("status", &[]));
        }
        if let Some((order, report)) = last.as_ref().filter(|_| is_one) {
            return finish(report, order, json, deployment).await;
        }
        if left > 0 {
            output::complain(format_args!("stopped: {left} remain. Run the same command again to continue"));
        }
        Ok(if left + refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Prints the report of a verb that ran for one order or delivery.
pub async fn conclude(
    report: &Report,
    order: &EntityKey,
    reason: &Reason,
    json: bool,
    deployment: &Deployment,
) -> Result<ExitCode> {
    if json {
        print_json(&report.json(reason));
    } else if !report.effect.is_refused() {
        say!("{}", report.sentence);
    }
    finish(report, order, json, deployment).await
}

async fn finish(report: &Report, order: &EntityKey, json: bool, deployment: &Deployment) -> Result<ExitCode> {
    if report.effect.is_refused() {
        bail!("{}", refused_text(report, order, deployment).await);
    }
    if !json {
        deployment.print_next(order, &report.next);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn refused_text(report: &Report, order: &EntityKey, deployment: &Deployment) -> String {
    if report.effect == Effect::Unknown {
        return similar::unknown(order, deployment).await;
    }
    let next = report.next.iter().map(|next| format!(". `{}` {}", next.line(&deployment.option, order), next.purpose));
    format!("{}{}", report.sentence, next.collect::<String>())
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
