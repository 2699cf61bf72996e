//! Starts functions and scripts: reads the environment, and connects to AWS.

use std::{path::Path, sync::Arc, time::Duration};

use super::{
    Account, Http, Parts,
    dynamo::{DynamoTable, TableNames},
    sqs::SqsQueue,
};
use crate::{
    config::{
        Environment, InvalidConfig, SourcesOrigin, StoreConfig, Variables, fair_queue, instance_name, needed, retention,
    },
    engine::{append::Inbox, queue::check_url, store::Store, wake::Waker},
    leases::Leases,
    sources::LiveSources,
    telemetry::{Observer, TracingLog},
    time::Env,
};

#[derive(Debug)]
pub(crate) struct StartConfig {
    pub(crate) config: StoreConfig,
    pub(crate) env: Env,
    account: Account,
    http: Http,
}

impl StartConfig {
    pub(crate) fn read(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        Self::by(variables, Account::from(variables)?)
    }

    fn by(variables: &impl Variables, account: Account) -> Result<Self, InvalidConfig> {
        let config = StoreConfig::read(variables)?;
        let http = account.http_client();
        Ok(Self { config, env: Env::system(), account, http })
    }

    pub(crate) async fn warm(&self) {
        self.account.warm(&self.http, &self.env).await;
    }

    pub(crate) async fn warm_and_open(
        &self,
        origin: SourcesOrigin,
        observer: Arc<dyn Observer>,
    ) -> Result<LiveSources, InvalidConfig> {
        let document = self.account.document(&self.http, origin, &self.env);
        let sources = LiveSources::open(document, self.env.clone(), observer);
        let (sources, ()) = tokio::join!(sources, self.warm());
        sources.map_err(|reason| InvalidConfig::new(SourcesOrigin::VARIABLE, reason))
    }

    #[cfg(any(feature = "scheduler", feature = "worker"))]
    pub(crate) fn account_and_http(&self) -> (Account, Http) {
        (self.account.clone(), self.http.clone())
    }

    pub(crate) fn connect(&self, observer: Arc<dyn Observer>) -> Deployment {
        let parts = Parts::connect_over(&self.http, &self.account, &self.config, &self.env, None);
        Deployment { parts, retention: self.config.retention, observer }
    }
}

/// A connection to a deployment's tables and queue.
///
/// A worker function gets it from `worker::Setup::deployment`. A scheduler function gets it as the
/// argument of `make` in `scheduler::run_with`. Scripts create it with [`Deployment::from_env`].
#[derive(Debug, Clone)]
pub struct Deployment {
    pub(crate) parts: Parts,
    retention: Duration,
    observer: Arc<dyn Observer>,
}

impl Deployment {
    /// Connects to the deployment that the environment describes.
    ///
    /// Reads `ENTITIES_TABLE`, `INBOX_TABLE`, `QUEUE_URL`, `FAIR_QUEUE` (`false` by default),
    /// `RETENTION_DAYS` (30 by default), and the AWS SDKs' variables for region, credentials and
    /// endpoints. If no variable holds an access key, the feature `credentials` looks for
    /// credentials in profiles, containers and instances.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first variable that is missing or invalid. A service that
    /// cannot be reached causes no error here: the first request to it fails.
    pub async fn from_env() -> Result<Self, InvalidConfig> {
        let start = StartConfig::by(&Environment, account(&Environment).await?)?;
        start.warm().await;
        Ok(start.connect(Arc::new(TracingLog)))
    }

    /// Returns [`Leases`], which grants leases on the deployment's entities.
    ///
    /// `holder` is the description of the holder that operators see, cut to 60 bytes. The release
    /// of a lease wakes a worker if deliveries wait.
    pub fn leases(&self, holder: &str) -> Leases {
        let Parts { store, waker, .. } = self.parts.clone();
        Leases::new(store, holder).waking(waker).kept_for(self.retention).observed_by(self.observer.clone())
    }

    /// Returns an [`Inbox`], which appends an application's own deliveries to the deployment's
    /// inboxes.
    pub fn inbox(&self) -> Inbox {
        let Parts { store, waker, .. } = self.parts.clone();
        Inbox::new(store, waker, self.retention, self.observer.clone())
    }
}

impl Leases {
    /// Connects to the table of leases that `ENTITIES_TABLE` names.
    ///
    /// Also reads the AWS SDKs' variables for region, credentials and endpoints. If no variable
    /// holds an access key, the feature `credentials` looks for credentials in profiles, containers
    /// and instances.
    ///
    /// With `QUEUE_URL`, the release of a lease wakes a worker if deliveries wait. `FAIR_QUEUE`
    /// (`false` by default) should equal the deployment's. `RETENTION_DAYS` (30 by default) is how long
    /// the rows of idle entities are kept, and must equal the deployment's retention. Operators see
    /// the name of the program as the holder, or in Lambda the names of the function and its log
    /// stream, unless [`Leases::held_by`] sets another description.
    ///
    /// # Errors
    ///
    /// Returns an error that names the first variable that is missing or invalid.
    pub async fn from_env() -> Result<Self, InvalidConfig> {
        let program = std::env::args().next().unwrap_or_default();
        Self::from(&Environment, &program).await
    }

