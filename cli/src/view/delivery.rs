//! What became of a delivery, and all that is stored of it but its body.

use console::{StyledObject, style};
use serde_json::{Value, json};
use webhook_serializer::{
    operator::{Content, Parked, Single},
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::{Receipt, Settlement},
    },
    time::Timestamp,
};

use crate::{
    output::{duration, one_line},
    say,
    view::order_status::standing,
};

/// What is said of a delivery.
#[derive(Debug)]
pub struct Account {
    /// How it stands, in one word or two.
    pub word: StyledObject<String>,
    /// The sentences, one a line.
    pub sentences: Vec<String>,
    /// Name and value, in their order; times as times.
    pub facts: Vec<(&'static str, Fact)>,
    outcome: Value,
}

/// Something that is stored of a delivery.
#[derive(Debug)]
pub enum Fact {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
    /// A time.
    At(Timestamp),
}

impl Account {
    /// Of what stands at a place of an order, at `now`. `line` makes a command
    /// line of a command and its arguments.
    pub fn of(
        order: &EntityKey,
        sequence: Sequence,
        single: &Single,
        now: Timestamp,
        line: impl Fn(&str, &[&str]) -> String,
    ) -> Self {
        let Single { state, content, receipt, parked } = single;
        // A repeat that left the row has no receipt of its own, but that of the first.
        let first = receipt.as_ref().filter(|receipt| receipt.sequence != sequence).map(|receipt| receipt.sequence);
        let own = receipt.as_ref().filter(|_| first.is_none());
        let waits = state.as_ref().filter(|state| state.head < sequence);
        let command = |command: &str| line(command, &[order.as_str()]);
        let one = |command: &str| line(command, &[order.as_str(), &sequence.to_string()]);
        let (word, mut sentences) = match (waits, parked) {
            (Some(state), _) if sequence == state.next() => {
                let standing = standing(state, None, now, command);
                (style(standing.word.to_string()), standing.sentences)
            }
            (Some(state), _) => {
                let ahead = sequence.0 - state.next().0;
                let behind = if ahead == 1 { "1 delivery".to_owned() } else { format!("{ahead} deliveries") };
                (style("waiting".to_owned()).yellow(), vec![format!("It waits behind {behind} of its order.")])
            }
            (None, Some(parked)) => {
                let error = &parked.error;
                let ago = parked.parked_at.map(|at| format!(" {} ago", duration(now.since(at)))).unwrap_or_default();
                let kept = parked.kept_until.map(|until| format!("It is kept until {until}."));
                let (redrive, discard) = (one("redrive"), one("discard"));
                let mut sentences = vec![
                    format!("It was set aside{ago}: {error}"),
                    format!("Once that is mended, put it back at the end of its order with `{redrive}`."),
                    format!("If it is of no use, remove it for good with `{discard} --why TEXT`."),
                ];
                sentences.extend(kept);
                (style("parked".to_owned()).red(), sentences)
            }
            (None, None) => {
                let settlement = own.map(|receipt| receipt.settlement);
                match (settlement, first) {
                    (_, Some(first)) => (
                        style("repeat".to_owned()).dim(),
                        vec![format!("The same delivery was settled before, at {first}; its handler was not started.")],
                    ),
                    (Some(Settlement::Parked), _) => (
                        style("parked before".to_owned()).dim(),
                        vec!["It was set aside, and put back or discarded since, or its time has run out.".to_owned()],
                    ),
                    (Some(settlement), _) => (style(settlement.to_string()).green(), Vec::new()),
                    (None, None) => (style("settled".to_owned()).dim(), vec!["Nothing tells any more how.".to_owned()]),
                }
            }
        };
        if waits.is_some()
            && let Some(before) = own
        {
            sentences.push(match before.settlement {
                Settlement::Applied => {
                    format!("It was applied before, under token {}, and is run again.", before.token)
                }
                settlement => format!("It was {settlement} before, and stays so."),
            });
        }
        if let (Some(state), Some(_)) = (waits, parked) {
            sentences
                .push(format!("It is also set aside, by a worker that has yet to say so under token {}.", state.token));
        }
        let mut facts = Vec::new();
        if let Some(delivery) = content.delivery() {
            let source = match delivery.provider() {
                Some(provider) => format!("{} ({provider})", delivery.source()),
                None => delivery.source().to_string(),
            };
            facts.push(("source", Fact::Text(source)));
            facts.push(("topic", Fact::Text(delivery.topic().to_owned())));
            facts.push(("delivery", Fact::Text(delivery.delivery_id().to_string())));
            if delivery.redrive() > 0 {
                facts.push(("redrive", Fact::Number(delivery.redrive().into())));
            }
            facts.push(("arrived", Fact::At(delivery.received_at())));
            facts.extend(delivery.event_time().map(|at| ("event time", Fact::At(at))));
            facts.extend(delivery.content_type().map(|of| ("content type", Fact::Text(of.to_owned()))));
            if matches!(content, Content::Delivery(_)) {
                facts.push(("body bytes", Fact::Number(delivery.body().len() as u64)));
            }
        }
        if let Some(receipt) = own.filter(|_| waits.is_none()) {
            facts.extend(receipt.started_at().map(|at| ("started", Fact::At(at))));
            facts.push(("settled", Fact::At(receipt.settled_at)));
            facts.extend(receipt.took.map(|took| ("took", Fact::Text(duration(took)))));
            facts.push(("attempts", Fact::Number(receipt.attempts.into())));
            facts.push(("token", Fact::Number(receipt.token.0)));
        } else if let Some(state) = waits.filter(|state| sequence == state.next()) {
            facts.push(("attempts", Fact::Number(state.attempts.into())));
        }
        let outcome = outcome(own, first, waits.is_some(), parked.is_some());
        Self { word, sentences, facts, outcome }
    }

