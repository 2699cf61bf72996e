//! Recognises an event that is older than one that was applied.

use std::collections::BTreeMap;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::time::Timestamp;

/// The newest applied event time of each topic family, for up to [`EventTimes::FAMILIES`] families.
///
/// If there are more families, the one with the oldest time is dropped. A family is identified by
/// 22 bits of its name's hash. If the hashes of two families collide, an event can only look older
/// than it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EventTimes(BTreeMap<u32, Timestamp>);

impl EventTimes {
    pub const FAMILIES: usize = 5;

    const ENTRY_BYTES: usize = 8;

    /// The number of bits of a stored time in milliseconds, enough until the year 2109.
    const TIME_BITS: u32 = 42;

    const TAG_BITS: u32 = 64 - Self::TIME_BITS;

    fn tag(family: &str) -> u32 {
        let digest = Sha256::digest(family);
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]) >> (32 - Self::TAG_BITS)
    }

    pub fn of(&self, family: &str) -> Option<Timestamp> {
        self.0.get(&Self::tag(family)).copied()
    }

    /// Returns whether an event at `time` may be older than an applied event of a topic family that
    /// was dropped. The newest time of a dropped family is at most the oldest time that is kept.
    pub fn may_have_dropped_since(&self, time: Timestamp) -> bool {
        self.0.len() >= Self::FAMILIES && self.0.values().min().is_some_and(|oldest| time <= *oldest)
    }

    #[must_use]
    pub fn applied(&self, family: &str, time: Timestamp) -> Self {
        let mut times = self.0.clone();
        let time = time.min(Timestamp::from_millis((1 << Self::TIME_BITS) - 1));
        let newest = times.entry(Self::tag(family)).or_insert(time);
        *newest = time.max(*newest);
        while times.len() > Self::FAMILIES {
            let oldest = times.iter().min_by_key(|(_, time)| **time).map(|(tag, _)| *tag);
            times.retain(|tag, _| Some(*tag) != oldest);
        }
        Self(times)
    }

    pub fn to_stored(&self) -> Option<Bytes> {
        let entry =
            |(tag, time): (&u32, &Timestamp)| (u64::from(*tag) << Self::TIME_BITS | time.as_millis()).to_be_bytes();
        let stored: Bytes = self.0.iter().flat_map(entry).collect();
        (!stored.is_empty()).then_some(stored)
    }

    pub(super) fn from_stored(bytes: &Bytes) -> Option<Self> {
        let entry = |bytes: &[u8]| {
            let entry = u64::from_be_bytes(bytes.try_into().ok()?);
            let time = entry & ((1 << Self::TIME_BITS) - 1);
            Some(((entry >> Self::TIME_BITS) as u32, Timestamp::from_millis(time)))
        };
        bytes.chunks(Self::ENTRY_BYTES).map(entry).collect::<Option<_>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: a handler learns that an event is older than one applied.
    #[test]
    fn event_times_keep_the_newest_of_each_topic_family() {
        let [early, late] = [Timestamp::from_millis(1), Timestamp::from_millis(2)];
        let times = EventTimes::default().applied("orders", late).applied("orders", early);
        assert_eq!(times.of("orders"), Some(late));
        assert_eq!(times.of("refunds"), None);
        assert_eq!(EventTimes::from_stored(&times.to_stored().unwrap()), Some(times));
    }

    #[test]
    fn sixth_topic_family_drops_the_oldest_event_time() {
        let at = Timestamp::from_millis;
        let families = ["a", "b", "c", "d", "e"];
        let five = (1..).zip(families).fold(EventTimes::default(), |all, (time, family)| all.applied(family, at(time)));
        let of = |times: &EventTimes| families.map(|family| times.of(family).map(Timestamp::as_millis));
        assert_eq!(of(&five), [1, 2, 3, 4, 5].map(Some));
        let six = five.applied("f", at(6));
        assert_eq!((of(&six), six.of("f")), ([None, Some(2), Some(3), Some(4), Some(5)], Some(at(6))));
    }

    #[test]
    fn huge_event_time_is_stored_as_the_maximum() {
        let times = EventTimes::default().applied("orders", Timestamp::from_millis(u64::MAX));
        assert_eq!(EventTimes::from_stored(&times.to_stored().unwrap()), Some(times.clone()));
        let now = Timestamp::from_millis(1_799_999_999_999);
        assert!(times.of("orders") > Some(now), "still later than today");
    }
}
