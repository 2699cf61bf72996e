//! Changes the sources document in Parameter Store or Secrets Manager without losing a
//! concurrent change.
//!
//! A secret's new version is stored beside the current one. It becomes current only if the version
//! that was read is still current. Parameters have no such condition, but their versions are
//! numbered. So the number of the new version shows whether another writer stored a version in
//! between. If so, the caller gets that version and can make the same change to it.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Account, Http,
    document::{DocumentService, Remote, error_code},
};
use crate::{config::SourcesOrigin, protocol::table::is_credential_error, time::Env};

/// The largest size of a parameter in the tier Standard, in bytes.
pub const STANDARD_PARAMETER_BYTES: usize = 4096;

/// The largest size of a parameter in the tier Advanced, in bytes.
pub const ADVANCED_PARAMETER_BYTES: usize = 8192;

pub const SECRET_BYTES: usize = 65_536;

/// The staging label of a secret's new version that is not current yet.
const PENDING: &str = "SERIALIZERPENDING";

const PAGES: u32 = 50;

/// The number of tries of a read that gets no answer or a server error.
const TRIES: u32 = 3;

pub struct Stored(Remote);

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stored").field(&self.0.name).finish()
    }
}

/// A version of the sources document.
#[derive(Clone, PartialEq, Eq)]
pub struct DocumentVersion {
    pub text: String,
    pub version: String,
    /// Set if the caller's own write has already replaced `text`. Then `version` is the version
    /// that this write created.
    pub is_replaced: bool,
    /// `None` for a secret.
    parameter: Option<ParameterId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ParameterId {
    name: String,
    /// The parameter's type in Parameter Store, such as `SecureString`.
    r#type: String,
}

/// Shows only the version, because the text holds secrets.
impl std::fmt::Debug for DocumentVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("version", &self.version).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaced {
    /// The new version is stored and current. Contains the version's name.
    Done(String),
    /// Another writer has stored this version first. The caller must make its change to this
    /// version, and replace it.
    Overtaken(DocumentVersion),
}

/// The permissions that a request needs, in words.
type Needed = &'static str;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("your credentials lack {0}")]
    Denied(&'static str),
    #[error("the document has {bytes} bytes, and {place} holds {limit}: {instead}")]
    TooLarge { bytes: usize, place: &'static str, limit: usize, instead: &'static str },
    #[error("no parameter or secret of that name exists in this region and account")]
    Missing,
    #[error("a parameter of that name exists already")]
    AlreadyExists,
    #[error("{0}")]
    Other(String),
}

impl Account {
    pub fn stored(&self, http: &Http, origin: SourcesOrigin, env: &Env) -> Option<Stored> {
        let (service, name) = match origin {
            SourcesOrigin::File(_) => return None,
            SourcesOrigin::Parameter(name) => (DocumentService::Parameters, name),
            SourcesOrigin::Secret(name) => (DocumentService::Secrets, name),
        };
        Some(Stored(self.remote(http, service, name, env)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ParameterReply {
    parameter: StoredParameter,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredParameter {
    name: String,
    r#type: String,
    value: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StoredSecret {
    secret_string: String,
    version_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PutReply {
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ParameterDescriptions {
    #[serde(default)]
    parameters: Vec<ParameterSettings>,
    next_token: Option<String>,
}

/// The settings of a parameter, which must be repeated when a new version is stored.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct ParameterSettings {
    key_id: Option<String>,
    tier: Option<String>,
}

impl Stored {
    pub async fn read(&self) -> Result<Option<DocumentVersion>, Refused> {
        let read = match self.0.service {
            DocumentService::Parameters => self.parameter(&self.0.name).await,
            DocumentService::Secrets => self.secret().await,
        };
        match read {
            Ok(held) => Ok(Some(held)),
            Err(Refused::Missing) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    async fn parameter(&self, name: &str) -> Result<DocumentVersion, Refused> {
        let question = json!({ "Name": name, "WithDecryption": true });
        let needed = "ssm:GetParameter on the parameter, and kms:Decrypt on its key";
        let ParameterReply { parameter } = self.query("AmazonSSM.GetParameter", question, needed).await?;
        let StoredParameter { name, r#type, value, version } = parameter;
        Ok(DocumentVersion {
            text: value,
            version: version.to_string(),
            is_replaced: false,
            parameter: Some(ParameterId { name, r#type }),
        })
    }

    async fn secret(&self) -> Result<DocumentVersion, Refused> {
        let needed = "secretsmanager:GetSecretValue on the secret, and kms:Decrypt on its key";
        let question = json!({ "SecretId": self.0.name });
        let secret: StoredSecret = self.query("secretsmanager.GetSecretValue", question, needed).await?;
        Ok(DocumentVersion {
            text: secret.secret_string,
            version: secret.version_id,
            is_replaced: false,
            parameter: None,
        })
    }

    /// Creates the parameter with this text.
    ///
    /// Fails for a secret, because the Lambda functions would need the new secret's ARN. If the
    /// parameter already exists, returns it in [`Replaced::Overtaken`].
    pub async fn create(&self, text: &str) -> Result<Replaced, Refused> {
        if self.0.service == DocumentService::Secrets {
            let words = "there is no such secret in this region and account; create it with `aws secretsmanager \
                         create-secret`, and give its ARN to the stack";
            return Err(Refused::Other(words.to_owned()));
        }
        fits(text, "a standard parameter", STANDARD_PARAMETER_BYTES, ADVANCED_OR_SECRET)?;
        let question = json!({ "Name": self.0.name, "Type": "SecureString", "Value": text, "Overwrite": false });
        match self.change::<PutReply>("AmazonSSM.PutParameter", question, PUT).await {
            Ok(put) => Ok(Replaced::Done(put.version.to_string())),
            Err(Refused::AlreadyExists) => Ok(Replaced::Overtaken(self.parameter(&self.0.name).await?)),
            Err(refused) => self.version_if_stored(text, refused).await.map(Replaced::Done),
        }
    }

    pub async fn replace(&self, held: &DocumentVersion, text: &str) -> Result<Replaced, Refused> {
        match &held.parameter {
            Some(parameter) => self.put_parameter(held, parameter, text).await,
            None => self.put_secret(held, text).await,
        }
    }

    async fn put_parameter(&self, held: &DocumentVersion, id: &ParameterId, text: &str) -> Result<Replaced, Refused> {
        let ParameterId { name, r#type } = id;
        let settings = self.settings(name).await?;
        match settings.tier.as_deref() {
            // With Intelligent-Tiering, Parameter Store chooses the tier by the size.
            Some("Advanced" | "Intelligent-Tiering") => fits(text, "a parameter", ADVANCED_PARAMETER_BYTES, MOVED)?,
            _ => fits(text, "a standard parameter", STANDARD_PARAMETER_BYTES, RAISE_TIER)?,
        }
        let mut question = json!({ "Name": name, "Type": r#type, "Value": text, "Overwrite": true });
        if let Some(tier) = settings.tier {
            question["Tier"] = tier.into();
        }
        if let (Some(key), "SecureString") = (settings.key_id, r#type.as_str()) {
            question["KeyId"] = key.into();
        }
        // The version is read as late as possible. A later write by others shows only in the new
        // version's number.
        let now = self.parameter(name).await?;
        if now.version != held.version {
            return Ok(Replaced::Overtaken(now));
        }
        let version = match self.change::<PutReply>("AmazonSSM.PutParameter", question, PUT).await {
            Ok(put) => put.version.to_string(),
            Err(refused) => self.version_if_stored(text, refused).await?,
        };
        let before = version.parse::<u64>().map(|version| version.saturating_sub(1).to_string());
        let Some(before) = before.ok().filter(|before| *before != held.version) else {
            return Ok(Replaced::Done(version));
        };
        // This write has replaced another writer's version. Return that version, so that the caller
        // makes its change to it.
        let theirs = self.parameter(&format!("{name}:{before}")).await?;
        let parameter = Some(id.clone());
        Ok(Replaced::Overtaken(DocumentVersion { text: theirs.text, version, is_replaced: true, parameter }))
    }

    /// Reads a parameter's settings. Continues after an empty page of the result, because a later
    /// page may hold the settings.
    async fn settings(&self, name: &str) -> Result<ParameterSettings, Refused> {
        let filter = json!([{ "Key": "Name", "Option": "Equals", "Values": [name] }]);
        let needed = "ssm:DescribeParameters, so that the parameter keeps its key and its tier";
        let mut question = json!({ "ParameterFilters": filter });
        for _ in 0..PAGES {
            let described: ParameterDescriptions =
                self.query("AmazonSSM.DescribeParameters", question.clone(), needed).await?;
            match (described.parameters.into_iter().next(), described.next_token) {
                (Some(settings), _) => return Ok(settings),
                (None, Some(token)) => question["NextToken"] = token.into(),
                (None, None) => break,
            }
        }
        Err(Refused::Missing)
    }

    async fn put_secret(&self, held: &DocumentVersion, text: &str) -> Result<Replaced, Refused> {
        fits(text, "a secret", SECRET_BYTES, "remove sources, or move some to a stack of their own")?;
        // The version's name is derived from the text, so that a repeated request stores the same version.
        let digest = <sha2::Sha256 as sha2::Digest>::digest([held.version.as_bytes(), b" ", text.as_bytes()].concat());
        let token: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let question = json!({
            "SecretId": self.0.name, "SecretString": text, "ClientRequestToken": token, "VersionStages": [PENDING],
        });
        let needed = "secretsmanager:PutSecretValue on the secret, and kms:GenerateDataKey and kms:Decrypt on its key";
        let _: Value = self.change("secretsmanager.PutSecretValue", question, needed).await?;
        let question = json!({
            "SecretId": self.0.name, "VersionStage": "AWSCURRENT", "MoveToVersionId": token,
            "RemoveFromVersionId": held.version,
        });
        let needed = "secretsmanager:UpdateSecretVersionStage on the secret";
        let moved = self.change::<Value>("secretsmanager.UpdateSecretVersionStage", question, needed).await;
        let refused = match moved {
            Ok(_) => return Ok(Replaced::Done(token)),
            Err(refused @ Refused::Denied(_)) => return Err(refused),
            Err(refused) => refused,
        };
        // The new version may have become current although the reply was lost.
        let now = self.secret().await?;
        match now.version {
            version if version == token => Ok(Replaced::Done(token)),
            ref version if *version == held.version => Err(refused),
            _ => Ok(Replaced::Overtaken(now)),
        }
    }

    /// Returns the parameter's version if its value is `text`, because a write whose reply was lost
    /// may have landed. Otherwise returns the error `refused`.
    async fn version_if_stored(&self, text: &str, refused: Refused) -> Result<String, Refused> {
        match self.read().await {
            Ok(Some(held)) if held.text == text => Ok(held.version),
            _ => Err(refused),
        }
    }

    async fn query<T: DeserializeOwned>(&self, target: &str, question: Value, needed: Needed) -> Result<T, Refused> {
        self.ask(target, question, needed, TRIES).await
    }

    /// Sends a write once, because a try without a reply may have landed.
    async fn change<T: DeserializeOwned>(&self, target: &str, question: Value, needed: Needed) -> Result<T, Refused> {
        self.ask(target, question, needed, 1).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        target: &str,
        question: Value,
        needed: Needed,
        mut tries: u32,
    ) -> Result<T, Refused> {
        let service = self.0.service.name();
        let answer = loop {
            tries -= 1;
            match self.0.call(target, question.to_string()).await {
                Ok(answer) if answer.status < 500 || tries == 0 => break answer,
                Err(silent) if tries == 0 => return Err(Refused::Other(format!("{silent} at {}", self.0.endpoint()))),
                _ => {}
            }
        };
        if answer.status != 200 {
            let code = error_code(&answer);
            return Err(match code.as_str() {
                "AccessDeniedException" | "AccessDenied" | "UnauthorizedException" => Refused::Denied(needed),
                "ParameterNotFound" | "ResourceNotFoundException" => Refused::Missing,
                "ParameterAlreadyExists" => Refused::AlreadyExists,
                code if is_credential_error(code) => {
                    Refused::Other(format!("{service} refuses the credentials ({code}): sign in again"))
                }
                "ThrottlingException" => {
                    Refused::Other(format!("{service} throttles this account; run this again in a few seconds"))
                }
                code => Refused::Other(format!("{service} refuses the request: {code}")),
            });
        }
        serde_json::from_slice(match answer.body.as_slice() {
            [] => b"{}",
            body => body,
        })
        .map_err(|_| Refused::Other(format!("{service}'s answer cannot be parsed")))
    }
}

const PUT: &str = "ssm:PutParameter on the parameter, and kms:Encrypt on its key";

const ADVANCED_OR_SECRET: &str = "create it with the tier Advanced (`aws ssm put-parameter --tier Advanced …`), or use \
                                  Secrets Manager";

const RAISE_TIER: &str = "give the parameter the tier Advanced first (`aws ssm put-parameter --tier Advanced --overwrite \
                          …`, with its current value), or move the document to Secrets Manager";

const MOVED: &str = "move the document to Secrets Manager, which takes 64 KB";

fn fits(text: &str, place: &'static str, limit: usize, instead: &'static str) -> Result<(), Refused> {
    let bytes = text.len();
    if bytes > limit { Err(Refused::TooLarge { bytes, place, limit, instead }) } else { Ok(()) }
}
