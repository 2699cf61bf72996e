//! Threads whose work has ended, and which wait for the next.

use std::{
    io,
    sync::{Arc, Mutex, Weak, mpsc},
    thread,
};

/// The most threads that wait for work. Each keeps a stack.
const MOST_IDLE: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

/// Gives each work a thread, which runs nothing else until the work ends, and then waits for the next one. Idle threads
/// end with this value.
#[derive(Debug, Default)]
pub(super) struct IdleThreads(Mutex<Vec<mpsc::Sender<Work>>>);

impl IdleThreads {
    /// # Errors
    ///
    /// No thread is idle, and none can be created.
    pub(super) fn run(self: &Arc<Self>, work: Work) -> io::Result<()> {
        let idle = self.0.lock().expect("no one panics while holding this").pop();
        if let Some(idle) = idle {
            idle.send(work).expect("an idle thread waits for work");
            return Ok(());
        }
        let threads = Arc::downgrade(self);
        let run = move || {
            work();
            while let Some(next) = Self::next(&threads) {
                next();
            }
        };
        thread::Builder::new().name("handler".into()).spawn(run).map(drop)
    }

    #[cfg(test)]
    pub(super) fn until_one_waits(&self) {
        let waits = || !self.0.lock().expect("no one panics while holding this").is_empty();
        assert!(
            (0..10_000_000).any(|_| waits() || {
                thread::yield_now();
                false
            }),
            "no thread waits"
        );
    }

    /// Waits for the next work of this thread. Returns `None` if the thread is not needed any more.
    fn next(threads: &Weak<Self>) -> Option<Work> {
        let (sender, works) = mpsc::channel();
        let threads = threads.upgrade()?;
        let mut idle = threads.0.lock().expect("no one panics while holding this");
        if idle.len() >= MOST_IDLE {
            return None;
        }
        idle.push(sender);
        drop(idle);
        drop(threads);
        works.recv().ok()
    }
}
