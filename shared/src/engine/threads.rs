//! Gives each handler a thread, which runs nothing else until the handler ends, and counts the lost threads.
//!
//! A blocked thread cannot be stopped. If a handler blocks for good, its thread is lost until the
//! process ends. So handlers use no thread pool that other code depends on.

mod idle;

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

use self::idle::IdleThreads;
use crate::{handler::Isolation, time::Env};

/// The number of threads that a process may lose and still start handlers.
///
/// Each attempt of a delivery whose handler blocks costs a thread, with its stack and the locks
/// that the handler holds.
pub const MOST_LOST: usize = 4;

/// The time given to abandoned handlers to end, before a process with too many lost threads is
/// replaced.
///
/// A handler that awaits a future is dropped at once, but its thread needs processor time for this.
const GRACE: Duration = Duration::from_millis(500);

/// The handler threads of a process. All clones share one count of lost threads.
#[derive(Debug, Clone)]
pub struct Threads {
    lost: Arc<watch::Sender<usize>>,
    closed: Arc<AtomicBool>,
    idle: Arc<IdleThreads>,
}

impl Default for Threads {
    fn default() -> Self {
        Self { lost: Arc::new(watch::Sender::new(0)), closed: Arc::default(), idle: Arc::default() }
    }
}

impl Threads {
    /// Returns the number of threads that still run an abandoned handler.
    pub fn lost(&self) -> usize {
        *self.lost.borrow()
    }

    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    pub fn are_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Returns whether no further handler may start, because more than [`MOST_LOST`] threads are
    /// lost or [`Threads::close`] was called.
    pub fn are_spent(&self) -> bool {
        self.are_closed() || self.lost() > MOST_LOST
    }

    #[cfg(test)]
    pub(crate) fn spent() -> Self {
        Self { lost: Arc::new(watch::Sender::new(MOST_LOST + 1)), ..Self::default() }
    }

    /// Returns whether too many threads are still lost after half a second. Such a process must be
    /// replaced.
    pub async fn stay_spent(&self, env: &Env) -> bool {
        let mut lost = self.lost.subscribe();
        let back = lost.wait_for(|lost| *lost <= MOST_LOST);
        self.are_spent() && env.within(GRACE, back).await.is_none()
    }

    /// Starts `work`. Unless `isolation` is `Inline`, it gets a thread, which runs nothing else until the work ends.
    /// Returns `None` if no further handler may start or no thread could be created.
    pub(crate) fn begin<F>(&self, isolation: Isolation, work: F) -> Option<StartedWork<F>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        if self.are_spent() {
            return None;
        }
        if isolation == Isolation::Inline {
            return Some(StartedWork::Inline(Box::pin(work)));
        }
        let task = Arc::new(ThreadTask { stage: Mutex::new(Stage::Waiting), lost: self.lost.clone() });
        let worker = WorkerSide(task.clone());
        let runtime = Handle::current();
        let (answer, answered) = oneshot::channel();
        let run = move || {
            // A panic drops `worker` before `answer`. So when the caller sees that the work ended,
            // the thread no longer counts as lost.
            let answer = answer;
            let worker = worker;
            if worker.0.begin() {
                let output = runtime.block_on(work);
                drop(worker);
                // Sending fails if the task was abandoned.
                let _ = answer.send(output);
            }
        };
        self.idle.run(Box::new(run)).ok()?;
        Some(StartedWork::Thread(answered, CallerSide(task)))
    }
}

/// A handler's started work. Dropping this value before the answer abandons the work.
///
/// If abandoned work has a thread and has not begun yet, it never begins. If it has begun, its
/// thread counts as lost until the work ends.
pub(crate) enum StartedWork<F: Future> {
    Inline(std::pin::Pin<Box<F>>),
    Thread(oneshot::Receiver<F::Output>, CallerSide),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Worked<T> {
    Answered(T),
    /// The thread ended without an answer.
    Died,
    /// The work began, but gave no answer in time.
    Late,
    /// The work did not begin in time, and never will.
    NotBegun,
}

impl<F: Future> StartedWork<F> {
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

#[derive(Debug)]
struct ThreadTask {
    stage: Mutex<Stage>,
    lost: Arc<watch::Sender<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Running,
    /// The caller abandoned the work while it ran.
    Lost,
    /// The work has ended, or the caller abandoned it before it began.
    Over,
}

impl ThreadTask {
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

    fn begin(&self) -> bool {
        self.change(|stage| if stage == Stage::Waiting { Stage::Running } else { stage }) == Stage::Waiting
    }

    fn abandon(&self) -> Stage {
        self.change(|stage| match stage {
            Stage::Waiting => Stage::Over,
            Stage::Running => Stage::Lost,
            other => other,
        })
    }
}

/// The thread's reference to a task. Dropping the reference marks the task as over.
struct WorkerSide(Arc<ThreadTask>);

impl Drop for WorkerSide {
    fn drop(&mut self) {
        self.0.change(|_| Stage::Over);
    }
}

/// The caller's reference to a task. Dropping the reference abandons the task.
pub(crate) struct CallerSide(Arc<ThreadTask>);

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

    async fn stuck(threads: &Threads) -> (mpsc::Sender<()>, StartedWork<impl Future<Output = ()>>) {
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
    async fn abandoned_thread_counts_as_lost_until_finished() {
        let threads = Threads::default();
        let by = Env::system();
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
    async fn no_work_starts_while_five_threads_are_lost() {
        let threads = Threads::default();
        let by = Env::system();
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
    async fn work_abandoned_while_waiting_for_thread_never_begins() {
        let task = ThreadTask { stage: Mutex::new(Stage::Waiting), lost: Threads::default().lost };
        assert_eq!(task.abandon(), Stage::Waiting);
        assert!(!task.begin());
        assert_eq!(*task.lost.borrow(), 0);
    }

    #[tokio::test]
    async fn thread_is_used_again_once_its_work_has_ended() {
        let threads = Threads::default();
        let run = async || {
            let work = threads.begin(Isolation::Thread, async { std::thread::current().id() }).expect("a thread");
            let Worked::Answered(id) = work.within(Duration::MAX, &Env::system()).await else { panic!("no answer") };
            threads.idle.until_one_waits();
            id
        };
        let first = run().await;
        assert_eq!(run().await, first);
        let (free, held) = stuck(&threads).await;
        assert_ne!(run().await, first, "it is at work");
        drop((free, held));
    }

    #[tokio::test]
    async fn panicking_work_does_not_lose_a_thread() {
        let threads = Threads::default();
        let work = threads.begin(Isolation::Thread, async { panic!("on purpose") }).expect("a thread");
        let worked: Worked<()> = work.within(Duration::MAX, &Env::system()).await;
        assert_eq!(worked, Worked::Died);
        assert_eq!(threads.lost(), 0);
    }
}
