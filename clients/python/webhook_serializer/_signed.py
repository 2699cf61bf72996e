"""What the handler `forward` posts: its signature, and the deliveries of a request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

_TOLERANCE = 300  # seconds
#: The signed ids of lists begin with it.
_GROUP = "group:"


@dataclass(frozen=True)
class Delivery:
    """A webhook's delivery."""

    #: The same for every attempt of a delivery. Apply it once.
    id: str
    #: What the sender calls the delivery.
    delivery_id: str
    source: str
    topic: str
    #: The order, such as `shopify/order/450789469`.
    entity_key: str
    #: Greater than that of any earlier start for this order.
    fencing_token: int
    sequence: int
    attempt: int
    #: How the event's time compares with the newest that was applied: `newer`, `same-time`, `older` or `unknown`.
    age: str
    body: bytes


class Refused(Exception):
    """An answer other than 2xx. Raise it with 410 for what will never be wanted, or with 503 for not now.

    `reason` is stored as the delivery's error: no secrets and no customers' data. `retry_after` is in seconds.
    """

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


def header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name)
    if value is None:
        raise Refused(400, f"there is no {name}")
    return value


def in_lower_case(headers: Mapping[str, str]) -> Mapping[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def secrets_of(secret: str | Sequence[str]) -> list[str]:
    return [secret] if isinstance(secret, str) else list(secret)


def key_of(secret: str) -> bytes:
    text = secret.removeprefix("whsec_")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        # Anybody can sign with an empty key.
        raise ValueError("a secret of the receiver is empty, or not in base64")
    return key


def verify(secret: str | Sequence[str], headers: Mapping[str, str], body: bytes, now: float | None = None) -> None:
    """Raises `Refused` unless one of the secrets signed `body` in the last five minutes.

    `body` is as it was received.
    """
    headers = in_lower_case(headers)
    webhook_id, timestamp = header(headers, "webhook-id"), header(headers, "webhook-timestamp")
    if not re.fullmatch("[0-9]{1,18}", timestamp):
        raise Refused(401, "the webhook-timestamp cannot be read")
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    claimed = [
        entry.removeprefix("v1,").encode()
        for entry in header(headers, "webhook-signature").split(" ")
        if entry.startswith("v1,")
    ]
    matches = False
    for key in map(key_of, secrets_of(secret)):
        expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
        for signature in claimed:
            # No `or`, which would stop at the first match and show it by its time.
            matches |= hmac.compare_digest(expected, signature)
    if not matches:
        raise Refused(401, "no known secret makes this signature")
    if abs((time.time() if now is None else now) - int(timestamp)) > _TOLERANCE:
        raise Refused(401, "signed too long ago, or in the future")


def deliveries_of(headers: Mapping[str, str], body: bytes) -> list[Delivery]:
    """Returns the deliveries of a verified request: one, or those of a list.

    All are of one order, the oldest first.
    """
    headers = in_lower_case(headers)
    # The id is signed. The content type is the sender's, who could write anything.
    if header(headers, "webhook-id").startswith(_GROUP):
        event = json.loads(body)
        return [
            Delivery(
                id=one["id"],
                delivery_id=one["delivery_id"],
                source=event["source"],
                topic=one["topic"],
                entity_key=event["entity_key"],
                fencing_token=event["fencing_token"],
                sequence=one["sequence"],
                attempt=one["attempt"],
                age=one["age"],
                body=base64.b64decode(one["body"]) if one["body_is_base64"] else one["body"].encode(),
            )
            for one in event["deliveries"]
        ]

    def text(name: str) -> str:
        return unquote(header(headers, f"serializer-{name}"))

    delivery = Delivery(
        id=header(headers, "webhook-id"),
        delivery_id=text("delivery-id"),
        source=text("source"),
        topic=text("topic"),
        entity_key=text("entity-key"),
        fencing_token=int(text("fencing-token")),
        sequence=int(text("sequence")),
        attempt=int(text("attempt")),
        age=text("age"),
        body=body,
    )
    return [delivery]
