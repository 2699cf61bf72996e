//! Runs bulk redrives in the background while a page shows their progress.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use webhook_serializer::operator::Operator;

use crate::verbs::{OperationTarget, Report, redrive::REDRIVE};

const KEPT: usize = 16;

const LISTED: usize = 20;

#[derive(Debug)]
pub(super) struct BulkOperation {
    pub(super) id: String,
    pub(super) total: usize,
    pub(super) why: String,
    stop: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Progress {
    pub(super) back: usize,
    pub(super) not: usize,
    pub(super) failures: Vec<String>,
    pub(super) ended: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Works(Mutex<Vec<Arc<BulkOperation>>>);

impl Works {
    pub(super) fn begin(
        &self,
        id: String,
        operator: Operator,
        targets: Vec<OperationTarget>,
        why: String,
    ) -> Arc<BulkOperation> {
        let work = Arc::new(BulkOperation {
            id,
            total: targets.len(),
            why,
            stop: AtomicBool::new(false),
            progress: Mutex::default(),
        });
        let mut works = self.0.lock().expect("no one panics while holding this");
        works.push(work.clone());
        if works.len() > KEPT {
            works.remove(0);
        }
        tokio::spawn(work.clone().run(operator, targets));
        work
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<BulkOperation>> {
        self.0.lock().expect("no one panics while holding this").iter().find(|work| work.id == id).cloned()
    }
}

impl BulkOperation {
    async fn run(self: Arc<Self>, operator: Operator, targets: Vec<OperationTarget>) {
        let mut report = |_: &OperationTarget, report: Report| {
            let mut progress = self.locked();
            if report.effect.is_done() {
                progress.back += 1;
            } else {
                progress.not += 1;
                if progress.failures.len() < LISTED {
                    progress.failures.push(report.sentence);
                }
            }
            !self.stop.load(Relaxed)
        };
        let done = REDRIVE.run(&operator, &targets, &mut report).await;
        let mut progress = self.locked();
        let left = self.total - progress.back - progress.not;
        progress.ended = Some(match done {
            Ok(()) if left == 0 => "Done.".to_owned(),
            Ok(()) => format!("Stopped; {left} deliveries stay parked. Start the same redrive again to continue."),
            Err(error) => {
                format!("Stopped: {error}. {left} deliveries stay parked. Start the same redrive again to continue.")
            }
        });
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub(super) fn progress(&self) -> Progress {
        self.locked().clone()
    }

    fn locked(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().expect("no one panics while holding this")
    }
}
