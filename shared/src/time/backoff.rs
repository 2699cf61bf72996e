//! The pauses between the tries of a request.

use std::time::Duration;

use super::Env;

/// Jittered pauses that double up to a longest one, until a patience ends.
#[derive(Debug)]
pub(crate) struct Backoff<'e> {
    env: &'e Env,
    give_up: Duration,
    wait: Duration,
    longest: Duration,
}

impl<'e> Backoff<'e> {
    pub(crate) fn within(patience: Duration, env: &'e Env, first: Duration, longest: Duration) -> Self {
        Self { env, give_up: env.monotonic() + patience, wait: first, longest }
    }

    /// Returns what is left of the patience.
    pub(crate) fn left(&self) -> Duration {
        self.give_up.saturating_sub(self.env.monotonic())
    }

    /// Pauses before the next try. Returns `false` at once if the patience would end during the pause.
    pub(crate) async fn pause(&mut self) -> bool {
        let pause = self.env.jittered(self.wait);
        if self.env.monotonic() + pause >= self.give_up {
            return false;
        }
        self.env.sleep(pause).await;
        self.wait = (self.wait * 2).min(self.longest);
        true
    }
}
