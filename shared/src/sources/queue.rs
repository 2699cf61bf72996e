//! Sources whose deliveries are the messages of a queue.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{
    Source, Sources,
    reference::{FieldPattern, pattern},
    source::SourceEntry,
};
use crate::{
    nearest,
    protocol::entity::SourceName,
    providers::{self, Inlet},
};

pub(crate) const QUEUE: FieldPattern = pattern(
    "queue",
    r"^arn:aws[a-z-]*:sqs:[a-z0-9-]{1,32}:[0-9]{12}:[A-Za-z0-9_-]{1,80}(\.fifo)?$",
    &["orders", "arn:aws:sns:eu-central-1:123456789012:orders"],
);

const EXAMPLE: &str = "arn:aws:sqs:eu-central-1:123456789012:orders";

/// The ARN of an SQS queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueArn(String);

impl QueueArn {
    /// Checks the ARN. An error shows a value of the document only if that is the URL of a queue.
    fn check(text: String) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            ["arn", partition, "sqs", region, account, name]
                if is_partition(partition) && is_region(region) && is_account(account) && is_name(name) =>
            {
                Ok(Self(text))
            }
            ["arn", _, "sqs", ..] => Err(format!(
                "`queue` must be a queue's whole ARN, with region, account (12 digits) and name, such as `{EXAMPLE}`"
            )),
            ["arn", ..] => Err(format!("`queue` is another service's ARN; a queue's is like `{EXAMPLE}`")),
            _ => Err(match of_url(&text) {
                Some(arn) => format!("`queue` is a queue's URL; write its ARN, `{arn}`"),
                None => format!("`queue` must be a queue's whole ARN, such as `{EXAMPLE}`"),
            }),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the queue's name, which ends the ARN.
    pub fn name(&self) -> &str {
        self.0.rsplit(':').next().unwrap_or_default()
    }

    /// Returns the queue's URL.
    pub fn url(&self) -> String {
        let [_, partition, _, region, account, name] = self.parts();
        let domain = if partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
        format!("https://sqs.{region}.{domain}/{account}/{name}")
    }

    fn parts(&self) -> [&str; 6] {
        let mut parts = self.0.split(':');
        std::array::from_fn(|_| parts.next().unwrap_or_default())
    }

    /// Returns whether SQS keeps the order of the messages of one group.
    pub fn is_fifo(&self) -> bool {
        self.0.ends_with(".fifo")
    }
}

impl fmt::Display for QueueArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the ARN of the queue with this URL.
fn of_url(url: &str) -> Option<String> {
    let (host, path) = url.strip_prefix("https://sqs.")?.split_once('/')?;
    let (region, domain) = host.split_once('.')?;
    let (account, name) = path.split_once('/')?;
    let partition = match domain {
        "amazonaws.com" if region.starts_with("us-gov-") => "aws-us-gov",
        "amazonaws.com" => "aws",
        "amazonaws.com.cn" => "aws-cn",
        _ => return None,
    };
    (is_region(region) && is_account(account) && is_name(name))
        .then(|| format!("arn:{partition}:sqs:{region}:{account}:{name}"))
}

fn is_partition(text: &str) -> bool {
    text.starts_with("aws") && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
}

fn is_region(text: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=32).contains(&text.len()) && text.bytes().all(is_part)
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_name(text: &str) -> bool {
    let name = text.strip_suffix(".fifo").unwrap_or(text);
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !name.is_empty() && text.len() <= 80 && name.bytes().all(is_part)
}

/// Returns the queue of a source, which then has no field that belongs to webhooks.
pub(super) fn of(entry: &mut SourceEntry) -> Result<Option<QueueArn>, String> {
    let Some(queue) = entry.queue.take() else { return Ok(None) };
    if let Some(field) = entry.door_fields().find(|field| !["provider", "generic"].contains(field)) {
        let reason = match field {
            "on_outage" => "during an outage, messages stay in the queue",
            _ => "IAM decides who may send to the queue",
        };
        return Err(format!("a source with `queue` has no `{field}`, because {reason}; remove it"));
    }
    QueueArn::check(queue).map(Some)
}

