//! What one start of a handler is about: a delivery, several, or the latest.

use std::time::Duration;

use serde::Deserialize;

use crate::protocol::{attempt::RetryPolicy, state::LARGEST_GROUP};

/// How many deliveries of an entity one start of the handler is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Deliver {
    /// One.
    #[default]
    Each,
    /// All that wait in a row, at most so many, 2 to 25: by
    /// [`Handler::handle_all`](crate::Handler::handle_all).
    UpTo(u8),
    /// The latest of all that wait in a row and are of one topic family, 25 at the
    /// most, which stands for those before it.
    Latest,
}

impl Deliver {
    /// The most deliveries that one start is about.
    pub fn most(self) -> usize {
        match self {
            Self::Each => 1,
            Self::UpTo(most) => most.into(),
            Self::Latest => LARGEST_GROUP.into(),
        }
    }

    /// Whether it may be more than one.
    pub fn is_grouped(self) -> bool {
        self != Self::Each
    }
}

/// What becomes of a delivery of which a newer one was applied before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stale {
    /// Its handler runs, and is told.
    #[default]
    Run,
    /// It is settled as superseded, without a start.
    Skip,
}

/// How long to wait for more before a wake-up of an entity is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Linger {
    /// For how long.
    pub wait: Duration,
    /// Not where so many wait already: a group is full.
    pub most: u64,
}

/// The longest that a source may have its deliveries wait for more.
pub const LONGEST_LINGER: Duration = Duration::from_secs(60);

/// As it stands in the document.
#[derive(Deserialize)]
#[serde(untagged, expecting = "`deliver` is `each`, `latest` or a table such as { up_to = 10 }")]
pub(super) enum Entry {
    Word(Word),
    Group(Group),
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Word {
    Each,
    Latest,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    up_to: u8,
}

impl Entry {
    fn checked(self) -> Result<Deliver, String> {
        match self {
            Self::Word(Word::Each) => Ok(Deliver::Each),
            Self::Word(Word::Latest) => Ok(Deliver::Latest),
            Self::Group(Group { up_to: most @ 2..=LARGEST_GROUP }) => Ok(Deliver::UpTo(most)),
            Self::Group(_) => Err(format!("`deliver.up_to` is 2 to {LARGEST_GROUP}")),
        }
    }
}

/// What a source delivers at once, and how long it lingers for that.
pub(super) fn check(
    deliver: Option<Entry>,
    linger: Option<Duration>,
    retry: RetryPolicy,
) -> Result<(Deliver, Option<Linger>), String> {
    let deliver = deliver.map(Entry::checked).transpose()?.unwrap_or_default();
    if deliver.is_grouped() && retry.is_once() {
        return Err("`deliver` of several at once needs more than one attempt: of a group that fails, \
                    each is tried by itself"
            .into());
    }
    let linger = match linger {
        Some(_) if !deliver.is_grouped() => {
            return Err("`linger` goes with `deliver = { up_to = … }` or `deliver = 'latest'`".into());
        }
        Some(wait) if wait > LONGEST_LINGER => return Err("`linger` is at most 60s".into()),
        Some(wait) if wait.is_zero() => return Err("`linger` is more than nothing".into()),
        linger => linger,
    };
    Ok((deliver, linger.map(|wait| Linger { wait, most: deliver.most() as u64 })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::{Source, Sources};

    fn shop(options: &str) -> Result<std::sync::Arc<Source>, String> {
        let document = format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'h'\n{options}");
        let sources = Sources::parse(&document).map_err(|error| error.to_string())?;
        Ok(sources.get("shop").expect("it is configured").clone())
    }

    #[test]
    fn deliver_and_linger_are_parsed() {
        let of = |options: &str| shop(options).map(|shop| (shop.deliver, shop.linger)).unwrap();
        assert_eq!(of(""), (Deliver::Each, None));
        assert_eq!(of("deliver = 'each'"), (Deliver::Each, None));
        assert_eq!(of("deliver = 'latest'"), (Deliver::Latest, None));
        let linger = Linger { wait: Duration::from_secs(2), most: 10 };
        assert_eq!(of("deliver = { up_to = 10 }\nlinger = '2s'"), (Deliver::UpTo(10), Some(linger)));
        assert_eq!(of("deliver = 'latest'\nlinger = '60s'").1.map(|linger| linger.most), Some(25));
    }

    #[test]
    fn invalid_deliver_and_linger_are_refused() {
        let refused = |options: &str| shop(options).unwrap_err();
        for (options, reason) in [
            ("deliver = { up_to = 1 }", "`deliver.up_to` is 2 to 25"),
            ("deliver = { up_to = 26 }", "`deliver.up_to` is 2 to 25"),
            ("deliver = 'all'", "`deliver` is `each`, `latest` or a table such as { up_to = 10 }"),
            ("deliver = { up_to = 3 }\nretry = { attempts = 1 }", "needs more than one attempt"),
            ("deliver = 'latest'\nretry = { attempts = 1 }", "needs more than one attempt"),
            ("linger = '2s'", "`linger` goes with `deliver = { up_to = … }`"),
            ("deliver = 'latest'\nlinger = '61s'", "`linger` is at most 60s"),
            ("deliver = 'latest'\nlinger = '0s'", "`linger` is more than nothing"),
        ] {
            assert!(refused(options).contains(reason), "{options}: {}", refused(options));
        }
    }
}
