//! The receiver of `listen --to`: signs each delivery as the handler `forward` does, and posts it to the user's URL.

use std::{
    net::IpAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, ensure};
use hyper::{
    Request, Uri,
    header::{HeaderName, HeaderValue},
};
use hyper_util::client::legacy;
use indicatif::ProgressBar;
use serializer::{
    local::sender::{HttpAnswer, Sender},
    output::{self, duration},
};
use webhook_serializer::{
    handlers::forward::{headers, payload::ForwardBody},
    protocol::{delivery::Delivery, entity::FencingToken},
    providers::Secret,
    sources::{Sources, deliver::Deliver, destination::Destination},
    time::Env,
};

use crate::commands::{
    confirm::ask,
    setup::source::{secret, whereabouts},
    survey::bar,
    target::Deployment,
};

/// A header that distinguishes this command's requests from the requests of workers.
const MARK: HeaderName = HeaderName::from_static("serializer-listen");

/// The number of requests without an answer after which the command gives up on a delivery.
const TRIES: u32 = 3;

const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Asks the user before deliveries' bodies are sent to another machine. A URL of this machine needs no permission.
pub fn permit(to: &str, yes: bool) -> Result<()> {
    let destination = Destination::elsewhere(to, Vec::new()).map_err(|reason| anyhow!("--to: {reason}"))?;
    if yes || is_loopback(destination.url()) {
        return Ok(());
    }
    let host = destination.host();
    let fact = format!("bodies hold customers' data, and {host} is not this machine (127.0.0.1, ::1 or localhost)");
    let agreed = ask(&format!("{fact}. Post them there?")).with_context(|| fact)?;
    ensure!(agreed, "nothing was posted");
    Ok(())
}

/// Returns whether a URL certainly leads to this machine. Names other than `localhost` are not resolved.
fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

pub struct Receiver {
    to: String,
    sender: Sender,
    /// The signing secret for sources that do not use the handler `forward`. With the option `--secret`, the signing
    /// secret for all sources.
    secret: Secret,
    is_secret_given: bool,
    sources: Option<Sources>,
    limit: Duration,
    env: Env,
    is_away: AtomicBool,
    pub bar: ProgressBar,
}

pub struct TimedAnswer {
    pub answer: Result<HttpAnswer, String>,
    pub took: Duration,
}

impl TimedAnswer {
    pub fn is_taken(&self) -> bool {
        self.answer.as_ref().is_ok_and(|answer| (200..300).contains(&answer.status))
    }
}

impl Receiver {
    /// Creates a receiver that posts to `to`. A secret that this function generates is printed, so that the user can
    /// verify the requests.
    pub async fn new(to: &str, is_secret_given: bool, limit: Duration, deployment: &Deployment) -> Result<Self> {
        let text = if is_secret_given { secret::read("the secret to sign with")? } else { secret::random() };
        let secret = Secret::new(text.clone());
        let url = Destination::elsewhere(to, vec![secret.clone()]).map_err(|reason| anyhow!("{reason}"))?;
        let url = url.url();
        let base = format!("{}://{}", url.scheme_str().unwrap_or("http"), url.authority().context("it has a host")?);
        let sources = whereabouts::configured(deployment).await;
        if !is_secret_given {
            let named = sources.as_ref().map(|sources| {
                let forwards = sources.iter().filter(|source| source.forward().is_some());
                forwards.map(|source| source.name.to_string()).collect::<Vec<_>>().join(", ")
            });
            match named.as_deref() {
                Ok("") => output::complain(format_args!("listen signs with {text}")),
                Ok(names) => output::complain(format_args!(
                    "listen signs the deliveries of {names} with their `forward` secrets, and all others with {text}"
                )),
                Err(error) => output::complain(format_args!(
                    "listen signs with {text}, because it cannot read the sources' own secrets: {error:#}"
                )),
            }
        }
        Ok(Self {
            to: to.to_owned(),
            sender: Sender::without_pool(base),
            secret,
            is_secret_given,
            sources: sources.ok(),
            limit,
            env: deployment.env.clone(),
            is_away: AtomicBool::new(false),
            bar: bar(0, "past deliveries"),
        })
    }

