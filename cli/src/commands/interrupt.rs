//! Handles Ctrl-C: the command finishes the work in progress before it stops.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use anyhow::{Context, Result};

use super::confirm::ask;

/// The exit code that shells report for a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// Listens for Ctrl-C. The first Ctrl-C asks the command to stop. A second Ctrl-C, or a Ctrl-C during a question, ends
/// the process.
#[derive(Debug, Clone)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    asking: Arc<AtomicBool>,
}

impl Interrupt {
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

    pub fn came(&self) -> bool {
        self.came.load(Relaxed)
    }

    pub fn ask(&self, said: &str, question: &str) -> Result<bool> {
        self.asking.store(true, Relaxed);
        let answer = ask(&format!("{said}. {question}"));
        self.asking.store(false, Relaxed);
        answer.with_context(|| said.to_owned())
    }
}
