//! `serializer replay`: posts past deliveries to another URL.

use std::{ops::RangeInclusive, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use console::style;
use serde_json::{Value, json};
use serializer::{
    local::sender::{Answer, Sender},
    output::{self, duration},
    say,
};
use webhook_serializer::{
    handlers::{event, forward::headers},
    operator::{Content, Single},
    protocol::{
        delivery::Delivery,
        entity::{EntityKey, FencingToken, Sequence, SourceName},
    },
    providers::Secret,
    sources::{Sources, deliver::Deliver, destination::Destination},
};

use crate::commands::{
    interrupt::Interrupt,
    print_json,
    setup::source::{secret, whereabouts},
    target::{Deployment, Target},
};

/// Marks a request that no worker sent.
const MARK: (&str, &str) = ("serializer-replay", "true");

/// The most characters of an answer that are shown.
const SHOWN: usize = 200;

/// The most deliveries in one run.
const MOST: u64 = 1000;

#[derive(Debug, Args)]
#[command(after_help = "\
It posts the body as it is stored, with the headers that the handler `forward` would send, signed afresh, and \
    `serializer-replay: true`. The webhook-id is that of the delivery, so a receiver that has applied it takes it for a \
    repeat. The fencing token is the one it was settled under, or the order's newest; attempt is 1, age unknown.\n\n\
It is signed with the secrets that its source forwards with, from the sources document; with --secret, with another; \
    with --unsigned, not at all.\n\n\
Nothing in the tables changes, and no handler of the deployment is started. Bodies hold what customers wrote: mind \
    where you send them. The first answer that is not 2xx ends it, unless --keep-going is given; the exit code is 1 \
    then.\n\n\
Example:\n  \
serializer replay shopify/order/450789469 41 --to http://127.0.0.1:8000/webhooks")]
pub struct Replay {
    /// The order's key, such as shopify/order/450789469
    #[arg(value_name = "ORDER")]
    order: EntityKey,
    /// A delivery's number, as `show` prints it; or `FIRST..LAST` for all of these that are still kept, in order
    #[arg(value_name = "SEQUENCE", value_parser = places)]
    places: RangeInclusive<u64>,
    /// The URL to post to: https:// or http://, also on this machine
    #[arg(long, value_name = "URL")]
    to: String,
    /// Sign with a secret that is asked for, or read from standard input: `whsec_…`
    #[arg(long, conflicts_with = "unsigned")]
    secret: bool,
    /// Do not sign
    #[arg(long)]
    unsigned: bool,
    /// The sources document with the secrets; by default the deployment's own
    #[arg(long, value_name = "FILE", conflicts_with_all = ["secret", "unsigned"])]
    sources: Option<PathBuf>,
    /// Continue after an answer that is not 2xx
    #[arg(long)]
    keep_going: bool,
    /// Wait at most this long for each answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=900))]
    timeout: u64,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

/// Parses `41` or `41..45`.
fn places(text: &str) -> Result<RangeInclusive<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("`{text}` is no number of a delivery"));
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    match last.checked_sub(first) {
        None => Err(format!("the last, {last}, comes before the first, {first}")),
        Some(span) if span >= MOST => Err(format!("at most {MOST} deliveries at once")),
        Some(_) => Ok(first..=last),
    }
}

enum Signing {
    With(Vec<Secret>),
    AsForwarded(Box<Sources>),
}

impl Signing {
    /// Returns the secrets for a source's deliveries, and whether it forwards lists.
    fn of(&self, source: &SourceName) -> Result<(Vec<Secret>, bool)> {
        match self {
            Self::With(secrets) => Ok((secrets.clone(), false)),
            Self::AsForwarded(sources) => {
                let found = sources.get(source.as_str()).and_then(|source| Some((source.forward()?, source.deliver)));
                let (forward, deliver) = found.with_context(|| {
                    format!(
                        "source `{source}` forwards nowhere, so there is no secret to sign with: give one with \
                         --secret, or send it with --unsigned"
                    )
                })?;
                Ok((forward.secrets().to_vec(), matches!(deliver, Deliver::UpTo(_))))
            }
        }
    }
}

struct Sent {
    answer: Option<Answer>,
    took: Duration,
    error: Option<String>,
}

impl Sent {
    fn is_taken(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| (200..300).contains(&answer.status))
    }
}

