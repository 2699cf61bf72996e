//! `serializer redrive`: parked deliveries put back.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use clap::{ArgGroup, Args};
use serde_json::json;
use serializer::{
    output::{self, Table, duration},
    say,
    view::overview::Aside,
};
use webhook_serializer::{
    operator::{OperatorError, Parked, PutBack},
    protocol::entity::{EntityKey, Sequence},
};

use crate::commands::{
    interrupt::Interrupt,
    look::entities::Only,
    print_json,
    reason::MaybeBecause,
    survey::{Cost, Surveyor, Wanted},
    target::{Deployment, Target},
};

/// So many are listed before it is asked whether to put them back.
const LISTED: usize = 50;

/// Options of `serializer redrive`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("which").required(true).multiple(true).args(["order", "source", "error", "all"]),
    after_help = "Each goes to the end of its order's inbox, behind what arrived meanwhile. Those of one order keep \
                  their order. With --source, --error or --all it lists first what it would put back, in that order, \
                  and asks; --dry-run stops there.\n\n\
                  It can be stopped by Ctrl-C, or killed: the same command goes on. Nothing is put back twice, but for \
                  what failed again meanwhile and is parked anew."
)]
pub struct Redrive {
    /// Whose: the order's key
    #[arg(value_name = "ORDER")]
    order: Option<EntityKey>,
    /// Only the one with this number; all of the order's by default
    #[arg(conflicts_with_all = ["source", "error", "all", "limit"])]
    sequence: Option<u64>,
    /// Into this order's inbox instead: for deliveries whose order could not be found, under SOURCE/unrouted
    #[arg(long, value_name = "ORDER", requires = "order", conflicts_with_all = ["source", "error", "all", "limit"])]
    to: Option<EntityKey>,
    #[command(flatten)]
    only: Only,
    /// All that is parked, of every order
    #[arg(long, conflicts_with_all = ["order", "source", "error"])]
    all: bool,
    /// Put back at most N, from the top of the list; --limit 1 tries with one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// List what would be put back, and put nothing back
    #[arg(long)]
    dry_run: bool,
    /// One JSON object a line
    #[arg(long, conflicts_with = "to")]
    json: bool,
    /// Put them back without asking, and read on where that takes more than 1,000 read units
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    because: MaybeBecause,
    #[command(flatten)]
    target: Target,
}

/// How many became what.
#[derive(Debug, Default)]
struct Tally {
    back: usize,
    gone: usize,
    stay: usize,
}

