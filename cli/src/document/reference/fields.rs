//! The fields of the sources document.

use webhook_serializer::{protocol::state::LARGEST_GROUP, providers};

use super::{Absent, Field, Form, Pattern, Table};

/// The pattern of a source's name.
pub(super) const NAME: &str = "^[a-z0-9_-]{1,64}$";

const ANY: Pattern = Pattern { name: "text", regex: "" };
const NOT_EMPTY: Pattern = Pattern { name: "text", regex: "." };
const DURATION: Pattern = Pattern { name: "duration", regex: r"^\s*(0|([0-9.]+\s*[A-Za-zµ]+\s*)+)\s*$" };
const RATE: Pattern = Pattern { name: "rate", regex: r"^\s*\+?0*([1-9][0-9]{0,2}|1000)\s*/\s*(s|min|h)\s*$" };
const HEADER: Pattern = Pattern { name: "header", regex: r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" };
const PLACE: Pattern = Pattern { name: "place", regex: r"^((/([^~]|~[01])*)|[!#$%&'*+.^_`|~0-9A-Za-z-]+)$" };
const TEMPLATE: Pattern = Pattern {
    name: "template",
    regex: r"^([^{}]*\{([^{}:]+:)?(source|provider|topic|account|entity|/[^{}]+|header:[^{}]+)\}[^{}]*)+$|^[^{}/]+/[^{}]+$",
};
const TOPIC: Pattern = Pattern { name: "topic", regex: r"^\S(.*\S)?$" };
const URL: Pattern = Pattern { name: "URL", regex: "^[Hh][Tt][Tt][Pp][Ss]?://." };
const FUNCTION: Pattern = Pattern {
    name: "function",
    regex: "^(arn:aws[A-Za-z0-9_-]*:lambda:[A-Za-z0-9_-]{1,32}:[0-9]{12}:function:)?[A-Za-z0-9_-]{1,64}$",
};
const QUALIFIER: Pattern = Pattern { name: "qualifier", regex: r"^(\$LATEST|[A-Za-z0-9_-]{1,128})$" };
const SIGNING_KEY: Pattern = Pattern { name: "text", regex: "^whsec_." };

pub(super) const SOURCE: Table = Table {
    path: "[sources.NAME]",
    about: "One for each sender. Its webhooks are posted to `/webhooks/NAME`; `NAME` is 1 to 64 lower-case letters, \
            digits, `-` or `_`, and not `cron`. There must be at least one source.",
    fields: &[
        Field {
            name: "provider",
            form: Form::Word(&providers::NAMES),
            absent: Absent::Required,
            example: "\"shopify\"",
            about: "By whose rules its webhooks are signed, and what they are about. `generic` is any sender that the \
                    table `generic` describes.",
        },
        Field {
            name: "secrets",
            form: Form::OneOrMore(NOT_EMPTY),
            absent: Absent::Means("none yet: deliveries are answered 503"),
            example: "[\"…\"]",
            about: "What the sender signs with, or how it is known: [for each provider](providers.md). Several while \
                    one is being rolled: each of them is believed. For `stripe`, `etsy` and `standard-webhooks` they \
                    begin with `whsec_`. A key that is no text stands behind `hex:` or `base64:`.",
        },
        Field {
            name: "webhook_id",
            form: Form::OneOrMore(NOT_EMPTY),
            absent: Absent::Means("none yet: deliveries are answered 503"),
            example: "\"8PT597110X687430LKGECATA\"",
            about: "With `provider = \"paypal\"`, and only with it: the webhook's id, which PayPal shows once it is made. \
                    Several while a webhook is replaced by another.",
        },
        Field {
            name: "client_id",
            form: Form::OneOrMore(NOT_EMPTY),
            absent: Absent::Means("none yet: deliveries are answered 503"),
            example: "\"4fc8b9b2d2f14f4e8f6f3a6d1b1c0a55\"",
            about: "With `provider = \"adobe-io-events\"`, and only with it: the client id of the project that the events \
                    are registered in.",
        },
        Field {
            name: "tolerance",
            form: Form::Text(DURATION),
            absent: Absent::Is("\"5m\""),
            example: "\"1m\"",
            about: "How far the time of a signature may be from now, before or after, where the sender signs one. A \
                    delivery that is further away is refused. More than nothing.",
        },
        Field {
            name: "url",
            form: Form::Text(NOT_EMPTY),
            absent: Absent::Means("required by `provider = \"square\"`, refused with any other"),
            example: "\"https://example.com/webhooks/square\"",
            about: "The URL that the provider was told to call, exactly as it has it: for those that sign it. It is \
                    never taken from the request.",
        },
        Field {
            name: "entity",
            form: Form::OneOrMore(TEMPLATE),
            absent: Absent::Means("the provider's own rule, as in `\"{source}/{entity}\"`"),
            example: "\"{source}/{entity}\"",
            about: "What order is kept for: [a template of the entity's key](sources.md#entity-what-order-is-kept-for), \
                    or several that are tried in turn. A key is at most 512 bytes.",
        },
        Field {
            name: "topics",
            form: Form::Table(&TOPICS),
            absent: Absent::Means("all are taken"),
            example: "{ take = [\"orders/*\", \"refunds/create\"] }",
            about: "Which deliveries are taken, by their topics. [What is ignored](sources.md#topics) is verified, \
                    answered 200 and counted, and kept nowhere.",
        },
        Field {
            name: "handler",
            form: Form::Text(ANY),
            absent: Absent::Required,
            example: "\"log\"",
            about: "Which handler its deliveries go to: `log`, `forward`, `invoke`, or the name of one in a worker of yours.",
        },
        Field {
            name: "handler_timeout",
            form: Form::Text(DURATION),
            absent: Absent::Is("\"10s\""),
            example: "\"30s\"",
            about: "How long one start of the handler may take; then it has failed. More than nothing, and less than \
                    the parameter `WorkerTimeout` (60 s) by more than 4 s.",
        },
        Field {
            name: "retry",
            form: Form::Table(&RETRY),
            absent: Absent::Is("{}"),
            example: "{ attempts = 3 }",
            about: "How often a delivery that fails is tried, and how long the waits are.",
        },
        Field {
            name: "on_failure",
            form: Form::Word(&["park", "block"]),
            absent: Absent::Is("\"park\""),
            example: "\"block\"",
            about: "What is done with a delivery whose last attempt failed. `park`: set it aside and go on with the \
                    next one. `block`: stop the order until somebody looks.",
        },
        Field {
            name: "on_outage",
            form: Form::Word(&["queue", "refuse"]),
            absent: Absent::Means("`\"queue\"` where the provider does not send again, otherwise `\"refuse\"`"),
            example: "\"queue\"",
            about: "What is done with a verified delivery that the tables do not take. `queue`: it waits in the queue, is \
                    answered 202, and [comes later](sources.md#while-the-tables-cannot-be-reached) than others of its \
                    order may. `refuse`: it is answered 503, and its sender tries again.",
        },
        Field {
            name: "rate",
            form: Form::Text(RATE),
            absent: Absent::Means("as often as it can"),
            example: "\"5/s\"",
            about: "At most so many starts of the handler for one order: a number from 1 to 1000, a slash, and `s`, \
                    `min` or `h`. They are evenly spread.",
        },
        Field {
            name: "deliver",
            form: Form::WordOrMost(&["each", "latest"], "up_to", LARGEST_GROUP),
            absent: Absent::Is("\"each\""),
            example: "{ up_to = 10 }",
            about: "What one start of the handler is about: each delivery by itself; all that wait in a row, up to so \
                    many; or the latest of those that are of one topic family, 25 at the most, which stands for the others. See [several at \
                    once](sources.md#several-at-once). More than one needs a `retry` that allows more than one attempt.",
        },
        Field {
            name: "linger",
            form: Form::Text(DURATION),
            absent: Absent::Means("a delivery waits for no other"),
            example: "\"2s\"",
            about: "How long a delivery waits for more of its order, unless a full group waits already. More than \
                    nothing, at most a minute; with `deliver = { up_to = … }` or `\"latest\"`, and only with them.",
        },
        Field {
            name: "stale",
            form: Form::Word(&["run", "skip"]),
            absent: Absent::Is("\"run\""),
            example: "\"skip\"",
            about: "What becomes of a delivery that is older, by its sender's time, than what was applied to its order \
                    of the same topic family. `run`: its handler runs, and can ask for its age. `skip`: it is settled as \
                    superseded, and no handler starts. One of the very same time runs, and one that was put back.",
        },
        Field {
            name: "paused",
            form: Form::Flag,
            absent: Absent::Is("false"),
            example: "true",
            about: "Its deliveries are accepted and wait, and no handler starts: see [pause a \
                    source](operating.md#pause-a-source).",
        },
        Field {
            name: "generic",
            form: Form::Table(&GENERIC),
            absent: Absent::Means("required by `provider = \"generic\"`, refused with any other"),
            example: "{ header = \"x-acme-signature\", hash = \"sha256\", encoding = \"hex\" }",
            about: "How an unlisted sender signs, and where its requests hold what.",
        },
        Field {
            name: "forward",
            form: Form::Table(&FORWARD),
            absent: Absent::Means("required by `handler = \"forward\"`, refused with any other"),
            example: "{ url = \"https://example.com/webhooks\", secret = \"whsec_c2VjcmV0\" }",
            about: "Where the handler `forward` posts the deliveries: see [forward](forward.md).",
        },
        Field {
            name: "invoke",
            form: Form::Table(&INVOKE),
            absent: Absent::Means("required by `handler = \"invoke\"`, refused with any other"),
            example: "{ function = \"orders\", qualifier = \"live\" }",
            about: "Which Lambda function the handler `invoke` calls with the deliveries: see [invoke](invoke.md).",
        },
    ],
};

pub(super) const TOPICS: Table = Table {
    path: "[sources.NAME.topics]",
    about: "Which deliveries are taken, by their topics as the provider writes them. `*` stands for any text or none; \
            everything else stands for itself, capitals too. With both fields, what `ignore` lists is ignored also of \
            what `take` lists.",
    fields: &[
        Field {
            name: "take",
            form: Form::OneOrMore(TOPIC),
            absent: Absent::Means("all topics"),
            example: "[\"orders/*\", \"refunds/create\"]",
            about: "The topics that are taken. All others are ignored.",
        },
        Field {
            name: "ignore",
            form: Form::OneOrMore(TOPIC),
            absent: Absent::Means("none"),
            example: "\"customers/*\"",
            about: "The topics that are ignored.",
        },
    ],
};

pub(super) const RETRY: Table = Table {
    path: "[sources.NAME.retry]",
    about: "How long a delivery is tried again. Each class of answers has a limit of its own, in time that the \
            delivery has waited for its retries; `on_failure` says what happens at the limit. `\"0s\"` gives up at \
            the first answer. No limit is above 30 days, nor above half of the retention.",
    fields: &[
        Field {
            name: "attempts",
            form: Form::Count,
            absent: Absent::Means("as many as `for` has time for"),
            example: "3",
            about: "The most failed attempts.",
        },
        Field {
            name: "first",
            form: Form::Text(DURATION),
            absent: Absent::Is("\"1s\""),
            example: "\"500ms\"",
            about: "The wait after the first answer of a class. Each further one doubles it on average, and each wait \
                    is spread over the upper half of its length.",
        },
        Field {
            name: "longest",
            form: Form::Text(DURATION),
            absent: Absent::Is("\"10m\""),
            example: "\"1m 30s\"",
            about: "The longest wait after a failure. After no answer it is 15 minutes, for an unavailable destination \
                    five.",
        },
        Field {
            name: "for",
            form: Form::Text(DURATION),
            absent: Absent::Means("`\"1h\"`; with `attempts`, no limit"),
            example: "\"2h\"",
            about: "How long a delivery waits after failures: the handler says `retry`, throws, or answers with a \
                    status that is not named below.",
        },
        Field {
            name: "unanswered_for",
            form: Form::Text(DURATION),
            absent: Absent::Is("\"1d\""),
            example: "\"6h\"",
            about: "How long it waits after no answer: the handler's time is up, the connection breaks, 502 or 504.",
        },
        Field {
            name: "unavailable_for",
            form: Form::Text(DURATION),
            absent: Absent::Is("\"3d\""),
            example: "\"1d\"",
            about: "How long it waits for a destination that cannot be reached or has no room: no connection, 429 or \
                    503; of `invoke`, throttled, or any other error of Lambda's.",
        },
    ],
};

pub(super) const GENERIC: Table = Table {
    path: "[sources.NAME.generic]",
    about: "What an unlisted sender's documentation says about its webhooks. With `provider = \"generic\"`, and only \
            with it.",
    fields: &[
        Field {
            name: "header",
            form: Form::Text(HEADER),
            absent: Absent::Required,
            example: "\"x-acme-signature\"",
            about: "The header that the signature is in.",
        },
        Field {
            name: "hash",
            form: Form::Word(&["sha1", "sha256", "sha512"]),
            absent: Absent::Required,
            example: "\"sha512\"",
            about: "The hash inside the HMAC.",
        },
        Field {
            name: "encoding",
            form: Form::Word(&["hex", "base64"]),
            absent: Absent::Required,
            example: "\"base64\"",
            about: "How the signature is written.",
        },
        Field {
            name: "prefix",
            form: Form::Text(ANY),
            absent: Absent::Is("\"\""),
            example: "\"sha256=\"",
            about: "What stands in front of the signature. In a list, entries that start otherwise are passed over.",
        },
        Field {
            name: "separator",
            form: Form::Text(NOT_EMPTY),
            absent: Absent::Means("the whole value is one signature"),
            example: "\",\"",
            about: "What stands between several signatures in the one header; spaces around them do not count.",
        },
        Field {
            name: "signed",
            form: Form::Text(Pattern { name: "text", regex: r"\{body\}" }),
            absent: Absent::Is("\"{body}\""),
            example: "\"{header:x-acme-id}.{body}\"",
            about: "What is signed: `{body}`, and around it `{timestamp}`, `{header:…}` or fixed text, such as the \
                    address that the sender calls.",
        },
        Field {
            name: "timestamp_header",
            form: Form::Text(HEADER),
            absent: Absent::Means("no header holds it"),
            example: "\"x-acme-timestamp\"",
            about: "The header that `{timestamp}` is in: seconds, milliseconds or RFC 3339. A request whose time is \
                    further away than `tolerance` is refused. With `{timestamp}` in `signed`, and only then.",
        },
        Field {
            name: "timestamp_prefix",
            form: Form::Text(NOT_EMPTY),
            absent: Absent::Means("the signature's header does not hold it"),
            example: "\"t=\"",
            about: "What stands in front of `{timestamp}` among the entries of the signature's own header. Instead of \
                    `timestamp_header`, and with a `separator`.",
        },
        Field {
            name: "delivery_id",
            form: Form::OneOrMore(PLACE),
            absent: Absent::Means("the hash of the body"),
            example: "\"x-acme-delivery\"",
            about: "What names a delivery over all its retries. Where it is not found, the hash of the body does, within \
                    `retried_for`.",
        },
        Field {
            name: "retried_for",
            form: Form::Text(DURATION),
            absent: Absent::Means("3 days"),
            example: "\"1h\"",
            about: "How long the sender retries a delivery that was not answered 2xx. Without a `delivery_id`, an equal \
                    body counts as a repeat for this time at least, and for twice this time at most. `0s`: the sender \
                    never retries, each request is a delivery, and `on_outage` is `\"queue\"` unless it says otherwise.",
        },
        Field {
            name: "topic",
            form: Form::OneOrMore(PLACE),
            absent: Absent::Means("`unknown`"),
            example: "\"/event/type\"",
            about: "What happened, such as `order.updated`.",
        },
        Field {
            name: "account",
            form: Form::OneOrMore(PLACE),
            absent: Absent::Means("none is found"),
            example: "\"x-acme-shop\"",
            about: "Whose it is, a shop or an account: what templates call `{account}`.",
        },
        Field {
            name: "entity",
            form: Form::OneOrMore(PLACE),
            absent: Absent::Means("none is found"),
            example: "[\"/order/id\", \"/order_id\"]",
            about: "The entity's id: the first of these that holds something.",
        },
        Field {
            name: "entity_kind",
            form: Form::Text(NOT_EMPTY),
            absent: Absent::Means("the id stands alone"),
            example: "\"order\"",
            about: "What the entity is, in front of its id: `order` makes `order/7`.",
        },
        Field {
            name: "event_time",
            form: Form::OneOrMore(PLACE),
            absent: Absent::Means("not known"),
            example: "\"/order/updated_at\"",
            about: "When it happened: seconds, milliseconds or RFC 3339. Not the time of the attempt, which is new for \
                    every retry.",
        },
    ],
};

pub(super) const FORWARD: Table = Table {
    path: "[sources.NAME.forward]",
    about: "Where the handler `forward` posts the deliveries. With `handler = \"forward\"`, and only with it.",
    fields: &[
        Field {
            name: "url",
            form: Form::Text(URL),
            absent: Absent::Required,
            example: "\"https://example.com/webhooks?from=shop\"",
            about: "The endpoint, starting with `https://`; with `allow_private` also `http://`.",
        },
        Field {
            name: "secret",
            form: Form::OneOrMore(SIGNING_KEY),
            absent: Absent::Required,
            example: "[\"whsec_bmV3\", \"whsec_b2xk\"]",
            about: "What each request is signed with: `whsec_` and the key's bytes in base64. Several while it is being \
                    rolled: a request carries a signature under each.",
        },
        Field {
            name: "allow_private",
            form: Form::Flag,
            absent: Absent::Is("false"),
            example: "true",
            about: "Lets it reach this machine and private networks.",
        },
    ],
};

pub(super) const INVOKE: Table = Table {
    path: "[sources.NAME.invoke]",
    about: "Which Lambda function the handler `invoke` calls with the deliveries. With `handler = \"invoke\"`, and only \
            with it. The worker may call those that the template's `InvokeFunctionArns` names.",
    fields: &[
        Field {
            name: "function",
            form: Form::Text(FUNCTION),
            absent: Absent::Required,
            example: "\"orders\"",
            about: "Its name, or its ARN without a qualifier. It is in the worker's region.",
        },
        Field {
            name: "qualifier",
            form: Form::Text(QUALIFIER),
            absent: Absent::Means("what was deployed last"),
            example: "\"live\"",
            about: "Which of its versions: an alias, or a version's number.",
        },
    ],
};

/// All tables, in the page's order.
pub(super) const TABLES: [&Table; 6] = [&SOURCE, &TOPICS, &RETRY, &GENERIC, &FORWARD, &INVOKE];
