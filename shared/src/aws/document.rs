//! Reads the sources document from Parameter Store or Secrets Manager.
//!
//! One signed request suffices. The SDK's clients of these services would make a function larger.

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;

use super::{
    ATTEMPT_TIMEOUT, Account, Http, call,
    signed::{ServiceCall, SigningClient},
};
use crate::{
    config::{FileDocument, SourcesOrigin},
    sources::SourcesDocument,
    time::Env,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentService {
    Parameters,
    Secrets,
}

impl DocumentService {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Parameters => "ssm",
            Self::Secrets => "secretsmanager",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Parameters => "AmazonSSM.GetParameter",
            Self::Secrets => "secretsmanager.GetSecretValue",
        }
    }

    fn question(self, name: &str) -> String {
        match self {
            Self::Parameters => json!({ "Name": name, "WithDecryption": true }),
            Self::Secrets => json!({ "SecretId": name }),
        }
        .to_string()
    }

    fn document(self, answer: &[u8]) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct ParameterAnswer {
            parameter: ParameterValue,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct ParameterValue {
            value: String,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct SecretReply {
            secret_string: String,
        }
        match self {
            Self::Parameters => serde_json::from_slice::<ParameterAnswer>(answer).ok().map(|held| held.parameter.value),
            Self::Secrets => serde_json::from_slice::<SecretReply>(answer).ok().map(|held| held.secret_string),
        }
    }
}

pub(super) struct Remote {
    pub(super) service: DocumentService,
    pub(super) name: String,
    signed: SigningClient,
}

impl Account {
    pub fn document(&self, http: &Http, origin: SourcesOrigin, env: &Env) -> Box<dyn SourcesDocument> {
        let (service, name) = match origin {
            SourcesOrigin::File(path) => return Box::new(FileDocument(path)),
            SourcesOrigin::Parameter(name) => (DocumentService::Parameters, name),
            SourcesOrigin::Secret(name) => (DocumentService::Secrets, name),
        };
        Box::new(self.remote(http, service, name, env))
    }

    pub(super) fn remote(&self, http: &Http, service: DocumentService, name: String, env: &Env) -> Remote {
        let endpoint = match service {
            DocumentService::Parameters => &self.ssm_endpoint,
            DocumentService::Secrets => &self.secrets_endpoint,
        };
        let signed = self.signed(http, service.name(), endpoint.clone(), env);
        Remote { service, name, signed }
    }
}

impl Remote {
    pub(super) fn endpoint(&self) -> &str {
        self.signed.endpoint()
    }

    async fn ask(&self) -> Result<String, String> {
        let answer = self.call(self.service.target(), self.service.question(&self.name)).await?;
        if answer.status != 200 {
            return Err(format!("{} refuses the request: {}", self.service.name(), error_code(&answer)));
        }
        self.service
            .document(&answer.body)
            .ok_or_else(|| format!("the answer of {} contains no document", self.service.name()))
    }

    pub(super) async fn call(&self, target: &str, body: String) -> Result<call::AwsAnswer, String> {
        let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target)];
        let asked = ServiceCall { method: "POST", path: "/", headers: &headers, body: body.into() };
        self.signed.send(asked, ATTEMPT_TIMEOUT).await.map_err(|_| format!("{} does not answer", self.service.name()))
    }
}

pub(super) fn error_code(answer: &call::AwsAnswer) -> String {
    #[derive(Deserialize)]
    struct ErrorBody {
        #[serde(rename = "__type")]
        kind: String,
    }
    let refusal = serde_json::from_slice::<ErrorBody>(&answer.body).ok();
    let word = refusal.as_ref().and_then(|refusal| refusal.kind.rsplit('#').next()).unwrap_or_default();
    match word.chars().all(|c| c.is_ascii_alphanumeric()) && (1..=64).contains(&word.len()) {
        true => word.to_owned(),
        false => format!("status {}", answer.status),
    }
}

impl SourcesDocument for Remote {
    fn read(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(self.ask())
    }
}
