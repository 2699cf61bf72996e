//! The job that looks for trouble each minute, and reports changes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::OnceCell;

use super::{
    compare::{Comparison, GroupChange, KnownGroups, compare, message_id},
    form::body,
    group::Trouble,
    indexes::{WAITING, look},
    message::{AlertMessage, Contents, DeploymentNaming, OutageOf},
};
use crate::{
    config::Environment,
    engine::store::{Store, StoreError},
    handlers::forward::Clients,
    jobs::{Context, Job, Missed, once::ALERTS},
    operator::{Operator, OperatorError},
    protocol::{
        alert::{AlertsRow, RecordAlerts},
        format::{CorruptRow, attribute as a},
        keys::alerts_range,
        outage::Outage,
    },
    sources::{LiveSources, Sources, SourcesDocument, alerts::Alerts},
    telemetry::Observer,
    time::{Env, Nonce, Timestamp},
    tls::Roots,
};

const PATIENCE: Duration = Duration::from_secs(5);

/// The longest wait for a receiver's answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The reason why a run of the job failed. It contains neither the receiver's URL nor a secret.
#[derive(Debug, thiserror::Error)]
pub enum AlertsError {
    #[error("the sources document cannot be read: {0}")]
    Document(String),
    #[error(transparent)]
    Operator(#[from] OperatorError),
    #[error("the alert was not delivered, and is sent again within a minute: {0}")]
    Undelivered(String),
    #[error(
        "an index cannot be read, so alerts about its orders are missing; `serializer doctor` says what to do ({0})"
    )]
    Blind(OperatorError),
}

impl From<StoreError> for AlertsError {
    fn from(error: StoreError) -> Self {
        Self::Operator(error.into())
    }
}

/// The sources document of a function that needs it only for alerts. It is first read by a run of the job, so a
/// document that cannot be read keeps no other job from its work.
pub struct AlertsDocument {
    open: Box<dyn Fn() -> Box<dyn SourcesDocument> + Send + Sync>,
    env: Env,
    observer: Arc<dyn Observer>,
    opened: OnceCell<LiveSources>,
}

impl AlertsDocument {
    pub fn new(
        open: impl Fn() -> Box<dyn SourcesDocument> + Send + Sync + 'static,
        env: Env,
        observer: Arc<dyn Observer>,
    ) -> Self {
        Self { open: Box::new(open), env, observer, opened: OnceCell::new() }
    }

    /// Shares a document that is open already.
    pub fn opened(sources: LiveSources, env: Env, observer: Arc<dyn Observer>) -> Self {
        let never = || -> Box<dyn SourcesDocument> { unreachable!("it is open") };
        Self { opened: OnceCell::new_with(Some(sources)), ..Self::new(never, env, observer) }
    }

    /// Returns the newest valid document.
    async fn current(&self) -> Result<Arc<Sources>, AlertsError> {
        let open = || LiveSources::open((self.open)(), self.env.clone(), self.observer.clone());
        let sources = self.opened.get_or_try_init(open).await.map_err(AlertsError::Document)?;
        sources.beside(async {}).await;
        Ok(sources.current())
    }
}

/// Sends messages to receivers of alerts. Its clients are made for the first message, so that the function's start does
/// not pay for them.
#[derive(Default)]
pub struct AlertSender(OnceCell<Clients>);

impl AlertSender {
    /// Sends a message, and returns what the receiver answered. Fails unless it answered 2xx. Neither text contains the
    /// receiver's secrets.
    pub async fn send(&self, to: &Alerts, message: &AlertMessage, id: String, env: &Env) -> Result<String, String> {
        // The machine's certificate authorities, because a copy of Mozilla's would make the scheduler larger.
        let make = async || Clients::configured(Roots::amazon_or_machine(), &Environment);
        let clients = self.0.get_or_try_init(make).await.map_err(|error| error.to_string())?;
        let body = Bytes::from(body(to.form, message, env.now()).to_string());
        clients.post(&to.destination, id, body, ANSWER_TIME, env).await
    }
}

