//! Creates the AWS clients.
//!
//! Region, credentials and endpoints come from Lambda's environment variables. The crate `aws-config` also looks in
//! other places. That is slower, so the crate is used only with the feature `credentials`. TLS is rustls with ring,
//! because aws-lc gathers entropy for hundreds of milliseconds in a small function, which has only a share of a
//! processor.

pub(crate) mod boot;
pub mod call;
mod connections;
mod dated;
mod document;
pub mod dynamo;
pub mod endpoints;
#[cfg(feature = "credentials")]
mod found;
pub mod meter;
pub mod signed;
pub mod sqs;
pub mod stored;
mod warm;

use std::{sync::Arc, time::Duration};

use aws_sdk_dynamodb::config::{
    BehaviorVersion, Credentials, Region, SharedCredentialsProvider, StalledStreamProtectionConfig, retry::RetryConfig,
    timeout::TimeoutConfig,
};
use aws_smithy_runtime_api::client::{http::HttpClient, result::ConnectorError};

use crate::{
    aws::{
        dynamo::{DynamoTable, TableNames},
        meter::Meter,
        sqs::SqsQueue,
    },
    config::{Environment, InvalidConfig, StoreConfig, Variables, needed},
    engine::{store::Store, wake::Waker},
    time::Env,
    tls::Roots,
};
pub use connections::Http;
use endpoints::Variant;

/// The timeout of one request to AWS. The SDK has no such timeout by default.
///
/// The timeout covers a single try, because the SDK's clients do not retry. `store.rs` does.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1500);

#[derive(Debug, Clone)]
pub struct Account {
    pub region: Region,
    pub credentials: SharedCredentialsProvider,
    /// The endpoint of DynamoDB. In this and the other fields for endpoints, `None` stands for the
    /// region's endpoint.
    pub dynamodb_endpoint: Option<String>,
    pub sqs_endpoint: Option<String>,
    pub ssm_endpoint: Option<String>,
    pub secrets_endpoint: Option<String>,
    pub lambda_endpoint: Option<String>,
    pub variant: Variant,
    /// The trusted certificate authorities. `None` trusts the authorities that AWS uses in the
    /// region.
    pub roots: Option<Roots>,
}

impl Account {
    pub fn from_env() -> Result<Self, InvalidConfig> {
        Self::from(&Environment)
    }

    pub fn of(region: Region, credentials: SharedCredentialsProvider, roots: Roots) -> Self {
        Self::with_endpoints(&Environment, region, credentials, Some(roots))
    }

    fn with_endpoints(
        variables: &impl Variables,
        region: Region,
        credentials: SharedCredentialsProvider,
        roots: Option<Roots>,
    ) -> Self {
        let endpoint = |own: &str| variables.value(own).or_else(|| variables.value("AWS_ENDPOINT_URL"));
        Self {
            region,
            credentials,
            dynamodb_endpoint: endpoint("AWS_ENDPOINT_URL_DYNAMODB"),
            sqs_endpoint: endpoint("AWS_ENDPOINT_URL_SQS"),
            ssm_endpoint: endpoint("AWS_ENDPOINT_URL_SSM"),
            secrets_endpoint: endpoint("AWS_ENDPOINT_URL_SECRETS_MANAGER"),
            lambda_endpoint: endpoint("AWS_ENDPOINT_URL_LAMBDA"),
            variant: Variant::read(variables),
            roots,
        }
    }

    pub(crate) fn from(variables: &impl Variables) -> Result<Self, InvalidConfig> {
        let variable = |name: &str| variables.value(name);
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        let credentials = Credentials::new(
            needed(variables, "AWS_ACCESS_KEY_ID")?,
            needed(variables, "AWS_SECRET_ACCESS_KEY")?,
            variable("AWS_SESSION_TOKEN"),
            None,
            "environment",
        );
        let roots = bundle(variables)?;
        let region = Region::new(region.map_or_else(|| needed(variables, "AWS_REGION"), Ok)?);
        Ok(Self::with_endpoints(variables, region, SharedCredentialsProvider::new(credentials), roots))
    }

    /// Creates an account for local replacements of DynamoDB and SQS. They listen at these endpoints and check no
    /// credentials.
    pub fn local(dynamodb: impl Into<String>, sqs: impl Into<String>) -> Self {
        Self {
            region: Region::from_static("us-east-1"),
            credentials: SharedCredentialsProvider::new(Credentials::new("local", "local", None, None, "local")),
            dynamodb_endpoint: Some(dynamodb.into()),
            sqs_endpoint: Some(sqs.into()),
            ssm_endpoint: None,
            secrets_endpoint: None,
            lambda_endpoint: None,
            variant: Variant::default(),
            roots: None,
        }
    }

