//! The message about changes, as text and as JSON.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    compare::{ChangeKind, GroupChange},
    group::{FIRST_ORDERS, Group, OrderInTrouble, Trouble, one_line},
};
use crate::{
    protocol::{
        format::{quoted, shortened, visible},
        outage::Outage,
    },
    time::Timestamp,
};

/// The most lines about groups. The others are counted.
const MOST_GROUPS: usize = 10;

/// The most bytes of a line about a group.
const LONGEST_LINE: usize = 240;

/// The most bytes of a key that a message shows. A longer one is replaced by its hash.
const LONGEST_KEY: usize = 128;

/// The contents that the sources document permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents {
    /// The orders' keys instead of their hashes.
    pub keys: bool,
    /// The errors, which may quote anything.
    pub errors: bool,
}

/// The deployment's names in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentNaming {
    pub name: String,
    /// The option that names the deployment in a command, such as ` --stack shop`. Empty if it is not known.
    pub option: String,
}

/// An outage, and the sources whose destination is down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutageOf {
    pub outage: Outage,
    pub sources: BTreeSet<String>,
}

/// A message, before it is brought into the form of a receiver.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertMessage {
    title: String,
    groups: Vec<String>,
    orders: Vec<String>,
    /// The last line of a message with orders.
    last: String,
    /// The changes and the first orders, for a receiver that is a program.
    pub data: Value,
}

impl AlertMessage {
    /// Describes `changes` of a deployment.
    pub fn new(
        deployment: &DeploymentNaming,
        changes: &[GroupChange],
        outages: &[OutageOf],
        contents: Contents,
        now: Timestamp,
    ) -> Self {
        let DeploymentNaming { name, option } = deployment;
        let lasting = changes.iter().filter(|change| change.kind != ChangeKind::Ended);
        let count: u64 = lasting.clone().map(|change| change.group.count).sum();
        let at_least = if changes.iter().any(|change| change.is_partial) { "at least " } else { "" };
        let title = match count {
            0 => format!("{name}: trouble is over"),
            1 => format!("{name}: 1 order or delivery is in trouble"),
            _ => format!("{name}: {at_least}{count} orders or deliveries are in trouble"),
        };
        let orders = first_orders(changes);
        Self {
            title,
            groups: group_lines(changes, outages, contents, now),
            orders: orders.iter().map(|(change, order)| order_line(change, order, option, contents, now)).collect(),
            last: format!("\nAll: serializer status{option}"),
            data: json!({
                "groups": changes.iter().map(|change| group_json(change, contents)).collect::<Vec<_>>(),
                "outages": outages.iter().map(|of| outage_json(of, contents)).collect::<Vec<_>>(),
                "orders": orders.iter().map(|(change, order)| order_json(change, order, option, contents)).collect::<Vec<_>>(),
            }),
        }
    }

    /// Creates the message of `serializer alerts --test`.
    pub fn test(from: &str) -> Self {
        Self {
            title: format!("{from}: this is a test"),
            groups: vec!["Alerts about orders in trouble arrive here.".to_owned()],
            orders: Vec::new(),
            last: String::new(),
            data: json!({ "test": true }),
        }
    }

    /// Returns the text, which has at most `most` bytes. Orders are left out first, then groups.
    pub fn text(&self, most: usize) -> String {
        let mut text = self.title.clone();
        let mut room = most.saturating_sub(text.len() + self.last.len());
        let mut add = |text: &mut String, lines: &[String], heading: &str, rest: (&str, &str)| {
            for (number, line) in lines.iter().enumerate() {
                let heading = if number == 0 { heading } else { "" };
                let more = lines.len() - number;
                let left_out = format!("\n… and {more} more {}", if more == 1 { rest.0 } else { rest.1 });
                if heading.len() + line.len() + 1 + left_out.len() > room {
                    if left_out.len() <= room {
                        room -= left_out.len();
                        text.push_str(&left_out);
                    }
                    return;
                }
                room -= heading.len() + line.len() + 1;
                *text += &format!("{heading}\n{line}");
            }
        };
        add(&mut text, &self.groups, "", ("line", "lines"));
        add(&mut text, &self.orders, "\nThe first orders, and what to type next:", ("order", "orders"));
        if !self.orders.is_empty() {
            text.push_str(&self.last);
        }
        text
    }
}

/// Returns the first orders of the changes, some of each.
fn first_orders(changes: &[GroupChange]) -> Vec<(&GroupChange, &OrderInTrouble)> {
    let of = |number| changes.iter().filter_map(move |change| Some((change, change.group.first.iter().nth(number)?)));
    (0..FIRST_ORDERS).flat_map(of).take(FIRST_ORDERS).collect()
}

fn group_lines(changes: &[GroupChange], outages: &[OutageOf], contents: Contents, now: Timestamp) -> Vec<String> {
    let outage_of = |change: &GroupChange| {
        let is_waiting = change.kind != ChangeKind::Ended && change.group.common.trouble == Trouble::Unavailable;
        outages.iter().find(|of| is_waiting && of.sources.contains(&change.group.common.name))
    };
    let down = outages.iter().filter_map(|of| {
        let waiting = changes.iter().filter(|change| outage_of(change) == Some(of));
        let count: u64 = waiting.map(|change| change.group.count).sum();
        (count > 0).then(|| outage_line(&of.outage, count, contents))
    });
    let others = changes.iter().filter(|change| outage_of(change).is_none());
    let mut lines: Vec<String> = down.chain(others.map(|change| group_line(change, contents, now))).collect();
    if lines.len() > MOST_GROUPS {
        let more = lines.len() - (MOST_GROUPS - 1);
        lines.truncate(MOST_GROUPS - 1);
        lines.push(format!("… and {more} more groups"));
    }
    lines
}

