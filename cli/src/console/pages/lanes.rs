//! The page of the lanes; what is on it comes by `/live`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::super::{
    Shared,
    frame::{Page, Place, Visitor},
    live::MOST,
    reading::UNITS_PER_SECOND,
};

/// Lengths of the time axis, in seconds, with their names.
const WINDOWS: [(u32, &str); 7] =
    [(10, "10 s"), (30, "30 s"), (60, "1 min"), (300, "5 min"), (900, "15 min"), (3600, "1 h"), (86_400, "1 day")];

pub(super) async fn page(State(shared): State<Arc<Shared>>, visitor: Visitor) -> Response {
    let is_told = shared.watched.story.is_some();
    let usual = if is_told { 60 } else { 900 };
    let body = html! {
        h1.hidden { "Lanes" }
        div.controls role="toolbar" aria-label="Lanes" {
            label.hidden for="filter" { "Only lanes with" }
            input #filter type="search" placeholder="order, source, topic or state" autocomplete="off" spellcheck="false" maxlength="200";
            button #follow type="button" aria-pressed="true" { "Pause" }
            button #back type="button" aria-label="Earlier" { "←" }
            button #on type="button" aria-label="Later" { "→" }
            label.hidden for="window" { "Length of the time axis" }
            select #window {
                @for (seconds, name) in WINDOWS { option value=(seconds) selected[seconds == usual] { (name) } }
            }
            output #how-many aria-live="off" { "" }
        }
        ul.legend aria-label="What the bars are" {
            li { i.bar.waiting {} "waiting" }
            li { i.bar.running {} "handling" }
            li { i.bar.retrying {} "failed, tried again" }
            li { i.bar.orphaned {} "worker died" }
            li { b.sign.bad { "P" } "parked" }
            li { b.sign.bad { "B" } "blocked" }
            li { b.sign.warn { "!" } "attempt failed" }
            li { b.sign.busy { "=" } "repeat" }
            li { b.sign.none { "–" } "left out for a newer one" }
        }
        div.axis aria-hidden="true" { div #ticks {} }
        ol #lanes.lanes aria-label="Orders, the newest first" data-most=(MOST) {}
        p #empty.lead { "Waiting for the first order…" }
        noscript { p.notice { "Lanes are drawn by a script of this console's own, which is off. " a href="/" { "What is the matter now" } " works without." } }
        p #lost.notice hidden { "The connection is lost: is the console still running? It is tried again." }
        p.read #price {
            @if is_told { "Told as it happens, since this process was started; nothing is read for it." }
            @else { "Drawn from what the orders' rows remember, which are read again at a price of about " (UNITS_PER_SECOND) " read units a second while this page is open." }
        }
    };
    Page::new("Lanes", Place::Lanes).around(&shared, &visitor, &body)
}
