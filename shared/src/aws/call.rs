//! Single calls to AWS services whose whole client would weigh more than what
//! is asked of them: over the clients' own pool of connections, by their own
//! signer.

use std::{convert::Infallible, fmt, time::Duration};

use aws_sdk_dynamodb::config::{
    SharedHttpClient,
    http::{HttpRequest, HttpResponse},
};
use aws_smithy_runtime::client::orchestrator::operation::Operation;
use aws_smithy_runtime_api::client::{orchestrator::OrchestratorError, result::SdkError};

use super::{connections, innermost};

/// An answer, whatever its status.
#[derive(Clone, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
    /// When it was given, by the clock at the other end.
    #[cfg(feature = "internals")]
    pub date: Option<String>,
    /// What REST services call a refusal.
    #[cfg(feature = "internals")]
    pub error_type: Option<String>,
    /// How a function failed, where Lambda could call it.
    #[cfg(feature = "invoke")]
    pub function_error: Option<String>,
    /// How long to wait, in seconds.
    #[cfg(feature = "invoke")]
    pub retry_after: Option<String>,
}

/// Not the body: it may hold secrets.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// Whether the request may have been received.
    pub is_sent: bool,
    /// The innermost cause.
    pub cause: String,
}

/// Sends `request` to `endpoint`, once.
///
/// # Errors
///
/// No whole answer came within `limit`.
pub(super) async fn send(
    http: &SharedHttpClient,
    endpoint: &str,
    request: HttpRequest,
    limit: Duration,
) -> Result<Answer, NoAnswer> {
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
            #[cfg(any(feature = "internals", feature = "invoke"))]
            let header = |name: &str| response.headers().get(name).map(str::to_owned);
            Ok::<_, OrchestratorError<Infallible>>(Answer {
                status: response.status().as_u16(),
                body,
                #[cfg(feature = "internals")]
                date: header("date"),
                #[cfg(feature = "internals")]
                error_type: header("x-amzn-errortype"),
                #[cfg(feature = "invoke")]
                function_error: header("x-amz-function-error"),
                #[cfg(feature = "invoke")]
                retry_after: header("retry-after"),
            })
        })
        .build();
    operation.invoke(request).await.map_err(|error| {
        let failure = if let SdkError::DispatchFailure(failure) = &error { failure.as_connector_error() } else { None };
        NoAnswer { is_sent: !failure.is_some_and(connections::is_unconnected), cause: innermost(&error) }
    })
}
