//! Carries out the operations that forms send. A bulk redrive has a page that asks first, and a page for its progress.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use maud::html;
use serde::Deserialize;
use webhook_serializer::{
    alerts::alike,
    operator::{Operator, OperatorError},
    protocol::{entity::SourceName, maintain::Reason},
};

use super::{
    super::{
        ConsoleState,
        frame::{PageFrame, PageRequest, Tab, count, delivery_path, grouped, order_path, position, timed},
        problem::Problem,
        reading::{ReadingDepth, Tables},
        request::{Asked, SentForm},
    },
    Shown, key, quoted, sequence, shown,
};
use crate::{
    output,
    verbs::{Effect, OperationTarget, ParkedSelection, VERBS, Verb, redrive::REDRIVE},
    view::overview::ParkedDelivery,
};

const LISTED: usize = 50;

/// The time between refreshes of the progress page, which read no table.
const PROGRESS: Duration = Duration::from_secs(1);

#[derive(Debug, Deserialize)]
pub(super) struct OrderForm {
    #[serde(default)]
    key: String,
    sequence: Option<String>,
    #[serde(default)]
    why: String,
}

pub(super) async fn one(
    State(shared): State<Arc<ConsoleState>>,
    action: Result<Path<String>, PathRejection>,
    request: PageRequest,
    SentForm(order): SentForm<OrderForm>,
) -> Response {
    let action = action.map(|Path(action)| action).unwrap_or_default();
    shown(act(&shared, &action, &order, &request).await, &shared, &request)
}

async fn act(shared: &ConsoleState, name: &str, order: &OrderForm, request: &PageRequest) -> Shown {
    let verb = VERBS.iter().find(|verb| verb.name == name);
    let verb = verb.ok_or_else(|| Problem::Unknown(format!("There is no action {}.", quoted(name))))?;
    let entity = key(&order.key)?;
    let at = match &order.sequence {
        Some(text) => Some(sequence(shared, &entity, text).await?),
        None => None,
    };
    let target = OperationTarget { order: entity.clone(), sequence: at };
    let done = match reason(&order.why) {
        Ok(why) => carry_out(shared, verb, target, why).await,
        Err(refusal) => Err(refusal),
    };
    Ok(done.unwrap_or_else(|refusal| {
        let mut hidden = vec![("key", entity.to_string())];
        hidden.extend(at.map(|at| ("sequence", at.to_string())));
        let action = format!("/act/{}", verb.name);
        ReasonForm { action: &action, hidden, why: &order.why, button: verb.label, back: &order_path(&entity) }
            .again(&refusal, shared, request)
    }))
}

async fn carry_out(
    shared: &ConsoleState,
    verb: &Verb,
    mut target: OperationTarget,
    why: &str,
) -> Result<Response, RefusalPage> {
    let by = &shared.watched.by;
    let operator = shared.watched.operator.clone().because(Reason::new(by, why));
    let back = order_path(&target.order);
    if verb.is(&REDRIVE) && target.sequence.is_none() {
        let parked = operator.parked(&target.order).await?;
        let parked =
            parked.iter().map(|one| OperationTarget { order: target.order.clone(), sequence: Some(one.sequence) });
        let mut parked: Vec<OperationTarget> = parked.collect();
        // Several redrives run in the background, because they may take long.
        match parked.len() {
            0 => {
                let sentence = format!("Nothing was redriven: {} has no parked delivery any more.", target.order);
                let flash = shared.flash(sentence, false);
                return Ok(Redirect::to(&format!("{back}&flash={flash}")).into_response());
            }
            1 => target = parked.remove(0),
            _ => return Ok(begin_work(shared, operator, parked, why)),
        }
    }
    let report = verb.run_one(&operator, &target).await?;
    shared.readings.forget();
    let is_good = report.effect.is_done();
    let sentence = match report.effect {
        Effect::Done | Effect::StaysStopped => format!("{}. By {by}: {why}", report.sentence),
        Effect::Nothing => report.sentence,
        Effect::Refused | Effect::Unknown => return Err(RefusalPage::of(StatusCode::CONFLICT, report.sentence)),
    };
    if is_good {
        record(&sentence);
    }
    let flash = shared.flash(sentence, is_good);
    Ok(Redirect::to(&format!("{back}&flash={flash}")).into_response())
}

struct RefusalPage {
    status: StatusCode,
    title: &'static str,
    sentence: String,
    next: &'static str,
}

impl RefusalPage {
    fn of(status: StatusCode, sentence: String) -> Self {
        Self { status, title: "Nothing was done", sentence, next: "" }
    }
}

