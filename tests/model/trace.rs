//! Readable traces: the actors' steps, and the rows whenever they change.

use std::fmt;

use crate::{
    protocol::{Action, Answer, Hearing},
    state::{Exclusive, Operator, RowStep, State, Step, Worker},
    store::{Clock, Item, delivery_at, receipt_at, short},
};

pub struct Trace(pub Vec<(State, Option<Action>)>);

impl fmt::Display for Trace {
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

fn rows(state: &State) -> String {
    let row = state.row.map_or_else(|| "no row".into(), |row| format!("{row:?}"));
    let items = state.inbox.iter().map(|(item, row)| match item {
        Item::Delivery(sequence) => match delivery_at(row) {
            Some(id) => format!(", {} is {id}", short(*sequence)),
            None => format!(", {} is a tombstone", short(*sequence)),
        },
        Item::Receipt(id) => format!(", receipt of {id}: {}", receipt_at(row).1),
        Item::Parked(sequence) => format!(", {} is parked", short(*sequence)),
    });
    let committed = state.committed.iter().map(|id| format!(", {id} committed"));
    format!("[{row}{}; {} wake-ups]", items.chain(committed).collect::<String>(), state.queue.len())
}

fn step(state: &State, action: Action) -> String {
    let ingest = |number: usize| {
        let append = &state.appends[number];
        format!("ingest of {}{}", append.id, if number > usize::from(append.id.delivery) { " again" } else { "" })
    };
    let worker = |number: usize| format!("worker {}", number + 1);
    let lost = |reply: Hearing| if reply == Hearing::Lost { ", and the reply is lost" } else { "" };
    let by = |clock: Clock| if clock == Clock::Late { ", by a clock that finds all times past" } else { "" };
    match action {
        Action::Claim(number, clock, reply) => format!("{} claims{}{}", ingest(number), by(clock), lost(reply)),
        Action::Put(number, reply) => format!("{} puts{}", ingest(number), lost(reply)),
        Action::SendOwed(number) => format!("{} sends its wake-up", ingest(number)),
        Action::IngestDies(number) => format!("{} dies", ingest(number)),
        Action::Receive(number, at) if state.queue[at].1 => {
            format!("{} receives a wake-up that was received before", worker(number))
        }
        Action::Receive(number, _) => format!("{} receives a wake-up", worker(number)),
        Action::ReceiveCopy(number) => format!("{} receives a copy of the other's wake-up", worker(number)),
        Action::Work(number, clock, reply) => {
            let what = state.workers[number].as_ref().map_or_else(String::new, |worker| work(worker, clock));
            format!("{} {what}{}", worker(number), lost(reply))
        }
        Action::RowWork(number, reply) => {
            let last = state.workers[number]
                .as_ref()
                .is_some_and(|worker| matches!(worker.step, Step::Settle { row: RowStep::Last, .. }));
            let what = if last { "settles and releases" } else { "settles" };
            format!("{} {what}{}", worker(number), lost(reply))
        }
        Action::ReceiptWork(number, reply) => {
            format!("{} writes the receipt that leaves the row next{}", worker(number), lost(reply))
        }
        Action::GapIsFilled(number) => format!("{} finds the gap filled", worker(number)),
        Action::GapMayHaveExpired(number) => format!("{} takes the gap for one left by retention", worker(number)),
        Action::StoreIsOut(number) => {
            format!("{} cannot reach the store, and sends a wake-up for later", worker(number))
        }
        Action::StopsEarly(number) => format!("{} must hand over", worker(number)),
        Action::HandlerEnds(number, answer) => {
            let how = match answer {
                Answer::Done => "is done",
                Answer::Fails => "fails",
                Answer::TimesOut => "times out, and goes on",
                Answer::Rejects => "rejects the delivery",
            };
            format!("{}'s handler {how}", worker(number))
        }
        Action::RenewalFails(number) => format!("{} renews, and finds its lease lost", worker(number)),
        Action::WorkerDies(number) => format!("{} dies", worker(number)),
        Action::LateEffect(_) => "the late effect of a handler arrives".into(),
        Action::Exclusive(clock, reply) => {
            format!("the exclusive holder {}{}", exclusive(state.exclusive, clock), lost(reply))
        }
        Action::ExclusiveLeaves => "the exclusive holder gives up waiting".into(),
        Action::ExclusiveDies => "the exclusive holder dies".into(),
        Action::Redrive(sequence, id) => format!("the operator redrives {id}, parked at {}", short(sequence)),
        Action::Unblock => "the operator wants to unblock".into(),
        Action::ForceRelease => "the operator sees the lease".into(),
        Action::PutOnHold => "the operator wants to hold".into(),
        Action::Resume => "the operator wants to resume".into(),
        Action::Rewind(from) => format!("the operator wants to rewind to {}", short(from)),
        Action::EndRewind => "the operator wants to end the rewind".into(),
        Action::Skip(sequence) => format!("the operator sees {} in front, and wants to skip it", short(sequence)),
        Action::OperateLate => format!("the operator {}: no answer", operate(&state.operator)),
        Action::LateWrite(_) => "the delayed write lands".into(),
        Action::Operate(_, reply) => format!("the operator {}{}", operate(&state.operator), lost(reply)),
        Action::OperateWakeUp => "the operator's append sends its wake-up".into(),
        Action::OperatorDies => "the operator's process dies".into(),
        Action::Purge => "TTL deletes the idle row, long after its inbox".into(),
    }
}

fn work(worker: &Worker, clock: Clock) -> String {
    let id = || worker.drain.and_then(|drain| drain.known.place().1).map(|id| id.to_string()).unwrap_or_default();
    match worker.step {
        Step::SendFresh => "sends a new wake-up first".into(),
        Step::Acquire(_) => "asks for the lease".into(),
        Step::Look(..) if clock == Clock::Late => "calls the lease expired".into(),
        Step::Look(..) => "calls the lease running".into(),
        Step::TakeOver(..) => "takes over".into(),
        Step::Requeue(_) => "requeues its wake-up".into(),
        Step::SendFollower(_) => "sends the wake-up that follows the exclusive lease".into(),
        Step::Follow(_) => "records that a wake-up follows the exclusive lease".into(),
        Step::Ask => "goes on".into(),
        Step::ReadPage => "reads".into(),
        Step::Spill { .. } => "writes the receipt that leaves the row".into(),
        Step::Gap => "has waited at the gap, and writes a tombstone".into(),
        Step::Start => format!("starts the handler of {}", id()),
        Step::Commit { .. } => format!("commits {}", id()),
        Step::Park { .. } => format!("parks {}", id()),
        Step::RetryWakeUp(..) => "sends a wake-up for the retry".into(),
        Step::Fail { retry: true, .. } => "counts the failure and releases".into(),
        Step::Fail { retry: false, .. } => "blocks the entity".into(),
        Step::Block(reason) => format!("blocks the entity, as {reason}"),
        Step::MarkHandOver => "marks the hand-over".into(),
        Step::HandOver => "sends a wake-up for the next".into(),
        Step::ReleaseHandedOver | Step::ReleaseUnheard => "releases".into(),
        Step::RecordStart => format!("records the start of {}", id()),
        Step::Release => "releases".into(),
        Step::ReleaseEmpty => "releases, the inbox being empty".into(),
        Step::Finish { delete: true } => "deletes its wake-up".into(),
        Step::Finish { delete: false } => "keeps its wake-up".into(),
        Step::Run | Step::Settle { .. } => String::new(),
    }
}

fn exclusive(exclusive: Exclusive, clock: Clock) -> &'static str {
    match exclusive {
        Exclusive::Away | Exclusive::Poll => "comes",
        Exclusive::Acquire(_) => "asks for the lease",
        Exclusive::Look(..) if clock == Clock::Late => "calls the lease expired",
        Exclusive::Look(..) => "calls the lease running",
        Exclusive::TakeOver(..) => "takes over",
        Exclusive::Ask(_) => "asks the drain to yield",
        Exclusive::Hold(_) => "releases",
        Exclusive::Leave(_) => "releases, though deliveries wait",
        Exclusive::Wake => "sends a wake-up for what waits",
    }
}

