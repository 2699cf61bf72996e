//! The destination of the `forward` handler: its URL, the secrets to sign with, and the
//! addresses that its host may have.
//!
//! Messages show the URL without parts that may be secret: credentials, query, fragment, and
//! path segments that look like tokens.

pub mod address;

use std::{fmt, net::IpAddr};

use http::{Uri, uri::Scheme};

use super::invocation::Function;
use super::reference::{
    FieldForm::{Flag, OneOrMore, Text},
    SIGNING_KEY, TABLE_NAME, URL, document_table,
};
use super::table::{Secrets, one_or_more};
use crate::protocol::{entity::SourceName, outage::DestinationId};
use crate::providers::{self, Provider, Secret};

document_table! {
    /// The endpoint to which the handler `forward` posts deliveries. Only with `handler = "forward"`.
    #[table("[sources.NAME.forward]")]
    pub(crate) struct DestinationEntry {
        /// The endpoint's URL, starting with `https://`; with `allow_private` also `http://`.
        #[field(Text(URL), required, example("https://example.com/webhooks?from=shop"))]
        url: String,
        /// The key that signs each request: `whsec_` and its bytes in base64. While you roll it, give the old and the
        /// new one: a request carries a signature with each.
        #[field(OneOrMore(SIGNING_KEY), required, example(toml r#"["whsec_bmV3", "whsec_b2xk"]"#))]
        secret: Secrets,
        /// Allows endpoints on this machine and in private networks.
        #[field(Flag, default(false), example(true))]
        #[serde(default)]
        allow_private: bool,
        /// The DynamoDB tables that the endpoint's answers may write: see [writes in an
        /// answer](handlers.md#writes-in-an-answer). The URL must start with `https://`, except on this machine. The
        /// template's parameter `CommitTableArns` names the tables too.
        #[field(OneOrMore(TABLE_NAME), means("answers cause no writes"), example("totals"))]
        commit: Option<CommitTables>,
    }
}

one_or_more!(CommitTables(String), "a table's name is a text; several tables are a list of texts");

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressScope {
    /// Only addresses that the whole internet can reach. Connections must use TLS.
    Public,
    /// All addresses, including this machine, private networks and the cloud's
    /// metadata service.
    Any,
}

/// The endpoint or the function of a source's handler, or the handler itself.
///
/// Sources with the same destination share its outages.
#[derive(Clone, PartialEq, Eq)]
pub struct DestinationName {
    pub(crate) id: DestinationId,
    /// The name for people, without secrets.
    pub(crate) name: String,
}

impl DestinationName {
    pub(crate) fn of(source: &SourceName, forward: Option<&Destination>, invoke: Option<&Function>) -> Self {
        let (id, name) = match (forward, invoke) {
            (Some(endpoint), _) => (DestinationId::of("forward", &endpoint.url.to_string()), endpoint.shown()),
            (_, Some(function)) => {
                (DestinationId::of("invoke", &function.to_string()), format!("the function {function}"))
            }
            (None, None) => (DestinationId::of("handler", source.as_str()), format!("the handler of {source}")),
        };
        Self { id, name }
    }

    pub fn id(&self) -> &DestinationId {
        &self.id
    }

    /// Returns the destination's name for people, without secrets.
    pub fn name(&self) -> &str {
        &self.name
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Destination {
    url: Uri,
    secrets: Vec<Secret>,
    scope: AddressScope,
    commit: Vec<String>,
}

impl Destination {
    pub(crate) fn check(entry: DestinationEntry) -> Result<Self, String> {
        let scope = if entry.allow_private { AddressScope::Any } else { AddressScope::Public };
        let url = url(&entry.url, scope).map_err(|reason| format!("`forward.url` {reason}"))?;
        let secrets = Vec::from(entry.secret);
        if secrets.is_empty() || !secrets.iter().all(is_usable) {
            return Err("`forward.secret` must be `whsec_` and the key's bytes in base64".into());
        }
        let commit = match entry.commit {
            None => Vec::new(),
            Some(tables) => tables_of(tables, &url)?,
        };
        Ok(Self { url, secrets, scope, commit })
    }

    /// Creates the destination of alerts. Without `secrets`, requests are not signed. An error message shows neither the
    /// URL's path nor a secret.
    #[cfg(any(test, feature = "scheduler"))]
    pub(super) fn of_alerts(to: &str, scope: AddressScope, secrets: Vec<Secret>) -> Result<Self, String> {
        let url = url(to, scope).map_err(|reason| format!("`alerts.to` {reason}"))?;
        match secrets.iter().all(is_usable) {
            true => Ok(Self { url, secrets, scope, commit: Vec::new() }),
            false => Err("`alerts.secret` must be `whsec_` and the key's bytes in base64".into()),
        }
    }

    /// Creates a destination from a URL given on the command line. The host may have any address, even a
    /// private one. Without `secrets`, requests are not signed. An error message repeats neither URL nor secret.
    pub fn elsewhere(to: &str, secrets: Vec<Secret>) -> Result<Self, String> {
        let url = url(to, AddressScope::Any).map_err(|reason| format!("the URL {reason}"))?;
        match secrets.iter().all(is_usable) {
            true => Ok(Self { url, secrets, scope: AddressScope::Any, commit: Vec::new() }),
            false => Err("a secret to sign with must be `whsec_` and the key's bytes in base64".into()),
        }
    }

    pub fn url(&self) -> &Uri {
        &self.url
    }

    pub fn shown(&self) -> String {
        shown(&self.url)
    }

    pub fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }

    /// Returns the secrets with which each request is signed. During a rotation, there are two secrets, and
    /// the receiver may know either of them.
    pub fn secrets(&self) -> &[Secret] {
        &self.secrets
    }

    /// Returns why a forger can guess one of the secrets. Receivers would then accept the forger's requests.
    #[cfg(any(test, feature = "verify"))]
    pub fn guessable(&self) -> Option<&'static str> {
        self.secrets.iter().find_map(Secret::guessable)
    }