    pub fn url(&self) -> &str {
        &self.to
    }

    /// Posts a delivery until the receiver answers, or until [`TRIES`] requests got no answer. A request that cannot
    /// connect is repeated without limit. `unanswered` is called after each request without an answer, except
    /// the last one.
    pub async fn post(
        &self,
        delivery: &Delivery,
        token: FencingToken,
        unanswered: impl Fn(&TimedAnswer),
    ) -> Result<TimedAnswer> {
        let mut tries = 0;
        let mut pause = SHORTEST_PAUSE;
        loop {
            let began = self.env.monotonic();
            let answer = self.env.within(self.limit, self.sender.send(self.request(delivery, token)?)).await;
            let took = self.env.monotonic().saturating_sub(began);
            let error = match answer {
                Some(Ok(answer)) => {
                    self.is_back();
                    return Ok(TimedAnswer { answer: Ok(answer), took });
                }
                Some(Err(error)) if is_connect(&error) => {
                    if !self.is_away.swap(true, Relaxed) {
                        let cause = error.root_cause();
                        self.complain(format_args!(
                            "{} cannot be reached ({cause}); listen tries again until it answers",
                            self.to
                        ));
                    }
                    None
                }
                Some(Err(error)) => Some(error.root_cause().to_string()),
                None => Some(format!("within {}", duration(self.limit))),
            };
            if let Some(error) = error {
                self.is_back();
                tries += 1;
                let sent = TimedAnswer { answer: Err(error), took };
                if tries == TRIES {
                    return Ok(sent);
                }
                unanswered(&sent);
            }
            self.env.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn is_back(&self) {
        if self.is_away.swap(false, Relaxed) {
            self.complain(format_args!("{} answers again", self.to));
        }
    }

    pub fn complain(&self, line: impl std::fmt::Display) {
        self.bar.suspend(|| output::complain(line));
    }

    fn request(&self, delivery: &Delivery, token: FencingToken) -> Result<Request<ForwardBody>> {
        let source = self.sources.as_ref().and_then(|sources| sources.get(delivery.source().as_str()));
        let forward = source.and_then(|source| Some((source.forward()?, source.deliver)));
        let secrets = match forward {
            Some((forward, _)) if !self.is_secret_given => forward.secrets().to_vec(),
            _ => vec![self.secret.clone()],
        };
        let destination = Destination::elsewhere(&self.to, secrets).map_err(|reason| anyhow!("{reason}"))?;
        let now = self.env.now();
        let mut request = match forward {
            Some((_, Deliver::UpTo(_))) => headers::together(&destination, &[delivery], token, now),
            _ => headers::request(&destination, delivery, token, now),
        };
        request.headers_mut().insert(MARK, HeaderValue::from_static("true"));
        Ok(request)
    }
}

/// Returns whether the client could not connect to the receiver, so that no request was sent.
fn is_connect(error: &anyhow::Error) -> bool {
    error.chain().find_map(|cause| cause.downcast_ref::<legacy::Error>()).is_some_and(legacy::Error::is_connect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_urls_count_as_local() {
        let is_loopback = |url: &str| is_loopback(&url.parse().unwrap());
        for url in [
            "http://localhost:3000/a",
            "http://LOCALHOST.",
            "https://127.0.0.1",
            "http://127.9.9.9:1",
            "http://[::1]:80",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert!(is_loopback(url), "{url}");
        }
        for url in [
            "http://example.com",
            "http://127.0.0.1.example.com",
            "http://localhost.example.com",
            "http://0.0.0.0:3000",
            "http://127.1",
            "http://10.0.0.1",
            "http://[::]:80",
            "http://[::ffff:10.0.0.1]",
        ] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
