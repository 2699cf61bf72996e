# Made from docs/invoke.schema.json by `cargo run -p tests --bin invoke-types`.

from typing import Literal, NotRequired, TypedDict


class Delivery(TypedDict):
    """One webhook."""

    # The same for every attempt and redrive of a delivery, another for any other delivery of any source, and for each time that a person has it run again. Apply it once.
    id: str
    # What the sender calls it; unique with the source.
    delivery_id: str
    # What happened, in the sender's words.
    topic: str
    # The source's provider, such as shopify.
    provider: str | None
    # Its place among the entity's deliveries. There are gaps.
    sequence: int
    # Which attempt this is, from 1.
    attempt: int
    # How often an operator put it back.
    redrive: int
    # The fencing token under which it was applied before, where a person has it run again.
    run_before: int | None
    # For how many older ones it stands, with deliver = "latest".
    superseded: int
    # How its event time stands to the newest that was applied of its topic family.
    age: Literal["newer", "same-time", "older", "unknown"]
    # When it was accepted, RFC 3339.
    received_at: str
    # When it came into its inbox, RFC 3339, where the tables could not be reached when it was accepted: others of its order may have been handled before it.
    deferred_until: str | None
    # When it happened by the sender's clock, RFC 3339.
    event_time: str | None
    # What the sender calls the body's form, such as application/json.
    content_type: str | None
    # The body as it came: its text, or base64.
    body: str
    # Whether the body is in base64, because it is no UTF-8 or has many control characters.
    body_is_base64: bool
    # Where its trace goes on, as W3C Trace Context has it. Only where the worker sends traces.
    traceparent: NotRequired[str]


class Deliveries(TypedDict):
    """What one start of a handler is about, version 1: one delivery, or several of one order in a row. Fields may be added; a version that takes one away or changes its meaning has another number."""

    version: Literal[1]
    # The source's name in the sources document.
    source: str
    # Whose deliveries they are: what order is kept for, such as shopify/order/450789469.
    entity_key: str
    # Greater than that of any start before it for this entity. Refuse one below the newest that you have seen.
    fencing_token: int
    # The oldest first, without a hole.
    deliveries: list[Delivery]


class Answer(TypedDict):
    """What a function answers, for all that it was called with."""

    # done: it is applied. retry: try again. reject: it will never succeed; set it aside.
    outcome: Literal["done", "retry", "reject"]
    # With retry: in so many seconds, at most a day. Without it, as the source's retry policy says.
    after: NotRequired[float | None]
    # With done: writes as in DynamoDB's TransactItems. They land in the transaction that settles the deliveries.
    commit: NotRequired[list[dict[str, object]]]
    # With retry and reject: why, in a few words for people. No secrets and no customers' data.
    error: NotRequired[str | None]
