//! Connections opened while a function initialises, when it has the most of a
//! processor, so that its first request need not.

use std::time::Duration;

use aws_sdk_dynamodb::config::{SharedHttpClient, http::HttpRequest};

use super::{Account, call};
use crate::time::Env;

/// Longer than a handshake takes anywhere near; a start is not held up longer
/// by a service that is out.
const PATIENCE: Duration = Duration::from_millis(700);

impl Account {
    /// Opens a connection each to DynamoDB and SQS and leaves it in the pool of
    /// `http`, where the clients find it. Neither needs a permission nor is
    /// charged for the question whether it is there. That one cannot be reached
    /// is for those to tell who need it.
    pub async fn warm(&self, http: &SharedHttpClient, env: &Env) {
        let queue = self.open(http, env, "sqs", &self.sqs_endpoint);
        tokio::join!(self.warm_table(http, env), queue);
    }

    /// As [`Account::warm`], without SQS.
    pub(super) async fn warm_table(&self, http: &SharedHttpClient, env: &Env) {
        self.open(http, env, "dynamodb", &self.dynamodb_endpoint).await;
    }

    async fn open(&self, http: &SharedHttpClient, env: &Env, service: &str, endpoint: &Option<String>) {
        let endpoint = endpoint.clone().unwrap_or_else(|| self.endpoint_of(service));
        let question = http::Request::get(format!("{}/ping", endpoint.trim_end_matches('/')));
        let question = question.body("".into()).ok().and_then(|request| HttpRequest::try_from(request).ok());
        if let Some(question) = question {
            let _ = env.within(PATIENCE, call::send(http, &endpoint, question, super::ATTEMPT_TIMEOUT)).await;
        }
    }
}
