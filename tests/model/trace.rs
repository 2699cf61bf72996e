//! Readable traces: the actors' steps, and the rows whenever they change.

use std::fmt;

use crate::{
    protocol::{HandlerAnswer, Hearing, ModelAction},
    state::{Exclusive, ModelOperator, ModelState, ModelWorker, RowStep, WorkerStep},
    store::{ClockReading, ModelItem, delivery_at, receipt_at, short},
};

pub struct ModelTrace(pub Vec<(ModelState, Option<ModelAction>)>);

impl fmt::Display for ModelTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = String::new();
        for (number, (state, action)) in (1..).zip(&self.0) {
            let rows = rows(state);
            if rows != shown {
                writeln!(f, "        {rows}")?;
                shown = rows;
            }
            if let Some(action) = action {
                writeln!(f, "    {number:2}. {}", step(state, *action))?;
            }
        }
        Ok(())
    }
}

fn rows(state: &ModelState) -> String {
    let row = state.row.map_or_else(|| "no row".into(), |row| format!("{row:?}"));
    let items = state.inbox.iter().map(|(item, row)| match item {
        ModelItem::Delivery(sequence) => match delivery_at(row) {
            Some(id) => format!(", {} is {id}", short(*sequence)),
            None => format!(", {} is a tombstone", short(*sequence)),
        },
        ModelItem::Receipt(id) => format!(", receipt of {id}: {}", receipt_at(row).1),
        ModelItem::ReceiptPage(last, receipts, _) => format!(", a page of {receipts} receipts up to {}", short(*last)),
        ModelItem::Parked(sequence) => format!(", {} is parked", short(*sequence)),
    });
    let committed = state.committed.iter().map(|id| format!(", {id} committed"));
    format!("[{row}{}; {} wake-ups]", items.chain(committed).collect::<String>(), state.queue.len())
}

fn step(state: &ModelState, action: ModelAction) -> String {
    let ingest = |number: usize| {
        let append = &state.appends[number];
        format!("ingest of {}{}", append.id, if number > usize::from(append.id.delivery) { " again" } else { "" })
    };
    let worker = |number: usize| format!("worker {}", number + 1);
    let lost = |reply: Hearing| if reply == Hearing::Lost { ", and the reply is lost" } else { "" };
    let by =
        |clock: ClockReading| if clock == ClockReading::Late { ", by a clock that finds all times past" } else { "" };
    match action {
        ModelAction::Claim(number, clock, reply) => format!("{} claims{}{}", ingest(number), by(clock), lost(reply)),
        ModelAction::Put(number, reply) => format!("{} puts{}", ingest(number), lost(reply)),
        ModelAction::SendOwed(number) => format!("{} sends its wake-up", ingest(number)),
        ModelAction::IngestDies(number) => format!("{} dies", ingest(number)),
        ModelAction::Receive(number, at) if state.queue[at].1 => {
            format!("{} receives a wake-up that was received before", worker(number))
        }
        ModelAction::Receive(number, _) => format!("{} receives a wake-up", worker(number)),
        ModelAction::ReceiveCopy(number) => format!("{} receives a copy of the other's wake-up", worker(number)),
        ModelAction::Work(number, clock, reply) => {
            let what = state.workers[number].as_ref().map_or_else(String::new, |worker| work(worker, clock));
            format!("{} {what}{}", worker(number), lost(reply))
        }
        ModelAction::RowWork(number, reply) => {
            let last = state.workers[number]
                .as_ref()
                .is_some_and(|worker| matches!(worker.step, WorkerStep::Settle { row: RowStep::Last, .. }));
            let what = if last { "settles and releases" } else { "settles" };
            format!("{} {what}{}", worker(number), lost(reply))
        }
        ModelAction::ReceiptWork(number, reply) => {
            format!("{} writes the receipt that leaves the row next{}", worker(number), lost(reply))
        }
        ModelAction::GapIsFilled(number) => format!("{} finds the gap filled", worker(number)),
        ModelAction::GapMayHaveExpired(number) => format!("{} takes the gap for one left by retention", worker(number)),
        ModelAction::StoreIsOut(number) => {
            format!("{} cannot reach the store, and sends a wake-up for later", worker(number))
        }
        ModelAction::StopsEarly(number) => format!("{} must hand over", worker(number)),
        ModelAction::HandlerEnds(number, answer) => {
            let how = match answer {
                HandlerAnswer::Done => "is done",
                HandlerAnswer::Fails => "fails",
                HandlerAnswer::TimesOut => "times out, and goes on",
                HandlerAnswer::Rejects => "rejects the delivery",
            };
            format!("{}'s handler {how}", worker(number))
        }
        ModelAction::RenewalFails(number) => format!("{} renews, and finds its lease lost", worker(number)),
        ModelAction::WorkerDies(number) => format!("{} dies", worker(number)),
        ModelAction::LateEffect(_) => "the late effect of a handler arrives".into(),
        ModelAction::Exclusive(clock, reply) => {
            format!("the exclusive holder {}{}", exclusive(state.exclusive, clock), lost(reply))
        }
        ModelAction::ExclusiveLeaves => "the exclusive holder gives up waiting".into(),
        ModelAction::ExclusiveDies => "the exclusive holder dies".into(),
        ModelAction::Redrive(sequence, id) => format!("the operator redrives {id}, parked at {}", short(sequence)),
        ModelAction::Unblock => "the operator wants to unblock".into(),
        ModelAction::ForceRelease => "the operator sees the lease".into(),
        ModelAction::PutOnHold => "the operator wants to hold".into(),
        ModelAction::Resume => "the operator wants to resume".into(),
        ModelAction::Rewind(from) => format!("the operator wants to rewind to {}", short(from)),
        ModelAction::EndRewind => "the operator wants to end the rewind".into(),
        ModelAction::Skip(sequence) => format!("the operator sees {} in front, and wants to skip it", short(sequence)),
        ModelAction::OperateLate => format!("the operator {}: no answer", operate(&state.operator)),
        ModelAction::LateWrite(_) => "the delayed write lands".into(),
        ModelAction::Operate(_, reply) => format!("the operator {}{}", operate(&state.operator), lost(reply)),
        ModelAction::OperateWakeUp => "the operator's append sends its wake-up".into(),
        ModelAction::OperatorDies => "the operator's process dies".into(),
        ModelAction::Purge => "TTL deletes the idle row, long after its inbox".into(),
    }
}