    /// Returns the tables that the endpoint's answers may write. Empty if answers only have an outcome.
    pub fn commit(&self) -> &[String] {
        &self.commit
    }

    pub fn scope(&self) -> AddressScope {
        self.scope
    }
}

/// Returns the tables of `forward.commit`. The answers of an endpoint may cause writes only if nobody between can change
/// them.
fn tables_of(tables: CommitTables, url: &Uri) -> Result<Vec<String>, String> {
    let tables = Vec::from(tables);
    let is_name = |name: &String| {
        (3..=255).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    if !tables.iter().all(is_name) {
        return Err(
            "`forward.commit` must have the names of DynamoDB tables: 3 to 255 letters, digits, `_`, `.` or `-`".into(),
        );
    }
    let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if url.scheme() == Some(&Scheme::HTTP) && !is_here {
        return Err("`forward.commit` needs a URL that starts with https://, because the answers cause writes".into());
    }
    Ok(tables)
}

/// Formats `url` for messages, without credentials, query and fragment. Path segments that look like
/// tokens become `…`.
pub(crate) fn shown(url: &Uri) -> String {
    let authority = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
    let address = authority.rsplit('@').next().unwrap_or_default();
    let path: Vec<&str> = url.path().split('/').map(|part| if is_token(part) { "…" } else { part }).collect();
    format!("{}://{address}{}", url.scheme_str().unwrap_or("https"), path.join("/").trim_end_matches('/'))
}

/// The shortest segment of a URL's path, in bytes, that may be a token.
const SHORTEST_TOKEN: usize = 16;

/// Returns whether the path segment `part` looks like a token. Ordinary words have neither digits nor
/// capitals.
fn is_token(part: &str) -> bool {
    part.len() >= SHORTEST_TOKEN && part.bytes().any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
}

pub(crate) fn rules() -> &'static dyn Provider {
    providers::standard_webhooks()
}

/// Returns whether requests can be signed with `secret`. The prefix `whsec_` is required, because a secret
/// without it may be meant as plain text.
fn is_usable(secret: &Secret) -> bool {
    secret.text().is_some_and(|text| text.starts_with("whsec_")) && rules().objection(secret).is_none()
}

fn url(text: &str, scope: AddressScope) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("cannot be read: {error}"))?;
    let host = url.host().filter(|host| !host.is_empty());
    let (Some(scheme), Some(authority), Some(host)) = (url.scheme(), url.authority(), host) else {
        return Err("must be a whole URL, such as https://example.com/webhooks".into());
    };
    if authority.as_str().contains('@') {
        return Err("must not contain a user name, because none is sent: receivers check the signature".into());
    }
    match scope {
        AddressScope::Any if *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS => {}
        AddressScope::Any => return Err("must start with https:// or http://".into()),
        AddressScope::Public if *scheme == Scheme::HTTPS => {}
        AddressScope::Public => return Err("must start with https://; http:// needs allow_private = true".into()),
    }
    if scope == AddressScope::Public && is_known_private(host) {
        return Err(format!("leads to {host}, which is not a public address: set allow_private = true to allow it"));
    }
    Ok(url)
}

