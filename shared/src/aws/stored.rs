//! The sources document in Parameter Store or Secrets Manager, for whoever
//! changes it: read with its version, and replaced so that nobody else's change
//! is lost.
//!
//! A secret is replaced on a condition: the new version is written beside the
//! current one, and made current only if the one that was read still is. A
//! parameter knows no condition. Its versions are numbered, so that who replaces
//! one can tell afterwards that another was written in between; that one is
//! handed back, to be changed in its turn.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    Account,
    document::{Remote, Service, error_code},
};
use crate::{config::SourcesOrigin, time::Env};
use aws_sdk_dynamodb::config::SharedHttpClient;

/// What a parameter holds, and with the tier Advanced, in bytes.
pub const PARAMETER_BYTES: [usize; 2] = [4096, 8192];

/// What a secret holds, in bytes.
pub const SECRET_BYTES: usize = 65_536;

/// The label that a secret's new version has until it is current.
const PENDING: &str = "SERIALIZERPENDING";

/// The most pages of parameters that are looked through for one.
const PAGES: u32 = 50;

/// How often a request is made that is not answered.
const TRIES: u32 = 3;

/// The document, where it stands.
pub struct Stored(Remote);

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Stored").field(&self.0.name).finish()
    }
}

/// A version of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Held {
    /// The document.
    pub text: String,
    /// The version, as the service calls it.
    pub version: String,
    /// Whether another stands in its place already, by the number above.
    pub is_replaced: bool,
    /// What a parameter is besides: its own name, and its type.
    parameter: Option<(String, String)>,
}

/// Without the text, which holds secrets.
impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("version", &self.version).finish_non_exhaustive()
    }
}

/// What became of a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Replaced {
    /// It is in place, as this version.
    Done(String),
    /// Somebody else wrote meanwhile. This is what they wrote, to be changed in
    /// its turn and to replace what is there now.
    Overtaken(Held),
}

/// Why it could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The account may not do that.
    #[error("it is not allowed: who runs this needs {0}")]
    Denied(&'static str),
    /// The document is larger than what it is put into.
    #[error("the document has {bytes} bytes, and {place} holds {limit}: {instead}")]
    TooLarge {
        /// The document's size.
        bytes: usize,
        /// What it is put into.
        place: &'static str,
        /// That one's.
        limit: usize,
        /// What to do.
        instead: &'static str,
    },
    /// There is nothing of that name to put it into.
    #[error("there is none of that name in this region and account")]
    Missing,
    /// Anything else, in the service's words.
    #[error("{0}")]
    Other(String),
}

