//! The attribute `waits`, with which the index [`Index::Waits`](crate::table::Index::Waits) finds the entities that are
//! blocked or have an error.
//!
//! A row has `waits` exactly if it has `last_error` or `blocked`. So every write that sets or removes one of these takes
//! its changes from here.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::{
    attempt::{FailureClass, Retries},
    entity::SourceName,
    format::{attribute as a, shortened},
    state::{BlockReason, LONGEST_LAST_ERROR, is_not_tried},
    table::Change,
};

/// The reason why an entity's first delivery is not settled yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitClass {
    Failed,
    Unanswered,
    Unavailable,
    /// A breaker refused the delivery's first start.
    NotTried,
    Blocked,
}

impl WaitClass {
    /// All classes. The index of a class in this list is its number in stored rows.
    const ALL: [Self; 5] = [Self::Failed, Self::Unanswered, Self::Unavailable, Self::NotTried, Self::Blocked];

    /// Returns the class that a row's other attributes show.
    fn of(error: Option<&str>, retries: &Retries, blocked: Option<BlockReason>) -> Self {
        match (blocked, error, retries.class) {
            (Some(_), ..) => Self::Blocked,
            (_, Some(error), _) if is_not_tried(error) => Self::NotTried,
            (.., FailureClass::Failed) => Self::Failed,
            (.., FailureClass::Unanswered) => Self::Unanswered,
            (.., FailureClass::Unavailable) => Self::Unavailable,
        }
    }
}

/// The first 56 bits of the hash of a source's name; zeros if the writer did not know the source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct SourceTag([u8; 7]);

impl SourceTag {
    pub fn of(source: &SourceName) -> Self {
        let [tag @ .., _] = *Sha256::digest(source.as_str()).first_chunk::<8>().expect("eight of thirty-two");
        Self(tag)
    }
}

impl fmt::Debug for SourceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The value of the attribute `waits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Waits {
    pub class: WaitClass,
    /// The source of the entity's first delivery.
    pub source: SourceTag,
}

impl Waits {
    pub const BYTES: usize = 8;

    pub(crate) fn of(
        error: Option<&str>,
        retries: &Retries,
        blocked: Option<BlockReason>,
        source: SourceTag,
    ) -> Option<Self> {
        let is_set = error.is_some() || blocked.is_some();
        is_set.then(|| Self { class: WaitClass::of(error, retries, blocked), source })
    }

    pub fn to_stored(self) -> Bytes {
        [self.class as u8].into_iter().chain(self.source.0).collect()
    }

    /// Returns `None` for bytes that this version cannot have written.
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        let [class, source @ ..] = *bytes.first_chunk::<{ Self::BYTES }>().filter(|_| bytes.len() == Self::BYTES)?;
        Some(Self { class: *WaitClass::ALL.get(usize::from(class))?, source: SourceTag(source) })
    }

    pub(crate) fn change(waits: Option<Self>) -> Change {
        match waits {
            Some(waits) => Change::set(a::WAITS, waits.to_stored()),
            None => Change::remove(a::WAITS),
        }
    }
}

/// Returns the changes after a start that did not settle the delivery in front. With `blocked`, the entity is blocked
/// too.
pub(crate) fn failed(error: &str, retries: &Retries, blocked: Option<BlockReason>, source: SourceTag) -> Vec<Change> {
    let error = shortened(error, LONGEST_LAST_ERROR);
    let waits = Waits::of(Some(&error), retries, blocked, source);
    let mut changes = vec![Waits::change(waits), Change::set(a::LAST_ERROR, error)];
    changes.extend(blocked.map(|reason| Change::set(a::BLOCKED, reason.as_str())));
    changes
}

/// Returns the changes that block an entity, and leave its error.
pub(crate) fn blocked(reason: BlockReason, source: SourceTag) -> [Change; 2] {
    let waits = Waits { class: WaitClass::Blocked, source };
    [Waits::change(Some(waits)), Change::set(a::BLOCKED, reason.as_str())]
}

/// Returns the changes once the delivery in front is settled, or begins anew. A drain's row has no block to end.
pub(crate) fn settled() -> [Change; 3] {
    [a::RETRIES, a::LAST_ERROR, a::WAITS].map(Change::remove)
}

/// Returns the changes that also end a block.
pub(crate) fn unblocked() -> [Change; 4] {
    [a::RETRIES, a::LAST_ERROR, a::WAITS, a::BLOCKED].map(Change::remove)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::NOT_TRIED;

    #[test]
    fn waits_round_trips_through_eight_bytes() {
        let source = SourceTag::of(&SourceName::parse("shop").unwrap());
        for source in [source, SourceTag::default()] {
            for class in WaitClass::ALL {
                let waits = Waits { class, source };
                let stored = waits.to_stored();
                assert_eq!((stored.len(), Waits::from_stored(&stored)), (8, Some(waits)));
            }
        }
        for wrong in [&[0; 7][..], &[0; 9], &[5; 8]] {
            assert_eq!(Waits::from_stored(wrong), None);
        }
    }

    #[test]
    fn class_follows_block_then_error_then_newest_failure() {
        let after = |class| Retries::default().after(class, Duration::from_secs(1));
        let of = |error, class, blocked| WaitClass::of(error, &after(class), blocked);
        let classes = [FailureClass::Failed, FailureClass::Unanswered, FailureClass::Unavailable];
        let told = classes.map(|class| of(Some("no"), class, None));
        assert_eq!(told, [WaitClass::Failed, WaitClass::Unanswered, WaitClass::Unavailable]);
        assert_eq!(of(Some(NOT_TRIED), FailureClass::Failed, None), WaitClass::NotTried);
        assert_eq!(of(None, FailureClass::Failed, Some(BlockReason::Expired)), WaitClass::Blocked);
        assert_eq!(Waits::of(None, &Retries::default(), None, SourceTag::default()), None);
    }
}
