//! What is counted and measured, and what it belongs to.

/// The namespace of every metric, where `METRICS_NAMESPACE` names no other:
/// what two deployments measure in one account are two things.
pub const NAMESPACE: &str = "WebhookSerializer";

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident,)*) => {
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
        }
    };
}

metrics! {
    /// Deliveries applied.
    Delivered,
    /// Deliveries recognised as repeats.
    Repeated,
    /// Deliveries set aside.
    Parked,
    /// Deliveries of a topic that their source does not take.
    Ignored,
    /// Entities stopped for an operator.
    Blocked,
    /// Attempts that failed and are to be repeated.
    Retries,
    /// Times that a source was held back because its handler is unwell.
    BreakersOpened,
    /// Deliveries whose event is older than one applied before.
    Inversions,
    /// From a delivery's arrival to its handler's first start.
    LagMs,
    /// A handler's time.
    HandlerMs,
    /// From one delivery's settling to the next one's start.
    HandoverMs,
    /// The wait for a lease that another holds.
    WaitMs,
    /// Looks at such a lease.
    Polls,
    /// How long a lease was held by somebody who is no worker.
    HoldMs,
    /// Ends of such a lease that were not answered.
    InDoubt,
    /// Leases lost by their holder.
    Lost,
    /// Leases taken over from a holder that vanished.
    TakenOver,
    /// Wake-ups that could not be sent.
    FailedWakeUps,
    /// Threads that handlers still blocked when their batch was over.
    LostThreads,
    /// Ticks of jobs that failed, or crashed and are given up.
    JobsFailed,
    /// Readings of the sources document that were of no use.
    SourcesNotRead,
    /// How long the oldest delivery of a swept segment has waited.
    OldestWaitingSeconds,
}

/// What a line's metrics belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dimensions<'a> {
    pub(super) source: &'a str,
    pub(super) outcome: &'static str,
}
