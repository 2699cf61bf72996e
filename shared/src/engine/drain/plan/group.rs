//! Decides which deliveries one handler start covers.

use std::collections::BTreeSet;

use super::{Drain, PageItem, WaitingDelivery, is_stale};
use crate::{
    protocol::{delivery::Delivery, receipt::Settlement},
    sources::{Source, deliver::Deliver},
    time::Timestamp,
};

/// The largest total size of a group's bodies as JSON, in bytes.
///
/// JSON adds escapes, and base64 a third, so a group may have fewer bytes of bodies. A Lambda function can be invoked
/// with 6 MiB. The rest is for the deliveries' other fields.
pub(crate) const GROUP_BYTES: usize = 5 * 1024 * 1024;

/// The deliveries that one handler start covers: the delivery in front, and possibly some that
/// directly follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeliveryGroup {
    pub size: usize,
    /// Set if the handler gets only the group's last delivery, which supersedes the other
    /// deliveries.
    pub is_latest: bool,
}

impl DeliveryGroup {
    pub const ONE: Self = Self { size: 1, is_latest: false };

    pub fn is_several(self) -> bool {
        self.size > 1
    }

    pub(super) fn settlements(self, last: Settlement) -> impl Iterator<Item = Settlement> {
        let others = if self.is_latest { Settlement::Superseded } else { last };
        std::iter::repeat_n(others, self.size - 1).chain([last])
    }
}

impl Default for DeliveryGroup {
    fn default() -> Self {
        Self::ONE
    }
}

impl Drain {
    /// Returns the group that starts with the delivery `front`.
    ///
    /// The bodies are not read yet, so only their decoded sizes count here. The driver ends the group earlier if its
    /// JSON is too long.
    pub(super) fn group(&self, front: &Delivery, source: &Source) -> DeliveryGroup {
        let is_latest = source.deliver == Deliver::Latest;
        // A delivery with attempts starts by itself. With `latest`, the attempts are the whole group's.
        let is_alone =
            self.state.is_one_by_one() || self.before(front).is_some() || self.state.attempts > 0 && !is_latest;
        let most = if is_alone { 1 } else { source.deliver.most().min(self.memory.capacity) };
        let mut identities = BTreeSet::new();
        let mut times = self.state.newest_event_time.clone();
        let mut newest = None;
        let mut bytes = 0_usize;
        let fits = |item: &&PageItem| {
            let PageItem::Delivery(waiting) = item else { return false };
            let head = waiting.unpacked.head();
            bytes = bytes.saturating_add(waiting.unpacked.body_bytes());
            let is_due = head.source() == front.source()
                && (!is_latest
                    || identities.is_empty()
                    || head.family() == front.family() && may_supersede(head, newest))
                && !self.is_repeat(head)
                && self.before(head).is_none()
                && !is_stale(head, &times, source)
                && !head.repeated_hashes().any(|identity| identities.contains(&identity));
            identities.insert(head.identity_hash());
            newest = newest.max(head.event_time());
            if let Some(time) = head.event_time() {
                times = times.applied(head.family(), time);
            }
            is_due && bytes <= GROUP_BYTES
        };
        let size = self.page.items.iter().take(most).take_while(fits).count();
        // The group has at least the delivery in front, however large its body is.
        DeliveryGroup { size: size.max(1), is_latest }
    }

    /// Returns the deliveries of `group` that its handler gets, in sequence.
    pub fn members(&self, group: DeliveryGroup) -> impl Iterator<Item = &WaitingDelivery> {
        let skipped = if group.is_latest { group.size - 1 } else { 0 };
        let items = self.page.items.iter().take(group.size).skip(skipped);
        items.filter_map(|item| match item {
            PageItem::Delivery(waiting) => Some(&**waiting),
            PageItem::Tombstone(_) => None,
        })
    }

    /// Returns the number of failed attempts at `group`.
    ///
    /// If `group` is only the delivery in front, failed attempts at an earlier `latest` group do
    /// not count.
    pub fn tried(&self, group: DeliveryGroup) -> u32 {
        if self.has_attempts_of(group) { self.state.attempts } else { 0 }
    }

    /// Returns whether the row's attempts are those of `group`, not of an earlier `latest` group.
    pub(super) fn has_attempts_of(&self, group: DeliveryGroup) -> bool {
        group.is_several() || !self.state.has_attempts_of_latest()
    }

    /// Returns the attempt's number if `group` starts now, counted from 1.
    ///
    /// For a suspect, the lease holders that vanished without a recorded start count as one
    /// attempt, because one of them may have started the handler.
    pub fn attempt(&self, group: DeliveryGroup) -> u32 {
        self.tried(group) + u32::from(self.state.is_suspect()) + 1
    }
}

/// Returns whether `delivery` may supersede the deliveries in front of it, whose newest event time
/// is `newest`.
///
/// A redriven or deferred delivery may not, because it was appended late: a delivery in front of it
/// may be newer.
fn may_supersede(delivery: &Delivery, newest: Option<Timestamp>) -> bool {
    let is_in_order = delivery.redrive() == 0 && delivery.deferred_until().is_none();
    is_in_order && delivery.event_time().is_none_or(|time| Some(time) >= newest)
}
