//! Partial outages: one kind of call fails for minutes or an hour.

use std::time::Duration;

use super::random::{DecisionId, RandomStream, actor};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimulatedService {
    Queries,
    BatchReads,
    InboxWrites,
    EntityWrites,
    Sends,
}

impl SimulatedService {
    const ALL: [SimulatedService; 5] = [
        SimulatedService::Queries,
        SimulatedService::BatchReads,
        SimulatedService::InboxWrites,
        SimulatedService::EntityWrites,
        SimulatedService::Sends,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SimulatedService::Queries => "inbox queries",
            SimulatedService::BatchReads => "batch reads",
            SimulatedService::InboxWrites => "inbox writes",
            SimulatedService::EntityWrites => "entity writes",
            SimulatedService::Sends => "sends",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    Throttled,
    FailsBefore,
    Silent,
    LosesReply,
}

impl FailureMode {
    pub fn name(self) -> &'static str {
        match self {
            FailureMode::Throttled => "are throttled",
            FailureMode::FailsBefore => "fail",
            FailureMode::Silent => "are not answered",
            FailureMode::LosesReply => "are done, their replies lost",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct ServiceOutage {
    pub service: SimulatedService,
    pub how: FailureMode,
    /// How many of a thousand calls fail.
    pub permille: u64,
    pub from: Duration,
    pub lasts: Duration,
    pub number: u32,
}

impl ServiceOutage {
    pub fn decision(&self) -> DecisionId {
        DecisionId { actor: actor::OUTAGES, number: self.number }
    }

    pub fn until(&self) -> Duration {
        self.from + self.lasts
    }

    pub fn hits(&self, seed: u64, node: u32, now: Duration) -> bool {
        let calls = RandomStream::new(seed, actor::OUTAGES + self.number);
        self.permille >= 1000 || calls.draw_for(node, now).happens(self.permille)
    }
}

pub fn drawn(seed: u64) -> Vec<ServiceOutage> {
    let stream = RandomStream::new(seed, actor::OUTAGES);
    let mut draw = stream.at(0);
    if !draw.happens(35) {
        return Vec::new();
    }
    let outage = |number| {
        let mut draw = stream.at(number);
        let minutes = draw.one_of(&[2, 5, 9, 9, 20, 60]);
        ServiceOutage {
            service: draw.one_of(&SimulatedService::ALL),
            how: draw.one_of(&[
                FailureMode::Throttled,
                FailureMode::Throttled,
                FailureMode::FailsBefore,
                FailureMode::Silent,
                FailureMode::LosesReply,
            ]),
            permille: draw.one_of(&[1000, 1000, 900]),
            from: draw.millis(0, 20_000),
            lasts: draw.millis(60_000, minutes * 60_000),
            number,
        }
    };
    (1..=draw.between(1, 3) as u32).map(outage).collect()
}
