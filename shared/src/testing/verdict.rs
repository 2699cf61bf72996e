//! What is wrong with a handler, in words.

use std::fmt;

/// Something that a handler gets wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// It panicked.
    Panics {
        /// At which delivery, by its topic.
        at: String,
    },
    /// It kept its thread for longer than anything may that awaits nothing.
    Blocks {
        /// At which delivery.
        at: String,
    },
    /// A delivery used up its attempts, or was tried again without end.
    NotApplied {
        /// With which.
        at: String,
        /// What it said last.
        error: String,
    },
    /// An effect stands twice, or otherwise than it should, after a start was
    /// repeated.
    AppliedTwice {
        /// Which delivery was started again.
        at: String,
        /// What differs.
        differs: String,
    },
    /// An effect of a worker that had been replaced stands.
    NotFenced {
        /// In which delivery it froze.
        at: String,
        /// What differs.
        differs: String,
    },
    /// The order of arrival decides, and not what happened.
    DependsOnOrder {
        /// In which order they arrived.
        arrived: Vec<String>,
        /// What differs.
        differs: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panics { at } => write!(f, "it panics at {at}"),
            Self::Blocks { at } => write!(
                f,
                "it blocks its thread at {at}: other orders and its own lease wait; await, or use spawn_blocking"
            ),
            Self::NotApplied { at, error } => write!(f, "it is never done with {at}: {error}"),
            Self::AppliedTwice { at, differs } => write!(
                f,
                "an effect of {at} does not stand once where its start is repeated: {differs}. Commit it, or let the \
                 receiver know the delivery by its id"
            ),
            Self::NotFenced { at, differs } => write!(
                f,
                "a worker that froze in {at} and was replaced still had its effect: {differs}. Send the fencing token \
                 along, and let the receiver refuse an older one"
            ),
            Self::DependsOnOrder { arrived, differs } => write!(
                f,
                "what arrives as {} ends otherwise than as it happened: {differs}. Ask `Delivery::age`, or compare \
                 event times",
                arrived.join(", ")
            ),
        }
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// One for each that is wrong.
    pub findings: Vec<Finding>,
    /// By which the same can be had again.
    pub seed: u64,
}

impl Verdict {
    /// Whether nothing was found.
    pub fn is_right(&self) -> bool {
        self.findings.is_empty()
    }

    /// # Panics
    ///
    /// Something was found: says what.
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
