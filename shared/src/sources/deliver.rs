//! The settings of a source for several deliveries at once, and for events older than one already
//! applied.

use std::time::Duration;

use serde::Deserialize;

use super::table::StrictTable;
use crate::protocol::{attempt::RetryPolicy, state::LARGEST_GROUP};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Deliver {
    #[default]
    Each,
    /// One start of [`Handler::handle_all`](crate::Handler::handle_all) gets up to this many consecutive
    /// waiting deliveries: 2 to 25. A single one goes to `handle`.
    UpTo(u8),
    /// The handler gets only the latest of up to 25 consecutive waiting deliveries with the same topic family. The
    /// others are settled as superseded. A delivery that was redriven or deferred, or whose event is older, supersedes
    /// none.
    Latest,
}

impl Deliver {
    pub fn most(self) -> usize {
        match self {
            Self::Each => 1,
            Self::UpTo(most) => most.into(),
            Self::Latest => LARGEST_GROUP.into(),
        }
    }

    pub fn is_grouped(self) -> bool {
        self != Self::Each
    }
}

/// What happens to a delivery whose event is older than an event that was already applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stale {
    /// The handler is started, and can read the delivery's age.
    #[default]
    Run,
    /// The delivery is settled as superseded, without a handler start.
    Skip,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Linger {
    pub wait: Duration,
    /// The number of waiting deliveries that makes a full group. A full group ends the delay.
    pub most: u64,
}

pub const LONGEST_LINGER: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(untagged, expecting = "`deliver` is `each`, `latest` or a table such as { up_to = 10 }")]
pub(super) enum DeliverEntry {
    Word(Word),
    Group(StrictTable<GroupEntry>),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Word {
    Each,
    Latest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupEntry {
    up_to: u8,
}

impl DeliverEntry {
    fn checked(self) -> Result<Deliver, String> {
        match self {
            Self::Word(Word::Each) => Ok(Deliver::Each),
            Self::Word(Word::Latest) => Ok(Deliver::Latest),
            Self::Group(StrictTable(GroupEntry { up_to: most @ 2..=LARGEST_GROUP })) => Ok(Deliver::UpTo(most)),
            Self::Group(_) => Err(format!("`deliver.up_to` must be 2 to {LARGEST_GROUP}")),
        }
    }
}

pub(super) fn check(
    deliver: Option<DeliverEntry>,
    linger: Option<Duration>,
    retry: RetryPolicy,
) -> Result<(Deliver, Option<Linger>), String> {
    let deliver = deliver.map(DeliverEntry::checked).transpose()?.unwrap_or_default();
    if deliver.is_grouped() && retry.is_once() {
        return Err("`deliver` other than \"each\" needs a `retry` that allows more than one attempt: after a group \
                    fails, each delivery is retried alone"
            .into());
    }
    let linger = match linger {
        Some(_) if !deliver.is_grouped() => {
            return Err("`linger` needs `deliver = { up_to = … }` or `deliver = 'latest'`".into());
        }
        Some(wait) if wait > LONGEST_LINGER => return Err("`linger` must be at most 60s".into()),
        Some(wait) if wait.is_zero() => return Err("`linger` must be more than zero".into()),
        linger => linger,
    };
    Ok((deliver, linger.map(|wait| Linger { wait, most: deliver.most() as u64 })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::shop;

    #[test]
    fn deliver_and_linger_options_are_parsed() {
        let of = |options: &str| shop(options).map(|shop| (shop.deliver, shop.linger)).unwrap();
        assert_eq!(of(""), (Deliver::Each, None));
        assert_eq!(of("deliver = 'each'"), (Deliver::Each, None));
        assert_eq!(of("deliver = 'latest'"), (Deliver::Latest, None));
        let linger = Linger { wait: Duration::from_secs(2), most: 10 };
        assert_eq!(of("deliver = { up_to = 10 }\nlinger = '2s'"), (Deliver::UpTo(10), Some(linger)));
        assert_eq!(of("deliver = 'latest'\nlinger = '60s'").1.map(|linger| linger.most), Some(25));
    }

    #[test]
    fn invalid_deliver_and_linger_options_are_refused() {
        let refused = |options: &str| shop(options).unwrap_err();
        for (options, reason) in [
            ("deliver = { up_to = 1 }", "`deliver.up_to` must be 2 to 25"),
            ("deliver = { up_to = 26 }", "`deliver.up_to` must be 2 to 25"),
            ("deliver = [10]", "`deliver` is `each`, `latest` or a table such as { up_to = 10 }"),
            ("deliver = 'all'", "`deliver` is `each`, `latest` or a table such as { up_to = 10 }"),
            ("deliver = { up_to = 3 }\nretry = { attempts = 1 }", "needs a `retry` that allows more than one attempt"),
            ("deliver = 'latest'\nretry = { attempts = 1 }", "needs a `retry` that allows more than one attempt"),
            ("linger = '2s'", "`linger` needs `deliver = { up_to = … }`"),
            ("deliver = 'latest'\nlinger = '61s'", "`linger` must be at most 60s"),
            ("deliver = 'latest'\nlinger = '0s'", "`linger` must be more than zero"),
        ] {
            assert!(refused(options).contains(reason), "{options}: {}", refused(options));
        }
    }
}