    async fn from(variables: &impl Variables, program: &str) -> Result<Self, InvalidConfig> {
        // Leases use only the table of entities.
        let names = TableNames { entities: needed(variables, "ENTITIES_TABLE")?, inbox: String::new() };
        let retention = retention(variables)?;
        let queue_url = variables.value("QUEUE_URL");
        if let Some(url) = &queue_url {
            check_url(url).map_err(|reason| InvalidConfig::new("QUEUE_URL", reason))?;
        }
        let is_fair = fair_queue(variables)?;
        let account = account(variables).await?;
        let env = Env::system();
        let http = account.http_client();
        let table = DynamoTable::new(account.dynamodb(&http.dated(&env)), names);
        let store = Store::new(Arc::new(table), env.clone());
        let holder = match variables.value("AWS_LAMBDA_FUNCTION_NAME") {
            Some(_) => instance_name(variables),
            None => Path::new(program).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let leases = Self::new(store, &holder).kept_for(retention);
        let Some(url) = queue_url else {
            account.warm_table(&http, &env).await;
            return Ok(leases);
        };
        account.warm(&http, &env).await;
        let queue = SqsQueue::new(account.sqs(&http), url);
        let queue = if is_fair { queue.fair() } else { queue };
        Ok(leases.waking(Waker::new(Arc::new(queue), env)))
    }
}

/// Finds region, credentials and endpoints for a program that may run outside Lambda.
///
/// If the environment has an access key, as it always has in Lambda, no other place is searched,
/// because the search would slow the start of a Lambda function.
async fn account(variables: &impl Variables) -> Result<Account, InvalidConfig> {
    #[cfg(feature = "credentials")]
    if variables.value("AWS_ACCESS_KEY_ID").is_none() {
        return super::found::account(variables).await;
    }
    Account::from(variables).map(Account::outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Environment variables with an endpoint that nothing listens at.
    const BASE: [(&str, &str); 5] = [
        ("AWS_REGION", "eu-central-1"),
        ("AWS_ACCESS_KEY_ID", "a"),
        ("AWS_SECRET_ACCESS_KEY", "b"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("ENTITIES_TABLE", "entities"),
    ];

    async fn leases(set: &[(&str, &str)]) -> Result<Leases, String> {
        Leases::from(&set, "target/debug/invoice-run").await.map_err(|error| error.to_string())
    }

    async fn holder(more: &[(&str, &str)]) -> String {
        format!("{:?}", leases(&[BASE.as_slice(), more].concat()).await.unwrap())
    }

    /// Promise: `Leases::from_env` names what is missing or wrong.
    #[tokio::test]
    async fn lease_setup_error_names_the_missing_variable() {
        leases(&BASE).await.unwrap();
        // With the feature `credentials`, an access key need not be in a variable.
        let needed = if cfg!(feature = "credentials") { &[0, 2, 4][..] } else { &[0, 1, 2, 4] };
        for &needed in needed {
            let mut set = BASE.to_vec();
            let (name, _) = set.remove(needed);
            assert_eq!(leases(&set).await.unwrap_err(), format!("{name}: is not set"));
        }
    }

    #[tokio::test]
    async fn invalid_optional_variable_is_named_in_the_error() {
        let refused = leases(&[BASE.as_slice(), &[("RETENTION_DAYS", "a month")]].concat()).await.unwrap_err();
        assert_eq!(refused, "RETENTION_DAYS: \"a month\" is not a whole number from 1 to 3650");
        let refused = leases(&[BASE.as_slice(), &[("FAIR_QUEUE", "yes")]].concat()).await.unwrap_err();
        assert_eq!(refused, "FAIR_QUEUE: \"yes\" is neither true nor false");
        let refused = leases(&[BASE.as_slice(), &[("QUEUE_URL", "wake-ups")]].concat()).await.unwrap_err();
        assert!(
            refused.starts_with("QUEUE_URL: \"wake-ups\" is not the URL of a queue: set QUEUE_URL to "),
            "{refused}"
        );
    }

    #[tokio::test]
    async fn lease_holder_is_named_after_program_or_function() {
        assert!(holder(&[]).await.contains("\"invoice-run\""));
        let function = [("AWS_LAMBDA_FUNCTION_NAME", "billing"), ("AWS_LAMBDA_LOG_STREAM_NAME", "7")];
        assert!(holder(&function).await.contains("\"billing 7\""));
    }
}
