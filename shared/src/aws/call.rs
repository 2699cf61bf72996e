//! Sends single requests to AWS services over the connection pool of the SDK's clients.
//!
//! This module serves services whose own SDK client would be too large for a single call.

use std::{fmt, time::Duration};

use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt;

use super::{Http, innermost};
use crate::time::Env;

/// The longest answer that Lambda sends for a function, in bytes. No service that is called in this way sends a longer
/// one.
pub const LONGEST_ANSWER: usize = 6_291_556;

#[derive(Clone, Default)]
pub struct AwsAnswer {
    pub status: u16,
    /// The body. One that is longer than [`LONGEST_ANSWER`] is cut one byte after that.
    pub body: Vec<u8>,
    pub date: Option<String>,
    pub error_type: Option<String>,
    /// The header `x-amz-function-error`, which says that an invoked function ran and failed.
    pub function_error: Option<String>,
    /// The header `Retry-After`, in seconds.
    pub retry_after: Option<String>,
}

/// Shows only the status, because the body may hold secrets.
impl fmt::Debug for AwsAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// False only if the request was certainly not sent. If true, the service may have received the
    /// request.
    pub is_sent: bool,
    pub cause: String,
}

/// Sends a request, without retries. Gives up after the time `limit`.
pub(super) async fn send(
    http: &Http,
    request: http::Request<SdkBody>,
    limit: Duration,
    env: &Env,
) -> Result<AwsAnswer, NoAnswer> {
    let answer = async {
        let response = http.send(request, LONGEST_ANSWER + 1).await;
        let response = response.map_err(|error| NoAnswer { is_sent: !error.is_connect(), cause: innermost(&error) })?;
        let header = |name: &str| response.headers().get(name).and_then(|text| text.to_str().ok()).map(str::to_owned);
        let answer = AwsAnswer {
            status: response.status().as_u16(),
            body: Vec::new(),
            date: header("date"),
            error_type: header("x-amzn-errortype"),
            function_error: header("x-amz-function-error"),
            retry_after: header("retry-after"),
        };
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| NoAnswer { is_sent: true, cause: innermost(&error) })?;
        Ok(AwsAnswer { body: body.to_bytes().into(), ..answer })
    };
    let late = || Err(NoAnswer { is_sent: true, cause: "no answer in time".into() });
    env.within(limit, answer).await.unwrap_or_else(late)
}
