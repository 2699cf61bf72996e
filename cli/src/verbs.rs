//! The verbs: operations that an operator runs on orders and deliveries, such as `resume` or `skip`.
//!
//! Each verb is a file, and an entry of [`VERBS`]. The subcommands with their help, the console's buttons and forms, and
//! the runs over many orders follow from it.

pub mod choice;
mod discard;
mod hold;
mod plan;
mod probe;
pub mod redrive;
mod report;
mod resume;
mod retry;
mod rewind;
mod run;
mod skip;

use std::{pin::Pin, process::ExitCode};

use clap::{ArgMatches, Args};
use futures_util::future::BoxFuture;
use webhook_serializer::{
    operator::{Operator, OperatorError},
    protocol::{
        entity::{EntityKey, Sequence},
        state::EntityState,
    },
};

use crate::view::overview::OrderSummary;

pub use plan::ParkedSelection;
pub use report::{Effect, Report};

/// The verbs, in the order of the command's help and of the console's buttons.
pub static VERBS: &[&Verb] = &[
    &resume::RESUME,
    &retry::RETRY,
    &skip::SKIP,
    &rewind::END_REWIND,
    &redrive::REDRIVE,
    &discard::DISCARD,
    &rewind::REWIND,
    &hold::HOLD,
];

pub struct Verb {
    pub name: &'static str,
    /// The text of the console's button.
    pub label: &'static str,
    /// The consequences, which the command lists before it asks, and the console's form shows.
    pub description: &'static str,
    /// `None` if only the console has the verb under its own name.
    pub subcommand: Option<VerbSubcommand>,
    /// Set if the verb cannot be undone.
    pub is_final: bool,
    /// Set if the command asks even before it changes a single delivery.
    pub asks_for_one: bool,
    /// Set if deliveries start because of the verb. If their destination is down, the command waits for a probe.
    pub waits_for_probe: bool,
    /// The smallest number of DynamoDB write units that a run over many costs for one target. Two units are for the
    /// operations log. The others are for the operation's own writes, with a body of at most 1 KB.
    pub write_units: u64,
    /// Returns whether a run over many orders includes this one.
    pub takes: fn(&OrderSummary) -> bool,
    /// Returns whether a page of the console has the verb's button.
    pub is_offered: fn(&Situation<'_>) -> bool,
    pub act: Act,
}

/// Runs a verb. After an error, the operation may have taken effect.
pub enum Act {
    Order(for<'a> fn(&'a Operator, &'a EntityKey) -> Acting<'a, Report>),
    Delivery(for<'a> fn(&'a Operator, &'a EntityKey, Sequence) -> Acting<'a, Report>),
    /// Changes parked deliveries, each order's in sequence.
    Parked {
        act: for<'a> fn(&'a Operator, &'a [OperationTarget], Reporter<'a>) -> Acting<'a, ()>,
        /// Returns what an operator should know about these deliveries. The number is the retention in days.
        note: fn(&ParkedSelection, u64) -> Option<String>,
    },
}

type Acting<'a, T> = BoxFuture<'a, Result<T, OperatorError>>;

/// Gets the report of each target. The run ends once it returns false.
pub type Reporter<'a> = &'a mut (dyn FnMut(&OperationTarget, Report) -> bool + Send);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationTarget {
    pub order: EntityKey,
    pub sequence: Option<Sequence>,
}

/// The order, or the delivery, that a page of the console shows.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    pub order: &'a EntityKey,
    pub sequence: Option<Sequence>,
    pub state: Option<&'a EntityState>,
    pub parked: usize,
    pub is_rewinding: bool,
}

impl Situation<'_> {
    pub fn is_order(&self) -> bool {
        self.sequence.is_none()
    }

    /// Returns the order's row, unless the page shows another delivery than the order's next one.
    fn in_front(&self) -> Option<&EntityState> {
        self.state.filter(|state| self.sequence.is_none_or(|sequence| sequence == state.next()))
    }
}

impl Verb {
    pub fn is(&self, other: &'static Self) -> bool {
        std::ptr::eq(self, other)
    }

    /// Returns the verb's subcommand, as clap shows and parses it.
    pub fn command(&self) -> Option<clap::Command> {
        let VerbSubcommand { about, details, augment, .. } = self.subcommand.as_ref()?;
        let command = augment(clap::Command::new(self.name));
        Some(command.about(*about).long_about(None).after_help(*details))
    }

    pub fn takes_deliveries(&self) -> bool {
        !matches!(self.act, Act::Order(_))
    }

    /// Returns the sequence that a form of the console contains. The form of a skip names the order's next delivery at
    /// the time when the page is shown. Another delivery may be next when the user submits the form.
    pub fn sequence_in_form(&self, situation: &Situation<'_>) -> Option<Sequence> {
        let next = || situation.state.filter(|_| matches!(self.act, Act::Delivery(_))).map(EntityState::next);
        situation.sequence.or_else(next)
    }

