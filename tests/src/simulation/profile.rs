//! What kind of misfortune a run has, and how much of it.

use std::time::Duration;

use webhook_serializer::sources::deliver::Deliver;

use crate::rules::Rule;

use super::{
    chance::{Dice, actor},
    loss::Loss,
    mutation::is_of_a_restore,
    outage::{self, How, Outage, Service},
    unwell::{Reaction, Unwell},
};

/// How far nodes' clocks are off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    /// Not at all.
    None,
    /// By seconds, at the right rate.
    Seconds,
    /// By seconds, and up to twice too fast or too slow.
    Rates,
    /// By up to a quarter of an hour, at any of these rates.
    Minutes,
    /// By up to a day, at any of these rates.
    Days,
    /// Not at all; ingests run at half the rate, workers at twice.
    SlowIngests,
}

impl Skew {
    /// Whether a lease that is renewed may look run out to another node.
    pub fn takes_the_living_for_dead(self) -> bool {
        matches!(self, Skew::Rates | Skew::Minutes | Skew::Days)
    }
}

/// What kind of misfortune a run has, and how much of it; in thousandths.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Entities.
    pub entities: u64,
    /// Deliveries in each round.
    pub deliveries: u64,
    /// Worker slots.
    pub workers: u64,
    /// How long deliveries keep coming, in each round.
    pub lasts: Duration,
    /// Rounds, with weeks of idleness between two of them.
    pub rounds: u64,
    /// Clocks.
    pub skew: Skew,
    /// Calls of the table that go wrong.
    pub table: u64,
    /// Calls of the queue that go wrong.
    pub queue: u64,
    /// Messages that come twice, or again after they were deleted.
    pub copies: u64,
    /// Copies whose receive count says that they are none.
    pub dishonest: u64,
    /// Pieces of a worker's work that end in a crash.
    pub crash: u64,
    /// Appends that end in a crash.
    pub ingest_crash: u64,
    /// Pieces of work that are frozen for a while.
    pub freeze: u64,
    /// Handler starts that do not go well.
    pub handler: u64,
    /// Visits of exclusive holders in each round.
    pub exclusive: u64,
    /// Visits of the operator in each round.
    pub operator: u64,
    /// Whether there is a sweep while things go wrong.
    pub sweep: bool,
    /// A function's longest run.
    pub function: Duration,
    /// Writes of rows that reach the store long after they were given up.
    pub late: u64,
    /// Claims that land and are not heard of.
    pub claims: u64,
    /// First puts of a delivery that go astray.
    pub puts: u64,
    /// After how long a deleted message comes again, at most.
    pub again: Duration,
    /// How many milliseconds a worker that is to crash or freeze goes on
    /// before, at most; one of these.
    pub lives: [u64; 4],
    /// What cannot be reached for long.
    pub outages: Vec<Outage>,
    /// Visits of the operator that come two at a time, and may erase.
    pub erases: u64,
    /// Between rounds, hours instead of weeks: nothing is purged.
    pub hours: u64,
    /// What the sources deliver at once.
    pub deliver: Deliver,
    /// Whether they leave out what is older than what was applied.
    pub skips: bool,
    /// Visits of the operator in which what was applied is run again.
    pub rewinds: u64,
    /// Whether what the store does not take is deferred.
    pub defers: bool,
    /// The tables are lost in the first round, and come back from a copy.
    pub loss: Option<Loss>,
    /// What handlers need is out of reach for a while.
    pub unwell: Option<Unwell>,
    /// Deliveries without an id of their sender's.
    pub unnamed: u64,
}

/// So many more orders than else: it takes three that fail in a row for a breaker to open.
const BREAKS: u64 = 3;

/// Of a thousand runs whose clocks are kept right, so many lose their tables.
const LOSSES: u64 = 150;

impl Profile {
    /// Without any misfortune.
    pub fn calm() -> Self {
        Self {
            entities: 1,
            deliveries: 10,
            workers: 2,
            lasts: Duration::from_secs(20),
            rounds: 1,
            skew: Skew::None,
            table: 0,
            queue: 0,
            copies: 0,
            dishonest: 0,
            crash: 0,
            ingest_crash: 0,
            freeze: 0,
            handler: 0,
            exclusive: 0,
            operator: 0,
            sweep: false,
            function: Duration::from_secs(30),
            late: 0,
            claims: 0,
            puts: 0,
            again: Duration::from_secs(20),
            lives: [30, 200, 1000, 5000],
            outages: Vec::new(),
            erases: 0,
            hours: 0,
            deliver: Deliver::Each,
            skips: false,
            rewinds: 0,
            defers: false,
            loss: None,
            unwell: None,
            unnamed: 0,
        }
    }

    /// Fifty orders, each of which begins while inbox queries fail for nine
    /// minutes.
    pub fn queries_fail() -> Self {
        let nine_minutes = Duration::from_secs(540);
        let outage = Outage {
            service: Service::Queries,
            how: How::Throttled,
            permille: 1000,
            from: Duration::ZERO,
            lasts: nine_minutes,
            number: 1,
        };
        Self { entities: 50, deliveries: 100, workers: 4, outages: vec![outage], ..Self::calm() }
    }

