//! The fields of the sources document. Its reference page and its schema are made of them.

use webhook_serializer::{protocol::state::LARGEST_GROUP, providers};

use super::{Absent, FieldForm, FieldPattern, ReferenceField, ReferenceTable};

pub(super) const NAME: &str = "^[a-z0-9_-]{1,64}$";

const ANY: FieldPattern = FieldPattern { name: "text", regex: "" };
const NOT_EMPTY: FieldPattern = FieldPattern { name: "text", regex: "." };
const DURATION: FieldPattern = FieldPattern { name: "duration", regex: r"^\s*(0|([0-9.]+\s*[A-Za-zµ]+\s*)+)\s*$" };
const RATE: FieldPattern = FieldPattern { name: "rate", regex: r"^\s*\+?0*([1-9][0-9]{0,2}|1000)\s*/\s*(s|min|h)\s*$" };
const HEADER: FieldPattern = FieldPattern { name: "header", regex: r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$" };
const PLACE: FieldPattern = FieldPattern { name: "place", regex: r"^((/([^~]|~[01])*)|[!#$%&'*+.^_`|~0-9A-Za-z-]+)$" };
const TEMPLATE: FieldPattern = FieldPattern {
    name: "template",
    regex: r"^([^{}]*\{([^{}:]+:)?(source|provider|topic|account|entity|/[^{}]+|header:[^{}]+)\}[^{}]*)+$|^[^{}/]+/[^{}]+$",
};
const TOPIC: FieldPattern = FieldPattern { name: "topic", regex: r"^\S(.*\S)?$" };
const URL: FieldPattern = FieldPattern { name: "URL", regex: "^[Hh][Tt][Tt][Pp][Ss]?://." };
const FUNCTION: FieldPattern = FieldPattern {
    name: "function",
    regex: "^(arn:aws[A-Za-z0-9_-]*:lambda:[A-Za-z0-9_-]{1,32}:[0-9]{12}:function:)?[A-Za-z0-9_-]{1,64}$",
};
const QUALIFIER: FieldPattern = FieldPattern { name: "qualifier", regex: r"^(\$LATEST|[A-Za-z0-9_-]{1,128})$" };
const ORIGIN_SECRET: FieldPattern = FieldPattern { name: "text", regex: ".{32}" };
const TABLE_NAME: FieldPattern = FieldPattern { name: "table", regex: "^[A-Za-z0-9_.-]{3,255}$" };
const SIGNING_KEY: FieldPattern = FieldPattern { name: "text", regex: "^whsec_." };

pub(super) const SOURCE: ReferenceTable = ReferenceTable {
    path: "[sources.NAME]",
    about: "One configured sender. Its webhooks are posted to `/webhooks/NAME`; `NAME` is 1 to 64 lower-case letters, \
            digits, `-` or `_`, and not `cron`. A document has at least one source.",
    fields: &[
        ReferenceField {
            name: "provider",
            form: FieldForm::Word(&providers::NAMES),
            absent: Absent::Required,
            example: "\"shopify\"",
            about: "The provider, whose rules verify the webhooks and find topic and entity. `generic` is any sender \
                    that the table `generic` describes.",
        },
        ReferenceField {
            name: "secrets",
            form: FieldForm::OneOrMore(NOT_EMPTY),
            absent: Absent::Means("deliveries are answered 503"),
            example: "[\"…\"]",
            about: "The secrets that the sender signs with or sends: [for each provider](providers.md). Give both \
                    the old and the new one while you roll it. For `stripe` and `etsy` they begin with `whsec_`, \
                    for `standard-webhooks` with `whsec_` or `whpk_`, a public key. Write a binary key as `hex:…` or `base64:…`.",
        },
        ReferenceField {
            name: "webhook_id",
            form: FieldForm::OneOrMore(NOT_EMPTY),
            absent: Absent::Means("deliveries are answered 503"),
            example: "\"8PT597110X687430LKGECATA\"",
            about: "Only with `provider = \"paypal\"`: the webhook's id, which PayPal shows once the webhook exists. \
                    While you replace a webhook, give the ids of the old and the new one.",
        },
        ReferenceField {
            name: "client_id",
            form: FieldForm::OneOrMore(NOT_EMPTY),
            absent: Absent::Means("deliveries are answered 503"),
            example: "\"4fc8b9b2d2f14f4e8f6f3a6d1b1c0a55\"",
            about: "Only with `provider = \"adobe-io-events\"`: the client id of the project that the events are \
                    registered in.",
        },
        ReferenceField {
            name: "tolerance",
            form: FieldForm::Text(DURATION),
            absent: Absent::Is("\"5m\""),
            example: "\"1m\"",
            about: "The longest difference between a signature's time and now, in either direction. If it is longer, \
                    the delivery is refused. More than 0.",
        },
        ReferenceField {
            name: "url",
            form: FieldForm::Text(NOT_EMPTY),
            absent: Absent::Means("required by `provider = \"square\"`, refused with any other"),
            example: "\"https://example.com/webhooks/square\"",
            about: "The URL that the provider calls, exactly as configured there, for providers that sign it. It is \
                    never taken from the request.",
        },
        ReferenceField {
            name: "entity",
            form: FieldForm::OneOrMore(TEMPLATE),
            absent: Absent::Means("the key that the provider's rule finds, as if you wrote `\"{source}/{entity}\"`"),
            example: "\"{source}/{entity}\"",
            about: "[A template of the entity's key](sources.md#entity-what-order-is-kept-for), or several, tried in \
                    turn. Deliveries with the same key are handled in order. A key has at most 512 bytes.",
        },
        ReferenceField {
            name: "topics",
            form: FieldForm::Table(&TOPICS),
            absent: Absent::Means("all topics"),
            example: "{ take = [\"orders/*\", \"refunds/create\"] }",
            about: "The topics to take. [Ignored deliveries](sources.md#topics) are verified, answered 200 \
                    and counted, but not stored.",
        },
        ReferenceField {
            name: "handler",
            form: FieldForm::Text(ANY),
            absent: Absent::Required,
            example: "\"log\"",
            about: "The handler of its deliveries: `log`, `forward`, `invoke`, or a handler of your own worker.",
        },
        ReferenceField {
            name: "handler_timeout",
            form: FieldForm::Text(DURATION),
            absent: Absent::Is("\"10s\""),
            example: "\"30s\"",
            about: "The longest time of one handler start; then the attempt counts as unanswered. It must be more than \
                    0, and more than 4 s shorter than the parameter `WorkerTimeout` (60 s).",
        },
        ReferenceField {
            name: "retry",
            form: FieldForm::Table(&RETRY),
            absent: Absent::Is("{}"),
            example: "{ attempts = 3 }",
            about: "The limits of retries, and the waits between them.",
        },
        ReferenceField {
            name: "on_failure",
            form: FieldForm::Word(&["park", "block"]),
            absent: Absent::Is("\"park\""),
            example: "\"block\"",
            about: "At the limit of its retries, `park` sets a delivery aside and continues with the next one; \
                    `block` stops the order until an operator decides.",
        },
        ReferenceField {
            name: "on_outage",
            form: FieldForm::Word(&["queue", "refuse"]),
            absent: Absent::Means("`\"queue\"` if the provider never retries, otherwise `\"refuse\"`"),
            example: "\"queue\"",
            about: "While the tables cannot be reached, `queue` keeps a verified delivery in the queue and answers \
                    202; it [may be appended later](sources.md#while-the-tables-cannot-be-reached) than others of \
                    its order. `refuse` answers 503, so that the sender retries.",
        },
        ReferenceField {
            name: "rate",
            form: FieldForm::Text(RATE),
            absent: Absent::Means("no limit"),
            example: "\"5/s\"",
            about: "The highest rate of handler starts for one order, evenly spread: a number from 1 to 1000, a slash, \
                    and `s`, `min` or `h`.",
        },
        ReferenceField {
            name: "deliver",
            form: FieldForm::WordOrMost(&["each", "latest"], "up_to", LARGEST_GROUP),
            absent: Absent::Is("\"each\""),
            example: "{ up_to = 10 }",
            about: "The deliveries in one handler start: `\"each\"` gives one; `{ up_to = n }` gives up to n that \
                    wait; `\"latest\"` gives the newest of a topic family and supersedes up to 24 older ones. See \
                    [several at once](sources.md#several-at-once). The last two need a `retry` that allows more than \
                    one attempt.",
        },
        ReferenceField {
            name: "linger",
            form: FieldForm::Text(DURATION),
            absent: Absent::Means("no wait"),
            example: "\"2s\"",
            about: "The time for which a delivery waits for more of its order, unless a full group waits already. More \
                    than 0, at most a minute. Only with `deliver = { up_to = … }` or `\"latest\"`.",
        },
        ReferenceField {
            name: "stale",
            form: FieldForm::Word(&["run", "skip"]),
            absent: Absent::Is("\"run\""),
            example: "\"skip\"",
            about: "What happens to a delivery whose event is older than one of its topic family that was applied to \
                    its order. `run` starts the handler, which can ask for the age; `skip` settles the delivery as \
                    superseded. Deliveries of the same time, redriven and rewound ones always run.",
        },
        ReferenceField {
            name: "paused",
            form: FieldForm::Flag,
            absent: Absent::Is("false"),
            example: "true",
            about: "Accepts deliveries but starts no handler: see [pause a source](operating.md#pause-a-source).",
        },
        ReferenceField {
            name: "generic",
            form: FieldForm::Table(&GENERIC),
            absent: Absent::Means("required by `provider = \"generic\"`, refused with any other"),
            example: "{ header = \"x-acme-signature\", hash = \"sha256\", encoding = \"hex\" }",
            about: "The signature of an unlisted sender, and the places of topic, id and entity.",
        },
        ReferenceField {
            name: "forward",
            form: FieldForm::Table(&FORWARD),
            absent: Absent::Means("required by `handler = \"forward\"`, refused with any other"),
            example: "{ url = \"https://example.com/webhooks\", secret = \"whsec_Zk93bTR6S2dRcTdUaHBY\" }",
            about: "The endpoint to which the handler `forward` posts deliveries: see [forward](forward.md).",
        },
        ReferenceField {
            name: "invoke",
            form: FieldForm::Table(&INVOKE),
            absent: Absent::Means("required by `handler = \"invoke\"`, refused with any other"),
            example: "{ function = \"orders\", qualifier = \"live\" }",
            about: "The Lambda function that the handler `invoke` calls with deliveries: see [invoke](invoke.md).",
        },
    ],
};

pub(super) const TOPICS: ReferenceTable = ReferenceTable {
    path: "[sources.NAME.topics]",
    about: "Topics as the provider writes them. `*` matches any text, or none. Everything else matches itself, \
            including case. If both fields name a topic, it is ignored.",
    fields: &[
        ReferenceField {
            name: "take",
            form: FieldForm::OneOrMore(TOPIC),
            absent: Absent::Means("all topics"),
            example: "[\"orders/*\", \"refunds/create\"]",
            about: "The topics to take. All others are ignored.",
        },
        ReferenceField {
            name: "ignore",
            form: FieldForm::OneOrMore(TOPIC),
            absent: Absent::Means("none"),
            example: "\"customers/*\"",
            about: "The topics to ignore.",
        },
    ],
};

pub(super) const RETRY: ReferenceTable = ReferenceTable {
    path: "[sources.NAME.retry]",
    about: "The [limits of retries](sources.md#attempts). Each class of failures has its own limit for the sum of \
            its waits. At the limit, the delivery is parked or blocks its order (`on_failure`). `\"0s\"` gives up at \
            the first failure. No limit exceeds 30 days or half of the retention.",
    fields: &[
        ReferenceField {
            name: "attempts",
            form: FieldForm::Count,
            absent: Absent::Means("limited by `for`"),
            example: "3",
            about: "The largest number of failed starts, at most 1,000. Starts without an answer, crashes and an unavailable \
                    destination do not count.",
        },
        ReferenceField {
            name: "first",
            form: FieldForm::Text(DURATION),
            absent: Absent::Is("\"1s\""),
            example: "\"500ms\"",
            about: "The wait after the first failure of a class. It doubles with each further failure, with jitter \
                    over its upper half.",
        },
        ReferenceField {
            name: "longest",
            form: FieldForm::Text(DURATION),
            absent: Absent::Is("\"10m\""),
            example: "\"1m 30s\"",
            about: "The longest wait after a failure. After no answer, it is 15 minutes; for an unavailable \
                    destination, five minutes.",
        },
        ReferenceField {
            name: "for",
            form: FieldForm::Text(DURATION),
            absent: Absent::Means("`\"1h\"`; with `attempts`, no limit"),
            example: "\"2h\"",
            about: "The limit for failures: the handler returns `retry`, panics, or answers with a status not named \
                    below.",
        },
        ReferenceField {
            name: "unanswered_for",
            form: FieldForm::Text(DURATION),
            absent: Absent::Is("\"1d\""),
            example: "\"6h\"",
            about: "The limit for starts without an answer: a timeout, a broken connection, 502 or 504.",
        },
        ReferenceField {
            name: "unavailable_for",
            form: FieldForm::Text(DURATION),
            absent: Absent::Is("\"3d\""),
            example: "\"1d\"",
            about: "The limit for a destination that cannot be reached or has no capacity: no connection, 429 or \
                    503; with `invoke`, throttling or another error of Lambda.",
        },
    ],
};

pub(super) const GENERIC: ReferenceTable = ReferenceTable {
    path: "[sources.NAME.generic]",
    about: "The signature of an unlisted sender, by its documentation. Only with `provider = \"generic\"`.",
    fields: &[
        ReferenceField {
            name: "header",
            form: FieldForm::Text(HEADER),
            absent: Absent::Required,
            example: "\"x-acme-signature\"",
            about: "The header with the signature.",
        },
        ReferenceField {
            name: "hash",
            form: FieldForm::Word(&["sha1", "sha256", "sha512"]),
            absent: Absent::Required,
            example: "\"sha512\"",
            about: "The hash function of the HMAC.",
        },
        ReferenceField {
            name: "encoding",
            form: FieldForm::Word(&["hex", "base64"]),
            absent: Absent::Required,
            example: "\"base64\"",
            about: "The encoding of the signature.",
        },
        ReferenceField {
            name: "prefix",
            form: FieldForm::Text(ANY),
            absent: Absent::Is("\"\""),
            example: "\"sha256=\"",
            about: "The text before the signature. In a list, entries without it are ignored.",
        },
        ReferenceField {
            name: "separator",
            form: FieldForm::Text(NOT_EMPTY),
            absent: Absent::Means("the whole value is one signature"),
            example: "\",\"",
            about: "The text between several signatures in the header; spaces around it are ignored.",
        },
        ReferenceField {
            name: "signed",
            form: FieldForm::Text(FieldPattern { name: "text", regex: r"\{body\}" }),
            absent: Absent::Is("\"{body}\""),
            example: "\"{header:x-acme-id}.{body}\"",
            about: "The signed text: `{body}`, and around it `{timestamp}`, `{header:…}` or fixed text, such as the \
                    URL that the sender calls.",
        },
        ReferenceField {
            name: "timestamp_header",
            form: FieldForm::Text(HEADER),
            absent: Absent::Means("none"),
            example: "\"x-acme-timestamp\"",
            about: "The header with `{timestamp}`: seconds, milliseconds or RFC 3339. A request whose \
                    time differs from now by more than `tolerance` is refused. Only with `{timestamp}` in `signed`.",
        },
        ReferenceField {
            name: "timestamp_prefix",
            form: FieldForm::Text(NOT_EMPTY),
            absent: Absent::Means("none"),
            example: "\"t=\"",
            about: "The text before `{timestamp}` in an entry of the signature's header. Use it instead of \
                    `timestamp_header`, together with `separator`.",
        },
        ReferenceField {
            name: "delivery_id",
            form: FieldForm::OneOrMore(PLACE),
            absent: Absent::Means("the hash of the body"),
            example: "\"x-acme-delivery\"",
            about: "The delivery's id, which stays the same over all retries. Without it, the hash of the body \
                    identifies a delivery, within `retried_for`.",
        },
        ReferenceField {
            name: "retried_for",
            form: FieldForm::Text(DURATION),
            absent: Absent::Means("3 days"),
            example: "\"1h\"",
            about: "The time for which the sender retries a delivery that was not answered 2xx. Without a \
                    `delivery_id`, an equal body counts as a repeat for at least this time and at most twice as long. \
                    `0s`: the sender never retries. Then each request is a delivery, and `on_outage` defaults to \
                    `\"queue\"`.",
        },
        ReferenceField {
            name: "topic",
            form: FieldForm::OneOrMore(PLACE),
            absent: Absent::Means("`unknown`"),
            example: "\"/event/type\"",
            about: "The topic, such as `order.updated`.",
        },
        ReferenceField {
            name: "account",
            form: FieldForm::OneOrMore(PLACE),
            absent: Absent::Means("none"),
            example: "\"x-acme-shop\"",
            about: "The shop or account, `{account}` in templates.",
        },
        ReferenceField {
            name: "entity",
            form: FieldForm::OneOrMore(PLACE),
            absent: Absent::Means("none"),
            example: "[\"/order/id\", \"/order_id\"]",
            about: "The entity's id: the first of these places with a value.",
        },
        ReferenceField {
            name: "entity_kind",
            form: FieldForm::Text(NOT_EMPTY),
            absent: Absent::Means("the id alone"),
            example: "\"order\"",
            about: "The kind of the entity, before its id: `order` makes `order/7`.",
        },
        ReferenceField {
            name: "event_time",
            form: FieldForm::OneOrMore(PLACE),
            absent: Absent::Means("unknown"),
            example: "\"/order/updated_at\"",
            about: "The time of the event: seconds, milliseconds or RFC 3339. Do not use the time of the \
                    attempt, which changes with every retry.",
        },
    ],
};

pub(super) const FORWARD: ReferenceTable = ReferenceTable {
    path: "[sources.NAME.forward]",
    about: "The endpoint to which the handler `forward` posts deliveries. Only with `handler = \"forward\"`.",
    fields: &[
        ReferenceField {
            name: "url",
            form: FieldForm::Text(URL),
            absent: Absent::Required,
            example: "\"https://example.com/webhooks?from=shop\"",
            about: "The endpoint's URL, starting with `https://`; with `allow_private` also `http://`.",
        },
        ReferenceField {
            name: "secret",
            form: FieldForm::OneOrMore(SIGNING_KEY),
            absent: Absent::Required,
            example: "[\"whsec_bmV3\", \"whsec_b2xk\"]",
            about: "The key that signs each request: `whsec_` and its bytes in base64. While you roll it, give the \
                    old and the new one: a request carries a signature with each.",
        },
        ReferenceField {
            name: "allow_private",
            form: FieldForm::Flag,
            absent: Absent::Is("false"),
            example: "true",
            about: "Allows endpoints on this machine and in private networks.",
        },
        ReferenceField {
            name: "commit",
            form: FieldForm::OneOrMore(TABLE_NAME),
            absent: Absent::Means("answers cause no writes"),
            example: "\"totals\"",
            about: "The DynamoDB tables that the endpoint's answers may write: see \
                    [writes in an answer](handlers.md#writes-in-an-answer). The URL must start with `https://`, except \
                    on this machine. The template's parameter `CommitTableArns` names the tables too.",
        },
    ],
};

pub(super) const INVOKE: ReferenceTable = ReferenceTable {
    path: "[sources.NAME.invoke]",
    about: "The Lambda function that the handler `invoke` calls with deliveries. Only with `handler = \"invoke\"`. \
            The template's parameter `InvokeFunctionArns` names the functions that the worker may call.",
    fields: &[
        ReferenceField {
            name: "function",
            form: FieldForm::Text(FUNCTION),
            absent: Absent::Required,
            example: "\"orders\"",
            about: "The function's name, or its ARN without a qualifier. It is in the worker's region.",
        },
        ReferenceField {
            name: "qualifier",
            form: FieldForm::Text(QUALIFIER),
            absent: Absent::Means("the latest version"),
            example: "\"live\"",
            about: "An alias, or a version's number.",
        },
    ],
};

pub(super) const ORIGIN: ReferenceTable = ReferenceTable {
    path: "[origin]",
    about: "For webhooks that come through your own proxy, such as \
            [CloudFront](deploying.md#cloudfront-and-waf-in-front). Without this table, requests need \
            not come through a proxy.",
    fields: &[ReferenceField {
        name: "secret",
        form: FieldForm::OneOrMore(ORIGIN_SECRET),
        absent: Absent::Required,
        example: "[\"0123456789-0123456789-0123456789-new\", \"0123456789-0123456789-0123456789-old\"]",
        about: "The value of the header `x-origin-secret` that the proxy sends, at least 32 characters. A request \
                without it is answered 403. During a rotation, give the old and the new one.",
    }],
};

/// All tables of the sources document, in the order of the page `docs/sources-reference.md`.
pub(super) const TABLES: [&ReferenceTable; 7] = [&SOURCE, &TOPICS, &RETRY, &GENERIC, &FORWARD, &INVOKE, &ORIGIN];
