//! Sends signed requests to an AWS service without the service's SDK client.

use std::time::Duration;

use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_dynamodb::config::{Region, SharedCredentialsProvider};
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign},
    sign::v4::SigningParams,
};
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;

use super::{Account, Http, call, call::NoAnswer};
use crate::time::Env;

pub struct SigningClient {
    service: &'static str,
    endpoint: String,
    region: Region,
    credentials: SharedCredentialsProvider,
    http: Http,
    env: Env,
}

#[derive(Debug, Clone)]
pub struct ServiceCall<'a> {
    pub method: &'a str,
    pub path: &'a str,
    /// The headers of the request, without the headers that the signature adds.
    pub headers: &'a [(&'a str, &'a str)],
    pub body: Bytes,
}

impl Account {
    /// Creates a sender of signed requests. The parameter `service` is the service's name in
    /// signatures and endpoints. The parameter `endpoint` replaces the service's endpoint in the
    /// region.
    pub fn signed(&self, http: &Http, service: &'static str, endpoint: Option<String>, env: &Env) -> SigningClient {
        SigningClient {
            service,
            endpoint: endpoint.unwrap_or_else(|| self.endpoint_of(service)),
            region: self.region.clone(),
            credentials: self.credentials.clone(),
            http: http.clone(),
            env: env.clone(),
        }
    }
}

impl SigningClient {
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends one request, without retries. Returns the answer, whatever its status.
    pub async fn send(&self, asked: ServiceCall<'_>, limit: Duration) -> Result<call::AwsAnswer, NoAnswer> {
        let unsigned = || NoAnswer { is_sent: false, cause: "the request could not be signed".into() };
        let request = self.request(asked).await.ok_or_else(unsigned)?;
        call::send(&self.http, request, limit, &self.env).await
    }

    async fn request(&self, asked: ServiceCall<'_>) -> Option<http::Request<SdkBody>> {
        let ServiceCall { method, path, headers, body } = asked;
        let identity = self.credentials.provide_credentials().await.ok()?.into();
        let params = SigningParams::builder()
            .identity(&identity)
            .region(self.region.as_ref())
            .name(self.service)
            .time(self.env.now().into())
            .settings(SigningSettings::default())
            .build()
            .ok()?;
        let uri = format!("{}{path}", self.endpoint.trim_end_matches('/'));
        let signed = headers.iter().copied();
        let signable = SignableRequest::new(method, uri.as_str(), signed, SignableBody::Bytes(&body));
        let (instructions, _) = sign(signable.ok()?, &params.into()).ok()?.into_parts();
        let mut request = http::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(SdkBody::from(body)).ok()?;
        instructions.apply_to_request_http1x(&mut request);
        Some(request)
    }
}
