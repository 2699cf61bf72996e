//! The pages, by their addresses.

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

use super::{Shared, frame::Visitor, guard, live, trouble::Trouble};

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");
const ICON: &str = include_str!("assets/console.svg");

/// What a page comes to, until troubles are pages as well.
type Shown = Result<Response, Trouble>;

/// All addresses; every one behind the guard.
pub(super) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(now::page))
        .route("/group", get(now::group))
        .route("/redrive", get(act::many).post(act::begin))
        .route("/work", get(act::work).post(act::stop))
        .route("/lanes", get(lanes::page))
        .route("/live", get(live::stream))
        .route("/search", get(search::page))
        .route("/order", get(order::page))
        .route("/delivery", get(delivery::page).post(delivery::whole))
        .route("/act/{action}", post(act::one))
        .route("/figures", get(figures::page))
        .route("/console.css", get(|| asset("text/css; charset=utf-8", STYLE)))
        .route("/console.js", get(|| asset("text/javascript; charset=utf-8", SCRIPT)))
        .route("/console.svg", get(|| asset("image/svg+xml", ICON)))
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(shared.clone(), guard::guard))
        .with_state(shared)
}

async fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn nowhere(State(shared): State<Arc<Shared>>, visitor: Visitor) -> Response {
    Trouble::Unknown("There is no such page.".to_owned()).page(&shared, &visitor)
}

/// A page, or one that says why there is none.
fn shown(shown: Shown, shared: &Shared, visitor: &Visitor) -> Response {
    shown.unwrap_or_else(|trouble| trouble.page(shared, visitor))
}

/// The order that an address names.
fn key(text: &str) -> Result<EntityKey, Trouble> {
    EntityKey::parse(text.trim())
        .map_err(|error| Trouble::Unknown(format!("\u{201c}{text}\u{201d} is no order's key: {error}.")))
}

/// The place in its inbox that an address names.
fn sequence(text: &str) -> Result<Sequence, Trouble> {
    let number = text.parse().map_err(|_| Trouble::Unknown(format!("\u{201c}{text}\u{201d} is no delivery's number.")));
    number.map(Sequence)
}