/// Returns whether `host` is an address that is not public, or `localhost`. Other names are not resolved, and give
/// `false`.
fn is_known_private(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => !address::is_public(address),
        Err(_) => {
            let name = bare.trim_end_matches('.').to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

impl fmt::Debug for DestinationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DestinationName").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("host", &self.host()).field("scope", &self.scope).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::sources::Sources;

    fn checked(forward: &str) -> Result<super::Destination, String> {
        let document = format!(
            "[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\nhandler = 'forward'\nforward = {{ {forward} }}\n"
        );
        let sources = Sources::parse(&document).map_err(|error| error.to_string())?;
        Ok(sources.get("shop").unwrap().forward().unwrap().clone())
    }

    fn with_url(url: &str) -> Result<super::Destination, String> {
        checked(&format!("url = '{url}', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY'"))
    }

    #[test]
    fn public_https_url_is_accepted() {
        let urls =
            ["https://example.com", "https://example.com:8443/a/b?c=d", "https://8.8.8.8/", "https://[2606::1]/"];
        for url in urls {
            assert!(with_url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn private_address_is_refused_unless_allowed() {
        let urls = [
            "http://example.com/",
            "https://127.0.0.1/",
            "https://[::1]:8443/",
            "https://169.254.169.254/latest",
            "https://[::ffff:10.0.0.1]/",
            "https://localhost/",
            "https://a.LOCALHOST./",
        ];
        for url in urls {
            let refused = with_url(url).unwrap_err();
            assert!(refused.starts_with("source `shop`: `forward.url` "), "{refused}");
            assert!(refused.contains("allow_private"), "{refused}");
            let allowed =
                checked(&format!("url = '{url}', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY', allow_private = true"));
            assert!(allowed.is_ok(), "{url}");
        }
    }

    #[test]
    fn invalid_forward_url_is_refused() {
        for url in ["", "example.com", "/webhooks", "https://", "https://user:word@example.com/", "https://a b/"] {
            let refused = with_url(url).unwrap_err();
            assert!(refused.starts_with("source `shop`: `forward.url` "), "{url}: {refused}");
            assert!(!refused.contains("word"), "{refused}");
        }
        let ftp = checked("url = 'ftp://a', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY', allow_private = true").unwrap_err();
        assert!(ftp.contains("https:// or http://"), "{ftp}");
    }

    #[test]
    fn unusable_forward_secret_is_refused_and_not_shown() {
        for secret in
            ["'hush'", "'whsec_'", "'whsec_hush!'", "'c2VjcmV0'", "[]", "['whsec_Zk93bTR6S2dRcTdUaHBY', 'hush']", "{}"]
        {
            let refused = checked(&format!("url = 'https://example.com/', secret = {secret}")).unwrap_err();
            assert!(refused.contains("secret"), "{refused}");
            assert!(!refused.contains("hush") && !refused.contains("c2Vj"), "{refused}");
        }
    }

    #[test]
    fn debug_output_of_destination_hides_secrets() {
        let destination = with_url("https://example.com/hush?hush").unwrap();
        let shown = format!("{destination:?}");
        assert!(shown.contains("example.com"), "{shown}");
        assert!(!shown.contains("hush") && !shown.contains("c2Vj"), "{shown}");
    }

    #[test]
    fn shown_url_has_no_query_and_no_token() {
        for (url, expected) in [
            ("https://example.com/", "https://example.com"),
            (
                "https://example.com:8443/a/webhook-serializer/?key=hush",
                "https://example.com:8443/a/webhook-serializer",
            ),
            ("https://example.com/in/Zx81kQ92mVb7TtR4/x#hush", "https://example.com/in/…/x"),
            ("https://[2606::1]:444/hooks", "https://[2606::1]:444/hooks"),
        ] {
            assert_eq!(with_url(url).unwrap().shown(), expected);
        }
        assert_eq!(super::shown(&"http://name:hush@127.0.0.1:9/".parse().unwrap()), "http://127.0.0.1:9");
    }

    #[test]
    fn answers_may_write_only_named_tables_over_tls() {
        let secret = "secret = 'whsec_Zk93bTR6S2dRcTdUaHBY'";
        let with = |url: &str, commit: &str| {
            checked(&format!("url = '{url}', {secret}, allow_private = true, commit = {commit}"))
        };
        for url in ["https://example.com/", "http://127.0.0.1:8080/", "http://localhost/", "http://[::1]/"] {
            assert_eq!(with(url, "'totals'").unwrap().commit(), ["totals"], "{url}");
        }
        assert_eq!(with("https://example.com/", "['totals', 'a.b-c_d']").unwrap().commit().len(), 2);
        let plain = with("http://10.0.0.1/", "'totals'").unwrap_err();
        assert!(plain.contains("`forward.commit` needs a URL that starts with https://"), "{plain}");
        for commit in ["'ab'", "['totals', 'a b']", "'arn:aws:dynamodb:eu-central-1:1:table/totals'"] {
            let refused = with("https://example.com/", commit).unwrap_err();
            assert!(refused.contains("`forward.commit` must have the names of DynamoDB tables"), "{commit}: {refused}");
        }
    }

    #[test]
    fn forward_table_requires_handler_forward() {
        let source = |rest: &str| {
            let document = format!("[sources.shop]\nprovider = 'shopify'\nsecrets = ['s']\n{rest}");
            Sources::parse(&document).unwrap_err().to_string()
        };
        let without = source("handler = 'forward'");
        assert_eq!(without, "source `shop`: handler = \"forward\" needs a table `forward` with `url` and `secret`");
        let with = source(
            "handler = 'orders'\nforward = { url = 'https://example.com/', secret = 'whsec_Zk93bTR6S2dRcTdUaHBY' }",
        );
        assert_eq!(
            with,
            "source `shop`: a table `forward` needs handler = \"forward\"; write that, or remove the table"
        );
    }
}
