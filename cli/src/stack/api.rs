//! Sends signed requests to those AWS services that the command calls without an SDK client.

pub mod xml;

use std::time::Duration;

use serde_json::Value;
use webhook_serializer::{
    aws::{
        Account,
        call::AwsAnswer,
        signed::{ServiceCall, SigningClient},
    },
    config::{Environment, Variables},
    protocol::table::is_credential_error,
    time::Env,
};

use xml::Element;

/// An AWS service. The first value is the service's name in signatures and endpoints. The second value is the suffix of
/// the environment variable that overrides the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service(&'static str, &'static str);

impl Service {
    pub const CLOUDFORMATION: Self = Self("cloudformation", "CLOUDFORMATION");
    pub const STS: Self = Self("sts", "STS");
    pub const LAMBDA: Self = Self("lambda", "LAMBDA");
    pub const LOGS: Self = Self("logs", "CLOUDWATCH_LOGS");
    pub const SNS: Self = Self("sns", "SNS");
    pub const SSM: Self = Self("ssm", "SSM");
    pub const KMS: Self = Self("kms", "KMS");
}

/// The timeout of a request. The timeout is short because a person waits for the answer.
const LIMIT: Duration = Duration::from_secs(10);

const TRIES: u32 = 3;

#[derive(Debug, Clone)]
pub struct Services {
    account: Account,
    http: webhook_serializer::aws::Http,
    env: Env,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("your credentials need the permission {needed} (AccessDenied: {message})")]
    Denied { needed: String, message: String },
    #[error("AWS refuses the credentials ({0}): sign in again, with `aws login` or `aws sso login`")]
    Credentials(String),
    #[error("{0} throttles this account; run this again in a few seconds")]
    Throttled(&'static str),
    /// The service gave no answer, its answer could not be read, or what it began did not end well.
    #[error("{0}")]
    Silent(String),
    #[error("{code}{}{message}", if message.is_empty() { "" } else { ": " })]
    Other { code: String, message: String },
}

#[derive(Debug, Clone)]
pub struct Reply<T> {
    pub what: T,
    /// The value of the answer's header `Date`.
    pub date: Option<String>,
}

impl Services {
    pub fn of(account: &Account) -> Self {
        Self { account: account.clone(), http: account.http_client(), env: Env::system() }
    }

    pub fn region(&self) -> &str {
        self.account.region.as_ref()
    }

    fn signed(&self, service: Service) -> SigningClient {
        let own = format!("AWS_ENDPOINT_URL_{}", service.1);
        let endpoint = Environment.value(&own).or_else(|| Environment.value("AWS_ENDPOINT_URL"));
        self.account.signed(&self.http, service.0, endpoint, &self.env)
    }

    pub async fn query(
        &self,
        service: Service,
        version: &str,
        action: &str,
        fields: &[(&str, &str)],
    ) -> Result<Reply<Element>, Refusal> {
        let mut body = format!("Action={action}&Version={version}");
        for (name, value) in fields {
            body += &format!("&{name}={}", encoded(value));
        }
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let asked = ServiceCall { method: "POST", path: "/", headers: &headers, body: body.into() };
        let answer = self.ask(service, asked, &permission(service, action)).await?;
        let what = Element::parse(&String::from_utf8_lossy(&answer.body));
        let what = what.map_err(|error| Refusal::Silent(format!("{}: {error:#}", service.0)))?;
        Ok(Reply { what, date: answer.date })
    }

    /// Calls an operation of a service that uses JSON. `target` is the value of the header `X-Amz-Target`.
    pub async fn json(&self, service: Service, target: &str, question: &Value) -> Result<Value, Refusal> {
        let headers = [("content-type", "application/x-amz-json-1.1"), ("x-amz-target", target)];
        let body = question.to_string();
        let asked = ServiceCall { method: "POST", path: "/", headers: &headers, body: body.into() };
        let action = target.rsplit('.').next().unwrap_or_default();
        let answer = self.ask(service, asked, &permission(service, action)).await?;
        parsed(service, &answer)
    }

    /// Sends a GET request and returns the JSON answer. `action` is the operation's name in IAM permissions.
    pub async fn get(&self, service: Service, action: &str, path: &str) -> Result<Value, Refusal> {
        let asked = ServiceCall { method: "GET", path, headers: &[], body: "".into() };
        parsed(service, &self.ask(service, asked, &permission(service, action)).await?)
    }

