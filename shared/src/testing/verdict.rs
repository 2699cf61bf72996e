//! The findings about a handler, as text.

use std::fmt;

/// A mistake of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The handler panicked.
    Panics {
        /// The delivery's topic.
        at: String,
    },
    /// The handler blocked its thread for too long between two awaits.
    Blocks {
        /// The delivery's topic.
        at: String,
    },
    /// A delivery used up its attempts, or was retried without end.
    NotApplied {
        /// The delivery's topic.
        at: String,
        /// The handler's last error.
        error: String,
    },
    /// After a repeated start, an effect happened twice or differs otherwise.
    AppliedTwice {
        /// The topic of the delivery that was started again.
        at: String,
        /// The effects that differ.
        differs: String,
    },
    /// A replaced worker's effect was accepted.
    NotFenced {
        /// The topic of the delivery in which it froze.
        at: String,
        /// The effects that differ.
        differs: String,
    },
    /// The result depends on the order of arrival.
    DependsOnOrder {
        /// The topics in the order of arrival.
        arrived: Vec<String>,
        /// The effects that differ.
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
            Self::NotApplied { at, error } => write!(f, "the handler never finishes {at}: {error}"),
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

/// The findings of all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// The findings; empty if the handler is right.
    pub findings: Vec<Finding>,
    /// The seed that repeats the runs.
    pub seed: u64,
}

impl Verdict {
    /// Returns whether nothing was found.
    pub fn is_right(&self) -> bool {
        self.findings.is_empty()
    }

    /// Asserts that nothing was found.
    ///
    /// # Panics
    ///
    /// Something was found; the message describes it.
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
