//! Orders by a part of their key.

use std::sync::Arc;

use axum::{
    extract::{Query, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::html;
use serde::Deserialize;
use webhook_serializer::protocol::{entity::EntityKey, state::EntityState};

use super::{
    super::{
        Shared,
        frame::{Page, Place, Visitor, ago, badge, encoded, grouped, order_path, read},
        reading::{Depth, Wanted},
    },
    Shown, shown,
};
use crate::view::order_status::Kind;

/// So many are listed.
const LISTED: usize = 50;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    q: String,
    #[serde(default)]
    read: String,
}

pub(super) async fn page(State(shared): State<Arc<Shared>>, Query(asked): Query<Asked>, visitor: Visitor) -> Response {
    shown(found(&shared, &asked, &visitor).await, &shared, &visitor)
}

async fn found(shared: &Shared, asked: &Asked, visitor: &Visitor) -> Shown {
    let wanted = asked.q.trim();
    // A whole key needs no look at all the others.
    if let Ok(entity) = EntityKey::parse(wanted)
        && shared.watched.store.entity(&entity, PATIENCE).await?.is_some()
    {
        return Ok(Redirect::to(&order_path(&entity)).into_response());
    }
    let depth = if asked.read == "all" { Depth::Whole } else { Depth::Free };
    // Orders come and seldom go: what was read before is read again only for one that is not in it.
    let known = shared.readings.newest().filter(|reading| !matching(&reading.orders, wanted).is_empty());
    let reading = match known {
        Some(reading) => reading,
        None => shared.readings.get(&shared.watched, Wanted::Orders, depth).await?,
    };
    let now = shared.watched.env.now();
    let matching = matching(&reading.orders, wanted);
    if let [only] = matching[..]
        && reading.unread.is_empty()
    {
        return Ok(Redirect::to(&order_path(&only.entity)).into_response());
    }
    let body = html! {
        h1 { (grouped(matching.len() as u64)) " with \u{201c}" (wanted) "\u{201d}" }
        @if matching.is_empty() {
            p.lead { "No order that was read has this in its key." }
            p { "Nothing has arrived for it within the retention time, or it was erased, or its key names it otherwise: a provider's own id is not always the number that a shop shows." }
        } @else {
            table.rows {
                thead { tr { th { "Order" } th { "State" } th.n { "Arrived" } th.n { "Waiting" } th.n { "Since" } } }
                tbody {
                    @for state in matching.iter().take(LISTED) {
                        tr {
                            td.key { a data-row href=(order_path(&state.entity)) { (marked(state.entity.as_str(), wanted)) } }
                            td { (badge(Kind::of(state, now).as_str())) }
                            td.n { (state.tail) }
                            td.n { (state.waiting()) }
                            td.n { @if let Some(since) = state.pending_since { (ago(since, now)) } }
                        }
                    }
                }
            }
        }
        @if matching.len() > LISTED { p { "and " (grouped((matching.len() - LISTED) as u64)) " more: a longer part of the key finds fewer." } }
        (read(&reading, now, &format!("/search?q={}&read=all", encoded(wanted))))
    };
    Ok(Page { searched: wanted, ..Page::new("Search", Place::Elsewhere) }.around(shared, visitor, &body))
}

/// Those with `wanted` in their key, without regard to case: first where it is
/// the whole of the key's last part, then where that begins with it.
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

/// The key, with the part that was searched for marked.
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
    fn what_is_meant_exactly_comes_first() {
        let orders =
            orders(&["shop/order/11042", "shop/order/10421", "shop/order/1042", "shop/order/7", "SHOP/1042/x"]);
        let found: Vec<&str> = matching(&orders, "1042").iter().map(|state| state.entity.as_str()).collect();
        assert_eq!(found, ["shop/order/1042", "shop/order/10421", "shop/order/11042", "SHOP/1042/x"]);
        assert_eq!(matching(&orders, "shop/1042").len(), 1);
        assert!(matching(&orders, "").is_empty() && matching(&orders, "8").is_empty());
    }

    #[test]
    fn what_was_searched_for_is_marked_and_escaped() {
        assert_eq!(marked("a/<b>/1042", "<B>").into_string(), "a/<mark>&lt;b&gt;</mark>/1042");
        assert_eq!(marked("a/İ", "i\u{307}").into_string(), "a/İ");
    }
}
