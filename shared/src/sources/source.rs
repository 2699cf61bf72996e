//! One configured sender: its fields as written, and as checked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    Credentials, DEFAULT_HANDLER_TIMEOUT, FORWARD, Filter, INVOKE, IgnoredBy, OnOutage, Topics,
    check::{RecipientIds, Templates, handler_table, positive, provider, recipients, secrets},
    deliver::{self, Deliver, Linger, Stale},
    destination::{Destination, DestinationEntry, DestinationName},
    invocation::{Function, FunctionEntry},
    provider::{AnyProvider, Registry},
    queue::{self, QUEUE, QueueArn},
    reference::{
        ANY, DURATION,
        FieldForm::{self, Flag, OneOrMore, Table, Text, Word, WordOrMost},
        NOT_EMPTY, RATE, SECRET, SOURCE, TEMPLATE, document_table, word,
    },
    retry::RetryEntry,
    subscriber,
    table::{Secrets, StrictTable},
    template::Template,
};
use crate::{
    protocol::{
        attempt::{OnFailure, RetryPolicy},
        entity::SourceName,
        rate::Rate,
        state::LARGEST_GROUP,
    },
    providers::{self, Generic, GenericOptions, Secret},
    time::duration::duration,
};

document_table! {
    /// One configured sender. Its webhooks are posted to `/webhooks/NAME`; `NAME` is 1 to 64 lower-case letters,
    /// digits, `-` or `_`, and not `cron`. A document has at least one source.
    #[table("[sources.NAME]")]
    pub(super) struct SourceEntry {
        /// The provider, whose rules verify the webhooks and find topic and entity. `generic` is any sender that the
        /// table `generic` describes.
        #[field(Word(&providers::NAMES), required_without(from), example("shopify"))]
        provider: Option<String>,
        /// The source whose deliveries this one gets: see [several handlers](several-handlers.md). That source has
        /// `handler = "fan-out"`. This one has no URL, and so none of `provider`, `secrets`, `queue`, `webhook_id`,
        /// `client_id`, `tolerance`, `url`, `on_outage` and `generic`.
        #[field(Text(SOURCE), means("its own webhooks"), example("shopify"))]
        pub(super) from: Option<String>,
        /// The ARN of your SQS queue. Its messages are the deliveries: see [queues](queues.md). The provider is
        /// `amazon-sp-api`, `commercetools`, `generic`, `shopify` or `stripe`. The source has no URL. It cannot have
        /// `secrets`, `webhook_id`, `client_id`, `tolerance`, `url` or `on_outage`.
        #[field(
            Text(QUEUE),
            means_unless("its own webhooks", provider = "amazon-sp-api" | "commercetools"),
            example("arn:aws:sqs:eu-central-1:123456789012:orders"),
            needs(provider = "generic", generic = toml r#"{ topic = "/type", entity = "/order/id" }"#)
        )]
        pub(super) queue: Option<String>,
        /// The secrets that the sender signs with or sends: [for each provider](providers.md). Give both the old and
        /// the new one while you roll it. For `stripe` and `etsy` they begin with `whsec_`, for `standard-webhooks`
        /// with `whsec_` or `whpk_`, a public key. Write a binary key as `hex:…` or `base64:…`.
        #[field(OneOrMore(SECRET), means("deliveries are answered 503"), example(toml r#"["…"]"#))]
        #[serde(default)]
        secrets: Secrets,
        /// Only with `provider = "paypal"`: the webhook's id, which PayPal shows once the webhook exists. While you
        /// replace a webhook, give the ids of the old and the new one.
        #[field(
            OneOrMore(NOT_EMPTY),
            means("deliveries are answered 503"),
            example("8PT597110X687430LKGECATA"),
            needs(provider = "paypal")
        )]
        #[serde(default)]
        webhook_id: RecipientIds,
        /// Only with `provider = "adobe-io-events"`: the client id of the project that the events are registered in.
        #[field(
            OneOrMore(NOT_EMPTY),
            means("deliveries are answered 503"),
            example("4fc8b9b2d2f14f4e8f6f3a6d1b1c0a55"),
            needs(provider = "adobe-io-events")
        )]
        #[serde(default)]
        client_id: RecipientIds,
        /// The longest difference between a signature's time and now, in either direction. If it is longer, the
        /// delivery is refused. More than 0.
        #[field(Text(DURATION), default("5m"), example("1m"))]
        #[serde(default, deserialize_with = "duration")]
        tolerance: Option<Duration>,
        /// The URL that the provider calls, exactly as configured there, for providers that sign it. It is never taken
        /// from the request.
        #[field(Text(NOT_EMPTY), required_by(provider = "square" | "twilio"), example("https://example.com/webhooks/square"))]
        url: Option<String>,
        /// [A template of the entity's key](sources.md#entity-what-order-is-kept-for), or several, tried in turn.
        /// Deliveries with the same key are handled in order. A key has at most 512 bytes.
        #[field(
            OneOrMore(TEMPLATE),
            means("the key that the provider's rule finds, as if you wrote `\"{source}/{entity}\"`"),
            example("{source}/{entity}")
        )]
        #[serde(default)]
        entity: Templates,
        /// The topics to take. [Ignored deliveries](sources.md#topics) are verified, answered 200 and counted, but not
        /// stored.
        #[field(
            Table(Topics::reference),
            means("all topics"),
            example(toml r#"{ take = ["orders/*", "refunds/create"] }"#)
        )]
        #[serde(default)]
        topics: Option<StrictTable<Topics>>,
        /// The values to take, by JSON pointer into the body: each is a text, a whole number, `true`, `false`, or `null`
        /// in JSON; several are a list. Deliveries with other values are [ignored](sources.md#filter).
        #[field(
            FieldForm::Filter,
            means("all values"),
            example(toml r#"{ "/source_name" = ["web", "pos"], "/test" = false }"#)
        )]
        #[serde(default)]
        filter: Filter,
        /// The handler of its deliveries: `log`, `forward`, `invoke`, `fan-out`, or a handler of your own worker.
        #[field(Text(ANY), required, example("log"))]
        handler: String,
        /// The longest time of one handler start; then the attempt counts as unanswered. It must be more than 0, and
        /// more than 4 s shorter than the parameter `WorkerTimeout` (60 s).
        #[field(Text(DURATION), default("10s"), example("30s"))]
        #[serde(default, deserialize_with = "duration")]
        handler_timeout: Option<Duration>,
        /// The limits of retries, and the waits between them.
        #[field(Table(RetryEntry::reference), default(toml "{}"), example(toml "{ attempts = 3 }"))]
        #[serde(default)]
        retry: StrictTable<RetryEntry>,
        /// At the limit of its retries, `park` sets a delivery aside and continues with the next one; `block` stops the
        /// order until an operator decides.
        #[field(word::<OnFailure>(), default("park"), example("block"))]
        #[serde(default)]
        on_failure: OnFailure,
        /// While the tables cannot be reached, `queue` keeps a verified delivery in the queue and answers 202; it [may
        /// be appended later](sources.md#while-the-tables-cannot-be-reached) than others of its order. `refuse` answers
        /// 503, so that the sender retries.
        #[field(
            word::<OnOutage>(),
            means("`\"queue\"` if the provider never retries, otherwise `\"refuse\"`"),
            example("queue")
        )]
        on_outage: Option<OnOutage>,
        /// The highest rate of handler starts for one order, evenly spread: a number from 1 to 1000, a slash, and `s`,
        /// `min` or `h`.
        #[field(Text(RATE), means("no limit"), example("5/s"))]
        rate: Option<Rate>,
        /// The deliveries in one handler start: `"each"` gives one; `{ up_to = n }` gives up to n that wait; `"latest"`
        /// gives the newest of a topic family and supersedes up to 24 older ones. See [several at
        /// once](sources.md#several-at-once). The last two need a `retry` that allows more than one attempt.
        #[field(
            WordOrMost(&["each", "latest"], "up_to", LARGEST_GROUP),
            default("each"),
            example(toml "{ up_to = 10 }")
        )]
        deliver: Option<deliver::DeliverEntry>,
        /// The wait of a delivery for more of its order, unless a full group waits already. More than 0,
        /// at most a minute. Only with `deliver = { up_to = … }` or `"latest"`.
        #[field(Text(DURATION), means("no wait"), example("2s"), needs(deliver = "latest"))]
        #[serde(default, deserialize_with = "duration")]
        linger: Option<Duration>,
        /// The treatment of a delivery whose order has already applied a later event of the same topic family.
        /// `run` starts the handler, which can ask for the age; `skip` settles the delivery as superseded. Deliveries
        /// of the same time, redriven and rewound ones always run.
        #[field(word::<Stale>(), default("run"), example("skip"))]
        #[serde(default)]
        stale: Stale,
        /// Accepts deliveries but starts no handler: see [pause a source](operating.md#pause-a-source).
        #[field(Flag, default(false), example(true))]
        #[serde(default)]
        paused: bool,
        /// The signature of an unlisted sender, and the places of topic, id and entity.
        #[field(
            Table(GenericOptions::reference),
            required_by(provider = "generic"),
            example(toml r#"{ header = "x-acme-signature", hash = "sha256", encoding = "hex" }"#)
        )]
        generic: Option<StrictTable<Generic>>,
        /// The endpoint to which the handler `forward` posts deliveries: see [forward](forward.md).
        #[field(
            Table(DestinationEntry::reference),
            required_by(handler = "forward"),
            example(toml r#"{ url = "https://example.com/webhooks", secret = "whsec_Zk93bTR6S2dRcTdUaHBY" }"#)
        )]
        forward: Option<StrictTable<DestinationEntry>>,
        /// The Lambda function that the handler `invoke` calls with deliveries: see [invoke](invoke.md).
        #[field(
            Table(FunctionEntry::reference),
            required_by(handler = "invoke"),
            example(toml r#"{ function = "orders", qualifier = "live" }"#)
        )]
        invoke: Option<StrictTable<FunctionEntry>>,
    }
}