    /// A store that takes and gives nothing for an hour, while deliveries come that
    /// nobody sends again; queue and workers have misfortunes of their own.
    pub fn store_is_out(how: How) -> Self {
        let of = |(service, number)| Outage {
            service,
            how,
            permille: 1000,
            from: Duration::from_secs(5),
            lasts: Duration::from_secs(3600),
            number,
        };
        let services = [Service::EntityWrites, Service::InboxWrites, Service::Queries, Service::BatchReads];
        Self {
            entities: 3,
            deliveries: 60,
            workers: 3,
            lasts: Duration::from_secs(3700),
            outages: services.into_iter().zip(1..).map(of).collect(),
            queue: 30,
            copies: 100,
            crash: 100,
            freeze: 50,
            defers: true,
            ..Self::calm()
        }
    }

    /// That of a run with what the counterexample to `mutation` needs, and little
    /// else: several misfortunes that must meet.
    pub fn focused(seed: u64, mutation: Rule) -> Self {
        let focused = Self {
            outages: Vec::new(),
            erases: 0,
            hours: 0,
            deliver: Deliver::Each,
            skips: false,
            rewinds: 0,
            defers: false,
            loss: None,
            unwell: None,
            unnamed: 0,
            ..Self::drawn(seed)
        };
        if is_of_a_restore(mutation) {
            let loss = Loss::drawn(seed, 1000, Skew::None);
            return Self { deliveries: 32, skew: Skew::None, rounds: 1, loss, ..focused };
        }
        focused.focused_on(mutation)
    }

    fn focused_on(self, mutation: Rule) -> Self {
        // Wake-ups that come again after they were deleted, as if for the first time, into the hands
        // of workers that crash.
        let copied = Self {
            entities: 2,
            deliveries: 32,
            rounds: 1,
            copies: 500,
            dishonest: 1000,
            crash: 400,
            ingest_crash: 0,
            freeze: 0,
            exclusive: 0,
            operator: 0,
            lasts: Duration::from_secs(100),
            late: 0,
            ..self.clone()
        };
        match mutation {
            Rule::ReceivedAgainAcquiresAtOnce => Self { dishonest: 0, ingest_crash: 400, ..copied },
            // A copy comes between a claim and its retry.
            Rule::RetryClaimWithoutDoubt => Self {
                table: 0,
                queue: 0,
                handler: 0,
                skew: Skew::None,
                function: Duration::from_secs(8),
                claims: 400,
                copies: 1000,
                again: Duration::from_secs(4),
                lives: [300, 1000, 1000, 2000],
                ..copied
            },
            // A copy comes to a place that its ingest is slow to fill, and another delivery behind it.
            Rule::ForgetOwedAfterVoid => Self {
                table: 0,
                queue: 0,
                handler: 0,
                skew: Skew::SlowIngests,
                function: Duration::from_secs(14),
                deliveries: 60,
                puts: 600,
                copies: 1000,
                again: Duration::from_secs(6),
                lives: [3000, 4000, 5000, 6000],
                ..copied
            },
            // Without a crash, and without freezes that end in one, no lie about a copy is an excuse.
            Rule::FailKeepsItsMessage => Self {
                entities: 4,
                deliveries: 16,
                copies: 800,
                again: Duration::from_secs(10),
                ingest_crash: 500,
                crash: 0,
                handler: 400,
                function: Duration::from_secs(30),
                ..copied
            },
            Rule::ReleaseRecognisedWithoutToken => Self {
                entities: 1,
                deliveries: 20,
                exclusive: 20,
                operator: 0,
                freeze: 500,
                crash: 0,
                handler: 0,
                copies: 0,
                lasts: Duration::from_secs(150),
                function: Duration::from_secs(30),
                sweep: false,
                ..self
            },
            Rule::DeferredOnce => {
                let short = |outage| Outage { lasts: Duration::from_secs(60), ..outage };
                let out = Self::store_is_out(How::Throttled);
                let outages = out.outages.iter().copied().map(short).collect();
                Self { outages, lasts: Duration::from_secs(80), ..out }
            }
            Rule::DeferredSupersedes => {
                let short = |outage| Outage { lasts: Duration::from_secs(60), ..outage };
                let out = Self::store_is_out(How::Throttled);
                let outages = out.outages.iter().copied().map(short).collect();
                Self { outages, lasts: Duration::from_secs(80), entities: 2, deliver: Deliver::Latest, ..out }
            }
            Rule::RepeatsWithinAPeriod => Self {
                deliveries: 32,
                skew: Skew::None,
                lasts: Duration::from_secs(150),
                table: 200,
                ingest_crash: 400,
                unnamed: 1000,
                ..self
            },
            Rule::RepeatsItself => Self { operator: 6, rewinds: 1000, ..self },
            Rule::VoidUnconditionally => Self {
                entities: 1,
                deliveries: 32,
                freeze: 800,
                crash: 0,
                ingest_crash: 0,
                handler: 0,
                exclusive: 0,
                skew: Skew::Rates,
                lasts: Duration::from_secs(100),
                ..self
            },
            Rule::ChargeWithoutAStart => {
                let outages = Self::queries_fail().outages;
                Self { deliveries: 12, crash: 200, rounds: 1, outages, ..self }
            }
            // Several orders of one source in one process, which lives for a while.
            Rule::HeldBackIsCharged | Rule::BreakerForgets | Rule::NotNowIsCharged => Self {
                entities: 5,
                deliveries: 32,
                workers: 2,
                lasts: Duration::from_secs(40),
                crash: 0,
                freeze: 0,
                unwell: Some(Unwell {
                    source: None,
                    reaction: if mutation == Rule::NotNowIsCharged { Reaction::NotNow } else { Reaction::Unavailable },
                    from: Duration::from_secs(5),
                    lasts: Duration::from_secs(60),
                }),
                ..self
            },
            // An erase that takes a while, of an entity that comes to life again meanwhile.
            Rule::EraseTakesAll => Self {
                outages: vec![Outage {
                    service: Service::Queries,
                    how: How::Throttled,
                    permille: 700,
                    from: Duration::ZERO,
                    lasts: Duration::from_secs(3),
                    number: 1,
                }],
                entities: 1,
                deliveries: 40,
                rounds: 2,
                lasts: Duration::from_secs(6),
                table: 30,
                handler: 150,
                erases: 1000,
                hours: 1,
                ..Self::calm()
            },
            // Weeks between one delivery and a gap behind it, in a row that is not purged meanwhile.
            Rule::PendingOutlivesTheDrain => Self { entities: 3, rounds: 2, ingest_crash: 800, ..Self::calm() },
            _ => self,
        }
    }

