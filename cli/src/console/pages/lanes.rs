//! The page of lanes. Its script loads the lanes from `/live`.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::super::{
    ConsoleState,
    frame::{PageFrame, PageRequest, Tab},
    live::MAX_LANES,
    reading::UNITS_PER_SECOND,
};
use crate::view::lanes::MarkKind;

/// The lengths of the time axis that the page offers. Each length has a number of seconds and a label.
const WINDOWS: [(u32, &str); 7] =
    [(10, "10 s"), (30, "30 s"), (60, "1 min"), (300, "5 min"), (900, "15 min"), (3600, "1 h"), (86_400, "1 day")];

pub(super) async fn page(State(shared): State<Arc<ConsoleState>>, request: PageRequest) -> Response {
    let is_recorded = shared.watched.story.is_some();
    let default = if is_recorded { 60 } else { 900 };
    let mark = |kind: MarkKind, meaning: &str| {
        let (sign, tone) = kind.sign();
        html! { li { b class={ "sign " (tone.class()) } { (sign) } (meaning) } }
    };
    let body = html! {
        h1.hidden { "Lanes" }
        div.controls role="toolbar" aria-label="Lanes" {
            label.hidden for="filter" { "Filter lanes" }
            input #filter type="search" placeholder="order, source, topic or state" autocomplete="off" spellcheck="false" maxlength="200";
            button #follow type="button" aria-pressed="true" { "Pause" }
            button #back type="button" aria-label="Earlier" { "←" }
            button #on type="button" aria-label="Later" { "→" }
            label.hidden for="window" { "Length of the time axis" }
            select #window {
                @for (seconds, name) in WINDOWS { option value=(seconds) selected[seconds == default] { (name) } }
            }
            output #how-many aria-live="off" { "" }
        }
        ul.legend aria-label="Legend" {
            li { i.bar.waiting {} "waiting" }
            li { i.bar.running {} "handling" }
            li { i.bar.retrying {} "failed, retried" }
            li { i.bar.orphaned {} "worker died" }
            (mark(MarkKind::Parked, "parked"))
            (mark(MarkKind::Blocked, "blocked"))
            (mark(MarkKind::Failed, "attempt failed"))
            (mark(MarkKind::Repeat, "repeat"))
            (mark(MarkKind::Superseded, "superseded"))
        }
        div.axis aria-hidden="true" { div #ticks {} }
        ol #lanes.lanes aria-label="Orders: those that need somebody, then the newest" data-most=(MAX_LANES) {}
        p #empty.lead { "Waiting for the first order…" }
        noscript { p.notice { "Lanes need JavaScript. " a href="/" { "The overview" } " works without it." } }
        p.read #price {
            @if is_recorded { "The lanes show events since this process started, and states that are at most a second old." }
            @else { "The lanes show the orders' rows. Reading them costs about " (UNITS_PER_SECOND) " read units a second while this page is visible." }
        }
    };
    PageFrame::new("Lanes", Tab::Lanes).around(&shared, &request, &body)
}
