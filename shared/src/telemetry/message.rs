//! The texts of log lines that programs look for.

/// Defines an enum and the text of each variant.
macro_rules! texts {
    ($(#[$enum_doc:meta])* $enum:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$enum_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $enum { $($(#[$doc])* $name,)* }

        impl $enum {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Returns the text in the log.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

texts! {
    /// The message of a log line that a program looks for: `serializer local` and `listen`, the dashboard, or the
    /// command of a runbook. A refusal's line has the text of its [`IngestRefusal`] as its message.
    LogMessage {
        Accepted = "accepted",
        AttemptFailed = "attempt failed",
        Blocked = "blocked",
        BreakerClosed = "breaker closed",
        BreakerOpened = "breaker opened",
        Deferred = "deferred",
        DeferredAppended = "deferred delivery appended",
        DestinationAvailable = "destination available",
        DestinationSilent = "destination does not answer",
        DestinationUnavailable = "destination unavailable",
        Ignored = "ignored",
        Inversion = "event older than one applied",
        JobCrashed = "job crashed",
        JobFailed = "job failed",
        LeaseDropped = "lease dropped without release; it will expire",
        LeaseEnded = "lease ended",
        LeaseGranted = "lease granted",
        LeaseInDoubt = "lease release unanswered",
        LeaseLost = "lease lost",
        LeaseTakenOver = "lease taken over",
        Measured = "measured",
        Requeued = "requeued",
        Settled = "settled",
        SourcesKept = "sources kept",
        Started = "started",
        Waited = "waited",
        WakeUpNotSent = "wake-up not sent",
        WakeUpOwed = "wake-up owed",
    }
}

impl LogMessage {
    /// Returns the message with this text, or `None` if no program looks for it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|message| message.as_str() == text)
    }
}

impl From<LogMessage> for &'static str {
    fn from(message: LogMessage) -> Self {
        message.as_str()
    }
}

texts! {
    /// The reason why a request or a message was not stored: the message of its log line, and the value of the metrics'
    /// dimension `outcome`.
    IngestRefusal {
        /// The signature is missing, unreadable or wrong, or its time is too far from now.
        NotVerified = "not verified",
        NoSecret = "no secret",
        /// The key that the sender publishes cannot be fetched or used at the moment.
        NoKey = "key unavailable",
        /// The last valid sources document refuses the webhook. A newer document may accept it, but cannot be read at
        /// the moment, or is invalid.
        SourcesUnread = "sources not read",
        UnknownSource = "no such source",
        NotPosted = "not a POST",
        Damaged = "damaged",
        TooLarge = "too large",
        Compressed = "compressed",
        /// The request lacks the secret of the proxy in front of the ingest function, so it bypassed the proxy.
        PastOrigin = "bypassed the proxy",
        /// The function was invoked with an event that it does not read, such as that of a REST API.
        WrongEvent = "wrong event",
        /// No source has the queue that a message comes from. The message stays in the queue.
        UnknownQueue = "no source for the queue",
    }
}

impl IngestRefusal {
    /// Returns whether the sender counts this refusal as a failed delivery. A refused request that is
    /// not a `POST` does not count.
    pub(super) fn is_failure(self) -> bool {
        self != Self::NotPosted
    }
}
