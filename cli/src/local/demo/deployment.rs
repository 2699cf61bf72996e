//! The deployment of the demonstration. Its handler behaves as the script of the current act says.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::task::AbortHandle;
use webhook_serializer::{
    aws::Parts,
    engine::append::Inbox,
    handler::{Context, Deliveries, Handler, HandlerError, Outcome},
    operator::Operator,
    protocol::{
        delivery::Delivery,
        entity::EntityKey,
        table::{Change, Key, Table, Write},
    },
    telemetry::Observer,
    time::Env,
};

use crate::{
    local::{
        LocalRun, TOTALS_TABLE,
        handler_log::{Journal, Journaled},
        sender::Sender,
    },
    view::recording::EventRecorder,
};

#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) takes: Duration,
    /// For each delivery's name, the number of attempts that fail before one succeeds.
    pub(crate) fails: HashMap<&'static str, u32>,
    pub(crate) rejects: Vec<&'static str>,
}

#[derive(Debug, Clone)]
struct DemoHandler {
    script: Arc<Mutex<Script>>,
    story: EventRecorder,
}

impl Handler for DemoHandler {
    async fn handle(&self, delivery: &Delivery, context: &Context) -> Result<Outcome, HandlerError> {
        let name = self.story.name(delivery.delivery_id().as_str(), delivery.topic());
        let (takes, fails, rejects) = {
            let script = self.script.lock().expect("no one panics while holding this");
            let fails = script.fails.get(name.as_str()).copied().unwrap_or(0);
            (script.takes, fails, script.rejects.contains(&name.as_str()))
        };
        context.env().sleep(takes).await;
        if delivery.attempt() <= fails {
            return Ok(Outcome::retry_after(Duration::from_millis(400), "no answer"));
        }
        if rejects && delivery.redrive() == 0 {
            return Ok(Outcome::Reject("the warehouse knows no such article".into()));
        }
        Ok(counted(delivery.entity(), 1))
    }

    async fn handle_all(&self, deliveries: Deliveries, context: &Context) -> Result<Outcome, HandlerError> {
        let takes = self.script.lock().expect("no one panics while holding this").takes;
        context.env().sleep(takes).await;
        Ok(counted(deliveries.first().entity(), deliveries.iter().count() as u64))
    }

    fn handles_all(&self, _: &str) -> bool {
        true
    }
}

fn counted(order: &EntityKey, deliveries: u64) -> Outcome {
    Outcome::commit([Write::update(row(order), [Change::add(DELIVERIES, deliveries)])])
}

const DELIVERIES: &str = "deliveries";

fn row(order: &EntityKey) -> Key {
    Key::named(TOTALS_TABLE, "order", order.as_str())
}

pub(super) async fn committed(table: &dyn Table, order: &EntityKey) -> Option<u64> {
    table.get(&row(order)).await.ok()??.number(DELIVERIES)
}

fn scripted(script: &Arc<Mutex<Script>>, story: &EventRecorder, journal: &Journal) -> Journaled<DemoHandler> {
    Journaled::new(DemoHandler { script: script.clone(), story: story.clone() }, journal.clone())
}

pub(crate) struct DemoDeployment {
    pub(crate) local: LocalRun,
    pub(crate) story: EventRecorder,
    pub(crate) journal: Journal,
    pub(crate) sender: Sender,
    script: Arc<Mutex<Script>>,
    workers: Vec<AbortHandle>,
}

impl DemoDeployment {
    pub(crate) fn new(mut local: LocalRun, story: EventRecorder, journal: Journal) -> Self {
        let sender = Sender::new(format!("http://{}", local.webhooks));
        let script = Arc::new(Mutex::new(Script::default()));
        let workers = local.work(|_| scripted(&script, &story, &journal));
        Self { local, story, journal, sender, script, workers }
    }

    pub(crate) fn set_script(&self, script: &Script) {
        *self.script.lock().expect("no one panics while holding this") = script.clone();
    }

    /// Aborts all workers, which has the effect of a crash, and starts as many new ones.
    pub(crate) fn replace_workers(&mut self) {
        for worker in self.workers.drain(..) {
            worker.abort();
        }
        let script = &self.script;
        let story = &self.story;
        let journal = &self.journal;
        self.workers = self.local.work(|_| scripted(script, story, journal));
    }

    pub(crate) fn operator(&self) -> Operator {
        let Parts { store, waker, .. } = self.local.engines.connect(&Env::system(), None);
        let retention = self.local.engines.config().retention;
        let observer: Arc<dyn Observer> = Arc::new(self.story.clone());
        let inbox = Inbox::new(store.clone(), waker.clone(), retention, observer);
        Operator::new(store, waker, inbox, retention)
    }

    pub(crate) fn table(&self) -> Arc<dyn Table> {
        self.local.engines.connect(&Env::system(), None).store.table().clone()
    }
}
