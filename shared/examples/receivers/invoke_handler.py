#!/usr/bin/env python3
"""A Lambda function that the handler `invoke` calls. What it answers is written with the delivery.

On Lambda, its handler is `invoke_handler.handler`. It needs no packages and no rights.
TOTALS_TABLE names a table whose partition key is the string `order`; the template's
parameter `CommitTableArns` has the table's ARN. On your own machine it stands in for
Lambda itself, with the table of `serializer local --env-file .env.local`:

    (set -a; . ./.env.local; PORT=3001 python3 invoke_handler.py)

The worker writes `commit` in the transaction that settles the deliveries, under its
fencing token. So each delivery is counted once, although the function remembers neither
ids nor tokens: if an answer is lost, nothing was written, and the deliveries come again.
"""

import base64
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from invoke_types import Answer, Deliveries, Delivery

TABLE = os.environ["TOTALS_TABLE"]


def handler(event: Deliveries, _context) -> Answer:
    """What Lambda calls. Whatever it raises is tried again."""
    order = {}
    for delivery in event["deliveries"]:
        if delivery["topic"] == "app/uninstalled":
            return {"outcome": "reject", "error": "nobody here wants to know"}
        order |= known_from(delivery)
    for delivery in event["deliveries"]:
        log(event, delivery)
    return {"outcome": "done", "commit": [{"Update": update(event["entity_key"], len(event["deliveries"]), order)}]}


def known_from(delivery: Delivery) -> dict[str, str]:
    """Yours: what a delivery says about its order.

    What DynamoDB cannot write, such as a mail, happens at least once: pass `delivery["id"]`
    on as an idempotency key.
    """
    body = delivery["body"]
    body = json.loads(base64.b64decode(body) if delivery["body_is_base64"] else body)
    # No provider keeps the sequence in which things happened.
    if delivery["age"] == "older":
        return {}
    total = body.get("total_price")
    return {"topic": delivery["topic"]} | ({"total": str(total)} if total else {})


def update(order: str, count: int, known: dict[str, str]) -> dict:
    """Counts the deliveries, and stores what is known of the order."""
    expression = "ADD deliveries :count"
    if known:
        expression += " SET " + ", ".join(f"#{name} = :{name}" for name in known)
    update = {
        "TableName": TABLE,
        "Key": {"order": {"S": order}},
        "UpdateExpression": expression,
        "ExpressionAttributeValues": {":count": {"N": str(count)}} | {f":{name}": {"S": known[name]} for name in known},
    }
    # DynamoDB refuses an empty map.
    return update | ({"ExpressionAttributeNames": {f"#{name}": name for name in known}} if known else {})


def log(event: Deliveries, delivery: Delivery):
    line = {"outcome": "done"}
    line |= {name: delivery[name] for name in ("id", "delivery_id", "topic", "sequence", "attempt", "age")}
    line |= {name: event[name] for name in ("source", "entity_key", "fencing_token")}
    # In one piece: `print` writes the line's end by itself, and there are other threads.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


# ---- on your own machine: what stands in for Lambda ------------------------


class Lambda(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    wbufsize = -1  # an answer is one packet

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        failed = None
        try:
            answer = handler(json.loads(body), None)
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
