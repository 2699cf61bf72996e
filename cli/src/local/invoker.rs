//! Calls functions through Lambda's Invoke API, which `cargo lambda watch` offers too.

use std::time::Duration;

use anyhow::{Result, ensure};
use webhook_serializer::time::Env;

use crate::local::sender::Sender;

/// The extra time that a function gets for its first start, as in Lambda.
const START: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Invoker {
    sender: Sender,
    env: Env,
}

impl Invoker {
    pub fn new(base: &str) -> Self {
        Self { sender: Sender::new(base.trim_end_matches('/')), env: Env::system() }
    }

    /// Invokes `function` and returns its response. After an error, the invocation may have taken effect.
    pub async fn invoke(&self, function: &str, event: &impl serde::Serialize, timeout: Duration) -> Result<String> {
        let path = format!("/2015-03-31/functions/{function}/invocations");
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let invoked = self.sender.request("POST", &path, &headers, serde_json::to_vec(event)?);
        let Some(answer) = self.env.within(timeout + START, invoked).await else {
            anyhow::bail!("`{function}` did not answer in time");
        };
        let answer = answer?;
        ensure!(answer.status == 200, "`{function}` failed with {}: {}", answer.status, answer.body);
        Ok(answer.body)
    }
}
