//! What handlers need is out of reach for a while, for every order of a source; and
//! what breakers may let start meanwhile.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    chance::{Dice, Twist, actor},
    history::What,
    node::pause,
    world::World,
};

/// How handlers take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// They say so.
    Unavailable,
    /// They say so before they begin anything.
    NotNow,
    /// They wait for it.
    Hang,
}

/// One of a run.
#[derive(Debug, Clone, Copy)]
pub struct Unwell {
    /// Whose handlers; `None`: those of all sources.
    pub source: Option<&'static str>,
    /// How they take it.
    pub reaction: Reaction,
    /// When it begins, in each round.
    pub from: Duration,
    /// How long it lasts.
    pub lasts: Duration,
}

impl Unwell {
    /// Its name among what a run may leave out.
    pub fn twist() -> Twist {
        Twist { actor: actor::UNWELL, number: 0 }
    }

    /// When it is over.
    pub fn until(&self) -> Duration {
        self.from + self.lasts
    }

    /// That of a run: most have none.
    pub fn drawn(seed: u64) -> Option<Self> {
        let mut roll = Dice::new(seed, actor::UNWELL).at(0);
        let longest = roll.one_of(&[10_000, 20_000, 60_000]);
        let drawn = Self {
            source: roll.one_of(&[None, Some("park"), Some("block")]),
            reaction: roll.one_of(&[Reaction::Unavailable, Reaction::NotNow, Reaction::Hang]),
            from: roll.millis(0, 10_000),
            lasts: roll.millis(8_000, longest),
        };
        roll.happens(80).then_some(drawn)
    }

    /// Has it begin, and end.
    pub async fn strikes(self, world: Arc<World>, begin: Duration) {
        world.pause_until(begin + self.from).await;
        world.set_unwell(Some(self));
        world.tell(What::Phase { text: "what handlers need is out of reach" });
        pause(self.lasts).await;
        world.set_unwell(None);
        world.tell(What::Phase { text: "what handlers need is there again" });
    }
}

/// For how long a source is held back. Times are by the process's own clock.
#[derive(Debug)]
struct Period {
    since: Duration,
    until: Duration,
    is_tried: bool,
}

#[derive(Debug, Default)]
struct Inner {
    periods: BTreeMap<String, Period>,
    /// When a start was first to be written down, by order and token: that is
    /// after its breaker let it through.
    written: BTreeMap<(usize, u64), Duration>,
}

/// Which sources one process holds back: the auditor's own account of its breakers, by
/// what the process tells.
#[derive(Debug, Clone, Default)]
pub struct HeldBack(Arc<Mutex<Inner>>);

impl HeldBack {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no one panics while holding this")
    }

    /// A source is held back, for so long.
    pub fn opened(&self, source: &str, now: Duration, wait: Duration) {
        let period = Period { since: now, until: now + wait, is_tried: false };
        self.inner().periods.insert(source.to_owned(), period);
    }

    /// A source goes on.
    pub fn closed(&self, source: &str) {
        self.inner().periods.remove(source);
    }

    /// A start is written down before it is made.
    pub fn writes(&self, entity: usize, token: u64, now: Duration) {
        self.inner().written.entry((entity, token)).or_insert(now);
    }

    /// A handler starts, and runs until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// It must not.
    pub fn started(&self, source: &'static str, entity: usize, token: u64, now: Duration) -> Result<Start, String> {
        let mut inner = self.inner();
        let let_through = inner.written.remove(&(entity, token)).unwrap_or(now);
        match inner.periods.get_mut(source) {
            Some(period) if let_through > period.since => {
                if let_through < period.until {
                    return Err(format!("starts {:?} before its breaker lets it", period.until - let_through));
                }
                if period.is_tried {
                    return Err("starts while another start tries whether its source is well".into());
                }
                period.is_tried = true;
                Ok(Start(Some(Trial { account: self.clone(), source, since: period.since })))
            }
            _ => Ok(Start(None)),
        }
    }
}

/// A start that is under way.
#[derive(Debug)]
pub struct Start(Option<Trial>);

impl Start {
    /// Whether it tries if its source is well again.
    pub fn is_trial(&self) -> bool {
        self.0.is_some()
    }
}

#[derive(Debug)]
struct Trial {
    account: HeldBack,
    source: &'static str,
    /// Of the period that it may end.
    since: Duration,
}

impl Drop for Trial {
    fn drop(&mut self) {
        let mut inner = self.account.inner();
        if let Some(period) = inner.periods.get_mut(self.source).filter(|period| period.since == self.since) {
            period.is_tried = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn start_beside_an_open_breaker_is_reported() {
        let account = HeldBack::default();
        let start = |source, entity, at| account.started(source, entity, 1, second(at));
        let is_trial = |start: &Result<Start, String>| start.as_ref().is_ok_and(Start::is_trial);
        let before = start("park", 0, 1);
        account.opened("park", second(2), second(5));
        assert!(start("park", 1, 6).is_err_and(|mistake| mistake.contains("before its breaker lets it")));
        assert!(start("block", 1, 6).is_ok_and(|start| !start.is_trial()), "another source");
        let first = start("park", 1, 7);
        assert!(is_trial(&first));
        assert!(start("park", 2, 8).is_err_and(|mistake| mistake.contains("another start tries")));
        drop(before);
        assert!(start("park", 2, 8).is_err(), "the other had begun before");
        // It fails: held back once more. Whatever is left of it ends nothing of what is tried next.
        account.opened("park", second(9), second(5));
        let second_trial = start("park", 2, 14);
        drop(first);
        assert!(is_trial(&second_trial) && start("park", 3, 14).is_err());
        account.closed("park");
        assert!(start("park", 3, 14).is_ok_and(|start| !start.is_trial()));
    }

    #[test]
    fn start_admitted_before_opening_is_accepted() {
        let account = HeldBack::default();
        account.writes(0, 1, second(1));
        account.opened("park", second(2), second(5));
        account.writes(0, 1, second(3));
        assert!(account.started("park", 0, 1, second(3)).is_ok());
        assert!(account.started("park", 0, 1, second(3)).is_err(), "once");
    }
}