/// Returns why a source of the provider `name`, whose events arrive by `inlet`, cannot have a queue, or needs one.
pub(super) fn objection_to_inlet(name: &str, inlet: Inlet, has_queue: bool) -> Option<String> {
    match inlet {
        Inlet::Webhooks if has_queue => {
            let reads = |name: &&str| providers::by_name(name).is_none_or(|one| one.inlet().envelopes().is_some());
            let readers: Vec<&str> = providers::NAMES.into_iter().filter(reads).collect();
            Some(format!(
                "`{name}` sends webhooks only, and a source with `queue` needs a provider that reads messages: {}; the \
                 table of `generic` says where any message has topic, id and order",
                readers.join(", ")
            ))
        }
        Inlet::Queue(_) if !has_queue => Some(format!(
            "`{name}` sends no webhooks: its events come by your SQS queue, so write the queue's ARN, such as queue = \
             \"{EXAMPLE}\" (docs/queues.md)"
        )),
        _ => None,
    }
}

/// Returns a source whose queue is also another's, and the reason.
pub(super) fn objection(sources: &BTreeMap<SourceName, Arc<Source>>) -> Option<(&SourceName, String)> {
    let mut known: BTreeMap<&str, &SourceName> = BTreeMap::new();
    sources.values().find_map(|source| {
        let other = known.insert(source.queue.as_ref()?.as_str(), &source.name)?;
        let reason = format!(
            "`queue` is also that of `{other}`, and a message goes to one source; for several handlers, write \
             from = '{other}' instead, and handler = 'fan-out' there"
        );
        Some((&source.name, reason))
    })
}

impl Sources {
    /// Returns the source whose queue has this ARN.
    pub fn of_queue(&self, arn: &str) -> Option<&Arc<Source>> {
        self.iter().find(|source| source.queue.as_ref().is_some_and(|queue| queue.as_str() == arn))
    }

