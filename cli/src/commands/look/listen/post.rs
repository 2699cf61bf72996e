//! Posts accepted deliveries to the receiver. Different orders are posted concurrently. The deliveries of one order are
//! posted in sequence.

use std::{collections::HashSet, io::IsTerminal, process::ExitCode, sync::Mutex, time::Duration};

use anyhow::Result;
use futures_util::{StreamExt, stream::FuturesUnordered};
use rustix::{process::getpgrp, termios::tcgetpgrp};
use serde_json::Value;
use serializer::{
    output::{self, counted, duration},
    view::{
        activity::{ActivityEvent, ActivityFilter},
        position::marked,
        tone::{Tone, Word},
    },
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use webhook_serializer::{
    engine::store::StoreError,
    operator::{Content, Operator, OperatorError},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Identity, Sequence},
        receipt::Settlement,
    },
    telemetry::LogMessage,
    time::{Env, Timestamp},
};

use super::{
    Begin, DeliveryReader, Listen,
    orders::{ListenedOrders, OrderWork},
    print,
    receiver::{Receiver, TimedAnswer},
};
use crate::commands::{print_json, target::Deployment};

const AT_ONCE: usize = 8;

/// The estimated read units for posting one delivery of at most 4 KB. The command reads the delivery and its order's
/// row, its parked copy and its receipt.
pub const READS: u64 = 5;

/// The pause before a claimed sequence without a delivery is read again. Such a sequence soon gets its delivery, or a
/// tombstone.
const GAP_PAUSE: Duration = Duration::from_millis(500);
const GAP_LOOKS: u32 = 40;

const PAGE: u64 = 25;

const SHOWN: usize = 200;

/// The messages of the log lines that report an accepted delivery. Ingest writes the first message. A worker that
/// appends a deferred delivery writes the second.
const ACCEPTED: [&str; 2] = [LogMessage::Accepted.as_str(), LogMessage::DeferredAppended.as_str()];

struct Posting<'a> {
    receiver: &'a Receiver,
    operator: Operator,
    env: Env,
    filter: ActivityFilter,
    begin: Timestamp,
    from: Option<Sequence>,
    json: bool,
    posted: Mutex<HashSet<(EntityKey, Identity)>>,
}

struct PostedOrder {
    order: EntityKey,
    next: Option<Sequence>,
    posted: Option<(Delivery, bool)>,
}

impl Listen {
    pub(super) async fn post(
        &self,
        reader: DeliveryReader,
        receiver: &Receiver,
        deployment: &Deployment,
    ) -> Result<ExitCode> {
        let env = deployment.env.clone();
        let started = env.now();
        let posting = self.posting(receiver, deployment, started).await?;
        let mut orders = ListenedOrders::default();
        if let (Some(order), Some(_)) = (&self.order, self.since) {
            posting.queue_past(order, &mut orders, deployment).await?;
        }
        let mut posted = 0;
        let mut refused = 0;
        let mut last = None;
        let limit = self.limit.unwrap_or(u64::MAX);
        let mut is_past = self.since.is_some();
        let mut running = FuturesUnordered::new();
        let mut looking = Box::pin(reader.look(Duration::ZERO, env.clone()));
        let mut is_behind = true;
        let mut keys = keys();
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        while posted < limit {
            while running.len() < AT_ONCE && posted + (running.len() as u64) < limit {
                let Some((order, work)) = orders.take() else { break };
                running.push(posting.work(order, work));
            }
            if is_past {
                receiver.bar.set_length(posted + orders.past());
                receiver.bar.set_position(posted);
                if !is_behind && orders.past() == 0 {
                    is_past = false;
                    receiver.bar.finish_and_clear();
                    let past = counted(posted, "past delivery was posted", "past deliveries were posted");
                    output::complain(format_args!("{past}; listen posts further deliveries as they are accepted"));
                }
            }
            tokio::select! {
                _ = &mut interrupted => break,
                Some(()) = keys.recv() => match last.clone() {
                    Some(delivery) => orders.again(delivery),
                    None => output::complain("no delivery has been posted yet"),
                },
                Some(done) = running.next() => {
                    let PostedOrder { order, next, posted: delivery } = done?;
                    orders.done(&order, next);
                    if let Some((delivery, is_taken)) = delivery {
                        posted += 1;
                        refused += u64::from(!is_taken);
                        last = Some(delivery);
                    }
                }
                read = &mut looking => {
                    let (reader, events) = read?;
                    is_behind = reader.is_behind();
                    for one in events.iter().filter(|one| ACCEPTED.contains(&one.what.text.as_str())) {
                        if let Some((order, sequence)) = one.place() {
                            orders.accepted(&order, None, sequence, one.at.is_some_and(|at| at < started));
                        }
                    }
                    let pause = reader.every();
                    looking = Box::pin(reader.look(pause, env.clone()));
                }
            }
        }
        receiver.bar.finish_and_clear();
        let count = counted(posted, "delivery was posted", "deliveries were posted");
        output::complain(format_args!("{count}; {refused} got no 2xx"));
        Ok(if posted == limit && refused > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    async fn posting<'a>(
        &self,
        receiver: &'a Receiver,
        deployment: &Deployment,
        started: Timestamp,
    ) -> Result<Posting<'a>> {
        Ok(Posting {
            receiver,
            operator: deployment.operator(),
            env: deployment.env.clone(),
            filter: self.filter(),
            begin: self.begin(started),
            from: match (self.since, &self.order) {
                (Some(Begin::Delivery(named)), Some(order)) => Some(deployment.sequence(order, named).await?),
                _ => None,
            },
            json: self.json,
            posted: Mutex::default(),
        })
    }
}

