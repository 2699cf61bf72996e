//! What changes something: by a form, with a reason, from a page of this console.

use std::sync::Arc;

use axum::{
    Form,
    extract::{Path, Query, State},
    response::{IntoResponse, Redirect, Response},
};
use maud::html;
use serde::Deserialize;
use webhook_serializer::{
    operator::Operator,
    protocol::{entity::SourceName, maintain::Reason},
};

use super::{
    super::{
        Shared,
        frame::{Page, Place, Visitor, count, delivery_path, grouped, order_path},
        reading::{Depth, Wanted},
        trouble::Trouble,
    },
    Shown, key, sequence, shown,
};
use crate::{
    operations::{Effect, ParkedSelection, Target, Verb},
    output,
    view::overview::{ParkedDelivery, alike},
};

/// So many of what would be put back are listed.
const LISTED: usize = 50;

/// A working page is looked at again after so many seconds.
const AGAIN: u32 = 1;

#[derive(Debug, Deserialize)]
pub(super) struct Order {
    #[serde(default)]
    key: String,
    sequence: Option<String>,
    #[serde(default)]
    why: String,
}

pub(super) async fn one(
    State(shared): State<Arc<Shared>>,
    Path(action): Path<String>,
    visitor: Visitor,
    Form(order): Form<Order>,
) -> Response {
    shown(act(&shared, &action, &order).await, &shared, &visitor)
}

async fn act(shared: &Shared, name: &str, order: &Order) -> Shown {
    let verb = Verb::ALL.into_iter().find(|verb| verb.name() == name);
    let verb = verb.ok_or_else(|| Trouble::Unknown(format!("There is no action \u{201c}{name}\u{201d}.")))?;
    let entity = key(&order.key)?;
    let at = order.sequence.as_deref().map(sequence).transpose()?;
    let why = reason(&order.why)?;
    let by = &shared.watched.by;
    let operator = shared.watched.operator.clone().because(Reason::new(by, why));
    let mut target = Target { order: entity.clone(), sequence: at };
    if verb == Verb::Redrive && at.is_none() {
        let parked = operator.parked(&entity).await?;
        let parked = parked.iter().map(|one| Target { order: entity.clone(), sequence: Some(one.sequence) });
        let mut parked: Vec<Target> = parked.collect();
        // One is quick; more would outlast the request.
        match parked.len() {
            0 => {
                let said =
                    shared.flash(format!("Nothing of {entity} is parked any more: nothing was redriven."), false);
                return Ok(Redirect::to(&format!("{}&said={said}", order_path(&entity))).into_response());
            }
            1 => target = parked.remove(0),
            _ => return Ok(begin_work(shared, operator, parked, why)),
        }
    }
    let outcome = verb.act(&operator, &target).await?;
    shared.readings.forget();
    let is_good = outcome.effect == Effect::Done;
    let sentence = if is_good { format!("{}, by {by}: {why}", outcome.sentence) } else { outcome.sentence };
    if is_good {
        record(&sentence);
    }
    let back = order_path(&entity);
    let said = shared.flash(sentence, is_good);
    Ok(Redirect::to(&format!("{back}&said={said}")).into_response())
}

/// Redrives in the background and shows the progress.
fn begin_work(shared: &Shared, operator: Operator, targets: Vec<Target>, why: &str) -> Response {
    let by = &shared.watched.by;
    record(&format!("redrives {} deliveries, by {by}: {why}", targets.len()));
    let id = shared.watched.env.nonce().as_str().to_owned();
    let work = shared.works.begin(id, operator, targets, format!("by {by}: {why}"));
    Redirect::to(&format!("/work?id={}", work.id)).into_response()
}

/// Why it is done.
fn reason(why: &str) -> Result<&str, Trouble> {
    match why.trim() {
        "" => Err(Trouble::Unknown("Nothing was done: say why, for whoever looks next.".to_owned())),
        why => Ok(why),
    }
}

