"""Stores that remember which deliveries were applied, and the newest token of each order."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Literal, Protocol, TypeVar

from ._aws import Write
from ._signed import Delivery, Refused

Applied = Literal["applied", "repeated"]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Apply = Callable[[Delivery, T], None]


class Store(Protocol[T_co]):
    """Remembers ids and tokens."""

    def once(self, deliveries: Sequence[Delivery], apply: Apply[T_co]) -> list[Applied]:
        """Applies, in one transaction, each delivery whose id is new, and refuses a token below the order's newest.

        If `apply` fails, no id is remembered.
        """
        ...


def memory() -> Store[None]:
    """Returns a store that remembers in memory, for tests: after a restart, everything is new."""
    return _Memory()


def postgres(connect: Callable[[], AbstractContextManager[Any]]) -> Store[Any]:
    """Returns a store that remembers in Postgres, in the transaction in which `apply` writes.

    `connect` returns a connection of psycopg for a `with` block, such as `ConnectionPool(…).connection`.
    """
    return _Postgres(connect)


def dynamodb(table: str, *, client: Any = None, retention_days: int = 30) -> Store[list[Write]]:
    """Returns a store that remembers in DynamoDB, in the transaction with the writes that `apply` appends to its list.

    The table is yours. Its partition key is the string `id`, and its rows have the number `expires`, for the table's
    TTL. `client` is one of boto3's; if omitted, boto3 configures one from the environment. `retention_days` says for
    how long repeats are recognised: at least the serializer's `RETENTION_DAYS`.
    """
    if client is None:
        import boto3

        client = boto3.client("dynamodb", region_name=os.environ.get("AWS_REGION"))
    return _DynamoDb(table, client, retention_days)


class _Memory:
    def __init__(self) -> None:
        self._newest: dict[str, int] = {}
        self._applied: set[str] = set()
        self._locks: dict[str, threading.Lock] = {}

    def once(self, deliveries: Sequence[Delivery], apply: Apply[None]) -> list[Applied]:
        key, token = deliveries[0].entity_key, deliveries[0].fencing_token
        with self._locks.setdefault(key, threading.Lock()):
            newest = self._newest.get(key, token)
            if token < newest:
                raise Refused(409, f"token {token} is older than {newest}")
            self._newest[key] = token
            due = {delivery.id: delivery for delivery in deliveries if delivery.id not in self._applied}
            for delivery in due.values():
                apply(delivery, None)
            self._applied.update(due)
            return ["applied" if delivery.id in due else "repeated" for delivery in deliveries]


#: The tables of the store on Postgres. Rows of `applied` older than the serializer's retention can be deleted.
POSTGRES_TABLES = """
CREATE TABLE IF NOT EXISTS newest_token (entity_key text PRIMARY KEY, token bigint NOT NULL);
CREATE TABLE IF NOT EXISTS applied (id text PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
"""

# The row stays locked until the transaction ends, so that two requests of an order wait for each other.
_SEE = """INSERT INTO newest_token (entity_key, token) VALUES (%s, %s)
ON CONFLICT (entity_key) DO UPDATE SET token = excluded.token WHERE newest_token.token <= excluded.token"""
_REMEMBER = "INSERT INTO applied (id) VALUES (%s) ON CONFLICT DO NOTHING"


class _Postgres:
    def __init__(self, connect: Callable[[], AbstractContextManager[Any]]) -> None:
        self._connect = connect

    def once(self, deliveries: Sequence[Delivery], apply: Apply[Any]) -> list[Applied]:
        with ExitStack() as stack:
            try:
                database = stack.enter_context(self._connect())
                # It fails if the connection ended while nobody used it.
                stack.enter_context(database.transaction())
            except Exception as error:
                raise _away() from error
            outcomes = _receive(database, deliveries, apply)
        if isinstance(outcomes, Exception):
            raise outcomes
        return outcomes


def _receive(database: Any, deliveries: Sequence[Delivery], apply: Apply[Any]) -> list[Applied] | Exception:
    key, token = deliveries[0].entity_key, deliveries[0].fencing_token
    if database.execute(_SEE, (key, token)).rowcount == 0:
        raise _old(token)
    outcomes: list[Applied] = []
    try:
        with database.transaction():  # a savepoint
            for delivery in deliveries:
                is_new = database.execute(_REMEMBER, (delivery.id,)).rowcount == 1
                if is_new:
                    apply(delivery, database)
                outcomes.append("applied" if is_new else "repeated")
            # It fails if an error that `apply` caught has aborted the transaction. A COMMIT would roll back instead.
            database.execute("SELECT 1")
    except Exception as error:
        # Neither the effect nor the id; the token stays seen.
        return error
    return outcomes


class _DynamoDb:
    def __init__(self, table: str, client: Any, retention_days: int) -> None:
        self._table = table
        self._client = client
        self._retention = retention_days * 86_400

    def once(self, deliveries: Sequence[Delivery], apply: Apply[list[Write]]) -> list[Applied]:
        from botocore.exceptions import ClientError

        token = deliveries[0].fencing_token
        expires = {"N": str(math.ceil(time.time()) + self._retention)}
        order = {"TableName": self._table, "Key": {"id": {"S": f"order {deliveries[0].entity_key}"}}}
        order["ExpressionAttributeNames"] = {"#token": "token"}
        values = {":token": {"N": str(token)}}
        try:
            # Before `apply`, so that the token stays seen if it fails.
            _sent(
                self._client.update_item,
                **order,
                UpdateExpression="SET #token = :token, expires = :expires",
                ConditionExpression="attribute_not_exists(#token) OR #token <= :token",
                ExpressionAttributeValues={**values, ":expires": expires},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            raise _old(token) from None
        unseen = {**order, "ConditionExpression": "#token = :token", "ExpressionAttributeValues": values}
        for is_last in (False, False, True):
            known = {delivery.id for delivery in deliveries if self._is_applied(delivery)}
            due = [delivery for delivery in deliveries if delivery.id not in known]
            outcomes: list[Applied] = ["repeated" if one.id in known else "applied" for one in deliveries]
            if not due:
                break
            writes: list[Write] = []
            for delivery in due:
                apply(delivery, writes)
            ids = [{"Put": self._id(delivery, expires)} for delivery in due]
            try:
                _sent(self._client.transact_write_items, TransactItems=[{"ConditionCheck": unseen}, *ids, *writes])
                break
            except ClientError as error:
                reasons = [reason.get("Code") for reason in error.response.get("CancellationReasons", [])]
                if reasons[:1] == ["ConditionalCheckFailed"]:
                    raise _old(token) from None
                # Another request applied one of them meanwhile, or is about to.
                is_known = "ConditionalCheckFailed" in reasons[1 : 1 + len(ids)]
                if is_last or not (is_known or "TransactionConflict" in reasons):
                    raise
        return outcomes

    def _id(self, delivery: Delivery, expires: dict[str, str]) -> dict[str, Any]:
        item = {"id": {"S": f"delivery {delivery.id}"}, "expires": expires}
        return {"TableName": self._table, "Item": item, "ConditionExpression": "attribute_not_exists(id)"}

    def _is_applied(self, delivery: Delivery) -> bool:
        key = {"id": {"S": f"delivery {delivery.id}"}}
        return "Item" in _sent(self._client.get_item, TableName=self._table, Key=key, ConsistentRead=True)


_THROTTLED = ("ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException")


def _sent(request: Callable[..., Any], **given: Any) -> Any:
    """Sends a request of boto3. Answers 503 if DynamoDB does not answer, fails or throttles."""
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    try:
        return request(**given)
    except ParamValidationError:
        raise
    except BotoCoreError as error:
        raise _away() from error
    except ClientError as error:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        if status >= 500 or error.response["Error"]["Code"] in _THROTTLED:
            raise _away() from error
        raise


def _away() -> Refused:
    return Refused(503, "the database cannot be reached")


def _old(token: int) -> Refused:
    return Refused(409, f"token {token} is older than the newest seen")