/// The job of alerts, with its connections.
pub struct Alerting {
    operator: Operator,
    store: Store,
    document: AlertsDocument,
    sender: AlertSender,
    deployment: DeploymentNaming,
}

impl Alerting {
    pub fn new(operator: Operator, store: Store, document: AlertsDocument, deployment: DeploymentNaming) -> Self {
        Self { operator, store, document, sender: AlertSender::default(), deployment }
    }

    /// Returns whether the document has the table `alerts`, or cannot be read. Then the job has to say so.
    pub(crate) async fn are_wanted(&self) -> bool {
        self.document.current().await.map_or(true, |sources| sources.alerts().is_some())
    }

    pub(crate) fn job(self: Arc<Self>) -> Job {
        let run = move |context: Context| {
            let alerting = self.clone();
            async move { alerting.run(context.tick()).await }
        };
        // A missed look is made up for by the next one.
        Job::new(ALERTS, "every minute", run).missed(Missed::Skip).always_on()
    }

    /// Looks, sends what has changed, then records it. The time `tick` is exact to the minute, however late the run is,
    /// so that trouble lasts from look to look for whole minutes.
    pub async fn run(&self, tick: Timestamp) -> Result<(), AlertsError> {
        let sources = self.document.current().await?;
        let Some(alerts) = sources.alerts() else { return Ok(()) };
        let (mut look, lacks) = look(&self.operator, &sources).await?;
        let row = self.row().await?;
        let known = match &row {
            Some(row) => {
                KnownGroups::parse(&row.groups).ok_or(OperatorError::from(CorruptRow::Attribute(a::GROUPS)))?
            }
            None => KnownGroups::default(),
        };
        if WAITING.iter().any(|trouble| known.has(*trouble)) && !self.operator.has_mended().await? {
            look.incomplete.extend(WAITING);
        }
        let Comparison { known: next, changes } = compare(&known, &look, alerts.after, tick);
        let seen = row.as_ref().map(|row| &row.nonce);
        if let (false, Some(seen)) = (changes.is_empty(), seen) {
            self.send(alerts, &sources, &changes, message_id(seen, &changes)).await?;
        }
        if next != known {
            self.record(seen, &next).await?;
        }
        lacks.map_or(Ok(()), |error| Err(AlertsError::Blind(error)))
    }

    async fn row(&self) -> Result<Option<AlertsRow>, AlertsError> {
        let page = self.store.query(&alerts_range(), PATIENCE).await?;
        let row = page.rows.first().map(AlertsRow::parse).transpose();
        Ok(row.map_err(OperatorError::from)?)
    }

    async fn send(
        &self,
        alerts: &Alerts,
        sources: &Sources,
        changes: &[GroupChange],
        id: String,
    ) -> Result<(), AlertsError> {
        let is_waiting = changes.iter().any(|change| change.group.common.trouble == Trouble::Unavailable);
        let outages = if is_waiting { self.operator.outages().await? } else { Vec::new() };
        let of = |outage: Outage| {
            let its = sources.iter().filter(|source| *source.destination().id() == outage.destination);
            OutageOf { sources: its.map(|source| source.name.to_string()).collect::<BTreeSet<_>>(), outage }
        };
        let outages: Vec<OutageOf> = outages.into_iter().map(of).collect();
        let contents = Contents { keys: alerts.keys, errors: alerts.errors };
        let message = AlertMessage::new(&self.deployment, changes, &outages, contents, self.store.env().now());
        let sent = self.sender.send(alerts, &message, id, self.store.env()).await;
        sent.map(|_| ()).map_err(AlertsError::Undelivered)
    }

    /// Records `next`. If another run has recorded since, that record stays.
    async fn record(&self, seen: Option<&Nonce>, next: &KnownGroups) -> Result<(), AlertsError> {
        let to = AlertsRow { nonce: self.store.env().nonce(), groups: next.to_text() };
        self.store.run(&RecordAlerts { seen, to: &to }, PATIENCE).await?;
        Ok(())
    }
}