/// The way in which a source gets its deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake<'a> {
    /// Webhooks are posted to its URL.
    Url,
    /// It gets a copy of each delivery of this source.
    CopiesOf(&'a SourceName),
    /// The messages of this queue are its deliveries.
    Queue(&'a QueueArn),
}

#[derive(Debug)]
pub struct Source {
    /// The name in the URL `/webhooks/{source}`.
    pub name: SourceName,
    /// The source whose deliveries this one gets. `None` for a source with webhooks or a queue.
    pub from: Option<SourceName>,
    /// The queue whose messages are the deliveries. `None` for a source with webhooks or `from`.
    pub queue: Option<QueueArn>,
    /// For a source without a door, that of the source it gets its deliveries from.
    pub provider_name: String,
    pub(super) provider: Arc<AnyProvider>,
    pub(super) credentials: Credentials,
    /// The credentials without those that a forger can guess. Webhooks are verified by these alone.
    #[cfg(any(test, feature = "verify"))]
    pub(super) usable: Credentials,
    pub(super) tolerance: Duration,
    pub(super) topics: Option<Topics>,
    pub filter: Filter,
    pub(super) entity: Vec<Template>,
    pub handler: String,
    pub handler_timeout: Duration,
    pub retry: RetryPolicy,
    pub on_failure: OnFailure,
    /// A limit on the number of handler starts for one entity in a period. `None` for no limit.
    pub rate: Option<Rate>,
    pub deliver: Deliver,
    /// The delay of a wake-up, so that more deliveries come together. `None` for no delay.
    pub linger: Option<Linger>,
    pub stale: Stale,
    #[cfg(any(test, feature = "verify"))]
    pub(super) on_outage: Option<OnOutage>,
    /// Set if the source is paused: its deliveries are accepted, but not handled.
    pub is_paused: bool,
    pub(super) forward: Option<Destination>,
    pub(super) invoke: Option<Function>,
    destination: DestinationName,
}

impl SourceEntry {
    /// Returns the names of the fields that a source with `from` cannot have.
    pub(super) fn door_fields(&self) -> impl Iterator<Item = &'static str> + use<> {
        let fields = [
            ("provider", self.provider.is_some()),
            ("queue", self.queue.is_some()),
            ("secrets", !self.secrets.is_empty()),
            ("webhook_id", !self.webhook_id.is_empty()),
            ("client_id", !self.client_id.is_empty()),
            ("tolerance", self.tolerance.is_some()),
            ("url", self.url.is_some()),
            ("on_outage", self.on_outage.is_some()),
            ("generic", self.generic.is_some()),
        ];
        fields.into_iter().filter_map(|(name, is_set)| is_set.then_some(name))
    }
}