fn outage_line(outage: &Outage, count: u64, contents: Contents) -> String {
    let error = if contents.errors { format!(": {}", one_line(&outage.error)) } else { String::new() };
    let wait = if count == 1 { "1 order waits".to_owned() } else { format!("{count} orders wait") };
    format!("{}{error}. {wait}.", cut(&outage.headline()))
}

fn group_line(change: &GroupChange, contents: Contents, now: Timestamp) -> String {
    let GroupChange { kind, group, reported, is_partial, .. } = change;
    let what = subject(group, if *kind == ChangeKind::Ended { 2 } else { group.count });
    let error = match &*group.common.error {
        error if contents.errors && !error.is_empty() => format!(": {}", one_line(error)),
        _ => String::new(),
    };
    let since = group.since().map(|since| format!(", the oldest {}", in_trouble(group.common.trouble, since, now)));
    let since = since.unwrap_or_default();
    let at_least = if *is_partial { "at least " } else { "" };
    let count = group.count;
    cut(&match kind {
        ChangeKind::Began => format!("{at_least}{count} {what}{since}{error}"),
        ChangeKind::Grew => format!("{at_least}{count} {what}, {reported} in the last message{since}{error}"),
        ChangeKind::Ended => format!("Over: {what}, {reported} in the last message{error}"),
    })
}

fn subject(group: &Group, count: u64) -> String {
    let common = &group.common;
    let noun = match (common.trouble, count) {
        (Trouble::Parked, 1) => "parked delivery",
        (Trouble::Parked, _) => "parked deliveries",
        (Trouble::OnHold, 1) => "order on hold",
        (Trouble::OnHold, _) => "orders on hold",
        (_, 1) => "order",
        (_, _) => "orders",
    };
    let state = match common.trouble {
        Trouble::Parked | Trouble::OnHold => String::new(),
        trouble => format!("{} ", trouble.as_str()),
    };
    let of = match (common.is_other, &*common.name) {
        (true, _) => " of other kinds".to_owned(),
        (false, "") if common.trouble == Trouble::OnHold => String::new(),
        (false, "") => " of an unknown source".to_owned(),
        (false, name) => format!(" of {name}"),
    };
    format!("{state}{noun}{of}")
}

fn order_line(
    change: &GroupChange,
    order: &OrderInTrouble,
    option: &str,
    contents: Contents,
    now: Timestamp,
) -> String {
    let command = show_command(&key_of(order, contents), option);
    let of = if order.source.is_empty() { String::new() } else { format!("{}, ", order.source) };
    let trouble = change.group.common.trouble;
    let comma = if is_dated(trouble) { "" } else { "," };
    format!("{command}  # {of}{}{comma} {}", trouble.as_str(), in_trouble(trouble, order.since, now))
}

/// Returns whether the time is that of the trouble's beginning. Otherwise it is the oldest waiting delivery's arrival.
fn is_dated(trouble: Trouble) -> bool {
    matches!(trouble, Trouble::Parked | Trouble::OnHold)
}

fn in_trouble(trouble: Trouble, since: Timestamp, now: Timestamp) -> String {
    let waits = if is_dated(trouble) { "" } else { "waiting " };
    format!("{waits}since {}", moment(since, now))
}

fn show_command(key: &str, option: &str) -> String {
    format!("serializer show{option} {}", quoted(key))
}

/// Returns the order's key, or its hash, which `serializer show` accepts too.
fn key_of(order: &OrderInTrouble, contents: Contents) -> String {
    let key = order.order.as_str();
    let is_plain = visible(key) == key && key.len() <= LONGEST_KEY;
    if contents.keys && is_plain { key.to_owned() } else { order.order.hash() }
}

/// Returns the time of day, with the date if it is another one than that of `now`.
fn moment(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_string(), now.to_string());
    let date = if at[..10] == now[..10] { "" } else { &at[..10] };
    format!("{date} {} UTC", &at[11..16]).trim_start().to_owned()
}

fn cut(line: &str) -> String {
    if line.len() <= LONGEST_LINE { line.to_owned() } else { shortened(line, LONGEST_LINE) + "…" }
}

fn group_json(change: &GroupChange, contents: Contents) -> Value {
    let GroupChange { kind, group, reported, is_partial, .. } = change;
    let common = &group.common;
    json!({
        "change": kind, "state": common.trouble.as_str(), "source": named(&common.name), "is_other": common.is_other,
        "error": named(&common.error).filter(|_| contents.errors), "count": group.count, "is_partial": is_partial,
        "count_when_last_reported": reported, "oldest": group.since().map(|since| since.to_string()),
    })
}

fn outage_json(of: &OutageOf, contents: Contents) -> Value {
    let Outage { name, since, error, .. } = &of.outage;
    json!({
        "destination": name, "since": since.to_string(), "error": named(error).filter(|_| contents.errors),
        "sources": of.sources,
    })
}

fn order_json(change: &GroupChange, order: &OrderInTrouble, option: &str, contents: Contents) -> Value {
    let key = key_of(order, contents);
    json!({
        "state": change.group.common.trouble.as_str(), "source": named(&order.source), "since": order.since.to_string(),
        "next": show_command(&key, option), "order": key,
    })
}

fn named(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
