//! The HTTP clients for destinations, one for each scope of addresses.

#[cfg(feature = "scheduler")]
use std::time::Duration;

#[cfg(feature = "scheduler")]
use bytes::Bytes;

use super::client::ForwardClient;
#[cfg(feature = "scheduler")]
use super::{answer, headers, read_out, redacted};
use crate::{
    config::{InvalidConfig, Variables},
    sources::destination::AddressScope,
    tls::Roots,
};
#[cfg(feature = "scheduler")]
use crate::{sources::destination::Destination, time::Env};

#[derive(Clone)]
pub(crate) struct Clients {
    /// The client for destinations that must be public. It shares no connections with the client
    /// `anywhere`, so none of its connections leads to a private address.
    public: ForwardClient,
    anywhere: ForwardClient,
}

impl Clients {
    /// Creates clients that trust the authorities `roots`, and those in the PEM file that the variable
    /// `FORWARD_CA_BUNDLE` names.
    pub(crate) fn configured(mut roots: Roots, variables: &impl Variables) -> Result<Self, InvalidConfig> {
        const VARIABLE: &str = "FORWARD_CA_BUNDLE";
        if let Some(path) = variables.value(VARIABLE) {
            let invalid = |reason: String| InvalidConfig::new(VARIABLE, format!("{path} {reason}"));
            let pem = std::fs::read(&path).map_err(|error| invalid(format!("cannot be read: {error}")))?;
            roots.add(&pem).map_err(invalid)?;
        }
        Ok(Self::trusting(roots))
    }

    pub(super) fn trusting(roots: Roots) -> Self {
        let tls = roots.trusted();
        Self {
            public: ForwardClient::new(AddressScope::Public, &tls),
            anywhere: ForwardClient::new(AddressScope::Any, &tls),
        }
    }

    pub(super) fn of(&self, scope: AddressScope) -> &ForwardClient {
        match scope {
            AddressScope::Public => &self.public,
            AddressScope::Any => &self.anywhere,
        }
    }

    /// Posts a message in JSON, signed with the destination's secrets, and returns the status and the beginning of the
    /// answer. Fails unless the status is 2xx. Neither text contains the URL's path or a secret.
    #[cfg(feature = "scheduler")]
    pub(crate) async fn post(
        &self,
        destination: &Destination,
        id: String,
        body: Bytes,
        limit: Duration,
        env: &Env,
    ) -> Result<String, String> {
        let host = destination.host();
        let request = headers::message(destination, id, &body, env.now());
        let response = match env.within(limit, self.of(destination.scope()).send(request)).await {
            Some(Ok(response)) => response,
            Some(Err(error)) if error.is_connect() => return Err(format!("cannot connect to {host}: {error}")),
            Some(Err(error)) => return Err(format!("no answer from {host}: {error}")),
            None => return Err(format!("no answer within {} s from {host}", limit.as_secs())),
        };
        let (head, body) = response.into_parts();
        let body = read_out(body, env).await;
        let excerpt = match answer::is_plain(&head.headers) {
            true => redacted::excerpt(&body, destination),
            false => String::new(),
        };
        let answered = format!("{host} answered {}: {excerpt}", head.status);
        let answered = answered.trim_end_matches([' ', ':']).to_owned();
        if head.status.is_success() { Ok(answered) } else { Err(answered) }
    }
}