impl Account {
    /// The sources document at `origin`, to be changed; `None`: that is a file.
    pub fn stored(&self, http: &SharedHttpClient, origin: SourcesOrigin, env: &Env) -> Option<Stored> {
        let (service, name) = match origin {
            SourcesOrigin::File(_) => return None,
            SourcesOrigin::Parameter(name) => (Service::Parameters, name),
            SourcesOrigin::Secret(name) => (Service::Secrets, name),
        };
        Some(Stored(self.remote(http, service, name, env)))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Got {
    parameter: Parameter,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parameter {
    name: String,
    r#type: String,
    value: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Secret {
    secret_string: String,
    version_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Put {
    version: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Described {
    #[serde(default)]
    parameters: Vec<Kept>,
    next_token: Option<String>,
}

/// How a parameter is kept, which every new version has to say again.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Kept {
    key_id: Option<String>,
    tier: Option<String>,
}

impl Stored {
    /// Reads it; `None`: there is none yet.
    ///
    /// # Errors
    ///
    /// It could not be read.
    pub async fn read(&self) -> Result<Option<Held>, Refused> {
        let read = match self.0.service {
            Service::Parameters => self.parameter(&self.0.name).await,
            Service::Secrets => self.secret().await,
        };
        match read {
            Ok(held) => Ok(Some(held)),
            Err(Refused::Missing) => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    async fn parameter(&self, name: &str) -> Result<Held, Refused> {
        let question = json!({ "Name": name, "WithDecryption": true });
        let needed = "ssm:GetParameter on the parameter, and kms:Decrypt on its key";
        let Got { parameter } = self.ask("AmazonSSM.GetParameter", question, needed).await?;
        let Parameter { name, r#type, value, version } = parameter;
        Ok(Held { text: value, version: version.to_string(), is_replaced: false, parameter: Some((name, r#type)) })
    }

    async fn secret(&self) -> Result<Held, Refused> {
        let needed = "secretsmanager:GetSecretValue on the secret, and kms:Decrypt on its key";
        let question = json!({ "SecretId": self.0.name });
        let secret: Secret = self.ask("secretsmanager.GetSecretValue", question, needed).await?;
        Ok(Held { text: secret.secret_string, version: secret.version_id, is_replaced: false, parameter: None })
    }

    /// Makes it, with this text, where there is none.
    ///
    /// # Errors
    ///
    /// It could not be made. A secret is made by whoever chooses its name, since
    /// the functions know it by its ARN.
    pub async fn create(&self, text: &str) -> Result<Replaced, Refused> {
        if self.0.service == Service::Secrets {
            let words = "there is no such secret in this region and account; make it first, with `aws secretsmanager \
                         create-secret`: the functions know it by its ARN";
            return Err(Refused::Other(words.to_owned()));
        }
        fits(text, "a standard parameter", PARAMETER_BYTES[0], LARGER)?;
        let question = json!({ "Name": self.0.name, "Type": "SecureString", "Value": text, "Overwrite": false });
        match self.ask::<Put>("AmazonSSM.PutParameter", question, PUT).await {
            Ok(put) => Ok(Replaced::Done(put.version.to_string())),
            Err(Refused::Other(words)) if words.contains("ParameterAlreadyExists") => {
                Ok(Replaced::Overtaken(self.parameter(&self.0.name).await?))
            }
            Err(refused) => self.unless_it_is_there(text, refused).await,
        }
    }

    /// Puts `text` in the place of `held`.
    ///
    /// # Errors
    ///
    /// It could not be put there; what was there is there still.
    pub async fn replace(&self, held: &Held, text: &str) -> Result<Replaced, Refused> {
        match &held.parameter {
            Some((name, kind)) => self.put_parameter(held, name, kind, text).await,
            None => self.put_secret(held, text).await,
        }
    }

    async fn put_parameter(&self, held: &Held, name: &str, kind: &str, text: &str) -> Result<Replaced, Refused> {
        let kept = self.kept(name).await?;
        match kept.tier.as_deref() {
            // With the second SSM itself chooses what is needed.
            Some("Advanced" | "Intelligent-Tiering") => fits(text, "a parameter", PARAMETER_BYTES[1], MOVED)?,
            _ => fits(text, "a standard parameter", PARAMETER_BYTES[0], LARGER)?,
        }
        let mut question = json!({ "Name": name, "Type": kind, "Value": text, "Overwrite": true });
        if let Some(tier) = kept.tier {
            question["Tier"] = tier.into();
        }
        if let (Some(key), "SecureString") = (kept.key_id, kind) {
            question["KeyId"] = key.into();
        }
        // As late as can be: what comes behind this look is told by the number.
        let now = self.parameter(name).await?;
        if now.version != held.version {
            return Ok(Replaced::Overtaken(now));
        }
        let put = match self.ask::<Put>("AmazonSSM.PutParameter", question, PUT).await {
            Ok(put) => put,
            Err(refused) => return self.unless_it_is_there(text, refused).await,
        };
        let expected = held.version.parse::<u64>().map_or(put.version, |version| version + 1);
        if put.version == expected {
            return Ok(Replaced::Done(put.version.to_string()));
        }
        // The last of what others wrote has been replaced: it is to be changed, and to replace ours.
        let theirs = self.parameter(&format!("{name}:{}", put.version - 1)).await?;
        let own_name = Some((name.to_owned(), kind.to_owned()));
        let version = put.version.to_string();
        Ok(Replaced::Overtaken(Held { text: theirs.text, version, is_replaced: true, parameter: own_name }))
    }

    /// How the parameter is kept. A page may be empty and not be the last.
    async fn kept(&self, name: &str) -> Result<Kept, Refused> {
        let filter = json!([{ "Key": "Name", "Option": "Equals", "Values": [name] }]);
        let needed = "ssm:DescribeParameters, so that the parameter keeps its key and its tier";
        let mut question = json!({ "ParameterFilters": filter });
        for _ in 0..PAGES {
            let described: Described = self.ask("AmazonSSM.DescribeParameters", question.clone(), needed).await?;
            match (described.parameters.into_iter().next(), described.next_token) {
                (Some(kept), _) => return Ok(kept),
                (None, Some(token)) => question["NextToken"] = token.into(),
                (None, None) => break,
            }
        }
        Err(Refused::Missing)
    }

    async fn put_secret(&self, held: &Held, text: &str) -> Result<Replaced, Refused> {
        fits(text, "a secret", SECRET_BYTES, "leave sources out, or give some a stack of their own")?;
        // The text's hash: the same request again is the same version.
        let digest = <sha2::Sha256 as sha2::Digest>::digest([held.version.as_bytes(), b" ", text.as_bytes()].concat());
        let token: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let question = json!({
            "SecretId": self.0.name, "SecretString": text, "ClientRequestToken": token, "VersionStages": [PENDING],
        });
        let needed = "secretsmanager:PutSecretValue on the secret, and kms:GenerateDataKey and kms:Decrypt on its key";
        let _: Value = self.ask("secretsmanager.PutSecretValue", question, needed).await?;
        let question = json!({
            "SecretId": self.0.name, "VersionStage": "AWSCURRENT", "MoveToVersionId": token,
            "RemoveFromVersionId": held.version,
        });
        let needed = "secretsmanager:UpdateSecretVersionStage on the secret";
        let moved = self.ask::<Value>("secretsmanager.UpdateSecretVersionStage", question, needed).await;
        let refused = match moved {
            Ok(_) => return Ok(Replaced::Done(token)),
            Err(refused @ Refused::Denied(_)) => return Err(refused),
            Err(refused) => refused,
        };
        // Also after an answer that was lost.
        let now = self.secret().await?;
        match now.version {
            version if version == token => Ok(Replaced::Done(token)),
            ref version if *version == held.version => Err(refused),
            _ => Ok(Replaced::Overtaken(now)),
        }
    }

    /// An answer may be lost after what was asked for was done.
    async fn unless_it_is_there(&self, text: &str, refused: Refused) -> Result<Replaced, Refused> {
        match self.read().await {
            Ok(Some(held)) if held.text == text => Ok(Replaced::Done(held.version)),
            _ => Err(refused),
        }
    }

    async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        target: &'static str,
        question: Value,
        needed: &'static str,
    ) -> Result<T, Refused> {
        let service = self.0.service.name();
        let is_read = ["Get", "Describe"].iter().any(|verb| target.contains(&format!(".{verb}")));
        let mut tries = if is_read { TRIES } else { 1 };
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
                "ExpiredTokenException" | "UnrecognizedClientException" | "InvalidSignatureException" => {
                    Refused::Other(format!("{service} does not take the credentials ({code}): sign in anew"))
                }
                "ThrottlingException" => Refused::Other(format!("{service} is asked too often; run it again")),
                code => Refused::Other(format!("{service} refuses it: {code}")),
            });
        }
        serde_json::from_slice(match answer.body.as_slice() {
            [] => b"{}",
            body => body,
        })
        .map_err(|_| Refused::Other(format!("{service} answers without a text that could be the document")))
    }
}

const PUT: &str = "ssm:PutParameter on the parameter, and kms:Encrypt on its key";

const LARGER: &str = "give it the tier Advanced first (`aws ssm put-parameter --tier Advanced --overwrite …` with what is \
                      there now), or move the document to Secrets Manager";

const MOVED: &str = "move the document to Secrets Manager, which takes 64 KB";

fn fits(text: &str, place: &'static str, limit: usize, instead: &'static str) -> Result<(), Refused> {
    let bytes = text.len();
    if bytes > limit { Err(Refused::TooLarge { bytes, place, limit, instead }) } else { Ok(()) }
}