fn work(worker: &ModelWorker, clock: ClockReading) -> String {
    let id = || worker.drain.and_then(|drain| drain.known.place().1).map(|id| id.to_string()).unwrap_or_default();
    match worker.step {
        WorkerStep::SendFresh => "sends a new wake-up first".into(),
        WorkerStep::Acquire(_) => "asks for the lease".into(),
        WorkerStep::Look(..) if clock == ClockReading::Late => "calls the lease expired".into(),
        WorkerStep::Look(..) => "calls the lease running".into(),
        WorkerStep::TakeOver(..) => "takes over".into(),
        WorkerStep::Requeue(_) => "requeues its wake-up".into(),
        WorkerStep::SendFollower(_) => "sends the wake-up that follows the exclusive lease".into(),
        WorkerStep::Follow(_) => "records that a wake-up follows the exclusive lease".into(),
        WorkerStep::Ask => "goes on".into(),
        WorkerStep::ReadPage => "reads".into(),
        WorkerStep::Spill { .. } => "writes the receipt that leaves the row".into(),
        WorkerStep::Gap => "has waited at the gap, and writes a tombstone".into(),
        WorkerStep::Start => format!("starts the handler of {}", id()),
        WorkerStep::Commit { .. } => format!("commits {}", id()),
        WorkerStep::Park { .. } => format!("parks {}", id()),
        WorkerStep::RetryWakeUp(..) => "sends a wake-up for the retry".into(),
        WorkerStep::Fail { retry: true, .. } => "counts the failure and releases".into(),
        WorkerStep::Fail { retry: false, .. } => "blocks the entity".into(),
        WorkerStep::Block(reason) => format!("blocks the entity, as {reason}"),
        WorkerStep::MarkHandOver => "marks the hand-over".into(),
        WorkerStep::HandOver => "sends a wake-up for the next".into(),
        WorkerStep::ReleaseHandedOver | WorkerStep::ReleaseUnheard => "releases".into(),
        WorkerStep::RecordStart => format!("records the start of {}", id()),
        WorkerStep::Release => "releases".into(),
        WorkerStep::ReleaseEmpty => "releases, the inbox being empty".into(),
        WorkerStep::Finish { delete: true } => "deletes its wake-up".into(),
        WorkerStep::Finish { delete: false } => "keeps its wake-up".into(),
        WorkerStep::Run | WorkerStep::Settle { .. } => String::new(),
    }
}

fn exclusive(exclusive: Exclusive, clock: ClockReading) -> &'static str {
    match exclusive {
        Exclusive::Away | Exclusive::Poll => "comes",
        Exclusive::Acquire(_) => "asks for the lease",
        Exclusive::Look(..) if clock == ClockReading::Late => "calls the lease expired",
        Exclusive::Look(..) => "calls the lease running",
        Exclusive::TakeOver(..) => "takes over",
        Exclusive::Ask(_) => "asks the drain to yield",
        Exclusive::Hold(_) => "releases",
        Exclusive::Leave(_) => "releases, though deliveries wait",
        Exclusive::Wake => "sends a wake-up for what waits",
    }
}

fn operate(operator: &ModelOperator) -> &'static str {
    match operator {
        ModelOperator::Away => "waits",
        ModelOperator::Check(..) => "reads how it was settled",
        ModelOperator::Redrive(..) => "appends it: claims, or puts",
        ModelOperator::Forget(..) => "deletes the parked copy",
        ModelOperator::VoidExpired(_) => "writes a tombstone",
        ModelOperator::Unblock => "unblocks",
        ModelOperator::Wake => "sends a wake-up",
        ModelOperator::Force(_) => "ends the lease by force",
        ModelOperator::Hold(_) => "begins the hold",
        ModelOperator::Resume(_) => "ends the hold",
        ModelOperator::SkipAcquire(..) => "asks for the lease",
        ModelOperator::SkipLook(..) => "reads what is in front",
        ModelOperator::SkipPark(..) => "parks it",
        ModelOperator::SkipSettle(..) => "settles it and releases",
        ModelOperator::SkipRelease(_) | ModelOperator::RewindRelease(_) => "releases",
        ModelOperator::RewindAcquire(..) | ModelOperator::EndAcquire(_) => "asks for the lease",
        ModelOperator::RewindLook(..) => "reads what is settled",
        ModelOperator::RewindSpill(..) => "spills receipts",
        ModelOperator::RewindWrite(..) => "rewinds",
        ModelOperator::EndLook(_) => "reads what is to be run again",
        ModelOperator::EndSettle(..) => "settles it as it was, and releases",
    }
}
