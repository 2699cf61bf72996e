//! Runs handlers on separate threads, and counts the threads lost to them.
//!
//! A blocked thread cannot be stopped: a handler that blocks for good keeps its thread
//! until the process ends. Handlers therefore share no thread pool with anything else,
//! and abandoned threads that still run are counted.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use crate::{handler::Isolation, time::Env};

/// The most threads that a process may lose and still take work. A stuck delivery costs a
/// thread per attempt, with its stack and whatever its handler has locked.
pub const MOST_LOST: usize = 4;

/// The time for an abandoned handler to end. One that awaits something is dropped
/// at once, but its thread needs processor time for that.
const GRACE: Duration = Duration::from_millis(500);

/// The handler threads of a process. Clones share their count.
#[derive(Debug, Clone)]
pub struct Threads {
    lost: Arc<watch::Sender<usize>>,
    closed: Arc<AtomicBool>,
}

impl Default for Threads {
    fn default() -> Self {
        Self { lost: Arc::new(watch::Sender::new(0)), closed: Arc::default() }
    }
}

impl Threads {
    /// Returns how many abandoned threads still run.
    pub fn lost(&self) -> usize {
        *self.lost.borrow()
    }

    /// Refuses further work.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Returns whether [`Threads::close`] was called.
    pub fn are_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Returns whether no work is taken: more than [`MOST_LOST`] threads are lost, or they
    /// were closed.
    pub fn are_spent(&self) -> bool {
        self.are_closed() || self.lost() > MOST_LOST
    }

    #[cfg(test)]
    pub(crate) fn spent() -> Self {
        Self { lost: Arc::new(watch::Sender::new(MOST_LOST + 1)), closed: Arc::default() }
    }

    /// Returns whether too many threads are still lost after half a second, so that the process
    /// must be replaced.
    pub async fn stay_spent(&self, env: &Env) -> bool {
        let mut lost = self.lost.subscribe();
        let back = lost.wait_for(|lost| *lost <= MOST_LOST);
        self.are_spent() && env.within(GRACE, back).await.is_none()
    }

    /// Starts `work`. Returns `None` if no thread is free to start it.
    pub(crate) fn begin<F>(&self, isolation: Isolation, work: F) -> Option<Work<F>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if self.are_spent() {
            return None;
        }
        if isolation == Isolation::Inline {
            return Some(Work::Inline(Box::pin(work)));
        }
        let task = Arc::new(Task { stage: Mutex::new(Stage::Waiting), lost: self.lost.clone() });
        let (worker, runtime) = (WorkerSide(task.clone()), Handle::current());
        let (answer, answered) = oneshot::channel();
        let run = move || {
            // Dropped in this order, also in a panic: an answered task has not lost its thread.
            let (answer, worker) = (answer, worker);
            if worker.0.begin() {
                let output = runtime.block_on(work);
                drop(worker);
                // An error means that the task was abandoned.
                let _ = answer.send(output);
            }
        };
        std::thread::Builder::new().name("handler".into()).spawn(run).ok()?;
        Some(Work::Thread(answered, CallerSide(task)))
    }
}

/// Started work. If it is dropped before its answer, it is abandoned: it does not
/// begin, or its thread counts as lost until the work ends.
pub(crate) enum Work<F: Future> {
    Inline(std::pin::Pin<Box<F>>),
    Thread(oneshot::Receiver<F::Output>, CallerSide),
}

/// The result of work.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Worked<T> {
    Answered(T),
    /// The thread ended without an answer.
    Died,
    /// The work gave no answer in time.
    Late,
    /// The work did not begin in time, and never will.
    NotBegun,
}

impl<F: Future> Work<F> {
    /// Waits at most `time` for the answer.
    pub(crate) async fn within(self, time: Duration, env: &Env) -> Worked<F::Output> {
        match self {
            Self::Inline(work) => env.within(time, work).await.map_or(Worked::Late, Worked::Answered),
            Self::Thread(mut answered, caller) => match env.within(time, &mut answered).await {
                Some(Ok(answer)) => Worked::Answered(answer),
                Some(Err(_)) => Worked::Died,
                None if caller.0.abandon() == Stage::Waiting => Worked::NotBegun,
                None => Worked::Late,
            },
        }
    }
}

