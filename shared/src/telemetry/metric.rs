//! The metrics that the functions count, and their dimensions.

/// The default metrics namespace. Each deployment in an account should have its own.
pub const NAMESPACE: &str = "WebhookSerializer";

/// The dimensions under which a metric is counted. CloudWatch bills 30 cents a month for each
/// combination of metric and dimensions. The first ten of an account are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Counted once overall, for an alarm.
    Overall,
    /// Counted for each source, for an alarm on each source.
    BySource,
    /// Counted overall, and by source and outcome, but only with detailed metrics. Otherwise
    /// the value is only a field of the log line, for people.
    Detailed,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident: $scope:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            pub const ALL: &'static [Metric] = &[$(Metric::$name,)*];

            /// Returns the metric's name in CloudWatch. The name ends in the unit, except for
            /// counts. A separate field for the unit would be a tenth of each line.
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
    /// counts as zero. So a maximum of zero means that all requests of the source were
    /// refused.
    Accepted: BySource,
    /// Deliveries that were deferred to the queue. The metric exists only while the store is
    /// down, so it costs nothing otherwise.
    Deferred: Overall,
    /// Requests that were refused.
    Refused: Overall,
    /// The number of times that a source's consecutive refusals reached half of the number at
    /// which its provider disables the endpoint.
    RefusedInARow: Overall,
    /// Deliveries that were applied.
    Delivered: Detailed,
    /// Deliveries that were recognised as repeats.
    Repeated: Detailed,
    /// Deliveries that were parked.
    Parked: Overall,
    /// Deliveries whose topic their source ignores.
    Ignored: Detailed,
    /// Orders that were blocked.
    Blocked: Overall,
    /// Failed attempts that will be retried.
    Retries: Detailed,
    /// The number of times that a source's breaker opened.
    BreakersOpened: Detailed,
    /// The time during which a source's destination was unavailable. It is zero in the event
    /// at the beginning, and the whole time in the event at the end.
    UnavailableSeconds: Detailed,
    /// Deliveries whose event is older than an event that was applied before.
    Inversions: Overall,
    /// The time from a delivery's arrival to its handler's first start.
    LagMs: Detailed,
    /// The run time of a handler.
    HandlerMs: Detailed,
    /// The time from settling one delivery to starting the handler of the order's next one.
    HandoverMs: Detailed,
    /// The time spent waiting for a lease that another holder has.
    WaitMs: Detailed,
    /// The number of times that a lease was read while waiting for it.
    Polls: Detailed,
    /// The time during which an exclusive lease was held.
    HoldMs: Detailed,
    /// Releases of an exclusive lease whose reply was lost.
    InDoubt: Detailed,
    /// Leases that their holder lost.
    Lost: Detailed,
    /// Expired leases that were taken over.
    TakenOver: Detailed,
    /// Wake-ups that could not be sent.
    FailedWakeUps: Overall,
    /// Threads that abandoned handlers still blocked at the end of a batch.
    LostThreads: Detailed,
    /// Ticks of jobs that failed, or that crashed for the last time.
    JobsFailed: Overall,
    /// The number of times that the sources document was invalid or could not be read.
    SourcesNotRead: Overall,
    /// The age of the oldest waiting delivery that a sweep saw.
    OldestWaitingSeconds: Overall,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Dimensions<'a> {
    pub(super) source: &'a str,
    pub(super) outcome: &'static str,
}