    /// Returns a sentence about a queue that no source has.
    pub fn no_such_queue(&self, arn: &str) -> String {
        let queues = self.iter().filter_map(|source| source.queue.as_ref());
        format!("no source has queue = \"{arn}\"{}", nearest::hint(arn, queues.map(QueueArn::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: &str = "[sources.orders]\nprovider = 'generic'\nhandler = 'h'\ngeneric = { entity = '/id' }\n";

    fn read(fields: &str) -> Result<Sources, String> {
        Sources::parse(&format!("{ORDERS}{fields}")).map_err(|error| error.to_string())
    }

    #[test]
    fn queue_must_be_a_whole_sqs_arn() {
        for arn in [
            EXAMPLE,
            "arn:aws:sqs:eu-central-1:123456789012:orders.fifo",
            "arn:aws-us-gov:sqs:us-gov-west-1:123456789012:a_B-9",
            "arn:aws-cn:sqs:cn-north-1:123456789012:orders",
        ] {
            let sources = read(&format!("queue = '{arn}'")).unwrap();
            let queue = sources.of_queue(arn).and_then(|source| source.queue.clone()).unwrap();
            assert_eq!((queue.as_str(), queue.is_fifo()), (arn, arn.ends_with(".fifo")));
            assert_eq!(of_url(&queue.url()).as_deref(), Some(arn));
        }
        for (value, reason) in [
            ("", "must be a queue's whole ARN, such as `arn:aws:sqs:eu-central-1:123456789012:orders`"),
            ("orders", "must be a queue's whole ARN, such as"),
            ("https://example.com/123456789012/orders", "must be a queue's whole ARN, such as"),
            ("arn:aws:sns:eu-central-1:123456789012:orders", "is another service's ARN; a queue's is like"),
            ("arn:aws:sqs:eu-central-1:12345678901:orders", "with region, account (12 digits) and name"),
            ("arn:aws:sqs:eu-central-1:123456789012", "with region, account (12 digits) and name"),
            ("arn:aws:sqs:eu-central-1:123456789012:or ders", "with region, account (12 digits) and name"),
            ("arn:aws:sqs:eu-central-1:123456789012:.fifo", "with region, account (12 digits) and name"),
            (
                "https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo",
                "is a queue's URL; write its ARN, `arn:aws:sqs:eu-central-1:123456789012:orders.fifo`",
            ),
            (
                "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/orders",
                "is a queue's URL; write its ARN, `arn:aws-cn:sqs:cn-north-1:123456789012:orders`",
            ),
        ] {
            let refused = read(&format!("queue = '{value}'")).unwrap_err();
            assert!(refused.starts_with("source `orders`: `queue` ") && refused.contains(reason), "{value}: {refused}");
        }
    }

    /// Promise: `check` refuses a queue that two sources have, and what a source with a queue cannot use: secrets,
    /// signatures, `on_outage` and `from`.
    #[test]
    fn source_with_queue_refuses_what_belongs_to_webhooks() {
        let queue = format!("queue = '{EXAMPLE}'\n");
        for (field, reason) in [
            ("secrets = 'hush'", "has no `secrets`, because IAM decides who may send to the queue; remove it"),
            ("client_id = 'hush'", "has no `client_id`, because IAM decides"),
            ("tolerance = '1m'", "has no `tolerance`, because IAM decides"),
            ("url = 'https://example.com/hush'", "has no `url`, because IAM decides"),
            ("on_outage = 'queue'", "has no `on_outage`, because during an outage, messages stay in the queue"),
            ("from = 'shop'\n[sources.shop]\nprovider = 'shopify'\nhandler = 'fan-out'", "it has no `provider`"),
        ] {
            let refused = read(&format!("{queue}{field}")).unwrap_err();
            assert!(refused.contains(reason) && !refused.contains("hush"), "{field}: {refused}");
        }
        let subscriber = format!("[sources.shop]\nprovider = 'shopify'\nhandler = 'fan-out'\n[sources.mails]\n{queue}");
        let refused = Sources::parse(&format!("{subscriber}from = 'shop'\nhandler = 'h'")).unwrap_err().to_string();
        assert!(refused.contains("a source with `from` gets no webhooks, so it has no `queue`"), "{refused}");
        let signed = "header = 'x', hash = 'sha256', encoding = 'hex'";
        for (field, name) in [
            (signed, "header"),
            ("token_in = 'x'", "token_in"),
            ("separator = ','", "separator"),
            ("prefix = 'x'", "prefix"),
            ("answer = 'x'", "answer"),
            ("challenge = 'x'", "challenge"),
            ("retried_for = '1h'", "retried_for"),
        ] {
            let document = format!("{ORDERS}{queue}").replace("entity = '/id'", &format!("entity = '/id', {field}"));
            let refused = Sources::parse(&document).unwrap_err().to_string();
            assert!(refused.contains(&format!("a source with `queue` has no `generic.{name}`")), "{field}: {refused}");
        }
        let query = format!("{ORDERS}{queue}").replace("/id", "{query:id}");
        let refused = Sources::parse(&query).unwrap_err().to_string();
        assert!(refused.contains("a message has no query"), "{refused}");
        let other = format!("{queue}{}", ORDERS.replace("orders", "others"));
        let refused = read(&format!("{other}{queue}")).unwrap_err();
        assert!(refused.starts_with("source `others`: `queue` is also that of `orders`"), "{refused}");
    }

    /// Promise: `check` refuses a queue for a provider whose events come by none, and demands one for a provider without
    /// webhooks.
    #[test]
    fn provider_decides_about_a_queue() {
        let read = |provider: &str, fields: &str| {
            let document = format!("[sources.shop]\nprovider = '{provider}'\nhandler = 'h'\n{fields}");
            Sources::parse(&document).map(|_| ()).map_err(|error| error.to_string())
        };
        let queue = format!("queue = '{EXAMPLE}'\n");
        for provider in ["amazon-sp-api", "commercetools", "shopify", "stripe"] {
            assert_eq!(read(provider, &queue), Ok(()), "{provider}");
            let refused = read(provider, &format!("{queue}secrets = 'hush'")).unwrap_err();
            assert!(refused.contains("has no `secrets`") && !refused.contains("hush"), "{refused}");
        }
        let refused = read("woocommerce", &queue).unwrap_err();
        assert!(
            refused.contains(
                "`woocommerce` sends webhooks only, and a source with `queue` needs a provider that reads messages: \
                 amazon-sp-api, commercetools, generic, shopify, stripe;"
            ),
            "{refused}"
        );
        for provider in ["amazon-sp-api", "commercetools"] {
            for fields in ["", "secrets = 'hush'"] {
                let refused = read(provider, fields).unwrap_err();
                assert!(refused.contains(&format!("`{provider}` sends no webhooks")), "{refused}");
                assert!(refused.contains(&format!("such as queue = \"{EXAMPLE}\"")), "{refused}");
                assert!(!refused.contains("hush"), "{refused}");
            }
        }
    }

    #[test]
    fn generic_without_signature_needs_a_queue() {
        assert!(read("").unwrap_err().contains("missing field `header`"));
        let door = read(&format!("queue = '{EXAMPLE}'")).unwrap();
        assert!(door.door("orders").is_none() && door.doors().count() == 0, "no webhook can be sent to it");
        assert!(door.get("orders").unwrap().has_secret() && door.get("orders").unwrap().credential_field().is_none());
    }
}