/// Said where the console was started, which is where its log is.
fn record(done: &str) {
    output::complain(format_args!("console: {}", output::one_line(done)));
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Which {
    source: Option<String>,
    error: Option<String>,
    /// Not what was parked after somebody saw the list.
    until: Option<u64>,
    #[serde(default)]
    why: String,
}

impl Which {
    fn takes(&self, one: &ParkedDelivery) -> bool {
        let until = self.until.unwrap_or(u64::MAX);
        self.source.as_deref().is_none_or(|source| one.source.as_str() == source)
            && self.error.as_deref().is_none_or(|error| alike(&one.error) == error)
            && one.since.is_none_or(|since| since.as_millis() <= until)
    }
}

/// What would be put back, and a question.
pub(super) async fn many(State(shared): State<Arc<Shared>>, Query(which): Query<Which>, visitor: Visitor) -> Response {
    shown(ask(&shared, &which, &visitor).await, &shared, &visitor)
}

/// The parked deliveries that match, read anew.
async fn meant(shared: &Shared, which: &Which) -> Result<ParkedSelection, Trouble> {
    shared.readings.forget();
    let reading = shared.readings.get(&shared.watched, Wanted::All, Depth::Whole).await?;
    Ok(ParkedSelection::of(reading.overview.parked.clone(), |one| which.takes(one), usize::MAX))
}

async fn ask(shared: &Shared, which: &Which, visitor: &Visitor) -> Shown {
    if let Some(source) = &which.source {
        SourceName::parse(source).map_err(|error| Trouble::Unknown(format!("{source} names no source: {error}.")))?;
    }
    let selection = meant(shared, which).await?;
    let ParkedSelection { deliveries: meant, overtaken } = &selection;
    let orders = selection.orders();
    let until = shared.watched.env.now().as_millis();
    let (all, of) = (count(meant.len() as u64, "delivery", "deliveries"), count(orders as u64, "order", "orders"));
    let body = html! {
        h1 { "Put back " (all) " of " (of) "?" }
        @if let Some(source) = &which.source { p { "Sent by " strong { (source) } } }
        @if let Some(error) = &which.error { p.error { (error) } }
        @if meant.is_empty() {
            p { "Nothing of this is parked any more." }
        } @else {
            p { "Each goes to the end of its order, behind what arrived meanwhile, and is handled again. Is the cause mended? If not, they fail and are parked anew." }
            @if *overtaken > 0 { p.notice { "Of " (overtaken) " of the orders others stay parked that came before: what is put back overtakes those." } }
            form.ask method="post" action="/redrive" {
                @if let Some(source) = &which.source { input type="hidden" name="source" value=(source); }
                @if let Some(error) = &which.error { input type="hidden" name="error" value=(error); }
                input type="hidden" name="until" value=(until);
                label { "Why" input type="text" name="why" required maxlength="200" autocomplete="off" placeholder="for whoever looks next"; }
                button.main { "Put back " (all) }
                " " a.button href="/" { "Leave them" }
            }
            table.rows {
                thead { tr { th { "Order" } th { "Topic" } th { "Why it was set aside" } } }
                tbody {
                    @for one in meant.iter().take(LISTED) {
                        tr {
                            td.key { a data-row href=(delivery_path(&one.entity, one.sequence)) { (one.entity) " " (one.sequence) } }
                            td { (one.topic) }
                            td.error { (one.error) }
                        }
                    }
                }
            }
            @if meant.len() > LISTED { p { "and " (grouped((meant.len() - LISTED) as u64)) " more." } }
        }
    };
    Ok(Page::new("Put back", Place::Now).around(shared, visitor, &body))
}

pub(super) async fn begin(State(shared): State<Arc<Shared>>, visitor: Visitor, Form(which): Form<Which>) -> Response {
    shown(begun(&shared, &which).await, &shared, &visitor)
}

async fn begun(shared: &Shared, which: &Which) -> Shown {
    let why = reason(&which.why)?.to_owned();
    let targets = meant(shared, which).await?.targets();
    if targets.is_empty() {
        let said = shared.flash("Nothing of that is parked any more: nothing was redriven.".to_owned(), false);
        return Ok(Redirect::to(&format!("/?said={said}")).into_response());
    }
    let operator = shared.watched.operator.clone().because(Reason::new(&shared.watched.by, &why));
    Ok(begin_work(shared, operator, targets, &why))
}

#[derive(Debug, Deserialize)]
pub(super) struct Id {
    #[serde(default)]
    id: String,
}

/// How far it is.
pub(super) async fn work(State(shared): State<Arc<Shared>>, Query(id): Query<Id>, visitor: Visitor) -> Response {
    shown(working(&shared, &id, &visitor).await, &shared, &visitor)
}

async fn working(shared: &Shared, Id { id }: &Id, visitor: &Visitor) -> Shown {
    let work = shared.works.find(id);
    let work = work.ok_or_else(|| {
        Trouble::Unknown("This console knows no such work any more; what was put back stays so.".to_owned())
    })?;
    let progress = work.progress();
    let done = progress.back + progress.not;
    if progress.ended.is_some() {
        shared.readings.forget();
    }
    let body = html! {
        h1 { (grouped(progress.back as u64)) " of " (count(work.total as u64, "delivery", "deliveries")) " put back" }
        p.dim { (work.why) }
        progress max=(work.total) value=(done) aria-label="How far it is" { (done) " of " (work.total) }
        @match &progress.ended {
            Some(ended) => { p.lead role="status" { (ended) } p { a.button.main href="/" { "What is the matter now" } } }
            None => {
                p { "It goes on while this page is closed, and stops where the console is ended; begun again, it goes on." }
                form method="post" action="/work" { input type="hidden" name="id" value=(id); button { "Stop" } }
            }
        }
        @if progress.not > 0 {
            h2 { (count(progress.not as u64, "was", "were")) " not put back" }
            ul { @for said in &progress.named { li { (said) } } }
        }
    };
    let again = progress.ended.is_none().then_some(AGAIN);
    Ok(Page { again, ..Page::new("Put back", Place::Now) }.around(shared, visitor, &body))
}

pub(super) async fn stop(State(shared): State<Arc<Shared>>, Form(Id { id }): Form<Id>) -> Response {
    if let Some(work) = shared.works.find(&id) {
        work.stop();
    }
    Redirect::to(&format!("/work?id={}", super::super::frame::encoded(&id))).into_response()
}