/// Work on a thread, shared by the thread and its caller.
#[derive(Debug)]
struct Task {
    stage: Mutex<Stage>,
    lost: Arc<watch::Sender<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The work has not begun.
    Waiting,
    Running,
    /// Abandoned while running.
    Lost,
    /// Ended, or abandoned before it began.
    Over,
}

impl Task {
    /// Changes the stage, keeps the count of lost threads, and returns the previous
    /// stage.
    fn change(&self, next: impl FnOnce(Stage) -> Stage) -> Stage {
        let mut stage = self.stage.lock().expect("no one panics while holding this");
        let before = *stage;
        *stage = next(before);
        match (before == Stage::Lost, *stage == Stage::Lost) {
            (false, true) => self.lost.send_modify(|lost| *lost += 1),
            (true, false) => self.lost.send_modify(|lost| *lost -= 1),
            _ => {}
        }
        before
    }

    /// Returns whether to begin: the work was not abandoned.
    fn begin(&self) -> bool {
        self.change(|stage| if stage == Stage::Waiting { Stage::Running } else { stage }) == Stage::Waiting
    }

    /// Abandons the work, and returns the previous stage.
    fn abandon(&self) -> Stage {
        self.change(|stage| match stage {
            Stage::Waiting => Stage::Over,
            Stage::Running => Stage::Lost,
            other => other,
        })
    }
}

/// Ends the task when dropped on its thread.
struct WorkerSide(Arc<Task>);

impl Drop for WorkerSide {
    fn drop(&mut self) {
        self.0.change(|_| Stage::Over);
    }
}

/// Abandons the task when dropped by its caller.
pub(crate) struct CallerSide(Arc<Task>);

impl Drop for CallerSide {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    /// Starts work that blocks its thread until the sender is dropped.
    async fn stuck(threads: &Threads) -> (mpsc::Sender<()>, Work<impl Future<Output = ()>>) {
        let (free, wait) = mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let work = threads.begin(Isolation::Thread, async move {
            begun.send(()).unwrap();
            let _ = wait.recv();
        });
        has_begun.await.unwrap();
        (free, work.expect("a thread"))
    }

    async fn lost(threads: &Threads, many: usize) {
        threads.lost.subscribe().wait_for(|lost| *lost == many).await.unwrap();
    }

    #[tokio::test]
    async fn abandoned_thread_is_lost_until_it_ends() {
        let (threads, by) = (Threads::default(), Env::system());
        let (free, work) = stuck(&threads).await;
        assert_eq!(threads.lost(), 0);
        assert_eq!(work.within(SHORT, &by).await, Worked::Late);
        assert_eq!(threads.lost(), 1);
        drop(free);
        lost(&threads, 0).await;
        let (free, work) = stuck(&threads).await;
        drop(work);
        assert_eq!(threads.lost(), 1, "its caller may have lost its lease");
        drop(free);
        lost(&threads, 0).await;
    }

    #[tokio::test]
    async fn too_many_lost_threads_stop_new_work() {
        let (threads, by) = (Threads::default(), Env::system());
        let mut held = Vec::new();
        for number in 0..=MOST_LOST {
            assert!(!threads.are_spent(), "{number}");
            let (free, work) = stuck(&threads).await;
            drop(work);
            held.push(free);
        }
        for isolation in [Isolation::Thread, Isolation::Inline] {
            assert!(threads.begin(isolation, async {}).is_none());
        }
        assert!(threads.stay_spent(&by).await);
        held.pop();
        assert!(!threads.stay_spent(&by).await);
        let again = threads.begin(Isolation::Thread, async { 7 }).expect("a thread");
        assert_eq!(again.within(Duration::MAX, &by).await, Worked::Answered(7));
    }

    #[tokio::test]
    async fn abandoned_work_is_never_begun() {
        let task = Task { stage: Mutex::new(Stage::Waiting), lost: Threads::default().lost };
        assert_eq!(task.abandon(), Stage::Waiting);
        assert!(!task.begin());
        assert_eq!(*task.lost.borrow(), 0);
    }

    #[tokio::test]
    async fn panicked_work_loses_no_thread() {
        let threads = Threads::default();
        let work = threads.begin(Isolation::Thread, async { panic!("on purpose") }).expect("a thread");
        let worked: Worked<()> = work.within(Duration::MAX, &Env::system()).await;
        assert_eq!(worked, Worked::Died);
        assert_eq!(threads.lost(), 0);
    }
}
