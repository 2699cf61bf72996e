#!/usr/bin/env python3
"""Receives what the handler `forward` posts, without a package: Python's standard library and SQLite.

    SECRET=whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA== PORT=8080 python3 receiver.py

With the package `webhook-serializer`, `apply_once` replaces all but `apply`. This file shows what it does, for a port
to another language: the bytes are verified as they came, a fencing token below the newest of its order is refused,
and each id is applied once, all in one transaction with the effect.
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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

# Several, with a space between them, while a secret is rotated.
KEYS = [base64.b64decode(secret.removeprefix("whsec_"), validate=True) for secret in os.environ["SECRET"].split()]
if not all(KEYS):
    sys.exit("SECRET is empty: anybody can sign with an empty key")
TOLERANCE = 300  # seconds
LARGEST_BODY = 13 * 1024 * 1024  # a delivery has at most 6 MiB; as JSON, in a list, it can be twice as long

database = sqlite3.connect(os.environ.get("DATABASE", ":memory:"), check_same_thread=False, isolation_level=None)
database.execute("CREATE TABLE IF NOT EXISTS newest (entity TEXT PRIMARY KEY, token INTEGER NOT NULL)")
# Rows older than the serializer's RETENTION_DAYS can be deleted.
database.execute("CREATE TABLE IF NOT EXISTS applied (id TEXT PRIMARY KEY, at REAL NOT NULL)")
lock = threading.Lock()


class Refused(Exception):
    """Answered with this status instead of 2xx: 410 for what will never be wanted, 503 for not now."""

    def __init__(self, status, reason):
        super().__init__(reason)
        self.status = status


def apply(delivery):
    """Yours. Write through `database`. What cannot be in the transaction, such as a mail, happens at least once."""
    if delivery["topic"] == "app/uninstalled":
        raise Refused(410, "nobody here wants to know")
    json.loads(delivery["body"])


def verify(headers, body):
    timestamp = headers.get("webhook-timestamp", "")
    if not (timestamp.isascii() and timestamp.isdigit()):
        raise Refused(401, "the webhook-timestamp cannot be read")
    signed = f"{headers.get('webhook-id', '')}.{timestamp}.".encode("latin-1") + body
    expected = [b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)) for key in KEYS]
    claimed = [entry.encode("latin-1") for entry in headers.get("webhook-signature", "").split()]
    # A list, since `any` would stop at the first match and show it by its time.
    if not any([hmac.compare_digest(one, other) for one in expected for other in claimed]):
        raise Refused(401, "no known secret makes this signature")
    if abs(time.time() - int(timestamp)) > TOLERANCE:
        raise Refused(401, "signed too long ago, or in the future")


def deliveries_of(headers, body):
    """Returns one delivery, described by headers, or those of a list. All are of one order."""
    # The id is signed. The content type is the sender's, who could write anything.
    if headers["webhook-id"].startswith("group:"):
        event = json.loads(body)
        common = {name: event[name] for name in ("source", "entity_key", "fencing_token")}
        decode = lambda one: base64.b64decode(one["body"]) if one["body_is_base64"] else one["body"].encode()
        return [{**one, **common, "body": decode(one)} for one in event["deliveries"]]
    names = ("delivery_id", "source", "topic", "entity_key", "sequence", "fencing_token", "attempt", "age")
    one = {name: unquote(headers[f"serializer-{name.replace('_', '-')}"]) for name in names}
    numbers = {name: int(one[name]) for name in ("sequence", "fencing_token", "attempt")}
    return [{"id": headers["webhook-id"], **one, **numbers, "body": body}]


def receive(deliveries):
    entity, token = deliveries[0]["entity_key"], deliveries[0]["fencing_token"]
    with lock:
        newest = database.execute("SELECT token FROM newest WHERE entity = ?", (entity,)).fetchone()
        if newest and token < newest[0]:
            # Not 200: should this memory be wrong, the delivery is parked, where a person sees it.
            raise Refused(409, f"token {token} is older than {newest[0]}")
        # By itself, so that the token stays seen if `apply` fails.
        database.execute("INSERT OR REPLACE INTO newest VALUES (?, ?)", (entity, token))
        database.execute("BEGIN IMMEDIATE")
        try:
            outcomes = [receive_one(delivery) for delivery in deliveries]
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
    return outcomes


def receive_one(delivery):
    insert = "INSERT INTO applied VALUES (?, ?) ON CONFLICT DO NOTHING"
    if database.execute(insert, (delivery["id"], time.time())).rowcount == 0:
        return "repeated"
    apply(delivery)
    return "applied"


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = -1  # an answer is one packet
    timeout = 60

    def do_POST(self):
        try:
            status, text = 200, self.answer()
        except Refused as refused:
            status, text = refused.status, str(refused)
        except Exception as error:  # tried again
            status, text = 500, type(error).__name__
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def answer(self):
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            self.close_connection = True  # its body is not read
            raise Refused(413, "a body has a length, and not too great a one")
        body = self.rfile.read(int(length))
        verify(self.headers, body)
        deliveries = deliveries_of(self.headers, body)
        outcomes = receive(deliveries)
        for outcome, delivery in zip(outcomes, deliveries):
            line = json.dumps({"outcome": outcome} | {name: delivery[name] for name in delivery if name != "body"})
            # In one piece: `print` writes the line's end by itself, and there are other threads.
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
        return ", ".join(outcomes)

    def log_message(self, *_):
        pass  # no line for each request


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8080"))), Endpoint)
print(f"http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
