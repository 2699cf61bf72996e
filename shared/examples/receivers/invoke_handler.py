#!/usr/bin/env python3
"""A Lambda function that the handler `invoke` calls. Python's standard library only.

On Lambda its handler is `invoke_handler.handler`. On your own machine it stands in for Lambda itself:

    PORT=3001 python3 invoke_handler.py

Three things make it right; each is a few lines below:

1. A fencing token older than the newest seen of its entity is refused. It comes
   from a worker that was taken for dead and replaced, or from a call whose time
   was up and that runs on; it must not be applied on top of what came after it.
2. An `id` is applied once. An answer can be lost, and then it comes again.
3. Both are one transaction with the effect itself, for all that came together.
"""

import base64
import json
import os
import sqlite3
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from invoke_types import Answer, Deliveries, Delivery


class Rejected(Exception):
    """Never wanted: it is set aside."""


class Later(Exception):
    """Not now: tried again, after so many seconds where they are given."""

    def __init__(self, reason, after=None):
        super().__init__(reason)
        self.after = after


def handler(event: Deliveries, _context=None) -> Answer:
    """What Lambda calls. Whatever else it raises is tried again too."""
    try:
        for line in STORE.receive(event):
            # In one piece: `print` writes the line's end by itself, and there are other threads.
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    except Rejected as reason:
        return {"outcome": "reject", "error": str(reason)}
    except Later as reason:
        return {"outcome": "retry", "after": reason.after, "error": str(reason)}
    return {"outcome": "done"}


def apply(database: sqlite3.Connection, delivery: Delivery):
    """Yours. Write through `database`, so that the effect lands with the token and the id.

    What cannot be in the transaction, such as a mail, happens at least once: pass
    `delivery["id"]` on as an idempotency key.
    """
    if delivery["topic"] == "app/uninstalled":
        raise Rejected("nobody here wants to know")
    body = delivery["body"]
    json.loads(base64.b64decode(body) if delivery["body_is_base64"] else body)


# ---- apply, in order and once ---------------------------------------------


class Store:
    """What was applied, in the same database as the effects. On Lambda it is one that all instances share."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.database.executescript(
            """
            CREATE TABLE IF NOT EXISTS newest (entity TEXT PRIMARY KEY, token INTEGER NOT NULL);
            CREATE TABLE IF NOT EXISTS applied (id TEXT PRIMARY KEY, at REAL NOT NULL);
            """
        )

    def receive(self, event):
        """Applies each delivery that was not, all or none; raises `Later` if their token is stale."""
        entity, token = event["entity_key"], event["fencing_token"]
        with self.lock, self.transaction("BEGIN IMMEDIATE", "COMMIT", "COMMIT"):
            newest = self.one("SELECT token FROM newest WHERE entity = ?", entity)
            if newest and token < newest[0]:
                raise Later(f"token {token} is older than {newest[0]}")
            self.one("INSERT OR REPLACE INTO newest VALUES (?, ?)", entity, token)
            # If one effect fails, none of them stays; the token does.
            with self.transaction("SAVEPOINT effects", "RELEASE effects", "ROLLBACK TO effects"):
                return [self.receive_one(event, delivery) for delivery in event["deliveries"]]

    def receive_one(self, event, delivery):
        shown = {name: delivery[name] for name in ("id", "delivery_id", "topic", "sequence", "attempt", "age")}
        shown |= {name: event[name] for name in ("source", "entity_key", "fencing_token")}
        if self.one("SELECT 1 FROM applied WHERE id = ?", delivery["id"]):
            return {"outcome": "repeated", **shown}
        apply(self.database, delivery)
        # Rows older than the serializer's RETENTION_DAYS can be deleted.
        self.one("INSERT INTO applied VALUES (?, ?)", delivery["id"], time.time())
        return {"outcome": "applied", **shown}

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


STORE = Store(os.environ.get("DATABASE", ":memory:"))


# ---- on your own machine: what stands in for Lambda ------------------------


class Lambda(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = -1  # an answer is one packet

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        failed = None
        try:
            answer = handler(json.loads(body))
        except Exception as error:
            failed, answer = "Unhandled", {"errorMessage": str(error), "errorType": type(error).__name__}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        if failed:
            self.send_header("x-amz-function-error", failed)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass  # no line for each request


def main():
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3001"))), Lambda)
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
