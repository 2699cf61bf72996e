//! Metrics and their dimensions.

/// The default of `METRICS_NAMESPACE`. Each deployment in an account has its own.
pub const NAMESPACE: &str = "WebhookSerializer";

/// The dimensions of a metric. CloudWatch bills each combination as a metric, 30 cents a
/// month; the first ten of an account are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Overall, for an alarm.
    Overall,
    /// By source, for an alarm on each.
    BySource,
    /// Overall, and by source and outcome, only with detailed metrics. Otherwise the log line
    /// holds the value for people.
    Detailed,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident: $scope:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            pub const ALL: &'static [Metric] = &[$(Metric::$name,)*];

            /// Returns the name in CloudWatch. It ends in the unit, except for counts: a separate
            /// unit field would be a tenth of each line.
            pub fn name(self) -> &'static str {
                match self { $(Metric::$name => stringify!($name),)* }
            }

            pub fn scope(self) -> Scope {
                match self { $(Metric::$name => Scope::$scope,)* }
            }
        }
    };
}

metrics! {
    /// Verified deliveries that were answered 2xx. A refused request of a configured source
    /// emits a zero: if the maximum is zero, all requests of the source were refused.
    Accepted: BySource,
    /// Deliveries that were deferred to the queue. Counted only while the store is down, so it
    /// costs nothing otherwise.
    Deferred: Overall,
    /// Refused requests.
    Refused: Overall,
    /// Times that a source's consecutive refusals reached half of the number at which its
    /// provider disables it.
    RefusedInARow: Overall,
    /// Applied deliveries.
    Delivered: Detailed,
    /// Repeats.
    Repeated: Detailed,
    /// Parked deliveries.
    Parked: Overall,
    /// Deliveries of ignored topics.
    Ignored: Detailed,
    /// Orders that were blocked.
    Blocked: Overall,
    /// Failed attempts that are retried.
    Retries: Detailed,
    /// Times that a source's breaker opened.
    BreakersOpened: Detailed,
    /// The time during which a source's destination was unavailable: zero at the beginning,
    /// the whole time at the end.
    UnavailableSeconds: Detailed,
    /// Deliveries whose event is older than one applied before.
    Inversions: Overall,
    /// The time from a delivery's arrival to its handler's first start.
    LagMs: Detailed,
    /// A handler's run time.
    HandlerMs: Detailed,
    /// The time from one delivery's settle to the next one's start.
    HandoverMs: Detailed,
    /// The wait for a lease that another holder has.
    WaitMs: Detailed,
    /// Reads of such a lease while waiting.
    Polls: Detailed,
    /// The time during which an exclusive lease was held.
    HoldMs: Detailed,
    /// Releases of an exclusive lease without a reply.
    InDoubt: Detailed,
    /// Leases lost by their holder.
    Lost: Detailed,
    /// Expired leases taken over.
    TakenOver: Detailed,
    /// Wake-ups that could not be sent.
    FailedWakeUps: Overall,
    /// Threads that handlers still blocked at their batch's end.
    LostThreads: Detailed,
    /// Ticks of jobs that failed or finally crashed.
    JobsFailed: Overall,
    /// Failed or invalid reads of the sources document.
    SourcesNotRead: Overall,
    /// The age of the oldest waiting delivery in a swept segment.
    OldestWaitingSeconds: Overall,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Dimensions<'a> {
    pub(super) source: &'a str,
    pub(super) outcome: &'static str,
}
