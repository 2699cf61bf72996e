//! A local deployment, which tests reach over HTTP as its users do.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use serializer::local::{
    LOOPBACK, LocalOptions, LocalRun,
    samples::SignedWebhook,
    sender::{HttpAnswer, Sender},
};
use tokio::sync::watch;
use webhook_serializer::{
    aws::Parts,
    engine::{append::Inbox, drain::DrainSettings},
    handler::{Context, Handler, HandlerError, Outcome},
    operator::Operator,
    protocol::delivery::Delivery,
    sources::Sources,
    telemetry::{Observer, TracingLog},
    time::Env,
};

pub struct LocalDeployment {
    pub local: LocalRun,
    pub sender: Sender,
    pub sources: Arc<Sources>,
    pub env: Env,
}

impl LocalDeployment {
    pub async fn start(sources: &str) -> Self {
        Self::start_observed(sources, Arc::new(TracingLog)).await
    }

    /// Starts a deployment that accepts the signatures of the development samples.
    pub async fn start_with_samples(sources: &str, observer: Arc<dyn Observer>) -> Self {
        Self::start_as(sources, observer, true).await
    }

    pub async fn start_observed(sources: &str, observer: Arc<dyn Observer>) -> Self {
        Self::start_as(sources, observer, false).await
    }

    async fn start_as(sources: &str, observer: Arc<dyn Observer>, samples: bool) -> Self {
        let sources = Arc::new(Sources::parse(sources).expect("the sources are right"));
        let workers = NonZeroUsize::new(4).expect("four are some");
        let drain = DrainSettings::default();
        let options = LocalOptions {
            data: None,
            listen: (LOOPBACK, 0).into(),
            queue_port: 0,
            queue_added: |_, _| {},
            workers,
            sources: (&sources).into(),
            sources_file: None,
            drain,
            scheduler: None,
            fair_queue: false,
            samples,
        };
        let local = LocalRun::start(options, observer).await.expect("it starts");
        let sender = Sender::new(format!("http://{}", local.webhooks));
        Self { local, sender, sources, env: Env::system() }
    }

    /// Posts a webhook, and posts it again for as long as the answer is 503.
    pub async fn post(&self, webhook: &SignedWebhook) -> HttpAnswer {
        for _ in 0..6 {
            let answer = self.sender.post(webhook).await.expect("it answers");
            if answer.status != 503 {
                return answer;
            }
        }
        panic!("not stored six times in a row");
    }

    pub fn operator(&self) -> Operator {
        self.operator_over(self.local.engines.connect(&self.env, None))
    }

    /// Connects again, and creates an operator.
    pub fn operator_over(&self, Parts { store, waker, .. }: Parts) -> Operator {
        let retention = DrainSettings::default().retention;
        let inbox = Inbox::new(store.clone(), waker.clone(), retention, Arc::new(TracingLog));
        Operator::new(store, waker, inbox, retention)
    }
}

/// A handler that keeps all deliveries it gets.
#[derive(Debug, Clone, Default)]
pub struct DeliveryCollector {
    deliveries: Arc<Mutex<Vec<Delivery>>>,
    count: watch::Sender<usize>,
}

impl DeliveryCollector {
    /// Waits until `count` deliveries are kept, and returns them.
    pub async fn first(&self, count: usize) -> Vec<Delivery> {
        let mut counted = self.count.subscribe();
        // `self` owns the sender, so the channel is open.
        let _ = counted.wait_for(|counted| *counted >= count).await;
        self.deliveries.lock().expect("no one panics while holding this").clone()
    }
}

impl Handler for DeliveryCollector {
    async fn handle(&self, delivery: &Delivery, _: &Context) -> Result<Outcome, HandlerError> {
        self.deliveries.lock().expect("no one panics while holding this").push(delivery.clone());
        self.count.send_modify(|count| *count += 1);
        Ok(Outcome::Done)
    }
}
