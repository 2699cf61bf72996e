//! Long partial outages: one kind of call that fails for minutes or an hour,
//! while all others are answered.

use std::time::Duration;

use super::chance::{Dice, Twist, actor};

/// What can be out by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Queries, which are all of the inbox.
    Queries,
    /// Reads of several rows at once.
    BatchReads,
    /// Writes to the inbox, transactions among them.
    InboxWrites,
    /// Writes of entities' rows, transactions among them.
    EntityWrites,
    /// Wake-ups.
    Sends,
}

impl Service {
    const ALL: [Service; 5] =
        [Service::Queries, Service::BatchReads, Service::InboxWrites, Service::EntityWrites, Service::Sends];

    /// As told in traces.
    pub fn name(self) -> &'static str {
        match self {
            Service::Queries => "inbox queries",
            Service::BatchReads => "batch reads",
            Service::InboxWrites => "inbox writes",
            Service::EntityWrites => "entity writes",
            Service::Sends => "sends",
        }
    }
}

/// How its calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Refused for now.
    Throttled,
    /// Never done.
    FailsBefore,
    /// Never done, and nothing is heard.
    Silent,
    /// Done, and the reply is lost.
    LosesReply,
}

impl How {
    /// As told in traces.
    pub fn name(self) -> &'static str {
        match self {
            How::Throttled => "are throttled",
            How::FailsBefore => "fail",
            How::Silent => "are not answered",
            How::LosesReply => "are done, their replies lost",
        }
    }
}

/// One of a run.
#[derive(Debug, Clone, Copy)]
pub struct Outage {
    /// What is out.
    pub service: Service,
    /// How.
    pub how: How,
    /// How many calls of a thousand fail.
    pub permille: u64,
    /// When it begins, in each round.
    pub from: Duration,
    /// How long it lasts.
    pub lasts: Duration,
    /// Which of the run's.
    pub number: u32,
}

impl Outage {
    /// Its name among what a run may leave out.
    pub fn twist(&self) -> Twist {
        Twist { actor: actor::OUTAGES, number: self.number }
    }

    /// When it is over.
    pub fn until(&self) -> Duration {
        self.from + self.lasts
    }

    /// Whether a call of `node` at `now` is among those that fail.
    pub fn hits(&self, seed: u64, node: u32, now: Duration) -> bool {
        let calls = Dice::new(seed, actor::OUTAGES + self.number);
        self.permille >= 1000 || calls.roll_for(node, now).happens(self.permille)
    }
}

/// Those of a run: most have none.
pub fn drawn(seed: u64) -> Vec<Outage> {
    let dice = Dice::new(seed, actor::OUTAGES);
    let mut roll = dice.at(0);
    if !roll.happens(35) {
        return Vec::new();
    }
    let draw = |number| {
        let mut roll = dice.at(number);
        let minutes = roll.one_of(&[2, 5, 9, 9, 20, 60]);
        Outage {
            service: roll.one_of(&Service::ALL),
            how: roll.one_of(&[How::Throttled, How::Throttled, How::FailsBefore, How::Silent, How::LosesReply]),
            permille: roll.one_of(&[1000, 1000, 900]),
            from: roll.millis(0, 20_000),
            lasts: roll.millis(60_000, minutes * 60_000),
            number,
        }
    };
    (1..=roll.between(1, 3) as u32).map(draw).collect()
}
