//! The search page: finds orders by a part of their key. A complete key, or a single match, opens the order's page.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use maud::html;
use serde::Deserialize;
use webhook_serializer::protocol::{entity::EntityKey, state::EntityState};

use super::{
    super::{
        ConsoleState,
        frame::{PageRequest, Tab, ago, badge, count, encoded, grouped, order_path, position, read},
        reading::{ReadingDepth, Statuses, Tables},
        request::Asked,
    },
    Shown, page_of, shown,
};
use crate::view::order_status::Kind;

const LISTED: usize = 50;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug, Deserialize)]
pub(super) struct SearchParameters {
    #[serde(default)]
    q: String,
    #[serde(default)]
    read: String,
}

pub(super) async fn page(
    State(shared): State<Arc<ConsoleState>>,
    Asked(parameters): Asked<SearchParameters>,
    request: PageRequest,
) -> Response {
    shown(found(&shared, &parameters, &request).await, &shared, &request)
}

async fn found(shared: &ConsoleState, parameters: &SearchParameters, request: &PageRequest) -> Shown {
    let wanted = parameters.q.trim();
    // A complete key needs no search.
    if let Ok(entity) = EntityKey::parse(wanted)
        && shared.watched.store.entity(&entity, PATIENCE).await?.is_some()
    {
        return Ok(Redirect::to(&order_path(&entity)).into_response());
    }
    let depth = if parameters.read == "all" { ReadingDepth::Whole } else { ReadingDepth::Free };
    // Orders are seldom removed, so an older reading that has a match suffices.
    let known = shared.readings.newest().filter(|reading| !matching(&reading.orders, wanted).is_empty());
    let reading = match known {
        Some(reading) => reading,
        None => shared.readings.get(&shared.watched, Tables::Orders, depth).await?,
    };
    let statuses = Statuses::of(reading.clone(), &*shared.readings.with_parked(&shared.watched).await?);
    let now = shared.watched.env.now();
    let matching = matching(&reading.orders, wanted);
    if let [only] = matching[..]
        && reading.unread.is_empty()
    {
        return Ok(Redirect::to(&order_path(&only.entity)).into_response());
    }
    let body = html! {
        h1 { (count(matching.len() as u64, "order", "orders")) " with \u{201c}" (wanted) "\u{201d}" }
        @if matching.is_empty() {
            p.lead { "No order's key contains this text." }
            p { "No webhook arrived for the order within the retention, or the order was erased. Or its key uses another number: a provider's id often differs from the number that a shop shows." }
        } @else {
            table.rows {
                thead { tr { th { "Order" } th { "State" } th.n { "Last arrived" } th.n { "Waiting" } th.n { "Since" } } }
                tbody {
                    @for state in matching.iter().take(LISTED) {
                        tr {
                            td.key { a data-row href=(order_path(&state.entity)) { (marked(state.entity.as_str(), wanted)) } }
                            td {
                                (badge(statuses.kind(state)))
                                @if statuses.kind(state) != Kind::Parked && statuses.has_parked(state) { " " (badge(Kind::Parked)) }
                            }
                            td.n { (position(state.tail)) }
                            td.n { (state.waiting()) }
                            td.n { @if let Some(since) = state.pending_since { (ago(since, now)) } }
                        }
                    }
                }
            }
        }
        @if matching.len() > LISTED { p { "and " (grouped((matching.len() - LISTED) as u64)) " more. Enter a longer part of the key to find fewer." } }
        (read(&reading, &format!("/search?q={}&read=all", encoded(wanted))))
    };
    Ok(page_of("Search", Tab::None, shared, &reading, depth).around(shared, request, &body))
}

fn matching<'a>(orders: &'a [EntityState], wanted: &str) -> Vec<&'a EntityState> {
    let wanted = wanted.to_lowercase();
    if wanted.is_empty() {
        return Vec::new();
    }
    let rank = |state: &EntityState| {
        let key = state.entity.as_str().to_lowercase();
        let last = key.rsplit('/').next().unwrap_or_default();
        match () {
            () if key == wanted || last == wanted => Some(0),
            () if last.starts_with(&wanted) => Some(1),
            () if key.contains(&wanted) => Some(2),
            () => None,
        }
    };
    let mut found: Vec<(u8, &EntityState)> = orders.iter().filter_map(|state| Some((rank(state)?, state))).collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, state)| state).collect()
}

fn marked(key: &str, wanted: &str) -> maud::Markup {
    let at = key.to_lowercase().find(&wanted.to_lowercase()).filter(|at| key.is_char_boundary(*at));
    let parts = at.and_then(|at| Some((&key[..at], key.get(at..at + wanted.len())?, key.get(at + wanted.len()..)?)));
    match parts {
        Some((before, part, after)) => html! { (before) mark { (part) } (after) },
        None => html! { (key) },
    }
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        format::{FORMAT, attribute as a},
        table::Row,
    };

    use super::*;

    fn orders(keys: &[&str]) -> Vec<EntityState> {
        let row = |key: &&str| {
            let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, *key).with(a::TAIL, 1_u32);
            EntityState::parse(&row.with(a::HEAD, 1_u32).with(a::TOKEN, 1_u32)).unwrap()
        };
        keys.iter().map(row).collect()
    }

    #[test]
    fn exact_search_match_is_listed_first() {
        let orders =
            orders(&["shop/order/11042", "shop/order/10421", "shop/order/1042", "shop/order/7", "SHOP/1042/x"]);
        let found: Vec<&str> = matching(&orders, "1042").iter().map(|state| state.entity.as_str()).collect();
        assert_eq!(found, ["shop/order/1042", "shop/order/10421", "shop/order/11042", "SHOP/1042/x"]);
        assert_eq!(matching(&orders, "shop/1042").len(), 1);
        assert!(matching(&orders, "").is_empty() && matching(&orders, "8").is_empty());
    }

    #[test]
    fn search_match_is_highlighted_and_escaped() {
        assert_eq!(marked("a/<b>/1042", "<B>").into_string(), "a/<mark>&lt;b&gt;</mark>/1042");
        assert_eq!(marked("a/İ", "i\u{307}").into_string(), "a/İ");
    }
}