    /// Sends a request, and repeats it up to [`TRIES`] times in all while the service fails or does not answer. The
    /// request must be idempotent.
    async fn ask(&self, service: Service, asked: ServiceCall<'_>, needed: &str) -> Result<AwsAnswer, Refusal> {
        let signed = self.signed(service);
        for tries_left in (0..TRIES).rev() {
            match signed.send(asked.clone(), LIMIT).await {
                Ok(answer) if answer.status == 200 => return Ok(answer),
                Ok(answer) if answer.status < 500 || tries_left == 0 => return Err(refusal(service, &answer, needed)),
                Err(_) if tries_left == 0 => {
                    let at = signed.endpoint();
                    return Err(Refusal::Silent(format!("{at} cannot be reached, or does not answer")));
                }
                _ => {}
            }
        }
        unreachable!("the last try returns")
    }
}

fn parsed(service: Service, answer: &AwsAnswer) -> Result<Value, Refusal> {
    serde_json::from_slice(&answer.body).map_err(|error| Refusal::Silent(format!("{}: {error}", service.0)))
}

fn permission(service: Service, action: &str) -> String {
    format!("{}:{action}", service.0)
}

fn encoded(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let one = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    value.bytes().map(one).collect()
}

fn refusal(service: Service, answer: &AwsAnswer, needed: &str) -> Refusal {
    let text = String::from_utf8_lossy(&answer.body);
    let (code, message) = match serde_json::from_slice::<Value>(&answer.body) {
        Ok(said) => {
            let word = |name: &str| said[name].as_str().map(str::to_owned);
            let code = answer.error_type.clone().or_else(|| word("__type")).or_else(|| word("code"));
            (code.unwrap_or_default(), word("message").or_else(|| word("Message")).unwrap_or_default())
        }
        Err(_) => match Element::parse(&text) {
            Ok(said) => (said.text(&["Error", "Code"]).to_owned(), said.text(&["Error", "Message"]).to_owned()),
            Err(_) => (String::new(), String::new()),
        },
    };
    // A code may have the form `prefix#Code:where`.
    let code = code.rsplit('#').next().and_then(|code| code.split(':').next()).unwrap_or_default().to_owned();
    match code.as_str() {
        "AccessDenied" | "AccessDeniedException" | "AuthorizationError" | "UnauthorizedOperation" => {
            Refusal::Denied { needed: needed.to_owned(), message }
        }
        _ if is_credential_error(&code) => Refusal::Credentials(code),
        "Throttling" | "ThrottlingException" | "TooManyRequestsException" => Refusal::Throttled(service.0),
        "" => Refusal::Other { code: format!("{} answers {}", service.0, answer.status), message },
        _ => Refusal::Other { code, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, error_type: Option<&str>, body: &str) -> AwsAnswer {
        AwsAnswer { status, body: body.into(), error_type: error_type.map(str::to_owned), ..AwsAnswer::default() }
    }

    #[test]
    fn aws_error_in_each_protocol_is_parsed() {
        let denied = |answer: &AwsAnswer| refusal(Service::SNS, answer, "sns:GetTopicAttributes");
        let expected =
            Refusal::Denied { needed: "sns:GetTopicAttributes".to_owned(), message: "ann may not".to_owned() };
        let xml = "<ErrorResponse><Error><Type>Sender</Type><Code>AuthorizationError</Code><Message>ann may not</Message></Error></ErrorResponse>";
        assert_eq!(denied(&answer(403, None, xml)), expected);
        let json = r#"{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"ann may not"}"#;
        assert_eq!(denied(&answer(400, None, json)), expected);
        let rest = answer(403, Some("AccessDeniedException:http://x/"), r#"{"Message":"ann may not"}"#);
        assert_eq!(denied(&rest), expected);
        let expired = r#"{"__type":"ExpiredTokenException","message":"old"}"#;
        let said = refusal(Service::SSM, &answer(400, None, expired), "").to_string();
        assert!(said.contains("sign in again"), "{said}");
        let unknown = refusal(Service::SSM, &answer(503, None, "<html>"), "");
        assert_eq!(unknown.to_string(), "ssm answers 503");
    }

    #[test]
    fn form_values_are_percent_encoded() {
        assert_eq!(encoded("a-b_c.d~1/ä &"), "a-b_c.d~1%2F%C3%A4%20%26");
    }
}
