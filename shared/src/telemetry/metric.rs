//! The metrics that the functions count, and their dimensions.

/// The default namespace of the metrics in CloudWatch. Each deployment in an account should have its own.
pub const NAMESPACE: &str = "WebhookSerializer";

/// The dimensions under which a metric is counted. CloudWatch bills 30 cents a month for each
/// combination of metric and dimensions. The first ten of an account are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The metric is counted in total, for an alarm. With detailed metrics, also by source and outcome.
    Overall,
    /// The metric is counted for each source, for an alarm on each source.
    BySource,
    /// The metric is counted in total, and by source and outcome, but only with detailed metrics. Without
    /// them, the value is only a field of the log line.
    Detailed,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident: $scope:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            pub const ALL: &'static [Metric] = &[$(Metric::$name,)*];

            /// Returns the metric's name in CloudWatch. The name ends in the unit, except for counts. A
            /// separate field for the unit would make each line a tenth longer.
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
    /// Verified deliveries that were answered 2xx. A refused request of a configured source counts as zero.
    /// So a maximum of zero means that all requests of the source were refused.
    Accepted: BySource,
    /// Deliveries that were deferred to the queue. The metric exists only while the store is down, so
    /// CloudWatch bills nothing for it at other times.
    Deferred: Overall,
    Refused: Overall,
    /// The number of times that the consecutive refusals of a source reached half of its provider's limit.
    /// At the limit, the provider disables the endpoint.
    RefusedInARow: Overall,
    Delivered: Detailed,
    Repeated: Detailed,
    Parked: Overall,
    /// Deliveries that were not stored, because their source ignores their topic.
    Ignored: Detailed,
    Blocked: Overall,
    Retries: Detailed,
    BreakersOpened: Detailed,
    /// The time during which a source's destination was unavailable or did not answer. Zero is reported when that time begins,
    /// and the whole time when it ends.
    UnavailableSeconds: Detailed,
    /// Deliveries whose event is earlier than an event that was already applied.
    Inversions: Overall,
    /// The time from the arrival of a delivery to the first start of its handler.
    LagMs: Detailed,
    HandlerMs: Detailed,
    /// The time from settling one delivery to starting the handler of the order's next delivery.
    HandoverMs: Detailed,
    /// The time spent waiting for a lease that another holder has.
    WaitMs: Detailed,
    /// The number of times that a lease was read during a wait for it.
    Polls: Detailed,
    /// The time from the grant of an exclusive lease to its release.
    HoldMs: Detailed,
    /// Exclusive leases whose last write failed or got no reply, so that they may have ended.
    InDoubt: Detailed,
    Lost: Detailed,
    TakenOver: Detailed,
    FailedWakeUps: Overall,
    LostThreads: Detailed,
    /// Ticks that failed, or that crashed and are not tried again.
    JobsFailed: Overall,
    SourcesNotRead: Overall,
    /// The age of the oldest delivery that a sweep saw waiting for a worker.
    OldestWaitingSeconds: Overall,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Dimensions<'a> {
    pub(super) source: &'a str,
    pub(super) outcome: &'static str,
}
