//! `serializer status`: counts orders and deliveries by state, source and error, and suggests commands.

mod pace;

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::Result;
use clap::Args;
use console::style;
use pace::Rates;
use serde_json::json;
use serializer::{
    output::{self, Table, duration},
    say,
    view::{
        order_status::{Kind, NextCommand, SourceDelays},
        outage,
        overview::StatusGroup,
        position::{ShortSequence, marked},
        summary::summary,
        tone::Word,
    },
};
use webhook_serializer::protocol::entity::SourceName;

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    setup::source::whereabouts,
    survey::{Cost, PARKED, ReadScope, Survey, Surveyor},
    target::{Deployment, Target},
};

#[derive(Debug, Args)]
#[command(
    after_help = "It reads the parked deliveries and the failing, blocked and held orders from indexes, and a part of \
                  the other orders; with --yes, the row of every order, an eighth of a read unit for each KB. Before \
                  it reads more than 1,000 read units, it shows the estimate and asks. After Ctrl-C it shows what it \
                  has read so far. An index follows the tables within about a second. If one cannot be read, the \
                  command says so, and reads the table.\n\n\
                  Errors that differ only in numbers of four or more digits count as one, and are shown with `…`.\n\n\
                  The source of a group of orders is that of their next deliveries. All their waiting deliveries are \
                  counted; those of other sources are named in brackets if all deliveries were read.\n\n\
                  The deliveries accepted and settled in the last 5 min, and their lag, are estimated from the rows \
                  of all deliveries, if reading these too takes less than 1,000 read units, or with --yes. Otherwise, \
                  and with --no-parked, only settled deliveries are counted."
)]
pub struct Status {
    /// Leave out parked deliveries: read only the orders' rows, and one delivery of each waiting order
    #[arg(long)]
    no_parked: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    target: Target,
}

