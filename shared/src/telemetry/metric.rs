//! What is counted and measured, and what it belongs to.

/// The namespace of every metric, where `METRICS_NAMESPACE` names no other:
/// what two deployments measure in one account are two things.
pub const NAMESPACE: &str = "WebhookSerializer";

/// Where a metric is counted. Each combination of dimensions is a metric of its
/// own on the bill, 30 cents a month; the first ten of an account cost nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Over everything: what an alarm looks at.
    Overall,
    /// By the configured source: its alarm is about each by itself.
    BySource,
    /// Over everything and by source and outcome, only where detail is asked
    /// for. Without, its line holds the value for people.
    Detailed,
}

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident: $scope:ident,)*) => {
        /// What is counted and measured.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric { $($(#[$doc])* $name,)* }

        impl Metric {
            /// All of them.
            pub const ALL: &'static [Metric] = &[$(Metric::$name,)*];

            /// Its name in CloudWatch, which ends in the unit where it is no count.
            /// A unit of its own would be a tenth of each line.
            pub fn name(self) -> &'static str {
                match self { $(Metric::$name => stringify!($name),)* }
            }

            /// Where it is counted.
            pub fn scope(self) -> Scope {
                match self { $(Metric::$name => Scope::$scope,)* }
            }
        }
    };
}

metrics! {
    /// Deliveries verified, and answered 2xx. A refusal of a configured source
    /// counts as zero of them: where the greatest of a time is zero, the source is
    /// refused and accepts nothing.
    Accepted: BySource,
    /// Deliveries that the store did not take, put on the queue and answered 202.
    /// Counted while it is out, and on no bill otherwise.
    Deferred: Overall,
    /// Requests refused.
    Refused: Overall,
    /// Times that a source's refusals in a row came halfway to the number at which
    /// its provider switches it off.
    RefusedInARow: Overall,
    /// Deliveries applied.
    Delivered: Detailed,
    /// Deliveries recognised as repeats.
    Repeated: Detailed,
    /// Deliveries set aside.
    Parked: Overall,
    /// Deliveries of a topic that their source does not take.
    Ignored: Detailed,
    /// Entities stopped for an operator.
    Blocked: Overall,
    /// Attempts that failed and are to be repeated.
    Retries: Detailed,
    /// Times that a source was held back because its handler is unwell.
    BreakersOpened: Detailed,
    /// How long a source's destination was unavailable: zero when that is noticed,
    /// and the whole when it is over.
    UnavailableSeconds: Detailed,
    /// Deliveries whose event is older than one applied before.
    Inversions: Overall,
    /// From a delivery's arrival to its handler's first start.
    LagMs: Detailed,
    /// A handler's time.
    HandlerMs: Detailed,
    /// From one delivery's settling to the next one's start.
    HandoverMs: Detailed,
    /// The wait for a lease that another holds.
    WaitMs: Detailed,
    /// Looks at such a lease.
    Polls: Detailed,
    /// How long a lease was held by somebody who is no worker.
    HoldMs: Detailed,
    /// Ends of such a lease that were not answered.
    InDoubt: Detailed,
    /// Leases lost by their holder.
    Lost: Detailed,
    /// Leases taken over from a holder that vanished.
    TakenOver: Detailed,
    /// Wake-ups that could not be sent.
    FailedWakeUps: Overall,
    /// Threads that handlers still blocked when their batch was over.
    LostThreads: Detailed,
    /// Ticks of jobs that failed, or crashed and are given up.
    JobsFailed: Overall,
    /// Readings of the sources document that were of no use.
    SourcesNotRead: Overall,
    /// How long the oldest delivery of a swept segment has waited.
    OldestWaitingSeconds: Overall,
}

/// What a line's metrics belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dimensions<'a> {
    pub(super) source: &'a str,
    pub(super) outcome: &'static str,
}
