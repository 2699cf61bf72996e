//! Ctrl-C, while much is read or put back: what is begun is finished first.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use anyhow::{Context, Result};

use super::confirm::ask;

/// What a shell calls the end by a Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C. The first asks to stop, a second one ends the process at
/// once; while a question stands, so does the first.
#[derive(Debug, Clone)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    asking: Arc<AtomicBool>,
}

impl Interrupt {
    /// Begins to listen.
    pub fn listen() -> Self {
        let interrupt = Self { came: Arc::default(), asking: Arc::default() };
        let heard = interrupt.clone();
        tokio::spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                if heard.asking.load(Relaxed) || heard.came.swap(true, Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
        interrupt
    }

    /// Whether it came.
    pub fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    /// Says something, and asks whoever sits at the terminal, who may say no by
    /// Enter.
    ///
    /// # Errors
    ///
    /// Nobody sits there; the error says what was to be said.
    pub fn ask(&self, said: &str, question: &str) -> Result<bool> {
        self.asking.store(true, Relaxed);
        let answer = ask(&format!("{said}. {question}"));
        self.asking.store(false, Relaxed);
        answer.with_context(|| said.to_owned())
    }
}