impl Status {
    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let wanted = if self.no_parked { ReadScope::Orders } else { ReadScope::Rates };
        let mut surveyor = Surveyor::read(&deployment, self.cost, Interrupt::listen(), wanted).await?;
        let is_partial = surveyor.survey.is_partial;
        surveyor.sources(|lane| !is_partial || lane.kind.is_trouble()).await?;
        let survey = surveyor.finish();
        let sources = whereabouts::known_or_complained(&deployment).await;
        let delays = SourceDelays { sources, outages: deployment.operator().outages().await? };
        match self.json {
            true => print_json(&self.as_json(&survey, &delays)),
            false => self.print(&survey, &delays, &deployment),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn rates(&self, survey: &Survey) -> Rates {
        match survey.knows_deliveries || (survey.unread.contains(&PARKED) && !survey.overview.knows_parked) {
            _ if self.no_parked => Rates::LeftOut,
            true => Rates::Known,
            false => Rates::TooDear,
        }
    }

    fn print(&self, survey: &Survey, delays: &SourceDelays, deployment: &Deployment) {
        let seen = &survey.overview;
        let all_read = !survey.unread.contains(&PARKED);
        say!("{}{}", if survey.is_partial { "At least " } else { "" }, summary(seen, !self.no_parked, all_read));
        if survey.is_partial {
            say!(
                "Blocked, failing and held orders are counted in full, from indexes. Of the others, only a part was read; with \
                 --yes, all are. A lost wake-up or a dead worker's lease is found by the sweep, within three hours."
            );
        }
        let now = deployment.env.now();
        for outage in &delays.outages {
            say!("{}.", outage::sentence(outage, delays.tries(outage), now));
        }
        let paused = delays.paused();
        for source in &paused {
            let resume = deployment.line("source resume", &[source.as_str()]);
            say!("The source {source} is paused: its deliveries wait. `{resume}` ends the pause.");
        }
        pace::print(survey, self.rates(survey), now);
        let groups = seen.groups();
        if groups.is_empty() {
            return;
        }
        let mut table = Table::new(&["state", "source", ">orders", ">deliveries", ">oldest", "error", "the oldest"]);
        for group in &groups {
            table.row([
                group.kind.as_str().to_owned(),
                group.source.as_ref().map_or("?", SourceName::as_str).to_owned(),
                group.orders.to_string(),
                format!("{}{}", group.deliveries, group.of_others()),
                group.oldest.map(|at| duration(now.since(at))).unwrap_or_default(),
                group.error.clone().unwrap_or_default(),
                oldest(group),
            ]);
            table.style(0, Word::from(group.kind).style());
        }
        say!();
        output::print(table);
        let mut told = Vec::new();
        for group in groups.iter().filter(|group| group.kind != Kind::AtWork) {
            if told.contains(&group.kind) {
                continue;
            }
            told.push(group.kind);
            say!("\n{}: next", group.kind.as_str());
            for (command, what_for) in next(group, &paused, deployment) {
                say!("  {command}  {}", style(format_args!("# {what_for}")).dim());
            }
        }
    }
}

fn oldest(group: &StatusGroup) -> String {
    let (entity, sequence) = &group.example;
    sequence.map_or_else(|| entity.to_string(), |sequence| format!("{entity} {}", marked(sequence)))
}

fn next(group: &StatusGroup, paused: &BTreeSet<SourceName>, deployment: &Deployment) -> [(String, &'static str); 2] {
    let (entity, sequence) = &group.example;
    let order = entity.as_str();
    let mut only = Vec::new();
    if let Some(source) = &group.source {
        only.extend(["--source", source.as_str()]);
    }
    if let Some(error) = &group.error {
        only.extend(["--error", error]);
    }
    let list = |option| (deployment.line("list", &[&[option], &only[..]].concat()), "all of these");
    let many = |verb| deployment.line(verb, &only);
    let show = |arguments: &[&str], what_for| (deployment.line("show", &[&[order], arguments].concat()), what_for);
    match (group.kind, sequence) {
        (Kind::Parked, Some(sequence)) => {
            let redrive = match entity.is_unrouted() {
                true => {
                    let redrive = NextCommand::redrive(entity, *sequence, 1);
                    (redrive.line(&deployment.option, entity), redrive.purpose)
                }
                false => (many("redrive"), "after the fix: lists the deliveries to redrive, then asks"),
            };
            [show(&[&ShortSequence(*sequence).to_string()], "the oldest, with its body"), redrive]
        }
        (Kind::Blocked, _) => [
            show(&[], "why the oldest is blocked"),
            (many("resume"), "after the fix: lists the orders to resume, then asks"),
        ],
        (Kind::Failing | Kind::Unavailable, _) => [
            show(&[], "what the oldest waits for"),
            (many("retry"), "once the cause is over: lists the orders to try again, then asks"),
        ],
        (Kind::OnHold, _) => [list("--held"), show(&["--history"], "who put the oldest on hold, and why")],
        _ => match group.source.as_ref().filter(|source| paused.contains(*source)) {
            Some(source) => {
                [list("--waiting"), (deployment.line("source resume", &[source.as_str()]), "ends the source's pause")]
            }
            None => [list("--waiting"), show(&[], "what the oldest waits for")],
        },
    }
}

impl Status {
    fn as_json(&self, survey: &Survey, delays: &SourceDelays) -> serde_json::Value {
        let seen = &survey.overview;
        let groups = seen.groups().into_iter().map(|group| {
            let (entity, sequence) = group.example;
            json!({
                "state": group.kind.as_str(), "source": group.source, "error": group.error, "orders": group.orders,
                "deliveries": group.deliveries, "of_other_sources": group.others, "oldest": group.oldest, "entity": entity, "sequence": sequence,
            })
        });
        json!({
            "orders": seen.orders, "waiting": seen.count(Kind::Waiting), "failing": seen.count(Kind::Failing),
            "unavailable": seen.count(Kind::Unavailable),
            "blocked": seen.count(Kind::Blocked), "at_work": seen.count(Kind::AtWork), "leased": seen.count(Kind::Leased),
            "on_hold": seen.count(Kind::OnHold),
            "abandoned": seen.count(Kind::Abandoned), "parked": seen.parked.len(), "groups": groups.collect::<Vec<_>>(),
            "paused_sources": delays.paused(), "outages": delays.outages.iter().map(|outage| outage::as_json(outage, delays.tries(outage))).collect::<Vec<_>>(), "last_minutes": pace::as_json(survey, self.rates(survey) == Rates::Known), "unreadable": seen.unreadable.len(), "complete": survey.unread.is_empty() && !survey.is_partial, "trouble_complete": survey.unread.is_empty(), "read_units": survey.units,
        })
    }
}