    /// Runs the verb for the targets one after the other, until `report` returns false.
    ///
    /// If this function fails, the operation has run for the reported targets, and may have taken effect for the next
    /// target. Running the operation again continues with the other targets.
    pub async fn run(
        &self,
        operator: &Operator,
        targets: &[OperationTarget],
        report: Reporter<'_>,
    ) -> Result<(), OperatorError> {
        if let Act::Parked { act, .. } = self.act
            && targets.iter().all(|target| target.sequence.is_some())
        {
            return act(operator, targets, report).await;
        }
        for target in targets {
            let OperationTarget { order, sequence } = target;
            let done = match (&self.act, sequence) {
                (Act::Order(act), _) => act(operator, order).await?,
                (Act::Delivery(act), Some(sequence)) => act(operator, order, *sequence).await?,
                _ => Report::without_sequence(self.name, order),
            };
            if !report(target, done) {
                break;
            }
        }
        Ok(())
    }

    pub async fn run_one(&self, operator: &Operator, target: &OperationTarget) -> Result<Report, OperatorError> {
        let mut done = None;
        let mut keep = |_: &OperationTarget, report| {
            done = Some(report);
            true
        };
        self.run(operator, std::slice::from_ref(target), &mut keep).await?;
        Ok(done.expect("each target is reported"))
    }
}

pub type Running = Pin<Box<dyn Future<Output = anyhow::Result<ExitCode>>>>;

/// The arguments of a verb's subcommand, which run it.
pub trait VerbArguments: Args {
    fn run(self, verb: &'static Verb) -> impl Future<Output = anyhow::Result<ExitCode>>;
}

pub struct VerbSubcommand {
    /// The first line of the help.
    about: &'static str,
    /// The help's last paragraphs.
    details: &'static str,
    augment: fn(clap::Command) -> clap::Command,
    parse: fn(&'static Verb, &ArgMatches) -> Result<Running, clap::Error>,
}

impl VerbSubcommand {
    pub const fn new<A: VerbArguments + 'static>(about: &'static str, details: &'static str) -> Self {
        let parse: fn(&'static Verb, &ArgMatches) -> Result<Running, clap::Error> =
            |verb, matches| Ok(Box::pin(A::from_arg_matches(matches)?.run(verb)));
        Self { about, details, augment: A::augment_args, parse }
    }
}

/// Parses the arguments of a verb's subcommand. Returns `None` for another subcommand.
pub fn parse(matches: &ArgMatches) -> Option<Result<Running, clap::Error>> {
    let (name, arguments) = matches.subcommand()?;
    let verb = VERBS.iter().find(|verb| verb.name == name)?;
    Some((verb.subcommand.as_ref()?.parse)(verb, arguments))
}

#[cfg(test)]
mod tests {
    use webhook_serializer::protocol::{
        format::{FORMAT, attribute as a},
        table::Row,
    };

    use super::*;

    /// Returns the verbs that the page of an order, or of one of its deliveries, has buttons for. The order's delivery 2
    /// is settled, delivery 3 is its next.
    fn offered(change: impl Fn(Row) -> Row, sequence: Option<u64>, parked: usize, is_rewinding: bool) -> String {
        let row = Row::new().with(a::VERSION, FORMAT).with(a::ENTITY, "shop/order/1").with(a::TAIL, 4_u32);
        let state = EntityState::parse(&change(row.with(a::HEAD, 2_u32).with(a::TOKEN, 9_u32))).unwrap();
        let sequence = sequence.map(Sequence);
        let page = Situation { order: &state.entity, sequence, state: Some(&state), parked, is_rewinding };
        let offered: Vec<_> = VERBS.iter().filter(|verb| (verb.is_offered)(&page)).map(|verb| verb.name).collect();
        offered.join(" ")
    }

    #[test]
    fn page_offers_only_verbs_that_fit() {
        let waits = |row: Row| row;
        let blocked = |row: Row| row.with(a::BLOCKED, "attempts");
        let held = |row: Row| row.with(a::HOLD, 7_u32);
        assert_eq!(offered(waits, None, 0, false), "skip hold");
        assert_eq!(offered(waits, None, 2, true), "skip end-rewind redrive hold");
        assert_eq!(offered(held, None, 0, false), "resume skip");
        assert_eq!(offered(blocked, Some(3), 0, false), "resume skip");
        assert_eq!(offered(blocked, Some(4), 0, false), "");
        assert_eq!(offered(blocked, Some(2), 0, false), "rewind");
        assert_eq!(offered(blocked, Some(2), 1, false), "redrive discard");
    }
}