fn operate(operator: &Operator) -> &'static str {
    match operator {
        Operator::Away => "waits",
        Operator::Check(..) => "reads how it was settled",
        Operator::Redrive(..) => "appends it: claims, or puts",
        Operator::Forget(..) => "deletes the parked copy",
        Operator::VoidExpired(_) => "writes a tombstone",
        Operator::Unblock => "unblocks",
        Operator::Wake => "sends a wake-up",
        Operator::Force(_) => "ends the lease by force",
        Operator::Hold(_) => "begins the hold",
        Operator::Resume(_) => "ends the hold",
        Operator::SkipAcquire(..) => "asks for the lease",
        Operator::SkipLook(..) => "reads what is in front",
        Operator::SkipPark(..) => "parks it",
        Operator::SkipSettle(..) => "settles it and releases",
        Operator::SkipRelease(_) | Operator::RewindRelease(_) => "releases",
        Operator::RewindAcquire(..) | Operator::EndAcquire(_) => "asks for the lease",
        Operator::RewindLook(..) => "reads what is settled",
        Operator::RewindSpill(..) => "spills receipts",
        Operator::RewindWrite(..) => "rewinds",
        Operator::EndLook(_) => "reads what is to be run again",
        Operator::EndSettle(..) => "settles it as it was, and releases",
    }
}
