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
pub enum How {
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
    pub how: How,
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
            how: roll.one_of(&[How::Unavailable, How::NotNow, How::Hang]),
            from: roll.millis(0, 10_000),
            lasts: roll.millis(8_000, longest),
        };
        roll.happens(60).then_some(drawn)
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

/// A source that a process holds back. Times are by the process's own clock.
#[derive(Debug)]
struct HeldBack {
    since: Duration,
    until: Duration,
    is_tried: bool,
}

#[derive(Debug, Default)]
struct Inner {
    held_back: BTreeMap<String, HeldBack>,
    /// When a start was first to be written down, by order and token: that is
    /// after its breaker let it through.
    written: BTreeMap<(usize, u64), Duration>,
}

/// What one process's breakers may let start: the auditor's own account of them,
/// by what the process tells.
#[derive(Debug, Clone, Default)]
pub struct Breakers(Arc<Mutex<Inner>>);

impl Breakers {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no one panics while holding this")
    }

    /// A source is held back, for so long.
    pub fn opened(&self, source: &str, now: Duration, wait: Duration) {
        let held_back = HeldBack { since: now, until: now + wait, is_tried: false };
        self.inner().held_back.insert(source.to_owned(), held_back);
    }

    /// A source goes on.
    pub fn closed(&self, source: &str) {
        self.inner().held_back.remove(source);
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
    pub fn started(&self, source: &'static str, entity: usize, token: u64, now: Duration) -> Result<Trial, String> {
        let mut inner = self.inner();
        let let_through = inner.written.remove(&(entity, token)).unwrap_or(now);
        match inner.held_back.get_mut(source) {
            Some(held_back) if let_through > held_back.since => {
                if let_through < held_back.until {
                    return Err(format!("starts {:?} before its breaker lets it", held_back.until - let_through));
                }
                if held_back.is_tried {
                    return Err("starts while another start tries whether its source is well".into());
                }
                held_back.is_tried = true;
                Ok(Trial(Some((self.clone(), source))))
            }
            _ => Ok(Trial(None)),
        }
    }
}

/// A start, and whether it tries if its source is well again.
#[derive(Debug)]
pub struct Trial(Option<(Breakers, &'static str)>);

impl Drop for Trial {
    fn drop(&mut self) {
        if let Some((breakers, source)) = &self.0
            && let Some(held_back) = breakers.inner().held_back.get_mut(*source)
        {
            held_back.is_tried = false;
        }
    }
}