impl Source {
    /// Checks a source. `others` has the sources with a door, if this one has none.
    pub(super) fn check(
        name: SourceName,
        mut entry: SourceEntry,
        others: &BTreeMap<SourceName, Arc<Self>>,
        registry: Registry,
    ) -> Result<Self, String> {
        let parent = entry.from.as_deref().map(|from| subscriber::parent(&name, from, &entry, others)).transpose()?;
        let queue = queue::of(&mut entry)?;
        let generic = entry.generic.map(|StrictTable(generic)| generic);
        let (provider_name, provider) = match (parent, entry.provider) {
            (Some(parent), _) => (parent.provider_name.clone(), parent.provider.clone()),
            (None, Some(name)) => {
                let provider = provider(&name, generic, entry.url.as_deref(), queue.as_ref(), registry)?;
                (name, Arc::new(provider))
            }
            (None, None) => return Err("missing field `provider`".into()),
        };
        let topics = entry.topics.map(|StrictTable(topics)| topics);
        if let Some(objection) = topics.as_ref().and_then(Topics::objection) {
            return Err(objection);
        }
        if let Some(objection) = entry.filter.objection() {
            return Err(objection);
        }
        let retry = entry.retry.0.check()?;
        let (deliver, linger) = deliver::check(entry.deliver, entry.linger, retry)?;
        if entry.handler.trim().is_empty() {
            return Err("`handler` must have the name of a handler, such as `log`".into());
        }
        let forward = handler_table(FORWARD, "`url` and `secret`", &entry.handler, entry.forward)?;
        let invoke = handler_table(INVOKE, "`function`", &entry.handler, entry.invoke)?;
        let credentials = Credentials {
            secrets: secrets(entry.secrets, provider.as_dyn())?,
            recipients: recipients(entry.webhook_id, entry.client_id, provider.as_dyn())?,
        };
        let forward = forward.map(|StrictTable(forward)| Destination::check(forward)).transpose()?;
        let invoke = invoke.map(|StrictTable(invoke)| Function::check(invoke)).transpose()?;
        Ok(Self {
            #[cfg(any(test, feature = "verify"))]
            usable: credentials.usable(),
            credentials,
            tolerance: positive("tolerance", entry.tolerance.unwrap_or(providers::TOLERANCE))?,
            topics,
            filter: entry.filter,
            entity: entry.entity.check(&name, &provider_name)?,
            handler: entry.handler,
            handler_timeout: positive("handler_timeout", entry.handler_timeout.unwrap_or(DEFAULT_HANDLER_TIMEOUT))?,
            retry,
            on_failure: entry.on_failure,
            #[cfg(any(test, feature = "verify"))]
            on_outage: entry.on_outage,
            rate: entry.rate,
            deliver,
            linger,
            stale: entry.stale,
            is_paused: entry.paused,
            destination: DestinationName::of(&name, forward.as_ref(), invoke.as_ref()),
            forward,
            invoke,
            name,
            from: parent.map(|parent| parent.name.clone()),
            queue,
            provider_name,
            provider,
        })
    }