impl From<OperatorError> for RefusalPage {
    fn from(error: OperatorError) -> Self {
        let (status, title, sentence, next) = Problem::from(error).describe();
        let next = match status {
            StatusCode::BAD_GATEWAY => "The operation may have taken effect. Look at the order before you try again.",
            _ => next,
        };
        Self { status, title, sentence, next }
    }
}

struct ReasonForm<'a> {
    action: &'a str,
    hidden: Vec<(&'static str, String)>,
    why: &'a str,
    button: &'a str,
    back: &'a str,
}

impl ReasonForm<'_> {
    fn again(&self, refusal: &RefusalPage, shared: &ConsoleState, request: &PageRequest) -> Response {
        let body = html! {
            h1 { (refusal.title) }
            p.lead role="alert" { (timed(&refusal.sentence)) }
            p { (refusal.next) }
            form.ask method="post" action=(self.action) {
                @for (name, value) in &self.hidden { input type="hidden" name=(name) value=(value); }
                label { "Reason" input type="text" name="why" value=(self.why) required maxlength="200" autocomplete="off" placeholder="for the operations log"; }
                button.main { (self.button) }
                " " a.button href=(self.back) { "Back" }
            }
        };
        PageFrame::new(refusal.title, Tab::None).answer(refusal.status, shared, request, &body)
    }
}

fn begin_work(shared: &ConsoleState, operator: Operator, targets: Vec<OperationTarget>, why: &str) -> Response {
    let by = &shared.watched.by;
    record(&format!("redrives {} deliveries, by {by}: {why}", targets.len()));
    let id = shared.watched.env.nonce().as_str().to_owned();
    let work = shared.works.begin(id, operator, targets, format!("by {by}: {why}"));
    Redirect::to(&format!("/work?id={}", work.id)).into_response()
}

fn reason(why: &str) -> Result<&str, RefusalPage> {
    match why.trim() {
        "" => Err(RefusalPage::of(StatusCode::BAD_REQUEST, "Enter a reason for the operations log.".to_owned())),
        why => Ok(why),
    }
}

