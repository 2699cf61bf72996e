"""Sends the core's calls with boto3."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from typing import Any

from .errors import LeaseInvalid

#: One of the `TransactItems` of boto3's `transact_write_items`.
Write = dict[str, Any]
Send = Callable[[dict[str, Any], Sequence[Write]], dict[str, Any]]

_OPERATIONS = {
    "DeleteItem": "delete_item",
    "GetItem": "get_item",
    "PutItem": "put_item",
    "SendMessage": "send_message",
    "TransactWriteItems": "transact_write_items",
    "UpdateItem": "update_item",
}

# The core repeats requests itself after 900 ms, and knows which may be repeated.
_CONFIG: dict[str, Any] = {"connect_timeout": 1, "read_timeout": 1, "retries": {"total_max_attempts": 1}}
_ADVICE = (
    "create the client with config=botocore.config.Config(connect_timeout=1, read_timeout=1, "
    'retries={"total_max_attempts": 1}), or give none'
)


class Aws:
    """The boto3 clients of a process."""

    def __init__(self, dynamodb: Any, sqs: Any, queue_url: str | None) -> None:
        self._given = [(name, client) for name, client in (("dynamodb", dynamodb), ("sqs", sqs)) if client is not None]
        for name, client in self._given:
            _check_retries(name, client)
        self._clients = {"dynamodb": dynamodb if dynamodb is not None else _client("dynamodb")}
        events = self._clients["dynamodb"].meta.events
        events.register("before-parse.dynamodb", _refuse_cut_reply, unique_id="webhook_serializer")
        if queue_url is not None:
            self._clients["sqs"] = sqs if sqs is not None else _client("sqs")

    def check_timeouts(self, length: float) -> None:
        """Refuses given clients that wait for longer than a second and the time between two renewals."""
        for name, client in self._given:
            config = client.meta.config
            longest = max(config.connect_timeout or float("inf"), config.read_timeout or float("inf"))
            if longest > max(1, length / 3):
                raise LeaseInvalid(
                    f"the {name} client waits {longest:g} s for an answer, longer than a third of the lease of "
                    f"{length:g} s: {_ADVICE}"
                )

    def send(self, call: dict[str, Any], writes: Sequence[Write]) -> dict[str, Any]:
        """Sends a call. Returns the reply as the core takes it."""
        client, given = self._clients[call["service"]], call["input"]
        try:
            output = getattr(client, _OPERATIONS[call["operation"]])(**_with_writes(given, writes))
            return {"ok": output, "date": _date(output)}
        except Exception as error:
            return _failed(error)


def _client(service: str) -> Any:
    from boto3.session import Session
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, NoRegionError

    try:
        # boto3 itself reads only AWS_DEFAULT_REGION.
        return Session().client(
            service, region_name=os.environ.get("AWS_REGION"), config=Config(**_CONFIG, max_pool_connections=50)
        )
    except NoRegionError as error:
        reason = f"the {service} client has no region: set AWS_REGION, or give a client that has one"
        raise LeaseInvalid(reason) from error
    except (BotoCoreError, ValueError) as error:
        raise LeaseInvalid(f"boto3 creates no {service} client: {error}") from error


class _ReplyCut(Exception):
    """The connection closed within a reply's body, so the request has landed or not."""


def _refuse_cut_reply(response_dict: dict[str, Any], **_: Any) -> None:
    """Refuses a part of a reply, which botocore reads as a reply without content."""
    told, arrived = response_dict["headers"].get("content-length"), len(response_dict["body"] or b"")
    if told is not None and arrived < int(told):
        raise _ReplyCut(f"the reply ended after {arrived} of {told} bytes")


def _check_retries(name: str, client: Any) -> None:
    service = getattr(getattr(getattr(client, "meta", None), "service_model", None), "service_name", None)
    if service != name:
        raise LeaseInvalid(f"{name} is {client!r}: give a client, as boto3.client({name!r}) returns")
    retries = client.meta.config.retries or {}
    if retries.get("total_max_attempts") != 1 and retries.get("max_attempts") != 0:
        raise LeaseInvalid(f"the {name} client retries by itself, while a lease's requests must not be repeated: {_ADVICE}")


def _failed(error: Exception) -> dict[str, Any]:
    from botocore.exceptions import CredentialRetrievalError, NoAuthTokenError, ParamValidationError
    from botocore.exceptions import SSOError, TokenRetrievalError

    response: dict[str, Any] = getattr(error, "response", None) or {}
    told = response.get("Error", {})
    name, status = told.get("Code") or type(error).__name__, _metadata(response).get("HTTPStatusCode", 0)
    # With these, boto3 sent nothing, and a repeat does not help.
    if isinstance(error, ParamValidationError):
        name, status = "ValidationException", 400
    elif isinstance(error, (CredentialRetrievalError, NoAuthTokenError, SSOError, TokenRetrievalError)):
        name = "NoCredentialsError"
    failure = {
        "name": name,
        "message": told.get("Message") or str(error),
        "status": status,
        "item": response.get("Item"),
        "reasons": response.get("CancellationReasons"),
    }
    return {"error": failure, "date": _date(response)}


def _metadata(response: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = response.get("ResponseMetadata") or {}
    return metadata


def _date(response: Any) -> int | None:
    from email.utils import parsedate_to_datetime

    try:
        return int(parsedate_to_datetime(_metadata(response)["HTTPHeaders"]["date"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError):
        return None


def _with_writes(given: dict[str, Any], writes: Sequence[Write]) -> dict[str, Any]:
    """Puts the caller's writes in their places, and bytes where the core has base64."""
    items = given.get("TransactItems")
    if items is None:
        return _with_bytes(given)  # type: ignore[no-any-return]
    placed = [writes[item["write"]] if "write" in item else _with_bytes(item) for item in items]
    return {**given, "TransactItems": placed}


def _with_bytes(given: Any) -> Any:
    if isinstance(given, list):
        return [_with_bytes(item) for item in given]
    if not isinstance(given, dict):
        return given
    return {
        name: base64.b64decode(value) if name == "B" and isinstance(value, str) else _with_bytes(value)
        for name, value in given.items()
    }


def tables_of(writes: Any) -> list[str]:
    """Returns the table of each write."""
    if not isinstance(writes, Sequence):
        raise LeaseInvalid(f"the writes are {writes!r}, not a list, as transact_write_items takes it")
    return [_table_of(*item) for item in enumerate(writes)]


def _table_of(number: int, write: Write) -> str:
    """Returns the table of a write, which has this number."""
    try:
        (members,) = write.values()
        table = str(members["TableName"])
        # A half of a surrogate pair, which JSON can carry, and UTF-8 cannot, is a ValueError.
        table.encode()
        return table
    except (AttributeError, KeyError, TypeError, ValueError):
        raise LeaseInvalid(
            f'write {number} is not of the form {{"Put": {{"TableName": …, …}}}}, as transact_write_items takes it'
        ) from None