impl Posting<'_> {
    async fn queue_past(&self, order: &EntityKey, orders: &mut ListenedOrders, deployment: &Deployment) -> Result<()> {
        let wanted = self.operator.single(order, self.from.unwrap_or(Sequence(0))).await?;
        let from = self.from.filter(|_| !matches!(wanted.content, Content::Nothing));
        if let (Some(missing), None) = (self.from, from) {
            let show = deployment.command("show", order.as_str());
            let missing = marked(missing);
            output::complain(format_args!("{order} has no delivery {missing}; `{show}` lists its deliveries"));
        }
        if let Some(state) = wanted.state.filter(|state| self.from <= Some(state.tail)) {
            orders.accepted(order, from, state.tail, true);
        }
        Ok(())
    }

    async fn work(&self, order: EntityKey, work: OrderWork) -> Result<PostedOrder> {
        let done = match work {
            OrderWork::Again(delivery) => self.again(*delivery).await.map(|posted| (None, posted)),
            OrderWork::Next { from, through } => self.next(&order, from, through).await,
        };
        match done {
            Ok((next, posted)) => Ok(PostedOrder { order, next, posted }),
            Err(error) => match error.downcast_ref::<OperatorError>() {
                Some(OperatorError::Store(StoreError::Unavailable(_))) => {
                    self.receiver.complain(format_args!("{order} cannot be read: {error}; listen tries again"));
                    Ok(PostedOrder { order, next: None, posted: None })
                }
                _ => Err(error),
            },
        }
    }

    async fn again(&self, delivery: Delivery) -> Result<Option<(Delivery, bool)>> {
        let state = self.operator.single(delivery.entity(), delivery.sequence()).await?.state;
        let token = state.map_or(FencingToken(0), |state| state.token);
        self.send(delivery, token).await.map(Some)
    }

    async fn next(
        &self,
        order: &EntityKey,
        from: Option<Sequence>,
        through: Sequence,
    ) -> Result<(Option<Sequence>, Option<(Delivery, bool)>)> {
        let sequence = match from {
            Some(from) => from,
            None => self.first(order, through).await?,
        };
        let next = Some(sequence.next());
        let Some((delivery, token)) = self.read(order, sequence).await? else { return Ok((next, None)) };
        let one = accepted(&delivery);
        if !self.filter.takes(&one) {
            return Ok((next, None));
        }
        let identity = (order.clone(), delivery.identity().clone());
        if !self.posted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(identity) {
            let words = "not posted: the sender sent this id before".to_owned();
            self.print(&ActivityEvent { what: Settlement::Repeat.into(), words, ..one }, &[]);
            return Ok((next, None));
        }
        Ok((next, Some(self.send(delivery, token).await?)))
    }

    async fn first(&self, order: &EntityKey, through: Sequence) -> Result<Sequence> {
        let least = self.from.unwrap_or(Sequence(0));
        let is_older = |delivery: &&Delivery| match self.from {
            Some(from) => delivery.sequence() < from,
            None => delivery.received_at() < self.begin,
        };
        // A claimed sequence that still lacks its delivery is behind the head.
        let state = self.operator.single(order, through).await?.state;
        let unsettled = state.map_or(through, |state| state.head.next());
        let mut first = through;
        let mut from = through.0;
        let mut page = 2;
        loop {
            let places: Vec<_> =
                (from.saturating_sub(page)..from).map(|place| (order.clone(), Sequence(place))).collect();
            from = from.saturating_sub(page);
            let found = self.operator.deliveries(&places).await?;
            if let Some(older) = found.iter().filter(is_older).map(Delivery::sequence).max() {
                return Ok(older.next());
            }
            match found.iter().map(Delivery::sequence).min() {
                Some(oldest) if oldest > least => first = oldest,
                Some(_) => return Ok(least),
                None => return Ok(first.min(unsettled.max(Sequence(from))).max(least)),
            }
            page = (page * 2).min(PAGE);
        }
    }

    async fn read(&self, order: &EntityKey, sequence: Sequence) -> Result<Option<(Delivery, FencingToken)>> {
        for look in 0.. {
            let single = self.operator.single(order, sequence).await?;
            match (single.content, single.state) {
                (Content::Delivery(delivery), state) => {
                    return Ok(Some((*delivery, state.map_or(FencingToken(0), |state| state.token))));
                }
                (Content::Bodiless(_), _) => {
                    self.receiver
                        .complain(format_args!("{order} {} was not posted: its body was removed", marked(sequence)));
                    break;
                }
                // The sequence is claimed, but its delivery is not written yet.
                (Content::Nothing, Some(state)) if state.head < sequence && look < GAP_LOOKS => {
                    self.env.sleep(GAP_PAUSE).await;
                }
                (Content::Nothing | Content::Void, _) => break,
            }
        }
        Ok(None)
    }

    async fn send(&self, delivery: Delivery, token: FencingToken) -> Result<(Delivery, bool)> {
        let unanswered = |sent: &TimedAnswer| self.report(&delivery, sent, true);
        let sent = self.receiver.post(&delivery, token, unanswered).await?;
        self.report(&delivery, &sent, false);
        Ok((delivery, sent.is_taken()))
    }

    fn report(&self, delivery: &Delivery, sent: &TimedAnswer, is_repeated: bool) {
        let took = duration(sent.took);
        let again = if is_repeated { "; posted again" } else { "" };
        let words = match &sent.answer {
            Ok(answer) if (300..400).contains(&answer.status) => "redirects are not followed".to_owned(),
            Ok(answer) => one_line(&answer.body),
            Err(error) => format!("{error}{again}"),
        };
        let status = sent.answer.as_ref().ok().map(|answer| answer.status);
        let fields = [
            ("to", self.receiver.url().into()),
            ("status", status.into()),
            ("took_ms", (sent.took.as_millis() as u64).into()),
            ("posted_again", is_repeated.into()),
        ];
        let words = if self.json { words } else { format!("{took}  {words}") };
        let what = status.map_or("no answer".to_owned(), |status| status.to_string());
        let what = Word::new(what, if sent.is_taken() { Tone::Good } else { Tone::Bad });
        self.print(&ActivityEvent { what, words, ..accepted(delivery) }, &fields);
    }

    fn print(&self, one: &ActivityEvent, fields: &[(&str, Value)]) {
        self.receiver.bar.suspend(|| match self.json {
            true => {
                let mut object = one.as_json();
                for (name, value) in fields {
                    object[*name] = value.clone();
                }
                print_json(&object);
            }
            false => print(one),
        });
    }
}

fn accepted(delivery: &Delivery) -> ActivityEvent {
    let one = ActivityEvent {
        what: LogMessage::Accepted.into(),
        entity: Some(delivery.entity().to_string()),
        sequence: Some(delivery.sequence().0),
        ..ActivityEvent::default()
    };
    one.about(delivery)
}

/// Returns a channel that gets a message whenever the user types `r` and Enter. A background process does not read from
/// the terminal, because a read would stop the process.
fn keys() -> UnboundedReceiver<()> {
    let (pressed, keys) = unbounded_channel();
    let input = std::io::stdin();
    if !input.is_terminal() || tcgetpgrp(&input).is_ok_and(|foreground| foreground == getpgrp()) {
        std::thread::spawn(move || {
            let lines = input.lines().map_while(std::io::Result::ok);
            lines.filter(|line| line.trim() == "r").try_for_each(|_| pressed.send(()))
        });
    }
    keys
}

fn one_line(text: &str) -> String {
    let words = output::one_line(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match words.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_answer_is_shown_as_one_escaped_line() {
        assert_eq!(one_line("no\n such\t\x1b[31morder "), "no such \\u001b[31morder");
        assert_eq!(one_line(&"x".repeat(500)).chars().count(), SHOWN + 1);
    }
}
