//! The mistakes of a handler that a scenario found, as text.

use std::fmt;

/// A mistake of the handler under test.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The handler panicked.
    Panics {
        /// The number of the delivery, counted from 0, and its topic.
        at: String,
    },
    /// The handler blocked its thread for too long between two awaits.
    Blocks {
        /// The number of the delivery, counted from 0, and its topic.
        at: String,
    },
    /// A delivery was not applied: the handler rejected it, used up its attempts, or never ended.
    NotApplied {
        /// The number of the delivery, counted from 0, and its topic.
        at: String,
        /// The handler's last error, or its reason for a rejection.
        error: String,
    },
    /// A repeated start of the handler changed an effect of the first start.
    AppliedTwice {
        /// The number of the delivery, counted from 0, and its topic.
        at: String,
        /// A description of the effect, with its wrong and its right value.
        differs: String,
    },
    /// An external system accepted a write from a worker that had been replaced.
    NotFenced {
        /// The number of the delivery, counted from 0, and its topic. The worker was frozen during this delivery.
        at: String,
        /// A description of the effect, with its wrong and its right value.
        differs: String,
    },
    /// The effects depend on the order in which the deliveries arrived.
    DependsOnOrder {
        /// The topics of the deliveries, in the order of arrival.
        arrived: Vec<String>,
        /// A description of the effect, with its wrong and its right value.
        differs: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panics { at } => write!(f, "the handler panics at {at}"),
            Self::Blocks { at } => write!(
                f,
                "the handler blocks its thread at {at}, so other orders and its own lease renewal wait; await, or use \
                 spawn_blocking"
            ),
            Self::NotApplied { at, error } => write!(f, "the handler never applies {at}: {error}"),
            Self::AppliedTwice { at, differs } => write!(
                f,
                "repeating {at} changes the result: {differs}. Commit the effect, or let the receiver recognise the \
                 delivery's id"
            ),
            Self::NotFenced { at, differs } => write!(
                f,
                "a worker that froze at {at} and was replaced still changes the result: {differs}. Send the fencing \
                 token along, and let the receiver refuse older ones"
            ),
            Self::DependsOnOrder { arrived, differs } => write!(
                f,
                "the result depends on the order of arrival ({}): {differs}. Check `Delivery::age`, or compare event \
                 times",
                arrived.join(", ")
            ),
        }
    }
}

/// The mistakes that all runs of a scenario found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// Empty if the handler made no mistake.
    pub findings: Vec<Finding>,
    /// The seed of the random choices. The same seed repeats the runs.
    pub seed: u64,
}

impl Verdict {
    /// Returns whether the handler made no mistake.
    pub fn is_right(&self) -> bool {
        self.findings.is_empty()
    }

    /// Panics if the handler made a mistake.
    ///
    /// # Panics
    ///
    /// There are findings. The message describes them.
    #[track_caller]
    pub fn assert_right(&self) {
        assert!(self.is_right(), "{self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_right() {
            return write!(f, "nothing was found");
        }
        writeln!(f, "with seed {}:", self.seed)?;
        self.findings.iter().try_for_each(|finding| writeln!(f, "- {finding}"))
    }
}
