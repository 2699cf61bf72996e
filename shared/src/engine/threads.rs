//! The threads on which one process runs handlers, and those that it has lost.
//!
//! A thread that is blocked cannot be taken back: a handler that outlives its
//! time and blocks for good keeps its thread until the process ends. Each
//! handler therefore has a thread of its own, of no pool that something else
//! depends on, and those that were given up and still run are counted.

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

/// How many threads a process may lose and still take work. One stuck delivery
/// costs a thread for each of its attempts; each thread keeps its stack and
/// whatever its handler has locked.
pub const MOST_LOST: usize = 4;

/// How long a handler that was just given up has to notice that. One that
/// awaits anything is dropped at once, but on a thread that needs a processor
/// for it.
const GRACE: Duration = Duration::from_millis(500);

/// The threads of one process. Clones count together.
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
    /// How many were given up and still run. One that comes back later is not
    /// counted any more.
    pub fn lost(&self) -> usize {
        *self.lost.borrow()
    }

    /// Begins nothing any more.
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Whether they were closed.
    pub fn are_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Whether nothing is begun any more: more than [`MOST_LOST`] are lost, or they
    /// were closed.
    pub fn are_spent(&self) -> bool {
        self.are_closed() || self.lost() > MOST_LOST
    }

    /// Threads of which too many are lost.
    #[cfg(test)]
    pub(crate) fn spent() -> Self {
        Self { lost: Arc::new(watch::Sender::new(MOST_LOST + 1)), closed: Arc::default() }
    }

    /// Whether they are spent and stay so: the process is to end, so that a
    /// fresh one replaces it.
    pub async fn stay_spent(&self, env: &Env) -> bool {
        let mut lost = self.lost.subscribe();
        let back = lost.wait_for(|lost| *lost <= MOST_LOST);
        self.are_spent() && env.within(GRACE, back).await.is_none()
    }

    /// Begins `work` where `isolation` says. `None`: no thread could be had, or
    /// too many are lost; nothing was begun.
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
        let visit = Arc::new(Visit { stage: Mutex::new(Stage::Waiting), lost: self.lost.clone() });
        let (theirs, runtime) = (DrainSlot(visit.clone()), Handle::current());
        let (answer, answered) = oneshot::channel();
        let run = move || {
            // The guest goes first, also in a panic: who has an answer has lost no thread.
            let (answer, theirs) = (answer, theirs);
            if theirs.0.begins() {
                let output = runtime.block_on(work);
                drop(theirs);
                // Nobody listens any more: it was given up.
                let _ = answer.send(output);
            }
        };
        std::thread::Builder::new().name("handler".into()).spawn(run).ok()?;
        Some(Work::Thread(answered, Host(visit)))
    }
}

/// Work that has a place to run. Dropped before it has answered, it is given
/// up: not begun any more, or its thread counted as lost until it ends.
pub(crate) enum Work<F: Future> {
    Inline(std::pin::Pin<Box<F>>),
    Thread(oneshot::Receiver<F::Output>, Host),
}

/// How work that was waited for went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Worked<T> {
    /// Its answer.
    Answered(T),
    /// Its thread ended without one.
    Died,
    /// It was begun, and had not answered in time.
    Late,
    /// It was not begun in time, and will not be.
    NotBegun,
}

impl<F: Future> Work<F> {
    /// Waits for its answer, for `time` at most.
    pub(crate) async fn within(self, time: Duration, env: &Env) -> Worked<F::Output> {
        match self {
            Self::Inline(work) => env.within(time, work).await.map_or(Worked::Late, Worked::Answered),
            Self::Thread(mut answered, host) => match env.within(time, &mut answered).await {
                Some(Ok(answer)) => Worked::Answered(answer),
                Some(Err(_)) => Worked::Died,
                None if host.0.is_given_up_unbegun() => Worked::NotBegun,
                None => Worked::Late,
            },
        }
    }
}

/// One piece of work on a thread, as both sides know it.
#[derive(Debug)]
struct Visit {
    stage: Mutex<Stage>,
    lost: Arc<watch::Sender<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The thread has not got to it.
    Waiting,
    Running,
    /// Given up while it ran: its thread counts as lost.
    Lost,
    /// Given up before it began, or ended.
    Over,
}

impl Visit {
    /// Goes on as `next` says, and counts what that means. What was before.
    fn moves(&self, next: impl FnOnce(Stage) -> Stage) -> Stage {
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

    /// The thread begins, unless it was given up before that.
    fn begins(&self) -> bool {
        self.moves(|stage| if stage == Stage::Waiting { Stage::Running } else { stage }) == Stage::Waiting
    }

    fn is_given_up_unbegun(&self) -> bool {
        let given_up = |stage| match stage {
            Stage::Waiting => Stage::Over,
            Stage::Running => Stage::Lost,
            other => other,
        };
        self.moves(given_up) == Stage::Waiting
    }
}

/// The thread's side: it ends however the work does.
struct DrainSlot(Arc<Visit>);

impl Drop for DrainSlot {
    fn drop(&mut self) {
        self.0.moves(|_| Stage::Over);
    }
}

/// The side of who waits: going away gives the work up.
pub(crate) struct Host(Arc<Visit>);

impl Drop for Host {
    fn drop(&mut self) {
        self.0.is_given_up_unbegun();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    /// Work that blocks its thread until its sender is dropped; it has begun.
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
    async fn a_thread_that_is_given_up_is_lost_until_it_comes_back() {
        let (threads, by) = (Threads::default(), Env::system());
        let (free, work) = stuck(&threads).await;
        assert_eq!(threads.lost(), 0);
        assert_eq!(work.within(SHORT, &by).await, Worked::Late);
        assert_eq!(threads.lost(), 1);
        drop(free);
        lost(&threads, 0).await;
        let (free, work) = stuck(&threads).await;
        drop(work);
        assert_eq!(threads.lost(), 1, "whoever waited for it may have lost its lease");
        drop(free);
        lost(&threads, 0).await;
    }

    #[tokio::test]
    async fn nothing_is_begun_where_more_than_a_few_are_lost_and_again_when_one_is_back() {
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
    async fn what_was_given_up_before_its_thread_got_to_it_is_never_begun() {
        let visit = Visit { stage: Mutex::new(Stage::Waiting), lost: Threads::default().lost };
        assert!(visit.is_given_up_unbegun());
        assert!(!visit.begins());
        assert_eq!(*visit.lost.borrow(), 0);
    }

    #[tokio::test]
    async fn work_that_panics_has_died_and_its_thread_is_not_lost() {
        let threads = Threads::default();
        let work = threads.begin(Isolation::Thread, async { panic!("as it is meant to") }).expect("a thread");
        let worked: Worked<()> = work.within(Duration::MAX, &Env::system()).await;
        assert_eq!(worked, Worked::Died);
        assert_eq!(threads.lost(), 0);
    }
}
