//! The console's routes, and helpers that its pages share.

mod act;
mod delivery;
mod figures;
mod lanes;
mod now;
mod order;
mod search;

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::header,
    middleware,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use webhook_serializer::protocol::entity::{EntityKey, Sequence};

use super::{
    ConsoleState, budget,
    frame::{PageFrame, PageRequest, Tab},
    guard, live,
    problem::Problem,
    reading::{ReadingDepth, StoreReading},
};
use crate::view::{position::Named, similar};

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/console.svg");

type Shown = Result<Response, Problem>;

pub(super) fn router(shared: &ConsoleState) -> Router {
    let refreshing = Arc::new(shared.with_metered_connection());
    let shared = Arc::new(shared.clone());
    let within_budget = middleware::from_fn_with_state(refreshing.clone(), budget::within_budget);
    let live = Router::new().route("/live", get(live::stream)).with_state(refreshing.clone());
    Router::new()
        .merge(refreshable())
        .merge(live)
        .nest("/refresh", refreshable().layer(within_budget).with_state(refreshing))
        .route("/redrive", get(act::confirm).post(act::begin))
        .route("/work", post(act::stop))
        .route("/lanes", get(lanes::page))
        .route("/delivery", post(delivery::unredacted))
        .route("/act/{action}", post(act::one))
        .route("/console.css", get(|| asset("text/css; charset=utf-8", STYLE)))
        .route("/console.js", get(|| asset("text/javascript; charset=utf-8", SCRIPT)))
        .route("/console.svg", get(|| asset("image/svg+xml", ICON)))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::guard))
        .with_state(shared)
}

/// The pages that refresh by themselves.
fn refreshable() -> Router<Arc<ConsoleState>> {
    Router::new()
        .route("/", get(now::page))
        .route("/group", get(now::group))
        .route("/work", get(act::work))
        .route("/search", get(search::page))
        .route("/order", get(order::page))
        .route("/delivery", get(delivery::page))
        .route("/figures", get(figures::page))
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// The frame of a page that shows `reading`. A complete reading may cost too much to be repeated without being asked.
fn page_of<'a>(
    title: &'a str,
    tab: Tab,
    shared: &ConsoleState,
    reading: &StoreReading,
    depth: ReadingDepth,
) -> PageFrame<'a> {
    let page = PageFrame::new(title, tab).read_at(reading.at);
    if depth == ReadingDepth::Free { page.again(shared.again()) } else { page }
}

async fn not_found(State(shared): State<Arc<ConsoleState>>, request: PageRequest) -> Response {
    Problem::Unknown("This page does not exist.".to_owned()).page(&shared, &request)
}

async fn not_allowed(State(shared): State<Arc<ConsoleState>>, request: PageRequest) -> Response {
    Problem::NotAllowed.page(&shared, &request)
}

fn shown(shown: Shown, shared: &ConsoleState, request: &PageRequest) -> Response {
    shown.unwrap_or_else(|problem| problem.page(shared, request))
}

fn key(text: &str) -> Result<EntityKey, Problem> {
    if text.trim().is_empty() {
        return Err(Problem::Malformed("The address names no order.".to_owned()));
    }
    EntityKey::parse(text)
        .map_err(|error| Problem::Malformed(format!("{} is not an order's key: {error}.", quoted(text))))
}

/// Parses `text`, which names a delivery of `order` by its sequence or by its position.
async fn sequence(shared: &ConsoleState, order: &EntityKey, text: &str) -> Result<Sequence, Problem> {
    if text.trim().is_empty() {
        return Err(Problem::Malformed("The address names no delivery of the order.".to_owned()));
    }
    let malformed = |_| Problem::Malformed(format!("{} is not a delivery's sequence.", quoted(text)));
    let named: Named = text.trim().parse().map_err(malformed)?;
    Ok(named.of_order(order, &shared.watched.store).await?)
}

async fn unknown(shared: &ConsoleState, order: &EntityKey) -> Problem {
    Problem::UnknownOrder { order: order.clone(), similar: similar::keys(order, &shared.watched.operator).await }
}

fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("\u{201c}{}…\u{201d}", &text[..at]),
        None => format!("\u{201c}{text}\u{201d}"),
    }
}