impl Redrive {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        if let Some(to) = &self.to {
            return self.redirect(&deployment, to).await;
        }
        let interrupt = Interrupt::listen();
        let (wanted, overtaken) = self.wanted(&deployment, &interrupt).await?;
        if wanted.is_empty() {
            bail!("{}; `{}` lists what is parked", self.nothing(), deployment.line("parked", &[]));
        }
        // Who names an order means it; who names a source may be surprised.
        let is_agreed = !self.is_many() || self.yes;
        if self.dry_run || !is_agreed {
            self.list(&wanted, overtaken, &deployment);
        }
        if self.dry_run {
            return Ok(ExitCode::SUCCESS);
        }
        if !is_agreed {
            let what = if wanted.len() == 1 { "it" } else { "them" };
            let agreed = interrupt.ask("nothing is put back yet", &format!("Put {what} back?"))?;
            if !agreed {
                output::complain("nothing was put back");
                return Ok(ExitCode::FAILURE);
            }
        }
        self.put_back(&wanted, &deployment, &interrupt).await
    }

    fn is_many(&self) -> bool {
        self.order.is_none() || !self.only.filter().takes_all()
    }

    fn nothing(&self) -> String {
        let of = match (&self.order, self.sequence) {
            (Some(order), Some(sequence)) => format!("nothing of {order} at {sequence} is parked"),
            (Some(order), None) => format!("nothing of {order} is parked"),
            _ => "nothing is parked".to_owned(),
        };
        if self.only.filter().takes_all() { of } else { format!("{of} that fits --source and --error") }
    }

    /// What is to be put back, in its order; and of how many orders something
    /// stays parked that stood in front of it.
    async fn wanted(&self, deployment: &Deployment, interrupt: &Interrupt) -> Result<(Vec<Aside>, usize)> {
        let mut parked: Vec<Aside> = match &self.order {
            Some(order) => deployment.operator().parked(order).await?.iter().map(Aside::from).collect(),
            None => {
                let read =
                    Surveyor::read(deployment, Cost { yes: self.yes }, interrupt.clone(), Wanted::Parked).await?;
                read.whole()?.overview.aside
            }
        };
        parked.sort_by(|left, right| (&left.entity, left.sequence).cmp(&(&right.entity, right.sequence)));
        let filter = self.only.filter();
        let (mut wanted, others): (Vec<Aside>, Vec<Aside>) = parked.into_iter().partition(|one| {
            self.sequence.is_none_or(|sequence| one.sequence == Sequence(sequence))
                && filter.takes(Some(&one.source), Some(&one.error))
        });
        wanted.truncate(self.limit.map_or(usize::MAX, |limit| limit as usize));
        let mut last: BTreeMap<&EntityKey, Sequence> = BTreeMap::new();
        for one in &wanted {
            last.insert(&one.entity, one.sequence);
        }
        let stay = others.iter().filter(|one| last.get(&one.entity).is_some_and(|last| one.sequence < *last));
        let overtaken = stay.map(|one| &one.entity).collect::<BTreeSet<_>>().len();
        Ok((wanted, overtaken))
    }

    fn list(&self, wanted: &[Aside], overtaken: usize, deployment: &Deployment) {
        let now = deployment.env.now();
        let mut table = Table::new(&["order", ">sequence", "source", "topic", ">parked", "error"]);
        for one in wanted {
            if self.json {
                print_json(&json!({
                    "entity": one.entity, "sequence": one.sequence, "source": one.source, "topic": one.topic,
                    "parked_at": one.since, "error": one.error, "became": null,
                }));
            } else if table.len() < LISTED {
                table.row([
                    one.entity.to_string(),
                    one.sequence.to_string(),
                    one.source.to_string(),
                    one.topic.clone(),
                    one.since.map(|at| duration(now.since(at))).unwrap_or_default(),
                    one.error.clone(),
                ]);
            }
        }
        if self.json {
            return;
        }
        output::print(table);
        if wanted.len() > LISTED {
            say!("and {} more", wanted.len() - LISTED);
        }
        let orders = wanted.iter().map(|one| &one.entity).collect::<BTreeSet<_>>().len();
        say!(
            "{} of {} would be put back, each at the end of its order.",
            count(wanted.len(), "delivery", "deliveries"),
            count(orders, "order", "orders")
        );
        if overtaken > 0 {
            say!("Of {} of them others stay parked that came before: what is put back overtakes those.", overtaken);
        }
    }

    async fn put_back(&self, wanted: &[Aside], deployment: &Deployment, interrupt: &Interrupt) -> Result<ExitCode> {
        let list: Vec<_> = wanted.iter().map(|one| (one.entity.clone(), one.sequence)).collect();
        let mut tally = Tally::default();
        let operator = deployment.operator().because(self.because.reason());
        let done = operator.put_back(&list, |entity, sequence, became| {
            tally.add(became);
            match self.json {
                true => print_json(&json!({ "entity": entity, "sequence": sequence, "became": became_json(became) })),
                false => say!("{entity} {sequence}{}", told(entity, became)),
            }
            !interrupt.came()
        });
        let done = done.await;
        let Tally { back, gone, stay } = tally;
        let left = wanted.len() - back - gone - stay;
        if self.is_many() && !self.json {
            say!("{back} put back, {gone} not parked any more, {} left", left + stay);
        }
        done.with_context(|| format!("{back} were put back, {left} are left; the same command goes on"))?;
        if left > 0 {
            output::complain(format_args!("stopped; {left} stay parked, and the same command goes on"));
        }
        Ok(if left + stay > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Into another order's inbox.
    async fn redirect(&self, deployment: &Deployment, to: &EntityKey) -> Result<ExitCode> {
        let operator = deployment.operator().because(self.because.reason());
        let order = self.order.as_ref().context("which order's?")?;
        let wanted = |one: &Parked| self.sequence.is_none_or(|sequence| one.sequence == Sequence(sequence));
        let parked: Vec<Parked> = operator.parked(order).await?.into_iter().filter(wanted).collect();
        if parked.is_empty() {
            bail!("{}; `{}` lists what is parked", self.nothing(), deployment.line("parked", &[]));
        }
        let mut stays = false;
        for one in &parked {
            let what = format!("{order} {}", one.sequence);
            if self.dry_run {
                say!("{what} would be put into the inbox of {to}");
                continue;
            }
            match operator.redrive(one, Some(to)).await {
                Ok(appended) => say!("{what} is back in the inbox of {to}, as {}", appended.sequence),
                // None of them keeps the others from being put back.
                Err(error @ (OperatorError::DecidedOtherwise(_) | OperatorError::NotParked)) => {
                    say!("{what}: {error}");
                }
                Err(error @ OperatorError::Undecided) => {
                    say!("{what}: {error}");
                    stays = true;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(if stays { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

impl Tally {
    fn add(&mut self, became: &PutBack) {
        let count = match became {
            PutBack::At(_) | PutBack::Unannounced => &mut self.back,
            PutBack::NotParked | PutBack::DecidedOtherwise(_) => &mut self.gone,
            PutBack::Undecided | PutBack::Behind | PutBack::Unreadable(_) => &mut self.stay,
        };
        *count += 1;
    }
}

fn told(entity: &EntityKey, became: &PutBack) -> String {
    match became {
        PutBack::At(sequence) => format!(" is back in the inbox of {entity}, as {sequence}"),
        PutBack::Unannounced => {
            " is back; no wake-up could be sent, and the sweep will find it within the hour".to_owned()
        }
        PutBack::NotParked => format!(": {}", OperatorError::NotParked),
        PutBack::DecidedOtherwise(settlement) => format!(": {}", OperatorError::DecidedOtherwise(*settlement)),
        PutBack::Undecided => format!(": {}", OperatorError::Undecided),
        PutBack::Behind => ": one in front of it is still being decided; nothing was put back".to_owned(),
        PutBack::Unreadable(error) => format!(" stays parked: it cannot be read: {error}"),
    }
}

fn became_json(became: &PutBack) -> serde_json::Value {
    match became {
        PutBack::At(sequence) => json!({ "back_at": sequence }),
        PutBack::Unannounced => json!("back, unannounced"),
        PutBack::NotParked => json!("not parked"),
        PutBack::DecidedOtherwise(settlement) => json!(settlement.as_str()),
        PutBack::Undecided => json!("undecided"),
        PutBack::Behind => json!("behind one that is undecided"),
        PutBack::Unreadable(error) => json!({ "unreadable": error.to_string() }),
    }
}

fn count(count: usize, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}