    /// That of a run.
    pub fn of(seed: u64) -> Self {
        let drawn = Self::drawn(seed);
        let Some(unwell) = drawn.unwell else { return drawn };
        // Some come when all is well again; several of a group come in a quarter of the time.
        let lasts = unwell.until() + Duration::from_secs(20);
        let lasts = drawn.lasts.max(if drawn.deliver.is_grouped() { lasts * 4 } else { lasts });
        Self { entities: drawn.entities + BREAKS, lasts, ..drawn }
    }

    fn drawn(seed: u64) -> Self {
        let outages = outage::drawn(seed);
        let mut roll = Dice::new(seed, actor::PROFILE).roll();
        let mut of = |these: &[u64]| roll.one_of(these);
        let mut drawn = Self {
            entities: of(&[1, 1, 2, 3]),
            deliveries: of(&[6, 12, 20, 32]),
            workers: of(&[2, 3, 4]),
            lasts: Duration::from_secs(of(&[5, 20, 60, 150])),
            rounds: of(&[1, 1, 1, 1, 1, 2]),
            skew: [Skew::None, Skew::Seconds, Skew::Rates, Skew::Minutes, Skew::Days]
                [of(&[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4]) as usize],
            table: of(&[0, 10, 30, 80, 200]),
            queue: of(&[0, 10, 50, 200]),
            copies: of(&[0, 50, 300]),
            dishonest: of(&[0, 0, 500]),
            crash: of(&[0, 50, 200, 400]),
            ingest_crash: of(&[0, 0, 50, 200]),
            freeze: of(&[0, 50, 200]),
            handler: of(&[0, 100, 300]),
            exclusive: of(&[0, 0, 2, 6]),
            operator: of(&[0, 2, 5]),
            sweep: of(&[0, 0, 1]) == 1,
            function: Duration::from_secs(of(&[8, 14, 30])),
            late: of(&[0, 0, 20, 100]),
            claims: 0,
            puts: 0,
            again: Duration::from_secs(20),
            lives: [30, 200, 1000, 5000],
            erases: of(&[0, 0, 400]),
            hours: of(&[0, 0, 1, 3]),
            outages,
            deliver: deliver(seed),
            skips: Dice::new(seed, actor::PROFILE).at(4).happens(250),
            rewinds: if Dice::new(seed, actor::PROFILE).at(5).happens(500) { 600 } else { 0 },
            defers: Dice::new(seed, actor::PROFILE).at(6).happens(300),
            loss: None,
            unwell: Unwell::drawn(seed),
            unnamed: 0,
        };
        if drawn.outages.is_empty() {
            drawn.loss = Loss::drawn(seed, LOSSES, drawn.skew);
        }
        // What is sent again after a loss comes later than its sender retries, and so does it by a clock that is far off.
        if drawn.loss.is_none() && drawn.may_erase() {
            drawn.unnamed = 250;
        }
        Self { hours: if drawn.erases > 0 { drawn.hours } else { 0 }, ..drawn }
    }

    /// Whether any two clocks are so close that a row which is made anew
    /// begins above the numbers of the one that was erased.
    pub fn may_erase(&self) -> bool {
        matches!(self.skew, Skew::None | Skew::Seconds)
    }
}

fn deliver(seed: u64) -> Deliver {
    let mut roll = Dice::new(seed, actor::PROFILE).at(3);
    match roll.between(0, 7) {
        0..=3 => Deliver::Each,
        4..=5 => Deliver::UpTo(roll.one_of(&[2, 3, 8, 25]) as u8),
        _ => Deliver::Latest,
    }
}