    /// On lines, those of the facts aligned.
    pub fn print(&self, order: &EntityKey, sequence: Sequence, now: Timestamp) {
        say!("{} {sequence}  {}", style(order.as_str()).bold(), self.word);
        self.sentences.iter().for_each(|sentence| say!("{sentence}"));
        say!();
        for (name, fact) in &self.facts {
            match fact {
                Fact::Text(text) => say!("{name:14}{}", one_line(text)),
                Fact::Number(number) => say!("{name:14}{number}"),
                Fact::At(at) if *at <= now => say!("{name:14}{at}, {} ago", duration(now.since(*at))),
                Fact::At(at) => say!("{name:14}{at}"),
            }
        }
    }

    /// For programs.
    pub fn add_to(&self, value: &mut Value) {
        for (name, fact) in &self.facts {
            // What every list of deliveries says stands there already.
            if ["source", "topic", "delivery", "redrive", "arrived", "event time"].contains(name) {
                continue;
            }
            value[name.replace(' ', "_")] = match fact {
                Fact::Text(text) => json!(text),
                Fact::Number(number) => json!(number),
                Fact::At(at) => json!(at),
            };
        }
        value["outcome"] = self.outcome.clone();
        value["state"] = json!(console::strip_ansi_codes(&self.word.to_string()));
        value["says"] = json!(self.sentences);
    }
}

/// A sentence that says until when a person may decide about the first of what is
/// parked, where it has an end.
pub fn first_end(parked: &[Parked]) -> Option<String> {
    let until = parked.iter().filter_map(|one| one.kept_until).min()?;
    Some(format!("The first of them is kept until {until}."))
}

fn outcome(own: Option<&Receipt>, first: Option<Sequence>, waits: bool, parked: bool) -> Value {
    match (own, first) {
        _ if waits => Value::Null,
        (_, Some(_)) => json!(Settlement::Repeat.as_str()),
        (Some(receipt), _) => json!(receipt.settlement.as_str()),
        _ if parked => json!(Settlement::Parked.as_str()),
        _ => Value::Null,
    }
}