impl Replay {
    pub async fn run(self) -> Result<ExitCode> {
        // A wrong URL is reported before anything is read.
        Destination::elsewhere(&self.to, Vec::new()).map_err(|reason| anyhow!("--to: {reason}"))?;
        let deployment = self.target.connect().await?;
        let signing = self.signing(&deployment).await?;
        let operator = deployment.operator();
        let interrupt = Interrupt::listen();
        let is_one = self.places.start() == self.places.end();
        let (mut taken, mut refused, mut without) = (0, 0, 0);
        for place in self.places.clone().map(Sequence) {
            if interrupt.came() {
                output::complain(format_args!("stopped before {place}"));
                break;
            }
            let single = operator.single(&self.order, place).await?;
            let Content::Delivery(delivery) = &single.content else {
                ensure!(!is_one, "{}", missing(&self.order, place, &single, &deployment));
                without += 1;
                continue;
            };
            let (secrets, is_list) = signing.of(delivery.source())?;
            let destination = Destination::elsewhere(&self.to, secrets).map_err(|reason| anyhow!("{reason}"))?;
            let sent = self.send(&destination, delivery, is_list, token(&single), &deployment).await?;
            self.print(delivery, &sent);
            match sent.is_taken() {
                true => taken += 1,
                false => refused += 1,
            }
            if refused > 0 && !self.keep_going {
                break;
            }
        }
        if taken + refused == 0 {
            let show = deployment.command("show", self.order.as_str());
            bail!("nothing was sent: none of these sequences holds a stored delivery. `{show}` lists them");
        }
        if without > 0 {
            output::complain(format_args!("{without} of these sequences hold no stored delivery; the rest was sent"));
        }
        Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn signing(&self, deployment: &Deployment) -> Result<Signing> {
        if self.unsigned {
            return Ok(Signing::With(Vec::new()));
        }
        if self.secret {
            return Ok(Signing::With(vec![Secret::new(secret::read("the secret to sign with")?)]));
        }
        let sources = whereabouts::configured(deployment, self.sources.as_deref()).await;
        let sources =
            sources.context("the secret to sign with is not known; --secret asks for one, --unsigned sends without")?;
        Ok(Signing::AsForwarded(Box::new(sources)))
    }

    async fn send(
        &self,
        destination: &Destination,
        delivery: &Delivery,
        is_list: bool,
        token: FencingToken,
        deployment: &Deployment,
    ) -> Result<Sent> {
        let env = &deployment.env;
        let now = env.now();
        let (request, body) = match is_list {
            true => {
                (headers::together(destination, &[delivery], token, now), event::json(&[delivery], token).into_bytes())
            }
            false => (headers::request(destination, delivery, token, now), delivery.body().to_vec()),
        };
        let is_signed = !destination.secrets().is_empty();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let of_signature = ["webhook-signature", "webhook-timestamp"];
        let mut sent: Vec<(String, String)> = request
            .headers()
            .iter()
            .filter(|(name, _)| is_signed || !of_signature.contains(&name.as_str()))
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect();
        sent.push((MARK.0.to_owned(), MARK.1.to_owned()));
        let uri = request.uri();
        let base = format!("{}://{}", uri.scheme_str().unwrap_or("http"), uri.authority().context("it has a host")?);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let began = env.monotonic();
        let limit = Duration::from_secs(self.timeout);
        let sender = Sender::new(base);
        let answer = env.within(limit, sender.request("POST", path, &sent, body)).await;
        let took = env.monotonic().saturating_sub(began);
        Ok(match answer {
            Some(Ok(answer)) => Sent { answer: Some(answer), took, error: None },
            Some(Err(error)) => Sent { answer: None, took, error: Some(format!("{error:#}")) },
            None => Sent { answer: None, took, error: Some(format!("no answer within {}", duration(limit))) },
        })
    }

    fn print(&self, delivery: &Delivery, sent: &Sent) {
        let Sent { answer, took, error } = sent;
        let said = answer.as_ref().map(|answer| one_line(&answer.body)).unwrap_or_default();
        if self.json {
            let status = answer.as_ref().map_or(Value::Null, |answer| answer.status.into());
            return print_json(&json!({
                "entity": delivery.entity(), "sequence": delivery.sequence(), "source": delivery.source(),
                "topic": delivery.topic(), "delivery": delivery.delivery_id().as_str(), "to": self.to,
                "status": status, "took_ms": took.as_millis() as u64, "answer": said, "error": error,
            }));
        }
        let outcome = match answer {
            Some(answer) if sent.is_taken() => style(answer.status.to_string()).green(),
            Some(answer) => style(answer.status.to_string()).red(),
            None => style("no answer".to_owned()).red(),
        };
        let (place, topic) = (delivery.sequence(), delivery.topic());
        let words = match (answer, error) {
            (Some(answer), _) if (300..400).contains(&answer.status) => "redirects are not followed".to_owned(),
            (_, Some(error)) => error.clone(),
            _ => said,
        };
        let bytes = delivery.body().len();
        say!(
            "{outcome}  {place} {topic}  {}  {words}",
            style(format_args!("{bytes} bytes, {}", duration(*took))).dim()
        );
    }
}

/// Returns the token of its settlement, or else the order's newest.
fn token(single: &Single) -> FencingToken {
    let settled = single.receipt.as_ref().map(|receipt| receipt.token);
    settled.or(single.state.as_ref().map(|state| state.token)).unwrap_or(FencingToken(0))
}

/// Explains why no delivery can be sent.
fn missing(order: &EntityKey, place: Sequence, single: &Single, deployment: &Deployment) -> String {
    let show = deployment.command("show", order.as_str());
    match (&single.content, &single.state) {
        (_, None) => format!("nothing is known of {order}. Is that its key? `{show}`"),
        (_, Some(state)) if place > state.tail => {
            format!("there is no delivery {place} of {order}: the last that arrived is {}", state.tail)
        }
        (Content::Void, _) => format!("{place} of {order} was claimed and never filled"),
        (Content::Bodiless(_), _) => format!("the body of {place} of {order} is gone: it was put back or discarded"),
        _ => {
            let days = deployment.retention.as_secs() / 86_400;
            format!(
                "{place} of {order} is not kept any more (deliveries are kept for {days} days), or not written yet. `{show}` shows what there is"
            )
        }
    }
}

fn one_line(text: &str) -> String {
    let words = output::one_line(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match words.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_range_includes_its_last() {
        assert_eq!(places("41"), Ok(41..=41));
        assert_eq!(places("41..45"), Ok(41..=45));
        assert_eq!(places("41..=45"), Ok(41..=45));
        for wrong in ["", "a", "..", "4..", "45..41", "1..5000"] {
            assert!(places(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answer_is_cut_to_one_escaped_line() {
        assert_eq!(one_line("no\n such\t\x1b[31morder "), "no such \\u001b[31morder");
        assert_eq!(one_line(&"x".repeat(500)).chars().count(), SHOWN + 1);
    }
}
