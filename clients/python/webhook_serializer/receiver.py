"""Receives what the handler `forward` posts: verifies it, and applies each delivery once and in order.

    receiver = apply_once(apply, secret="whsec_…", store=postgres(pool.connection))
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ._aws import Write
from ._signed import Delivery, Refused, deliveries_of, in_lower_case, key_of, secrets_of, verify
from ._stores import POSTGRES_TABLES, Applied, Apply, Store, dynamodb, memory, postgres

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = [
    "POSTGRES_TABLES",
    "Applied",
    "Apply",
    "Delivery",
    "Receiver",
    "Refused",
    "Reply",
    "Store",
    "answer_with",
    "apply_once",
    "commit",
    "deliveries_of",
    "dynamodb",
    "memory",
    "postgres",
    "verify",
]

#: A delivery has at most 6 MiB. As JSON, in a list, it can be twice as long.
_LARGEST_BODY = 13 * 1024 * 1024
_ANSWER = "application/vnd.webhook-serializer.answer+json"
_READ_BEFORE = (
    "the body was read before the receiver, as a middleware or request.form() does: let nothing read it in front of "
    "the receiver"
)
_log = logging.getLogger("webhook_serializer")
T = TypeVar("T")


class Reply(NamedTuple):
    """What to answer: in Flask, return it from the view."""

    body: str
    status: int
    headers: dict[str, str]


class Receiver:
    """A receiver, as a function of a request's headers and body, and as an endpoint of FastAPI and Starlette."""

    def __init__(
        self,
        secret: str | Sequence[str],
        answer: Callable[[list[Delivery]], Reply],
        on_error: Callable[[Exception], None] | None,
    ) -> None:
        self._secrets = secrets_of(secret)
        if not self._secrets:
            raise ValueError("the receiver has no secret")
        for one in self._secrets:
            key_of(one)
        self._answer = answer
        self._on_error = on_error or (lambda error: _log.error("a delivery was not applied", exc_info=error))

    def reply(self, headers: Mapping[str, str], body: bytes) -> Reply:
        """Returns what to answer: `receiver.reply(request.headers, request.get_data())`.

        `body` is as it was received.
        """
        try:
            headers = in_lower_case(headers)
            if not body and headers.get("content-length", "0") != "0":
                raise Refused(500, _READ_BEFORE)
            if len(body) > _LARGEST_BODY:
                raise Refused(413, "the body is too large")
            verify(self._secrets, headers, body)
            return self._answer(deliveries_of(headers, body))
        except Exception as error:
            return self._failed(error)

    async def starlette(self, request: Request) -> Response:
        """For FastAPI and Starlette: `app.add_route("/webhooks", receiver.starlette, methods=["POST"])`.

        The work runs in a thread, so it does not block the event loop.
        """
        from starlette.responses import Response

        try:
            body = await _body_of(request)
        except Refused as refused:
            reply = self._failed(refused)
        else:
            reply = await asyncio.to_thread(self.reply, request.headers, body)
        return Response(reply.body, reply.status, reply.headers)

    def _failed(self, error: Exception) -> Reply:
        unsent = error.__cause__ if isinstance(error, Refused) else error
        if isinstance(unsent, Exception):
            self._on_error(unsent)
        refused = error if isinstance(error, Refused) else Refused(500, "it failed")
        headers = {} if refused.retry_after is None else {"retry-after": str(refused.retry_after)}
        return Reply(str(refused), refused.status, {"content-type": "text/plain; charset=utf-8", **headers})


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > _LARGEST_BODY:
                raise Refused(413, "the body is too large")
    except RuntimeError as error:
        # "Stream consumed"
        raise Refused(500, _READ_BEFORE) from error
    return bytes(body)


def apply_once(
    apply: Apply[T],
    *,
    secret: str | Sequence[str],
    store: Store[T],
    on_error: Callable[[Exception], None] | None = None,
    on_applied: Callable[[Delivery, Applied], None] | None = None,
) -> Receiver:
    """Returns a receiver that applies each delivery once, and refuses tokens older than the newest of their order.

    `apply(delivery, transaction)` writes through the store's transaction: what it does elsewhere happens at least once.

    `secret` is that of the source's `forward`; several while it is rotated. `on_error` is called with each error whose
    text is not sent; if omitted, the error is logged. `on_applied` is called for each delivery after the transaction.
    """
    apply = _plain("apply", apply)

    def answer(deliveries: list[Delivery]) -> Reply:
        outcomes = store.once(deliveries, apply)
        if on_applied is not None:
            for delivery, outcome in zip(deliveries, outcomes):
                on_applied(delivery, outcome)
        return Reply(", ".join(outcomes), 200, {"content-type": "text/plain; charset=utf-8"})

    return Receiver(secret, answer, on_error)


def answer_with(
    work: Callable[[list[Delivery]], dict[str, Any]],
    *,
    secret: str | Sequence[str],
    on_error: Callable[[Exception], None] | None = None,
) -> Receiver:
    """Returns a receiver whose answers have DynamoDB writes: `work` returns `commit([…])`."""
    work = _plain("work", work)

    def answer(deliveries: list[Delivery]) -> Reply:
        return Reply(json.dumps(work(deliveries)), 200, {"content-type": _ANSWER})

    return Receiver(secret, answer, on_error)


def commit(writes: Sequence[Write]) -> dict[str, Any]:
    """Returns an answer with DynamoDB writes, as in boto3's `transact_write_items`.

    The worker makes them in the transaction that settles the delivery. For `invoke`, return it from the function; for
    `forward`, from the work of `answer_with`.
    """
    return {"outcome": "done", "commit": [_without_bytes(write) for write in writes]}


def _without_bytes(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_bytes(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_without_bytes(inner) for inner in value]
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else value


def _plain(name: str, function: Callable[..., T]) -> Callable[..., T]:
    """Refuses an asynchronous function: nobody would await what it returns."""
    error = TypeError(f"{name} must be a plain function, without async: it runs in a thread")
    if inspect.iscoroutinefunction(function):
        raise error

    def plain(*arguments: Any) -> T:
        value = function(*arguments)
        if inspect.iscoroutine(value):
            value.close()
            raise error
        return value

    return plain
