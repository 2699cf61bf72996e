//! `serializer entities`: the orders that do not move.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use serializer::{
    output::{self, Table, duration},
    say,
    view::{
        order_status::Kind,
        overview::{Aside, Filter, Lane, Overview},
    },
};
use webhook_serializer::{
    protocol::entity::{EntityKey, SourceName},
    time::Timestamp,
};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    survey::{Cost, Surveyor, Wanted},
    target::{Deployment, Target},
};

/// Options of `serializer entities`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --waiting, --blocked, --on-hold or --parked it lists all of them. What it reads, and what that costs: \
                  `serializer status --help`; --waiting, --blocked and --on-hold leave out the deliveries, which cost the most."
)]
pub struct Entities {
    /// Those with deliveries that wait, are tried again or are at work
    #[arg(long, group = "state")]
    waiting: bool,
    /// Those that were stopped, and wait for you
    #[arg(long, group = "state")]
    blocked: bool,
    /// Those that a person put on hold
    #[arg(long, visible_alias = "held", group = "state")]
    on_hold: bool,
    /// Those with deliveries that are parked
    #[arg(long, group = "state")]
    parked: bool,
    #[command(flatten)]
    only: Only,
    /// Show at most N
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    target: Target,
}

/// Which orders or deliveries are meant.
#[derive(Debug, Clone, Args)]
pub struct Only {
    /// Only what this source sent
    #[arg(long, value_name = "NAME", value_parser = SourceName::parse)]
    pub source: Option<SourceName>,
    /// Only where the error has this text in it; `…`, and any number of four or more digits, stand for such a number
    #[arg(long, value_name = "TEXT")]
    pub error: Option<String>,
}

impl Only {
    pub fn filter(&self) -> Filter {
        Filter { source: self.source.clone(), error: self.error.clone() }
    }
}

/// An order in the list.
#[derive(Debug, Default)]
struct Entry<'a> {
    lane: Option<&'a Lane>,
    aside: Vec<&'a Aside>,
}

impl Entry<'_> {
    fn state(&self) -> &'static str {
        self.lane.map_or("parked", |lane| lane.kind.as_str())
    }

    fn since(&self) -> Option<Timestamp> {
        let parked = self.aside.iter().filter_map(|one| one.since);
        self.lane.and_then(Lane::since).into_iter().chain(parked).min()
    }

    fn source(&self) -> Option<&SourceName> {
        let of_lane = self.lane.and_then(|lane| lane.source.as_ref());
        of_lane.or_else(|| self.aside.first().map(|one| &one.source))
    }

    /// Why it does not move, in a few words.
    fn why(&self, now: Timestamp) -> String {
        let lane = self.lane.map(|lane| lane.why(now));
        let parked = self.aside.last().map(|last| format!("{} parked: {}", self.aside.len(), last.error));
        lane.into_iter().chain(parked).collect::<Vec<_>>().join("; ")
    }

    fn next(&self, entity: &EntityKey, deployment: &Deployment) -> String {
        match (self.lane.map(|lane| lane.kind), &self.aside[..]) {
            (None, [one]) => deployment.line("show", &[entity.as_str(), &one.sequence.to_string()]),
            (None, _) => deployment.line("parked", &[entity.as_str()]),
            (Some(Kind::Blocked | Kind::Failing | Kind::Unavailable), _)
                if self.lane.is_some_and(|lane| lane.source.is_some()) =>
            {
                let next = self.lane.map(|lane| lane.state.next().to_string()).unwrap_or_default();
                deployment.line("show", &[entity.as_str(), &next])
            }
            (Some(Kind::Abandoned), _) => deployment.command("unblock", entity.as_str()),
            _ => deployment.command("inspect", entity.as_str()),
        }
    }

    fn as_json(&self, entity: &EntityKey, now: Timestamp, next: &str) -> serde_json::Value {
        let state = self.lane.map(|lane| &lane.state);
        json!({
            "entity": entity, "state": self.state(), "since": self.since(), "source": self.source(),
            "topic": self.lane.and_then(|lane| lane.topic.as_ref()),
            "waiting": state.map_or(0, |state| state.waiting()), "sequence": state.map(|state| state.next()),
            "attempts": state.map(|state| state.attempts), "retry_at": state.and_then(|state| state.retry_at),
            "error": self.lane.and_then(|lane| lane.error()),
            "parked": self.aside.iter().map(|one| json!({
                "sequence": one.sequence, "source": one.source, "topic": one.topic, "error": one.error,
                "parked_at": one.since,
            })).collect::<Vec<_>>(),
            "why": self.why(now), "next": next,
        })
    }
}