    fn endpoint_of(&self, service: &str) -> String {
        self.variant.endpoint(service, self.region.as_ref())
    }

    /// Returns the service's FIPS or dual-stack endpoint, or `None` if the account uses neither variant.
    ///
    /// The SDK's clients could resolve these names too, but their code makes a Lambda function 7 KB larger.
    fn variant_of(&self, service: &str) -> Option<String> {
        (self.variant != Variant::default()).then(|| self.endpoint_of(service))
    }

    /// Makes the account also trust the operating system's root certificates, unless its roots are already set.
    ///
    /// A program outside Lambda may be behind a proxy that issues its own certificates. A deployment's own Lambda
    /// functions do not call this method, so that they stay small and start quickly.
    pub(crate) fn outside(mut self) -> Self {
        if self.roots.is_none() && !self.has_other_roots() {
            self.roots = Some(Roots::amazon_or_machine());
        }
        self
    }

    /// Returns whether AWS may use certificates in this region from authorities other than Amazon's
    /// own.
    fn has_other_roots(&self) -> bool {
        let region = self.region.as_ref();
        region.starts_with("cn-") || region.contains("-iso") || region.starts_with("eusc-")
    }

    /// Creates a connection pool, which all clients of the process should share.
    pub fn http_client(&self) -> Http {
        let roots = match &self.roots {
            Some(roots) => roots.clone(),
            None if self.has_other_roots() => Roots::machine(),
            None => Roots::amazon(),
        };
        Http::new(roots)
    }

    pub fn dynamodb(&self, http: &(impl HttpClient + Clone + 'static)) -> aws_sdk_dynamodb::Client {
        let mut config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(self.region.clone())
            .credentials_provider(self.credentials.clone())
            .http_client(http.clone())
            .retry_config(RetryConfig::disabled())
            // The timeout also ends a reply that stalls. The SDK's protection takes 3 µs of a request's 39.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .timeout_config(timeouts());
        config.set_endpoint_url(self.dynamodb_endpoint.clone().or_else(|| self.variant_of("dynamodb")));
        aws_sdk_dynamodb::Client::from_conf(config.build())
    }

    pub fn sqs(&self, http: &(impl HttpClient + Clone + 'static)) -> aws_sdk_sqs::Client {
        let mut config = aws_sdk_sqs::Config::builder()
            .behavior_version(aws_sdk_sqs::config::BehaviorVersion::latest())
            .region(self.region.clone())
            .credentials_provider(self.credentials.clone())
            .http_client(http.clone())
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts());
        config.set_endpoint_url(self.sqs_endpoint.clone().or_else(|| self.variant_of("sqs")));
        aws_sdk_sqs::Client::from_conf(config.build())
    }
}

#[derive(Debug, Clone)]
pub struct Parts {
    pub store: Store,
    pub waker: Waker,
    pub queue: Arc<SqsQueue>,
}

impl Parts {
    pub fn connect(account: &Account, config: &StoreConfig, env: &Env, meter: Option<Arc<Meter>>) -> Self {
        Self::connect_over(&account.http_client(), account, config, env, meter)
    }

    pub fn connect_over(
        http: &Http,
        account: &Account,
        config: &StoreConfig,
        env: &Env,
        meter: Option<Arc<Meter>>,
    ) -> Self {
        Self::of(account.dynamodb(&http.dated(env)), account.sqs(http), config, env, meter)
    }