/// Logs an action to the terminal in which the console was started.
fn record(done: &str) {
    output::complain(format_args!("console: {}", output::one_line(done)));
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct SelectionForm {
    source: Option<String>,
    error: Option<String>,
    /// The time at which the page listed the parked deliveries, in milliseconds since the Unix epoch. Deliveries that
    /// were parked later are excluded.
    until: Option<u64>,
    #[serde(default)]
    why: String,
}

impl SelectionForm {
    fn includes(&self, one: &ParkedDelivery) -> bool {
        let until = self.until.unwrap_or(u64::MAX);
        self.source.as_deref().is_none_or(|source| one.source.as_str() == source)
            && self.error.as_deref().is_none_or(|error| alike(&one.error) == error)
            && one.since.is_none_or(|since| since.as_millis() <= until)
    }
}

pub(super) async fn confirm(
    State(shared): State<Arc<ConsoleState>>,
    Asked(selection): Asked<SelectionForm>,
    request: PageRequest,
) -> Response {
    shown(ask(&shared, &selection, &request).await, &shared, &request)
}

async fn select(shared: &ConsoleState, selection: &SelectionForm) -> Result<ParkedSelection, Problem> {
    shared.readings.forget();
    let reading = shared.readings.get(&shared.watched, Tables::All, ReadingDepth::Whole).await?;
    Ok(ParkedSelection::of(reading.overview.parked.clone(), |one| selection.includes(one), usize::MAX))
}

async fn ask(shared: &ConsoleState, selection: &SelectionForm, request: &PageRequest) -> Shown {
    if let Some(source) = &selection.source {
        SourceName::parse(source)
            .map_err(|error| Problem::Malformed(format!("{} is not a source's name: {error}.", quoted(source))))?;
    }
    let parked = select(shared, selection).await?;
    let ParkedSelection { deliveries: selected, overtaken, .. } = &parked;
    let orders = parked.orders();
    let until = shared.watched.env.now().as_millis();
    let all = count(selected.len() as u64, "delivery", "deliveries");
    let of = count(orders as u64, "order", "orders");
    let body = html! {
        h1 { "Redrive " (all) " of " (of) "?" }
        @if let Some(source) = &selection.source { p { "Sent by " strong { (source) } } }
        @if let Some(error) = &selection.error { p.error { (error) } }
        @if selected.is_empty() {
            p { "These deliveries are no longer parked." }
        } @else {
            p { "Each delivery goes to the end of its order, behind newer ones, and is handled again. Fix the cause first; otherwise the deliveries fail and are parked again." }
            @if *overtaken > 0 { p.notice { (count(*overtaken as u64, "order keeps", "orders keep")) " earlier deliveries parked; the redriven ones run before them." } }
            form.ask method="post" action="/redrive" {
                @if let Some(source) = &selection.source { input type="hidden" name="source" value=(source); }
                @if let Some(error) = &selection.error { input type="hidden" name="error" value=(error); }
                input type="hidden" name="until" value=(until);
                label { "Reason" input type="text" name="why" required maxlength="200" autocomplete="off" placeholder="for the operations log"; }
                button.main { "Redrive " (all) }
                " " a.button href="/" { "Cancel" }
            }
            table.rows {
                thead { tr { th { "Order" } th { "Topic" } th { "Reason" } } }
                tbody {
                    @for one in selected.iter().take(LISTED) {
                        tr {
                            td.key { a data-row href=(delivery_path(&one.entity, one.sequence)) { (one.entity) " " (position(one.sequence)) } }
                            td { (one.topic) }
                            td.error { (one.error) }
                        }
                    }
                }
            }
            @if selected.len() > LISTED { p { "and " (grouped((selected.len() - LISTED) as u64)) " more." } }
        }
    };
    Ok(PageFrame::new("Redrive", Tab::Now).read_at(shared.watched.env.now()).around(shared, request, &body))
}

pub(super) async fn begin(
    State(shared): State<Arc<ConsoleState>>,
    request: PageRequest,
    SentForm(selection): SentForm<SelectionForm>,
) -> Response {
    shown(begun(&shared, &selection, &request).await, &shared, &request)
}

async fn begun(shared: &ConsoleState, selection: &SelectionForm, request: &PageRequest) -> Shown {
    let why = match reason(&selection.why) {
        Ok(why) => why.to_owned(),
        Err(refusal) => {
            let until = selection.until.map(|until| until.to_string());
            let fields = [("source", selection.source.clone()), ("error", selection.error.clone()), ("until", until)];
            let hidden = fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let form = ReasonForm { action: "/redrive", hidden, why: &selection.why, button: "Redrive", back: "/" };
            return Ok(form.again(&refusal, shared, request));
        }
    };
    let targets = select(shared, selection).await?.targets();
    if targets.is_empty() {
        let flash = shared.flash("Nothing was redriven: these deliveries are no longer parked.".to_owned(), false);
        return Ok(Redirect::to(&format!("/?flash={flash}")).into_response());
    }
    let operator = shared.watched.operator.clone().because(Reason::new(&shared.watched.by, &why));
    Ok(begin_work(shared, operator, targets, &why))
}

#[derive(Debug, Deserialize)]
pub(super) struct WorkParameters {
    #[serde(default)]
    id: String,
}

pub(super) async fn work(
    State(shared): State<Arc<ConsoleState>>,
    Asked(id): Asked<WorkParameters>,
    request: PageRequest,
) -> Response {
    shown(working(&shared, &id, &request).await, &shared, &request)
}

async fn working(shared: &ConsoleState, WorkParameters { id }: &WorkParameters, request: &PageRequest) -> Shown {
    let work = shared.works.find(id);
    let work = work.ok_or_else(|| {
        Problem::Unknown(
            "This console no longer knows this redrive. Deliveries that were redriven stay redriven.".to_owned(),
        )
    })?;
    let progress = work.progress();
    let done = progress.back + progress.not;
    if progress.ended.is_some() {
        shared.readings.forget();
    }
    let body = html! {
        h1 { (grouped(progress.back as u64)) " of " (count(work.total as u64, "delivery", "deliveries")) " redriven" }
        p.dim { (work.why) }
        progress max=(work.total) value=(done) aria-label="Progress" { (done) " of " (work.total) }
        @match &progress.ended {
            Some(ended) => { p.lead role="status" { (ended) } p { a.button.main href="/" { "Overview" } } }
            None => {
                p { "The redrive continues if you close this page, and stops if you stop the console. Start the same redrive again to continue." }
                form method="post" action="/work" { input type="hidden" name="id" value=(id); button { "Stop" } }
            }
        }
        @if progress.not > 0 {
            h2 { (count(progress.not as u64, "delivery was", "deliveries were")) " not redriven" }
            ul { @for failure in &progress.failures { li { (failure) } } }
        }
    };
    let page = PageFrame::new("Redrive", Tab::Now);
    let page = match progress.ended {
        Some(_) => page,
        None => page.read_at(shared.watched.env.now()).again(PROGRESS),
    };
    Ok(page.around(shared, request, &body))
}

pub(super) async fn stop(
    State(shared): State<Arc<ConsoleState>>,
    SentForm(WorkParameters { id }): SentForm<WorkParameters>,
) -> Response {
    if let Some(work) = shared.works.find(&id) {
        work.stop();
    }
    Redirect::to(&format!("/work?id={}", super::super::frame::encoded(&id))).into_response()
}
