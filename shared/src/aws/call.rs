//! Sends single requests to AWS services over the connection pool of the SDK's clients.
//!
//! This module serves services whose own SDK client would be too large for a single call.

use std::{convert::Infallible, fmt, time::Duration};

use aws_sdk_dynamodb::config::{
    SharedHttpClient,
    http::{HttpRequest, HttpResponse},
};
use aws_smithy_runtime::client::orchestrator::operation::Operation;
use aws_smithy_runtime_api::client::{orchestrator::OrchestratorError, result::SdkError};

use super::{
    connections::{self, AnswerLimit},
    innermost,
};

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

pub(super) async fn send(
    http: &SharedHttpClient,
    endpoint: &str,
    mut request: HttpRequest,
    limit: Duration,
) -> Result<AwsAnswer, NoAnswer> {
    request.add_extension(AnswerLimit(LONGEST_ANSWER + 1));
    let operation = Operation::builder()
        .service_name("single")
        .operation_name("call")
        .http_client(http.clone())
        .endpoint_url(endpoint)
        .no_auth()
        .no_retry()
        .timeout_config(super::at_most(limit))
        .serializer(Ok)
        .deserializer(|response: &HttpResponse| {
            let body = response.body().bytes().unwrap_or_default().to_vec();
            let header = |name: &str| response.headers().get(name).map(str::to_owned);
            Ok::<_, OrchestratorError<Infallible>>(AwsAnswer {
                status: response.status().as_u16(),
                body,
                date: header("date"),
                error_type: header("x-amzn-errortype"),
                function_error: header("x-amz-function-error"),
                retry_after: header("retry-after"),
            })
        })
        .build();
    operation.invoke(request).await.map_err(|error| {
        let failure = if let SdkError::DispatchFailure(failure) = &error { failure.as_connector_error() } else { None };
        NoAnswer { is_sent: !failure.is_some_and(connections::is_unconnected), cause: innermost(&error) }
    })
}
