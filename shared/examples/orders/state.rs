//! Where an order stands: several things that are known of it, and the one
//! state that they come to.
//!
//! The state is a function of what is known, never a step from the state
//! before: events of one order come in any order, and whatever order they come
//! in, the same knowledge is the same state.

/// An enum whose variants are stored and shown as single words.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$about])* $variant,)+
        }

        impl $name {
            /// All of them, from the first to the last.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// As it is stored and shown.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// The one that is stored as `text`.
            pub fn from_stored(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
pub(super) use words;

words! {
    /// What an order's standing comes to, in one word. See [`State::of`].
    State {
        /// It is heard of, and nothing is paid.
        Received = "received",
        /// A payment failed or was called off, and none came through.
        PaymentFailed = "payment_failed",
        /// Less is paid than it costs.
        PartiallyPaid = "partially_paid",
        /// It is paid, and nothing has been sent.
        Paid = "paid",
        /// Some of it has been sent.
        PartiallyFulfilled = "partially_fulfilled",
        /// All of it has been sent.
        Fulfilled = "fulfilled",
        /// Some of the money went back.
        PartiallyRefunded = "partially_refunded",
        /// All of the money went back.
        Refunded = "refunded",
        /// It was called off.
        Cancelled = "cancelled",
        /// The shop threw it away.
        Deleted = "deleted",
        /// The payer disputes the payment, and that is not decided yet.
        Disputed = "disputed",
    }
}

words! {
    /// How much of an order is paid, in ascending order of how far that is.
    Payment {
        /// Nothing.
        Unpaid = "unpaid",
        /// Nothing, and a payment failed or was called off.
        Failed = "failed",
        /// Some.
        Partial = "partial",
        /// All, whatever went back since.
        Paid = "paid",
    }
}

words! {
    /// How much of it: of the goods that were sent, of the money that went
    /// back.
    Progress {
        /// Nothing.
        None = "none",
        /// Some.
        Part = "part",
        /// All.
        Full = "full",
    }
}

words! {
    /// Whether an order goes on.
    Life {
        /// It does.
        Open = "open",
        /// It was called off.
        Cancelled = "cancelled",
        /// The shop threw it away.
        Deleted = "deleted",
    }
}

words! {
    /// What is known of a dispute. A decided one stays decided.
    Dispute {
        /// It is not decided.
        Open = "open",
        /// It is decided, for whomever.
        Closed = "closed",
    }
}

/// All that an order's state depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// The dispute that matters: an open one, if there is one.
    pub dispute: Option<Dispute>,
    /// Whether it goes on.
    pub life: Life,
    /// How much of the money went back.
    pub refund: Progress,
    /// How much of the goods was sent.
    pub fulfilment: Progress,
    /// How much of it is paid.
    pub payment: Payment,
}

impl State {
    /// The state that a standing comes to: the first line that matches.
    ///
    /// | dispute | life | refund | fulfilment | payment | state |
    /// |---|---|---|---|---|---|
    /// | open | any | any | any | any | disputed |
    /// | | deleted | any | any | any | deleted |
    /// | | cancelled | any | any | any | cancelled |
    /// | | open | full | any | any | refunded |
    /// | | open | part | any | any | partially_refunded |
    /// | | open | none | full | any | fulfilled |
    /// | | open | none | part | any | partially_fulfilled |
    /// | | open | none | none | paid | paid |
    /// | | open | none | none | partial | partially_paid |
    /// | | open | none | none | failed | payment_failed |
    /// | | open | none | none | unpaid | received |
    ///
    /// What wants a person's attention first hides what does not: the order's
    /// payment and fulfilment are kept beside its state.
    pub fn of(standing: Standing) -> Self {
        let Standing { dispute, life, refund, fulfilment, payment } = standing;
        match (dispute, life, refund, fulfilment, payment) {
            (Some(Dispute::Open), _, _, _, _) => State::Disputed,
            (_, Life::Deleted, _, _, _) => State::Deleted,
            (_, Life::Cancelled, _, _, _) => State::Cancelled,
            (_, Life::Open, Progress::Full, _, _) => State::Refunded,
            (_, Life::Open, Progress::Part, _, _) => State::PartiallyRefunded,
            (_, Life::Open, Progress::None, Progress::Full, _) => State::Fulfilled,
            (_, Life::Open, Progress::None, Progress::Part, _) => State::PartiallyFulfilled,
            (_, Life::Open, Progress::None, Progress::None, Payment::Paid) => State::Paid,
            (_, Life::Open, Progress::None, Progress::None, Payment::Partial) => State::PartiallyPaid,
            (_, Life::Open, Progress::None, Progress::None, Payment::Failed) => State::PaymentFailed,
            (_, Life::Open, Progress::None, Progress::None, Payment::Unpaid) => State::Received,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_state_is_reached_and_its_word_is_read_back() {
        let disputes = [None, Some(Dispute::Open), Some(Dispute::Closed)];
        let mut reached = BTreeSet::new();
        for (dispute, life) in disputes.iter().flat_map(|dispute| Life::ALL.iter().map(move |life| (*dispute, *life))) {
            for (refund, fulfilment) in
                Progress::ALL.iter().flat_map(|refund| Progress::ALL.iter().map(move |sent| (*refund, *sent)))
            {
                for payment in Payment::ALL.iter().copied() {
                    reached.insert(State::of(Standing { dispute, life, refund, fulfilment, payment }));
                }
            }
        }
        assert_eq!(reached.into_iter().collect::<Vec<_>>(), State::ALL);
        for state in State::ALL {
            assert_eq!(State::from_stored(state.as_str()), Some(*state));
        }
        assert_eq!(State::from_stored("shipped"), None);
    }

    #[test]
    fn a_state_is_padded_like_a_word() {
        assert_eq!(format!("{:>6}|{:6}|", State::Paid, State::Paid), "  paid|paid  |");
    }
}