impl Entities {
    fn wanted(&self) -> Wanted {
        match (self.waiting || self.blocked || self.on_hold, self.parked) {
            (true, _) => Wanted::Orders,
            (_, true) => Wanted::Parked,
            _ => Wanted::All,
        }
    }

    fn takes(&self, lane: &Lane) -> bool {
        match lane.kind {
            Kind::Blocked => !self.waiting && !self.on_hold && !self.parked,
            Kind::OnHold => !self.waiting && !self.blocked && !self.parked,
            _ => !self.blocked && !self.on_hold && !self.parked,
        }
    }

    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let mut surveyor = Surveyor::read(&deployment, self.cost, Interrupt::listen(), self.wanted()).await?;
        let filter = self.only.filter();
        // Without a filter by source, only of those that are shown it is read who sent them.
        let shown = match filter.source {
            Some(_) => None,
            None => Some(self.shown_first(&surveyor.survey.overview, &filter)),
        };
        let is_shown = |lane: &Lane| shown.as_ref().is_none_or(|shown| shown.contains(&lane.state.entity));
        surveyor.sources(|lane| self.takes(lane) && filter.takes_error(lane.error()) && is_shown(lane)).await?;
        let survey = surveyor.finish();
        let entries = self.entries(&survey.overview, &filter);
        self.print(&entries, &deployment);
        Ok(ExitCode::SUCCESS)
    }

    /// The keys of those that are shown, where the source does not matter.
    fn shown_first(&self, seen: &Overview, filter: &Filter) -> Vec<EntityKey> {
        let entries = self.entries(seen, filter);
        entries.into_iter().take(self.limit as usize).map(|(entity, _)| entity.clone()).collect()
    }

    /// All that are wanted, the oldest first.
    fn entries<'a>(&self, seen: &'a Overview, filter: &Filter) -> Vec<(&'a EntityKey, Entry<'a>)> {
        let mut entries: BTreeMap<&EntityKey, Entry<'_>> = BTreeMap::new();
        for lane in &seen.lanes {
            if self.takes(lane) && filter.takes(lane.source.as_ref(), lane.error()) {
                entries.entry(&lane.state.entity).or_default().lane = Some(lane);
            }
        }
        for one in &seen.aside {
            if filter.takes(Some(&one.source), Some(&one.error)) {
                entries.entry(&one.entity).or_default().aside.push(one);
            }
        }
        let mut entries: Vec<_> = entries.into_iter().collect();
        for (_, entry) in &mut entries {
            entry.aside.sort_by_key(|one| one.sequence);
        }
        entries.sort_by_key(|(_, entry)| entry.since().unwrap_or(Timestamp::from_millis(u64::MAX)));
        entries
    }

    fn print(&self, entries: &[(&EntityKey, Entry<'_>)], deployment: &Deployment) {
        let now = deployment.env.now();
        let mut table = Table::new(&["order", "state", ">waiting", ">since", "source", "why", "next"]);
        let shown = &entries[..entries.len().min(self.limit as usize)];
        for (entity, entry) in shown {
            let next = entry.next(entity, deployment);
            if self.json {
                print_json(&entry.as_json(entity, now, &next));
                continue;
            }
            table.row([
                entity.to_string(),
                entry.state().to_owned(),
                entry.lane.map_or(0, |lane| lane.state.waiting()).to_string(),
                entry.since().map(|at| duration(now.since(at))).unwrap_or_default(),
                entry.source().map_or("?", SourceName::as_str).to_owned(),
                entry.why(now),
                next,
            ]);
        }
        if self.json {
            return;
        }
        if table.is_empty() {
            say!("no order matches");
        } else {
            output::print(table);
        }
        if shown.len() < entries.len() {
            say!("{} more are not shown; --limit N shows more", entries.len() - shown.len());
        }
    }
}
