//! Many put back, behind the page that shows how far it is.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use webhook_serializer::operator::Operator;

use crate::operations::{self, Effect, Target, Verb};

/// So many are remembered, the newest.
const KEPT: usize = 16;

/// So many that were not put back are named.
const NAMED: usize = 20;

/// Deliveries that are put back, one after the other.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) id: String,
    pub(super) total: usize,
    pub(super) why: String,
    back: AtomicUsize,
    not: AtomicUsize,
    stop: AtomicBool,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    not: Vec<String>,
    /// How it ended; `None`: it goes on.
    ended: Option<String>,
}

/// How far it is.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) back: usize,
    pub(super) not: usize,
    /// Some of those that were not put back, and why.
    pub(super) named: Vec<String>,
    pub(super) ended: Option<String>,
}

/// What goes on, and what has ended lately.
#[derive(Debug, Default)]
pub(super) struct Works(Mutex<Vec<Arc<Work>>>);

impl Works {
    /// Begins to redrive these deliveries, in their order.
    pub(super) fn begin(&self, id: String, operator: Operator, targets: Vec<Target>, why: String) -> Arc<Work> {
        let work = Arc::new(Work {
            id,
            total: targets.len(),
            why,
            back: AtomicUsize::new(0),
            not: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            told: Mutex::default(),
        });
        let mut works = self.0.lock().expect("no one panics while holding this");
        works.push(work.clone());
        if works.len() > KEPT {
            works.remove(0);
        }
        tokio::spawn(work.clone().run(operator, targets));
        work
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Work>> {
        self.0.lock().expect("no one panics while holding this").iter().find(|work| work.id == id).cloned()
    }
}

impl Work {
    async fn run(self: Arc<Self>, operator: Operator, targets: Vec<Target>) {
        let done = operations::run(Verb::Redrive, &operator, &targets, |_, outcome| {
            if outcome.effect == Effect::Done {
                self.back.fetch_add(1, Relaxed);
            } else {
                self.not.fetch_add(1, Relaxed);
                let mut told_here = self.told();
                if told_here.not.len() < NAMED {
                    told_here.not.push(outcome.sentence);
                }
            }
            !self.stop.load(Relaxed)
        });
        let done = done.await;
        let left = self.total - self.back.load(Relaxed) - self.not.load(Relaxed);
        self.told().ended = Some(match done {
            Ok(()) if left == 0 => "Done.".to_owned(),
            Ok(()) => format!("Stopped; {left} stay parked. Nothing is half done, and the same can be begun again."),
            Err(error) => format!("Stopped: {error}. {left} stay parked; begun again, it goes on."),
        });
    }

    /// After the one that is being put back.
    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub(super) fn progress(&self) -> Progress {
        let told = self.told();
        Progress {
            back: self.back.load(Relaxed),
            not: self.not.load(Relaxed),
            named: told.not.clone(),
            ended: told.ended.clone(),
        }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().expect("no one panics while holding this")
    }
}