    pub fn intake(&self) -> Intake<'_> {
        match (&self.from, &self.queue) {
            (Some(from), _) => Intake::CopiesOf(from),
            (None, Some(queue)) => Intake::Queue(queue),
            (None, None) => Intake::Url,
        }
    }

    /// Returns whether webhooks can be sent to the source.
    pub fn is_door(&self) -> bool {
        self.intake() == Intake::Url
    }

    /// Returns what the source's handler needs. Sources with the same destination share its outages.
    pub fn destination(&self) -> &DestinationName {
        &self.destination
    }

    pub fn forward(&self) -> Option<&Destination> {
        self.forward.as_ref()
    }

    pub fn invoke(&self) -> Option<&Function> {
        self.invoke.as_ref()
    }

    /// Returns the topics that the source takes, or `None` if the source takes all topics.
    pub fn topics(&self) -> Option<&Topics> {
        self.topics.as_ref()
    }

    pub fn takes(&self, topic: &str) -> bool {
        self.topics.as_ref().is_none_or(|topics| topics.takes(topic))
    }

    /// Returns the field that excludes a delivery, or `None` if the source takes it. A delivery without a topic is never
    /// excluded for that: its body may be unreadable.
    pub fn ignores(&self, topic: &str, body: &[u8]) -> Option<IgnoredBy> {
        match self.takes(topic) || !providers::is_known_topic(topic) {
            false => Some(IgnoredBy::Topics),
            true => self.filter.refusing(body).map(|place| IgnoredBy::Filter(place.to_owned())),
        }
    }

    /// Returns why a delivery without a topic is neither handled nor ignored, if the source does not take `unknown`.
    pub(crate) fn without_topic(&self) -> &'static str {
        match self.topics() {
            Some(topics) if topics.take.is_empty() => "the webhook has no topic, and the source ignores `unknown`",
            _ => "the webhook has no topic, and the source takes only certain topics",
        }
    }

    pub fn secrets(&self) -> usize {
        self.credentials.secrets.len()
    }

    /// Returns the source's entity templates, as written. Without templates, the provider's rule names the
    /// entity.
    pub fn entity_templates(&self) -> impl Iterator<Item = String> {
        self.entity.iter().map(ToString::to_string)
    }

    /// Returns the secrets with white space around them, as numbers counted from 1. They are probably mistakes.
    pub fn spaced_secrets(&self) -> Vec<usize> {
        // The key in a PEM block does not include the white space around the block.
        let is_spaced = |text: &str| text.trim() != text && !text.trim_start().starts_with("-----BEGIN ");
        let is_spaced = |secret: &Secret| secret.text().is_some_and(is_spaced);
        (1..)
            .zip(&self.credentials.secrets)
            .filter_map(|(number, secret)| is_spaced(secret).then_some(number))
            .collect()
    }
}