    /// Returns the parts that send their requests through these clients.
    pub fn of(
        dynamodb: aws_sdk_dynamodb::Client,
        sqs: aws_sdk_sqs::Client,
        config: &StoreConfig,
        env: &Env,
        meter: Option<Arc<Meter>>,
    ) -> Self {
        let names = TableNames { entities: config.entities_table.clone(), inbox: config.inbox_table.clone() };
        let mut table = DynamoTable::new(dynamodb, names);
        let mut queue = SqsQueue::new(sqs, config.queue_url.clone());
        if config.fair_queue {
            queue = queue.fair();
        }
        if let Some(meter) = meter {
            table = table.metered(meter.clone());
            queue = queue.metered(meter);
        }
        let table = Arc::new(table);
        let queue = Arc::new(queue);
        Self { store: Store::new(table, env.clone()), waker: Waker::new(queue.clone(), env.clone()), queue }
    }
}

pub fn bundle(variables: &impl Variables) -> Result<Option<Roots>, InvalidConfig> {
    let Some(path) = variables.value("AWS_CA_BUNDLE") else { return Ok(None) };
    let invalid = |reason: String| InvalidConfig::new("AWS_CA_BUNDLE", format!("{path} {reason}"));
    let pem = std::fs::read(&path).map_err(|error| invalid(format!("cannot be read: {error}")))?;
    Roots::in_pem(&pem).map(Some).map_err(invalid)
}

/// Describes a request that was not answered. The text says whether a connection was made.
pub(crate) fn unanswered(error: Option<&ConnectorError>) -> String {
    match error {
        None => "no connection".to_owned(),
        Some(error) if connections::is_unconnected(error) => format!("no connection: {}", innermost(error)),
        Some(error) => innermost(error),
    }
}

fn innermost(mut error: &dyn std::error::Error) -> String {
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}

/// Limits the time of an operation. An operation is one attempt, so another timeout for attempts would only cost time.
fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder().operation_timeout(ATTEMPT_TIMEOUT).build()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::UNIX_EPOCH,
    };

    use aws_credential_types::provider::{ProvideCredentials, future};
    use aws_sdk_dynamodb::error::SdkError;

    use super::*;
    use crate::tls::endpoint::{Endpoint, EndpointReply};

    #[derive(Debug, Default)]
    struct Short(AtomicUsize);

    impl ProvideCredentials for Short {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let id = format!("KEY{}", self.0.fetch_add(1, Ordering::SeqCst));
            future::ProvideCredentials::ready(Ok(Credentials::new(id, "secret", None, Some(UNIX_EPOCH), "test")))
        }
    }

    /// Promise: credentials that expire are renewed.
    #[tokio::test]
    async fn expired_credentials_are_renewed() {
        let mut endpoint = Endpoint::start(|_| EndpointReply::status(200)).await;
        let account = Account {
            credentials: SharedCredentialsProvider::new(Short::default()),
            ..Account::local(endpoint.url(), endpoint.url())
        };
        let dynamodb = account.dynamodb(&account.http_client());
        let mut signed_by = Vec::new();
        for _ in 0..2 {
            let _ = dynamodb.list_tables().send().await;
            let header = endpoint.posted().await.header("authorization").to_owned();
            signed_by.push(header.split(['=', '/']).nth(1).unwrap().to_owned());
        }
        assert_eq!(signed_by, ["KEY0", "KEY1"]);
    }

    #[tokio::test]
    async fn reply_that_stalls_ends_at_the_timeout() {
        let endpoint = Endpoint::start(|_| EndpointReply::status(200).body_never_sent(9)).await;
        let account = Account::local(endpoint.url(), endpoint.url());
        let dynamodb = account.dynamodb(&account.http_client());
        let answer = Env::system().within(10 * ATTEMPT_TIMEOUT, dynamodb.list_tables().send()).await;
        assert!(matches!(answer, Some(Err(SdkError::TimeoutError(_)))), "{answer:?}");
    }

    #[test]
    fn explicit_endpoint_overrides_fips_and_dual_stack() {
        let given = |more: &[(&str, &str)]| {
            let account = account(&[BASE.as_slice(), more].concat()).unwrap();
            let http = account.http_client();
            (format!("{:?}", account.dynamodb(&http).config()), format!("{:?}", account.sqs(&http).config()))
        };
        let fips = ("AWS_USE_FIPS_ENDPOINT", "true");
        let dual = ("AWS_USE_DUALSTACK_ENDPOINT", "true");
        let (tables, queues) = given(&[fips, dual]);
        assert!(tables.contains("https://dynamodb-fips.eu-central-1.api.aws"), "{tables}");
        assert!(queues.contains("https://sqs-fips.eu-central-1.api.aws"), "{queues}");
        let (tables, queues) = given(&[fips, ("AWS_ENDPOINT_URL", "http://127.0.0.1:1")]);
        for config in [tables, queues, given(&[]).0, given(&[]).1] {
            assert!(!config.contains("fips.eu") && !config.contains("amazonaws.com"), "{config}");
        }
    }

    fn account(set: &[(&str, &str)]) -> Result<Account, InvalidConfig> {
        Account::from(&set)
    }

    const BASE: [(&str, &str); 3] =
        [("AWS_REGION", "eu-central-1"), ("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];

    #[test]
    fn service_endpoint_overrides_common_endpoint() {
        let common = ("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
        let own = ("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:2");
        let account = account(&[BASE.as_slice(), &[common, own]].concat()).unwrap();
        assert_eq!(account.dynamodb_endpoint.as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(account.sqs_endpoint.as_deref(), Some("http://127.0.0.1:2"));
    }

    #[test]
    fn ca_bundle_without_certificates_is_named_in_the_error() {
        let bundle = ("AWS_CA_BUNDLE", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let refused = account(&[BASE.as_slice(), &[bundle]].concat()).unwrap_err().to_string();
        assert!(refused.starts_with("AWS_CA_BUNDLE: ") && refused.ends_with("Cargo.toml holds no certificate"));
    }
}
