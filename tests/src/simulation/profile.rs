//! The faults of a run and their rates.

use std::time::Duration;

use webhook_serializer::{protocol::receipt::PAGES, sources::deliver::Deliver};

use crate::rules::ViolatedRule;

use super::{
    destination::{DestinationOutage, Reaction},
    loss::TableLoss,
    mutation::is_of_a_restore,
    outage::{self, FailureMode, ServiceOutage, SimulatedService},
    random::{RandomStream, actor},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skew {
    None,
    Seconds,
    /// Clocks differ by seconds, and run up to twice too fast or too slow.
    Rates,
    /// Clocks differ by up to 15 minutes and, if the store's replies have no date, run at any of these rates.
    Minutes,
    /// Clocks differ by up to a day and, if the store's replies have no date, run at any of these rates.
    Days,
    /// Ingest's clocks run at half the rate, workers' at twice the rate.
    SlowIngests,
}

/// The faults of a run. Rates are in thousandths.
#[derive(Debug, Clone)]
pub struct Profile {
    pub entities: u64,
    pub deliveries: u64,
    pub workers: u64,
    pub lasts: Duration,
    pub rounds: u64,
    pub skew: Skew,
    /// The store's replies have a `Date`. Without it, processes trust their own clocks.
    pub dated: bool,
    pub table: u64,
    pub queue: u64,
    pub copies: u64,
    /// Duplicates of messages with a receive count of 1.
    pub dishonest: u64,
    pub crash: u64,
    pub ingest_crash: u64,
    pub freeze: u64,
    pub handler: u64,
    pub exclusive: u64,
    pub operator: u64,
    pub sweep: bool,
    pub function: Duration,
    /// Writes that land long after their caller gave up.
    pub late: u64,
    /// Claims that land without a reply.
    pub claims: u64,
    /// First puts of a delivery that are lost.
    pub puts: u64,
    /// The longest time until a deleted message reappears.
    pub again: Duration,
    /// The longest times, in milliseconds, until a planned crash or freeze. Each plan chooses one of them.
    pub lives: [u64; 4],
    pub outages: Vec<ServiceOutage>,
    pub erases: u64,
    /// The hours between two rounds, during which nothing is purged. If this is 0, weeks lie between two
    /// rounds, with purges.
    pub hours: u64,
    pub deliver: Deliver,
    pub skips: bool,
    pub rewinds: u64,
    pub defers: bool,
    pub loss: Option<TableLoss>,
    pub destination_outage: Option<DestinationOutage>,
    pub unnamed: u64,
    /// Handlers run in other processes, so they start before the first visibility request is answered.
    pub elsewhere: bool,
    /// Some deliveries belong to a source with the handler `fan-out` and two subscribers.
    pub fan_out: bool,
    /// The most pages of receipts that an order gets. Further receipts get separate rows.
    pub receipt_pages: usize,
}

/// The number of orders that are added to a run with an unavailable destination, because a breaker opens only
/// after three failures in a row.
const BREAKS: u64 = 3;

/// How many of a thousand runs lose their tables, among the runs without partial outages whose clocks differ
/// by seconds at most.
const LOSSES: u64 = 150;

impl Profile {
    pub fn calm() -> Self {
        Self {
            entities: 1,
            deliveries: 10,
            workers: 2,
            lasts: Duration::from_secs(20),
            rounds: 1,
            skew: Skew::None,
            dated: true,
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
            destination_outage: None,
            unnamed: 0,
            elsewhere: false,
            fan_out: false,
            receipt_pages: PAGES,
        }
    }

    pub fn query_outage() -> Self {
        let nine_minutes = Duration::from_secs(540);
        let service = SimulatedService::Queries;
        let how = FailureMode::Throttled;
        let from = Duration::ZERO;
        let outage = ServiceOutage { service, how, permille: 1000, from, lasts: nine_minutes, number: 1 };
        Self { entities: 50, deliveries: 100, workers: 4, outages: vec![outage], ..Self::calm() }
    }

    pub fn store_outage(how: FailureMode) -> Self {
        let of = |(service, number)| ServiceOutage {
            service,
            how,
            permille: 1000,
            from: Duration::from_secs(5),
            lasts: Duration::from_secs(3600),
            number,
        };
        let services = [
            SimulatedService::EntityWrites,
            SimulatedService::InboxWrites,
            SimulatedService::Queries,
            SimulatedService::BatchReads,
        ];
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

    /// Draws the faults that the counterexample to `mutation` needs, and few others.
    pub fn focused(seed: u64, mutation: ViolatedRule) -> Self {
        let focused = Self {
            outages: Vec::new(),
            erases: 0,
            hours: 0,
            deliver: Deliver::Each,
            skips: false,
            rewinds: 0,
            defers: false,
            loss: None,
            destination_outage: None,
            unnamed: 0,
            elsewhere: false,
            fan_out: false,
            dated: false,
            ..Self::drawn(seed)
        };
        if is_of_a_restore(mutation) {
            let loss = TableLoss::drawn(seed, 1000, Skew::None);
            return Self { deliveries: 32, skew: Skew::None, rounds: 1, loss, ..focused };
        }
        focused.focused_on(mutation)
    }

    fn focused_on(self, mutation: ViolatedRule) -> Self {
        match mutation {
            ViolatedRule::RedeliveryAcquiresAtOnce
            | ViolatedRule::RetryClaimWithoutDoubt
            | ViolatedRule::ForgetOwedAfterVoid
            | ViolatedRule::FailKeepsItsMessage => self.copied(mutation),
            ViolatedRule::ReleaseRecognisedWithoutToken => Self {
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
            ViolatedRule::DeferredOnce => Self::short_store_outage(),
            ViolatedRule::DeferredSupersedes => {
                Self { entities: 2, deliver: Deliver::Latest, ..Self::short_store_outage() }
            }
            ViolatedRule::RepeatsWithinAPeriod => Self {
                deliveries: 32,
                skew: Skew::None,
                lasts: Duration::from_secs(150),
                table: 200,
                ingest_crash: 400,
                unnamed: 1000,
                ..self
            },
            ViolatedRule::OwnClockDecides => Self { deliveries: 32, skew: Skew::Minutes, dated: true, ..self },
            ViolatedRule::MissingCopyIsIgnored => Self { deliveries: 32, table: 200, fan_out: true, ..self },
            ViolatedRule::RepeatsItself => Self { operator: 6, rewinds: 1000, ..self },
            ViolatedRule::VoidUnconditionally => Self {
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
            ViolatedRule::CountAttemptWithoutStart => {
                let outages = Self::query_outage().outages;
                Self { deliveries: 12, crash: 200, rounds: 1, outages, ..self }
            }
            ViolatedRule::BreakerWaitCountsAttempt
            | ViolatedRule::BreakerForgets
            | ViolatedRule::RefusalBlocks
            | ViolatedRule::ProbeUnclaimed
            | ViolatedRule::OutageOutlivesSuccess
            | ViolatedRule::OutageUnread => self.unavailable(Reaction::Unavailable),
            ViolatedRule::PostponedStartCountsAttempt => self.unavailable(Reaction::NotNow),
            ViolatedRule::EraseRemovesNewer => Self::slow_erase(),
            // Weeks pass between a delivery and a gap behind it, and the row is not purged in that time.
            ViolatedRule::PendingOutlivesTheDrain => Self { entities: 3, rounds: 2, ingest_crash: 800, ..Self::calm() },
            _ => self,
        }
    }

    /// Makes deleted wake-ups reappear with a receive count of 1, and workers crash while they handle these.
    fn copied(self, mutation: ViolatedRule) -> Self {
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
            ..self
        };
        match mutation {
            ViolatedRule::RedeliveryAcquiresAtOnce => Self { dishonest: 0, ingest_crash: 400, ..copied },
            // A duplicate of a wake-up arrives between a claim and its retry.
            ViolatedRule::RetryClaimWithoutDoubt => Self {
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
            // A duplicate of a wake-up arrives while ingest still has to fill its sequence.
            ViolatedRule::ForgetOwedAfterVoid => Self {
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
            // The auditor excuses a wrong receive count only if a worker has crashed.
            ViolatedRule::FailKeepsItsMessage => Self {
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
            other => unreachable!("{other:?}"),
        }
    }

    /// Makes a source unavailable. A breaker needs several orders of one source in one long-lived process.
    fn unavailable(self, reaction: Reaction) -> Self {
        let from = Duration::from_secs(5);
        let lasts = Duration::from_secs(60);
        Self {
            entities: 5,
            deliveries: 32,
            workers: 2,
            lasts: Duration::from_secs(40),
            crash: 0,
            freeze: 0,
            destination_outage: Some(DestinationOutage { source: None, reaction, from, lasts }),
            ..self
        }
    }

    /// Makes an erase take seconds, while its order gets new deliveries.
    fn slow_erase() -> Self {
        let from = Duration::ZERO;
        let lasts = Duration::from_secs(3);
        let how = FailureMode::Throttled;
        Self {
            outages: vec![ServiceOutage {
                service: SimulatedService::Queries,
                how,
                permille: 700,
                from,
                lasts,
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
        }
    }

    fn short_store_outage() -> Self {
        let out = Self::store_outage(FailureMode::Throttled);
        let short = |outage| ServiceOutage { lasts: Duration::from_secs(60), ..outage };
        let outages = out.outages.iter().copied().map(short).collect();
        Self { outages, lasts: Duration::from_secs(80), ..out }
    }

    pub fn of(seed: u64) -> Self {
        let drawn = Self::drawn(seed);
        let Some(destination_outage) = drawn.destination_outage else { return drawn };
        // Some deliveries must arrive after the outage. A grouped source sends all of its own in a quarter of
        // the time.
        let lasts = destination_outage.until() + Duration::from_secs(20);
        let lasts = drawn.lasts.max(if drawn.deliver.is_grouped() { lasts * 4 } else { lasts });
        Self { entities: drawn.entities + BREAKS, lasts, ..drawn }
    }

    fn drawn(seed: u64) -> Self {
        let outages = outage::drawn(seed);
        let mut draw = RandomStream::new(seed, actor::PROFILE).draw();
        let mut of = |these: &[u64]| draw.one_of(these);
        let mut drawn = Self {
            entities: of(&[1, 1, 2, 3]),
            deliveries: of(&[6, 12, 20, 32]),
            workers: of(&[2, 3, 4]),
            lasts: Duration::from_secs(of(&[5, 20, 60, 150])),
            rounds: of(&[1, 1, 1, 1, 1, 2]),
            skew: [Skew::None, Skew::Seconds, Skew::Rates, Skew::Minutes, Skew::Days]
                [of(&[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4]) as usize],
            dated: RandomStream::new(seed, actor::PROFILE).at(7).happens(700),
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
            skips: RandomStream::new(seed, actor::PROFILE).at(4).happens(250),
            rewinds: if RandomStream::new(seed, actor::PROFILE).at(5).happens(500) { 600 } else { 0 },
            defers: RandomStream::new(seed, actor::PROFILE).at(6).happens(300),
            loss: None,
            destination_outage: DestinationOutage::drawn(seed),
            unnamed: 0,
            elsewhere: RandomStream::new(seed, actor::PROFILE).at(8).happens(400),
            fan_out: RandomStream::new(seed, actor::PROFILE).at(9).happens(250),
            receipt_pages: if RandomStream::new(seed, actor::PROFILE).at(12).happens(300) { 1 } else { PAGES },
        };
        if drawn.outages.is_empty() {
            drawn.loss = TableLoss::drawn(seed, LOSSES, drawn.skew);
        }
        // A restore does not say which copies it found.
        drawn.fan_out &= drawn.loss.is_none();
        // After a loss of the tables, or by a clock that is far off, a repeat may arrive after its sender's
        // last retry.
        if drawn.loss.is_none() && drawn.may_erase() {
            drawn.unnamed = 250;
        }
        Self { hours: if drawn.erases > 0 { drawn.hours } else { 0 }, ..drawn }
    }

    /// Returns whether a renewed lease may look expired to another node.
    pub fn takes_over_live_leases(&self) -> bool {
        match self.skew {
            Skew::None | Skew::Seconds => false,
            Skew::Minutes | Skew::Days => !self.dated,
            Skew::Rates | Skew::SlowIngests => true,
        }
    }

    /// Returns whether at most one holder works at a time: clocks run at the right rate, and the store's time decides.
    pub fn excludes_in_time(&self) -> bool {
        self.dated && !self.takes_over_live_leases()
    }

    /// Returns whether clocks are so close that a recreated row starts above the erased numbers.
    pub fn may_erase(&self) -> bool {
        matches!(self.skew, Skew::None | Skew::Seconds)
    }
}

fn deliver(seed: u64) -> Deliver {
    let mut draw = RandomStream::new(seed, actor::PROFILE).at(3);
    match draw.between(0, 7) {
        0..=3 => Deliver::Each,
        4..=5 => Deliver::UpTo(draw.one_of(&[2, 3, 8, 25]) as u8),
        _ => Deliver::Latest,
    }
}
