#!/usr/bin/env python3
"""Receives what the handler `forward` posts. Python's standard library only.

    SECRET=whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== PORT=8080 python3 receiver.py

Four things make a receiver right; each is a few lines below:

1. The signature is checked over the bytes as they came, in constant time, and
   its time is at most five minutes away.
2. A fencing token older than the newest seen of its entity is refused. It comes
   from a worker that was taken for dead and replaced while its request was on
   its way; what it says must not be applied on top of what came after it.
   The answer is 409 and not 200: nobody waits for it any more if the token
   really is old, and if this memory should be wrong (restored from another
   place, say) the delivery is tried again and then set aside where a person
   sees it, instead of being believed applied.
3. A `webhook-id` is applied once. An answer can be lost, and then it comes again.
4. All of that is one transaction with the effect itself.
"""

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

TOLERANCE = 300  # seconds
LARGEST_BODY = 13 * 1024 * 1024  # a delivery has at most 6 MiB; as JSON, in a list, it can be twice as long
GROUP = "group:"


class Refused(Exception):
    """Answered with another status than 2xx."""

    def __init__(self, status, reason, retry_after=None):
        super().__init__(reason)
        self.status = status
        self.retry_after = retry_after


# ---- verify ---------------------------------------------------------------


def verify(secrets, headers, body, now):
    """Raises `Refused` unless one of `secrets` signed `body` just now."""
    webhook_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()):
        raise Refused(401, "the webhook-timestamp cannot be read")
    signed = f"{webhook_id}.{timestamp}.".encode("latin-1") + body
    claimed = [
        entry.removeprefix("v1,").encode("latin-1")
        for entry in headers.get("webhook-signature", "").split()
        if entry.startswith("v1,")
    ]
    matches = False
    for secret in secrets:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
        for signature in claimed:
            # No `or`, which would stop at the first match and tell by its time.
            matches |= hmac.compare_digest(expected, signature)
    if not matches:
        raise Refused(401, "no known secret makes this signature")
    if abs(now - int(timestamp)) > TOLERANCE:
        raise Refused(401, "signed too long ago, or in the future")


# ---- apply, in order and once ---------------------------------------------


class Deliveries:
    """What was applied, in the same database as the effects."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.database.executescript(
            """
            CREATE TABLE IF NOT EXISTS newest (entity TEXT PRIMARY KEY, token INTEGER NOT NULL);
            CREATE TABLE IF NOT EXISTS applied (id TEXT PRIMARY KEY, at REAL NOT NULL);
            """
        )

    def receive(self, deliveries):
        """Applies each that was not, all or none; raises `Refused` if their token is stale. All are of one entity."""
        entity, token = deliveries[0]["entity_key"], deliveries[0]["fencing_token"]
        with self.lock, self.transaction("BEGIN IMMEDIATE", "COMMIT", "COMMIT"):
            newest = self.one("SELECT token FROM newest WHERE entity = ?", entity)
            if newest and token < newest[0]:
                raise Refused(409, f"token {token} is older than {newest[0]}")
            self.one("INSERT OR REPLACE INTO newest VALUES (?, ?)", entity, token)
            # If the effect fails, the token stays seen.
            with self.transaction("SAVEPOINT effect", "RELEASE effect", "ROLLBACK TO effect"):
                return [self.receive_one(delivery) for delivery in deliveries]

    def receive_one(self, delivery):
        if self.one("SELECT 1 FROM applied WHERE id = ?", delivery["id"]):
            return "repeated"
        apply(self.database, delivery)
        # Rows older than the serializer's RETENTION_DAYS can be deleted.
        self.one("INSERT INTO applied VALUES (?, ?)", delivery["id"], time.time())
        return "applied"

    def one(self, statement, *values):
        return self.database.execute(statement, values).fetchone()

    @contextmanager
    def transaction(self, begin, success, failure):
        self.database.execute(begin)
        try:
            yield
        except BaseException:
            self.database.execute(failure)
            raise
        self.database.execute(success)


def apply(database, delivery):
    """Yours. Write through `database`, so that the effect lands with the token and the id.

    What cannot be in the transaction, such as a mail, happens at least once: pass
    `delivery["id"]` on as an idempotency key. Raise `Refused(410, …)` for what will
    never be wanted, `Refused(503, …, retry_after=30)` for not now; an exception is a
    500 and is tried again.
    """
    if delivery["topic"] == "app/uninstalled":
        raise Refused(410, "nobody here wants to know")
    json.loads(delivery["body"])


# ---- HTTP -----------------------------------------------------------------

SHOWN = ("id", "delivery_id", "source", "topic", "entity_key", "sequence", "fencing_token", "attempt", "age")


def sent(headers, body):
    """The deliveries of a request: one, told by its headers, or those of a list."""
    # The id is signed. The content type of a delivery is its sender's, who could write anything.
    if headers["webhook-id"].startswith(GROUP):
        event = json.loads(body)
        common = {name: event[name] for name in ("source", "entity_key", "fencing_token")}
        decode = lambda one: base64.b64decode(one["body"]) if one["body_is_base64"] else one["body"].encode()
        return [{**one, **common, "body": decode(one)} for one in event["deliveries"]]
    told = lambda name: unquote(headers[f"serializer-{name}"])
    one = {
        "id": headers["webhook-id"],
        "delivery_id": told("delivery-id"),
        "source": told("source"),
        "topic": told("topic"),
        "entity_key": told("entity-key"),
        "sequence": int(told("sequence")),
        "fencing_token": int(told("fencing-token")),
        "attempt": int(told("attempt")),
        "age": told("age"),
        "body": body,
    }
    return [one]


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = -1  # an answer is one packet
    timeout = 60
    secrets = []
    deliveries = None

    def do_POST(self):
        retry_after = None
        try:
            status, text = self.answer()
        except Refused as refused:
            status, text, retry_after = refused.status, str(refused), refused.retry_after
        except Exception as error:  # tried again
            status, text = 500, type(error).__name__
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        if retry_after is not None:
            self.send_header("retry-after", str(retry_after))
        self.end_headers()
        self.wfile.write(body)

    def answer(self):
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            self.close_connection = True  # its body is not read
            raise Refused(413, "a body has a length, and not too great a one")
        body = self.rfile.read(int(length))
        verify(self.secrets, self.headers, body, time.time())
        deliveries = sent(self.headers, body)
        outcomes = self.deliveries.receive(deliveries)
        for outcome, delivery in zip(outcomes, deliveries):
            shown = {name: delivery[name] for name in SHOWN}
            # In one piece: `print` writes the line's end by itself, and there are other threads.
            sys.stdout.write(json.dumps({"outcome": outcome, **shown}) + "\n")
        sys.stdout.flush()
        return 200, ", ".join(outcomes)

    def log_message(self, *_):
        pass  # no line for each request


def main():
    # Several, with a space between them, while a secret is rolled.
    Endpoint.secrets = os.environ["SECRET"].split()
    Endpoint.deliveries = Deliveries(os.environ.get("DATABASE", ":memory:"))
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Endpoint)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
