//! Opens connections while a function initialises, when Lambda gives it the most processor time.

use std::time::Duration;

use super::{Account, Http, call};
use crate::time::Env;

/// The longest time for opening a connection. A TLS handshake within a region takes less.
const PATIENCE: Duration = Duration::from_millis(700);

impl Account {
    /// Opens one connection to DynamoDB and one to SQS in the pool of `http`.
    ///
    /// The requests need no permission and are free. Errors are ignored, since the first real request
    /// reports them.
    pub async fn warm(&self, http: &Http, env: &Env) {
        let queue = self.open(http, env, "sqs", &self.sqs_endpoint);
        tokio::join!(self.warm_table(http, env), queue);
    }

    pub(super) async fn warm_table(&self, http: &Http, env: &Env) {
        self.open(&http.dated(env), env, "dynamodb", &self.dynamodb_endpoint).await;
    }

    async fn open(&self, http: &Http, env: &Env, service: &str, endpoint: &Option<String>) {
        let endpoint = endpoint.clone().unwrap_or_else(|| self.endpoint_of(service));
        let question = http::Request::get(format!("{}/ping", endpoint.trim_end_matches('/')));
        if let Ok(question) = question.body("".into()) {
            let _ = call::send(http, question, PATIENCE, env).await;
        }
    }
}
