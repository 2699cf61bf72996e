//! Runs an operation, such as redrive or skip, for one order or many. Lists the targets and the cost, asks for consent,
//! and shows the progress.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use serializer::{
    operations::{self, Effect, OperationOutcome, OperationTarget, ParkedSelection, Tally, Verb},
    output::{self, Table, counted, duration},
    say,
    view::{
        delivery::parked_json,
        order_status::attempts_so_far,
        overview::{OrderSummary, ParkedDelivery},
        position::{Named, marked},
    },
};
use webhook_serializer::protocol::{entity::EntityKey, maintain::Reason};

use super::choice::Many;
use crate::commands::{
    interrupt::Interrupt,
    print_json,
    setup::source::whereabouts,
    similar,
    survey::{self, Cost, ReadScope, Surveyor},
    target::Deployment,
};

const LISTED: usize = 50;

pub struct OperationRequest<'a> {
    pub verb: Verb,
    pub order: Option<&'a EntityKey>,
    pub sequence: Option<Named>,
    pub many: &'a Many,
    pub reason: Reason,
}

struct OperationPlan {
    targets: Vec<OperationTarget>,
    columns: &'static [&'static str],
    rows: Vec<(Vec<String>, Value)>,
    notes: Vec<String>,
}

impl OperationRequest<'_> {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.many.target.connect().await?;
        let interrupt = Interrupt::listen();
        let plan = self.plan(&deployment, &interrupt).await?;
        if plan.targets.is_empty() {
            bail!("{}", self.nothing(&deployment).await?);
        }
        let is_agreed = self.many.yes || !self.asks();
        if self.many.dry_run || !is_agreed {
            self.list(&plan);
        }
        if self.many.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_agreed {
            let question = format!("{} {}?", capital(self.verb.name()), self.counted(plan.targets.len()));
            if !interrupt.ask("nothing has been changed yet", &question)? {
                output::complain("nothing was changed");
                return Ok(ExitCode::FAILURE);
            }
        }
        self.act(&plan.targets, &deployment, &interrupt).await
    }

    fn is_many(&self) -> bool {
        self.order.is_none() || !self.many.selection.is_empty()
    }

    fn asks(&self) -> bool {
        self.is_many() || matches!(self.verb, Verb::Skip | Verb::Discard)
    }

    fn counted(&self, targets: usize) -> String {
        match self.verb.takes_deliveries() {
            true => counted(targets as u64, "delivery", "deliveries"),
            false => counted(targets as u64, "order", "orders"),
        }
    }

    async fn nothing(&self, deployment: &Deployment) -> Result<String> {
        if let Some(source) = &self.many.selection.source
            && let Some(unknown) = whereabouts::unknown_in(deployment, source).await
        {
            bail!(unknown);
        }
        if let Some(order) = self.order
            && !deployment.operator().is_known(order).await?
        {
            return Ok(similar::unknown(order, deployment).await);
        }
        let of = match (self.order, self.sequence) {
            (Some(order), Some(named)) => {
                let sequence = deployment.sequence(order, named).await?;
                let state = deployment.operator().single(order, sequence).await?.state;
                let what = match state {
                    Some(state) if state.head < sequence && sequence <= state.tail => "the delivery waits for its turn",
                    Some(state) if sequence <= state.head => "the delivery was settled, redriven or discarded",
                    _ => "no delivery has this sequence",
                };
                format!("{order} {} is not parked: {what}", marked(sequence))
            }
            (Some(order), None) => format!("no delivery of {order} is parked"),
            _ => format!("there is no order or delivery to {}", self.verb.name()),
        };
        let matching = if self.many.selection.is_empty() { "" } else { " that matches --source, --error and --since" };
        let next = match self.order {
            Some(order) => deployment.command("show", order.as_str()),
            None => deployment.line("list", &[]),
        };
        Ok(format!("{of}{matching}; nothing was changed. `{next}` shows the current state"))
    }

    async fn plan(&self, deployment: &Deployment, interrupt: &Interrupt) -> Result<OperationPlan> {
        let cost = Cost { yes: self.many.yes };
        let limit = self.many.limit.map_or(usize::MAX, |limit| limit as usize);
        let filter = self.many.selection.filter(deployment.env.now());
        let takes_parked = |one: &ParkedDelivery| {
            self.sequence.is_none_or(|named| named.fits(one.sequence))
                && filter.takes(Some(&one.source), Some(&one.error), one.since)
        };
        match (self.verb, self.order) {
            (Verb::Redrive | Verb::Discard, order) => {
                let parked: Vec<ParkedDelivery> = match order {
                    Some(order) => {
                        deployment.operator().parked(order).await?.iter().map(ParkedDelivery::from).collect()
                    }
                    None => {
                        Surveyor::read(deployment, cost, interrupt.clone(), ReadScope::Parked)
                            .await?
                            .complete()?
                            .overview
                            .parked
                    }
                };
                let selection = ParkedSelection::of(parked, takes_parked, limit);
                if let ([first, second, ..], Some(_)) = (&selection.deliveries[..], self.sequence) {
                    let (first, second) = (first.sequence, second.sequence);
                    bail!("several parked deliveries fit; give the whole sequence, such as {first} or {second}");
                }
                Ok(self.plan_of_parked(&selection, deployment))
            }
            (Verb::Skip, Some(order)) => self.plan_of_skip(order, deployment).await,
            (_, Some(order)) => {
                let targets = vec![OperationTarget { order: order.clone(), sequence: None }];
                let row = (vec![order.to_string()], json!({ "entity": order, "done": null }));
                Ok(OperationPlan { targets, columns: &["order"], rows: vec![row], notes: Vec::new() })
            }
            (_, None) => {
                let mut surveyor = Surveyor::read(deployment, cost, interrupt.clone(), ReadScope::Orders).await?;
                let is_wanted = |lane: &OrderSummary| filter.takes_but_source(lane.error(), lane.since());
                if filter.source.is_some() {
                    surveyor.sources(is_wanted).await?;
                }
                let lanes = surveyor.complete()?.overview.lanes;
                let is_wanted = |lane: &&OrderSummary| filter.takes(lane.source.as_ref(), lane.error(), lane.since());
                let mut lanes: Vec<&OrderSummary> = lanes.iter().filter(is_wanted).collect();
                lanes.sort_by_key(|lane| lane.since());
                let mut targets = operations::orders(self.verb, lanes.iter().copied());
                targets.truncate(limit);
                Ok(self.plan_of_orders(targets, &lanes, deployment))
            }
        }
    }

    fn plan_of_parked(&self, selection: &ParkedSelection, deployment: &Deployment) -> OperationPlan {
        let now = deployment.env.now();
        let row = |one: &ParkedDelivery| {
            let since = one.since.map(|at| duration(now.since(at))).unwrap_or_default();
            let cells = [one.entity.to_string(), marked(one.sequence), one.source.to_string(), one.topic.clone()];
            let mut json = parked_json(one);
            json["became"] = Value::Null;
            ([&cells[..], &[since, one.error.clone()]].concat(), json)
        };
        let mut notes = vec![format!(
            "{} of {}.",
            counted(selection.deliveries.len() as u64, "delivery", "deliveries"),
            counted(selection.orders() as u64, "order", "orders")
        )];
        if selection.overtaken > 0 && self.verb == Verb::Redrive {
            let orders = counted(selection.overtaken as u64, "order", "orders");
            notes.push(format!("In {orders}, an earlier delivery stays parked, and these deliveries run before it."));
        }
        if self.verb == Verb::Discard {
            let days = deployment.retention.as_secs() / 86_400;
            notes.push(format!(
                "If the sender sends the webhook again within {days} days after it was parked, it \
                 counts as a repeat."
            ));
        }
        OperationPlan {
            targets: selection.targets(),
            columns: &["order", ">delivery", "source", "topic", ">parked", "error"],
            rows: selection.deliveries.iter().map(row).collect(),
            notes,
        }
    }

    fn plan_of_orders(
        &self,
        targets: Vec<OperationTarget>,
        lanes: &[&OrderSummary],
        deployment: &Deployment,
    ) -> OperationPlan {
        let now = deployment.env.now();
        let chosen: BTreeSet<&EntityKey> = targets.iter().map(|target| &target.order).collect();
        let lanes = || lanes.iter().filter(|lane| chosen.contains(&lane.state.entity));
        let row = |lane: &&OrderSummary| {
            let state = &lane.state;
            let cells = vec![
                state.entity.to_string(),
                lane.kind.as_str().to_owned(),
                state.waiting().to_string(),
                lane.since().map(|at| duration(now.since(at))).unwrap_or_default(),
                lane.status(None, now).summary(),
            ];
            let sequence = self.verb.takes_deliveries().then(|| state.next());
            let json = json!({
                "entity": state.entity, "sequence": sequence, "state": lane.kind.as_str(), "since": lane.since(),
                "waiting": state.waiting(), "error": lane.error(), "done": null,
            });
            (cells, json)
        };
        let waiting: u64 = lanes().map(|lane| lane.state.waiting()).sum();
        let waiting = counted(waiting, "delivery waits", "deliveries wait");
        let notes = vec![format!("{}, in which {waiting}.", counted(targets.len() as u64, "order", "orders"))];
        let rows = lanes().map(row).collect();
        OperationPlan { columns: &["order", "state", ">waiting", ">since", "why"], rows, notes, targets }
    }

    async fn plan_of_skip(&self, order: &EntityKey, deployment: &Deployment) -> Result<OperationPlan> {
        let Some(named) = self.sequence else {
            bail!(
                "give the SEQUENCE of the delivery of {order}; `{}` shows the next one",
                deployment.command("show", order.as_str())
            );
        };
        let sequence = deployment.sequence(order, named).await?;
        let target = OperationTarget { order: order.clone(), sequence: Some(sequence) };
        let single = deployment.operator().single(order, sequence).await?;
        let topic = single.content.delivery().map_or("empty", |delivery| delivery.topic()).to_owned();
        let mut notes = Vec::new();
        if let Some(state) = single.state {
            if state.next() != sequence || state.is_empty() {
                let refused = operations::not_in_front(order, sequence, &state);
                bail!("{}", refused_text(&refused, order, deployment).await);
            }
            let behind = counted(state.waiting() - 1, "delivery waits", "deliveries wait");
            let then = if state.hold.since().is_some() { "until the order is resumed" } else { "and then continue" };
            notes.push(format!("{behind} behind it, {then}."));
            let stands =
                if state.has_attempts_of_latest() { " The error is that of the newest waiting delivery." } else { "" };
            let error = state.last_error.as_deref().unwrap_or("none");
            notes.push(format!("Attempts so far: {}. Last error: {error}.{stands}", attempts_so_far(&state)));
        }
        let json = json!({ "entity": order, "sequence": sequence, "topic": topic, "done": null });
        let rows = vec![(vec![order.to_string(), marked(sequence), topic], json)];
        Ok(OperationPlan { targets: vec![target], columns: &["order", ">delivery", "topic"], rows, notes })
    }

    fn list(&self, plan: &OperationPlan) {
        if self.many.json {
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
        let units = self.verb.write_units() * plan.targets.len() as u64;
        say!(
            "{} `{}` costs at least {units} write units; large bodies cost more.",
            self.verb.description(),
            self.verb.name()
        );
    }

    async fn act(
        &self,
        targets: &[OperationTarget],
        deployment: &Deployment,
        interrupt: &Interrupt,
    ) -> Result<ExitCode> {
        let operator = deployment.operator().because(self.reason.clone());
        let is_many = self.is_many();
        let json = self.many.json;
        let is_one = !is_many && targets.len() == 1;
        let bar = survey::bar(targets.len() as u64, self.verb.name());
        let mut tally = Tally::default();
        let mut last = None;
        let done = operations::run(self.verb, &operator, targets, |target, outcome| {
            tally.add(outcome.effect);
            bar.inc(1);
            bar.suspend(|| match (json, outcome.effect) {
                (true, _) => print_json(&with_reason(&outcome, &self.reason)),
                (false, Effect::Done) if is_many && !outcome.stays_stopped => {}
                (false, Effect::Refused) if is_one => {}
                _ => say!("{}", outcome.sentence),
            });
            last = Some((target.order.clone(), outcome));
            !interrupt.came()
        });
        let done = done.await;
        bar.finish_and_clear();
        let left = targets.len() - tally.total();
        if is_many && !json {
            let Tally { done, nothing, refused } = tally;
            say!("{}: {done} done, {nothing} needed no change, {} remain", self.verb.name(), left + refused);
        }
        done.with_context(|| format!("{} done, {left} remain; run the same command again to continue", tally.done))?;
        if let Some((order, outcome)) = last.as_ref().filter(|_| is_one) {
            return finish(outcome, order, json, deployment).await;
        }
        if left > 0 {
            output::complain(format_args!("stopped: {left} remain. Run the same command again to continue"));
        }
        Ok(if left + tally.refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn with_reason(outcome: &OperationOutcome, reason: &Reason) -> Value {
    let mut value = outcome.json.clone();
    value["by"] = json!(reason.by);
    value["why"] = json!(reason.why);
    value
}

async fn finish(
    outcome: &OperationOutcome,
    order: &EntityKey,
    json: bool,
    deployment: &Deployment,
) -> Result<ExitCode> {
    if outcome.effect == Effect::Refused {
        bail!("{}", refused_text(outcome, order, deployment).await);
    }
    if !json {
        deployment.print_next(order, &outcome.next);
    }
    Ok(ExitCode::SUCCESS)
}

pub async fn refused_text(outcome: &OperationOutcome, order: &EntityKey, deployment: &Deployment) -> String {
    if outcome.is_unknown {
        return similar::unknown(order, deployment).await;
    }
    let next = outcome.next.iter().map(|next| format!(". `{}` {}", next.line(&deployment.option, order), next.purpose));
    format!("{}{}", outcome.sentence, next.collect::<String>())
}

pub async fn run_one(
    verb: Verb,
    target: &OperationTarget,
    reason: Reason,
    json: bool,
    deployment: &Deployment,
) -> Result<ExitCode> {
    let outcome = verb.act(&deployment.operator().because(reason.clone()), target).await?;
    match json {
        true => print_json(&with_reason(&outcome, &reason)),
        false if outcome.effect == Effect::Refused => {}
        false => say!("{}", outcome.sentence),
    }
    finish(&outcome, &target.order, json, deployment).await
}

fn capital(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}
