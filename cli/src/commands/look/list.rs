//! `serializer list`: lists orders with their state, the reason for it, and the next command.

use std::{cmp::Reverse, collections::BTreeMap, process::ExitCode};

use anyhow::{Result, bail};
use clap::Args;
use console::style;
use serde_json::{Value, json};
use serializer::{
    output::{self, Table, duration},
    say,
    view::{
        delivery::{self, parked_json},
        order_status::{Kind, OrderStatus, ParkedDeliveries, SourceDelay},
        overview::{OrderFilter, OrderSummary, Overview, ParkedDelivery},
        tone::Word,
    },
};
use webhook_serializer::{
    protocol::entity::{EntityKey, SourceName},
    time::Timestamp,
};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    selection::Selection,
    setup::source::whereabouts,
    survey::{Cost, ReadScope, Surveyor},
    target::{Deployment, Target},
};

#[derive(Debug, Args)]
#[command(
    after_help = "Without a filter it lists all orders, the newest activity first. With a filter, it leaves out idle \
                  orders, and lists the oldest first. The filters from --blocked to --waiting can be combined: it \
                  lists an order that fits any of them. --blocked, --held, --failing and --waiting save the cost of \
                  reading all deliveries; `serializer status --help` says what that costs."
)]
pub struct ListArguments {
    /// Only blocked orders, which wait for an operator
    #[arg(long)]
    blocked: bool,
    /// Only orders with parked deliveries
    #[arg(long)]
    parked: bool,
    /// Only orders that an operator holds; including blocked ones
    #[arg(long, visible_alias = "on-hold")]
    held: bool,
    /// Only orders whose next delivery failed or found its destination unavailable, and is tried again
    #[arg(long)]
    failing: bool,
    /// Only orders whose deliveries are handled now, wait for a worker, or wait for a lease to end, and orders with a dead
    /// holder's lease; `lease list` lists all leases
    #[arg(long)]
    waiting: bool,
    #[command(flatten)]
    selection: Selection,
    /// Show at most N
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cost: Cost,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Default)]
struct ListedOrder<'a> {
    lane: Option<&'a OrderSummary>,
    parked: Vec<&'a ParkedDelivery>,
    delay: Option<SourceDelay>,
}

impl ListedOrder<'_> {
    fn status(&self, now: Timestamp) -> OrderStatus {
        let parked = self.parked.iter().map(|one| (&one.entity, one.sequence, one.error.as_str()));
        let parked = ParkedDeliveries::of(parked);
        let status = match self.lane {
            Some(lane) => lane.status(parked, now),
            None => OrderStatus::of(None, None, parked, now),
        };
        status.with_delay(self.delay.as_ref(), now)
    }

    fn since(&self) -> Option<Timestamp> {
        let parked = self.parked.iter().filter_map(|one| one.since);
        self.lane.and_then(OrderSummary::since).into_iter().chain(parked).min()
    }

    fn active_at(&self) -> Option<Timestamp> {
        let parked = self.parked.iter().filter_map(|one| one.since);
        self.lane.and_then(|lane| lane.active_at).into_iter().chain(parked).max()
    }

    fn source(&self) -> Option<&SourceName> {
        let of_lane = self.lane.and_then(|lane| lane.source.as_ref());
        of_lane.or_else(|| self.parked.first().map(|one| &one.source))
    }

    fn as_json(&self, entity: &EntityKey, status: &OrderStatus, next: &str) -> Value {
        let state = self.lane.map(|lane| &lane.state);
        json!({
            "entity": entity, "state": status.kind.as_str(), "since": self.since(), "active_at": self.active_at(),
            "source": self.source(), "topic": self.lane.and_then(|lane| lane.topic.as_ref()),
            "waiting": state.map(|state| state.waiting()), "sequence": self.lane.and_then(OrderSummary::next),
            "attempts": state.map(|state| state.attempts), "retry_at": state.and_then(|state| state.retry_at),
            "error": self.lane.and_then(|lane| lane.error()),
            "parked": self.parked.iter().map(|one| parked_json(one)).collect::<Vec<_>>(),
            "why": status.summary(), "next": next,
        })
    }
}

