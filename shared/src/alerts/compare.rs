//! Compares a look at the indexes with what the row of alerts says, and decides what to report.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::group::{Common, Group, GroupId, Look, Trouble};
use crate::time::{Nonce, Timestamp};

/// A group is reported again once its size has grown by this factor.
const GROWTH: u64 = 10;

/// A group in the row of alerts. The names are short, because the row has little room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownGroup {
    #[serde(rename = "i")]
    id: GroupId,
    #[serde(rename = "t")]
    trouble: Trouble,
    #[serde(rename = "n", default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "e", default, skip_serializing_if = "String::is_empty")]
    error: String,
    /// The time at which a look first found the group.
    #[serde(rename = "s")]
    since: Timestamp,
    /// The group's size in the last message; 0 before the first message.
    #[serde(rename = "c", default)]
    reported: u64,
    /// The time at which a look first missed the group.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    gone: Option<Timestamp>,
    #[serde(rename = "o", default, skip_serializing_if = "std::ops::Not::not")]
    is_other: bool,
}

/// The groups that earlier looks found, as the row of alerts keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KnownGroups(Vec<KnownGroup>);

impl KnownGroups {
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }

    pub fn has(&self, trouble: Trouble) -> bool {
        self.0.iter().any(|group| group.trouble == trouble)
    }
}

/// The reason to report a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// The group has lasted for the time `after`.
    Began,
    /// The group has grown tenfold.
    Grew,
    /// The group was missed for the time `after`.
    Ended,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupChange {
    pub kind: ChangeKind,
    id: GroupId,
    pub group: Group,
    /// The group's size in the last message.
    pub reported: u64,
    /// True if the index was not read to its end, so that there may be more.
    pub is_partial: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The groups to record after the message.
    pub known: KnownGroups,
    pub changes: Vec<GroupChange>,
}

/// Compares `look` with the groups that earlier looks found.
///
/// A clock that was ahead may have written times that are still to come. They count as `now`.
pub fn compare(known: &KnownGroups, look: &Look, after: Duration, now: Timestamp) -> Comparison {
    let lasted = |since: Timestamp| now.since(since) >= after;
    let before: BTreeMap<&GroupId, &KnownGroup> = known.0.iter().map(|group| (&group.id, group)).collect();
    let unfolded = look.ids();
    let missed = known.0.iter().filter(|group| !group.is_other && !unfolded.contains(&group.id)).count();
    let found = look.folded(|id| before.contains_key(id), missed);
    let mut next = Vec::new();
    let mut changes = Vec::new();
    for (id, group) in &found {
        let seen = before.get(id).copied();
        let since = seen.map_or(now, |seen| seen.since.min(now));
        let reported = seen.map_or(0, |seen| seen.reported);
        let kind = match reported {
            0 if lasted(since) => Some(ChangeKind::Began),
            1.. if group.count >= reported.saturating_mul(GROWTH) => Some(ChangeKind::Grew),
            _ => None,
        };
        let is_partial = look.incomplete.contains(&group.common.trouble);
        changes.extend(kind.map(|kind| GroupChange {
            kind,
            id: id.clone(),
            group: group.clone(),
            reported,
            is_partial,
        }));
        let reported = if kind.is_some() { group.count } else { reported };
        let name = match seen {
            Some(seen) if group.common.name.is_empty() => seen.name.clone(),
            _ => group.common.name.clone(),
        };
        next.push(KnownGroup { name, since, reported, ..KnownGroup::of(id, &group.common, now) });
    }
    for group in known.0.iter().filter(|group| !found.contains_key(&group.id)) {
        let gone = group.gone.unwrap_or(now).min(now);
        if look.incomplete.contains(&group.trouble) {
            next.push(group.clone());
        } else if group.reported == 0 || (group.is_other && look.has(group.trouble)) {
            // No message reported it, or its orders are in groups of their own now.
        } else if lasted(gone) {
            changes.push(group.ended());
        } else {
            next.push(KnownGroup { gone: Some(gone), ..group.clone() });
        }
    }
    next.sort_by(|one, other| one.id.cmp(&other.id));
    changes.sort_by_key(|change| (change.kind, change.group.common.trouble, std::cmp::Reverse(change.group.count)));
    Comparison { known: KnownGroups(next), changes }
}

impl KnownGroup {
    fn of(id: &GroupId, common: &Common, since: Timestamp) -> Self {
        Self {
            id: id.clone(),
            trouble: common.trouble,
            name: common.name.clone(),
            error: common.short_error(),
            since,
            reported: 0,
            gone: None,
            is_other: common.is_other,
        }
    }

    fn ended(&self) -> GroupChange {
        let common = Common {
            name: self.name.clone(),
            error: self.error.clone(),
            is_other: self.is_other,
            ..Common::other(self.trouble)
        };
        let group = Group { common, count: 0, first: BTreeSet::new() };
        GroupChange { kind: ChangeKind::Ended, id: self.id.clone(), group, reported: self.reported, is_partial: false }
    }
}

/// Returns the id of the message about `changes`, given the nonce of the row that they were compared with.
///
/// A repeat after a crash has the same id, unless it reports other groups. A receiver that knows the id may drop the
/// message, so a message with other contents needs another id.
pub fn message_id(row: &Nonce, changes: &[GroupChange]) -> String {
    let mut hash = Sha256::new_with_prefix(row.as_str());
    for GroupChange { kind, id, .. } in changes {
        hash.update(serde_json::to_string(&(kind, id)).expect("texts are JSON"));
    }
    format!("alert_{}", URL_SAFE_NO_PAD.encode(&hash.finalize()[..16]))
}