async fn add_delays(entries: &mut [(&EntityKey, ListedOrder<'_>)], deployment: &Deployment) {
    let is_waiting = |entry: &ListedOrder<'_>| entry.lane.is_some_and(|lane| !lane.state.is_empty());
    if !entries.iter().any(|(_, entry)| is_waiting(entry)) {
        return;
    }
    let delays = whereabouts::delays(deployment).await;
    let now = deployment.env.now();
    for (_, entry) in entries.iter_mut().filter(|(_, entry)| is_waiting(entry)) {
        let Some((lane, name)) = entry.lane.and_then(|lane| Some((lane, lane.source.as_ref()?))) else { continue };
        entry.delay = delays.of_order(name, &lane.state, now);
    }
}

impl ListArguments {
    fn chooses_state(&self) -> bool {
        self.parked || self.chooses_orders()
    }

    fn chooses_orders(&self) -> bool {
        self.blocked || self.held || self.failing || self.waiting
    }

    fn is_unfiltered(&self) -> bool {
        !self.chooses_state() && self.selection.is_empty()
    }

    fn wanted(&self) -> ReadScope {
        match (self.parked, self.chooses_orders()) {
            (false, true) if !self.waiting => ReadScope::Trouble,
            (false, true) => ReadScope::Orders,
            (true, false) => ReadScope::Parked,
            _ if self.is_unfiltered() => ReadScope::Everything(self.limit as usize),
            _ => ReadScope::All,
        }
    }

    fn takes(&self, lane: &OrderSummary) -> bool {
        if !self.chooses_state() {
            return true;
        }
        let is_of_kind = match lane.kind {
            Kind::Blocked => self.blocked,
            Kind::Failing | Kind::Unavailable => self.failing,
            Kind::Waiting | Kind::AtWork | Kind::Leased | Kind::Abandoned => self.waiting,
            Kind::OnHold | Kind::Parked | Kind::Idle => false,
        };
        is_of_kind || self.held && lane.is_on_hold()
    }

    pub async fn run(self) -> Result<ExitCode> {
        let deployment = self.target.connect().await?;
        let mut surveyor = Surveyor::read(&deployment, self.cost, Interrupt::listen(), self.wanted()).await?;
        let filter = self.selection.filter(deployment.env.now());
        // An order's source is read from its next delivery, which costs one read unit. So only the orders that are
        // shown are read.
        let shown = match filter.source {
            Some(_) => None,
            None => Some(self.shown_first(&surveyor.survey.overview, &filter)),
        };
        let is_shown = |lane: &OrderSummary| shown.as_ref().is_none_or(|shown| shown.contains(&lane.state.entity));
        let is_wanted = |lane: &OrderSummary| self.takes(lane) && filter.takes_but_source(lane.error(), lane.since());
        surveyor.sources(|lane| is_wanted(lane) && is_shown(lane)).await?;
        let survey = surveyor.finish();
        if !deployment.is_local() {
            output::complain(style(format_args!("reading the tables cost about {} read units", survey.units)).dim());
        }
        let mut entries = self.entries(&survey.overview, &filter);
        add_delays(&mut entries, &deployment).await;
        // A source that was removed may still have deliveries.
        if let Some(source) = filter.source.as_ref().filter(|_| entries.is_empty())
            && let Some(unknown) = whereabouts::unknown_in(&deployment, source).await
        {
            bail!(unknown);
        }
        self.print(&entries, survey.overview.orders, &deployment);
        Ok(ExitCode::SUCCESS)
    }

    fn shown_first(&self, seen: &Overview, filter: &OrderFilter) -> Vec<EntityKey> {
        let entries = self.entries(seen, filter);
        entries.into_iter().take(self.limit as usize).map(|(entity, _)| entity.clone()).collect()
    }

    fn entries<'a>(&self, seen: &'a Overview, filter: &OrderFilter) -> Vec<(&'a EntityKey, ListedOrder<'a>)> {
        let mut entries: BTreeMap<&EntityKey, ListedOrder<'_>> = BTreeMap::new();
        for lane in &seen.lanes {
            if self.takes(lane) && filter.takes(lane.source.as_ref(), lane.error(), lane.since()) {
                entries.entry(&lane.state.entity).or_default().lane = Some(lane);
            }
        }
        for one in &seen.parked {
            if filter.takes(Some(&one.source), Some(&one.error), one.since) {
                entries.entry(&one.entity).or_default().parked.push(one);
            }
        }
        let mut entries: Vec<_> = entries.into_iter().collect();
        for (_, entry) in &mut entries {
            entry.parked.sort_by_key(|one| one.sequence);
        }
        match self.is_unfiltered() {
            true => entries.sort_by_key(|(_, entry)| Reverse(entry.active_at())),
            false => entries.sort_by_key(|(_, entry)| entry.since().unwrap_or(Timestamp::from_millis(u64::MAX))),
        }
        entries
    }

    fn print(&self, entries: &[(&EntityKey, ListedOrder<'_>)], orders: u64, deployment: &Deployment) {
        let now = deployment.env.now();
        let time = if self.is_unfiltered() { ">active" } else { ">since" };
        let mut table = Table::new(&["order", "state", ">waiting", time, "source", "why", "next"]);
        let shown = &entries[..entries.len().min(self.limit as usize)];
        for (entity, entry) in shown {
            let status = entry.status(now);
            let next = match status.next.first() {
                Some(next) => next.line(&deployment.option, entity),
                None => deployment.command("show", entity.as_str()),
            };
            if self.json {
                print_json(&entry.as_json(entity, &status, &next));
                continue;
            }
            let at = if self.is_unfiltered() { entry.active_at() } else { entry.since() };
            table.row([
                entity.to_string(),
                status.kind.as_str().to_owned(),
                entry.lane.map(|lane| lane.state.waiting().to_string()).unwrap_or_default(),
                at.map(|at| duration(now.since(at))).unwrap_or_default(),
                entry.source().map_or("", SourceName::as_str).to_owned(),
                status.summary(),
                next,
            ]);
            table.style(1, Word::from(status.kind).style());
        }
        if self.json {
            return;
        }
        if table.is_empty() {
            say!("no order matches");
        } else {
            output::print(table);
        }
        // Of most settled orders, only the number is known.
        let all = if self.is_unfiltered() { entries.len().max(orders as usize) } else { entries.len() };
        if shown.len() < all {
            say!("{} more are not shown; --limit N shows more", all - shown.len());
        }
        let kept_until = shown.iter().flat_map(|(_, entry)| &entry.parked).filter_map(|one| one.kept_until);
        if let Some(end) = delivery::first_end(kept_until) {
            say!("{end}");
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use webhook_serializer::protocol::{
        format::{FORMAT, attribute as a},
        table::Row,
    };

    use super::*;
    use crate::command::{Arguments, Command};

    #[test]
    fn waiting_option_takes_a_leased_order_only_with_deliveries() {
        const NOW: Timestamp = Timestamp::from_millis(1_000_000);
        let leased = |key: &str, head: u32, until: u32| {
            let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, key).with(a::TAIL, 4_u32).with(a::HEAD, head);
            let row = row.with(a::TOKEN, 9_u32).with(a::HOLDER, "h").with(a::KIND, "exclusive");
            row.with(a::HOLDER_INFO, "a script").with(a::EXPIRES_AT, until)
        };
        let mut seen = Overview::default();
        seen.order(&leased("shop/order/waits", 2, 1_004_000), NOW);
        seen.order(&leased("shop/order/empty", 4, 1_004_000), NOW);
        seen.order(&leased("shop/order/dead", 4, 900_000), NOW);
        let asked = Arguments::try_parse_from(["serializer", "list", "--waiting"]).unwrap().command;
        let Command::List(list) = asked else { panic!("list") };
        let entries = list.entries(&seen, &OrderFilter::default());
        let orders: Vec<&str> = entries.iter().map(|(order, _)| order.as_str()).collect();
        assert_eq!(orders, ["shop/order/dead", "shop/order/waits"]);
    }
}
