#!/usr/bin/env python3
"""A Lambda function that the handler `invoke` calls. It keeps its state in DynamoDB.

On Lambda, which brings boto3, its handler is `invoke_handler.handler`. TOTALS_TABLE
names a table whose partition key is the string `order`; its role needs
dynamodb:UpdateItem and dynamodb:PutItem there. On your own machine it stands in for
Lambda itself, with the table of `serializer local --env-file .env.local`:

    pip install boto3
    (set -a; . ./.env.local; PORT=3001 python3 invoke_handler.py)

Each order has a row: what is known of it, the newest fencing token, and the ids that
were applied. Two writes make it right:

1. `claim` stores the token, unless the row has a newer one, and returns the row. From
   then on nothing lands under an older token: not that of a worker that was taken for
   dead, nor that of a call whose time was up and that still runs.
2. `save` stores the order and the new ids together, only while the token is its own.

A lost reply is recognised. If that of a write is lost, boto3 repeats it: both conditions
hold for the token that the first try left there, and the same values are written. If the
function's own answer is lost, the deliveries come again with a newer token, and the row
has their ids.
"""

import base64
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3

from invoke_types import Answer, Deliveries, Delivery

# Its client converts values, and may be used by several threads.
DYNAMODB = boto3.resource("dynamodb", region_name=os.environ["AWS_REGION"]).meta.client
TABLE = os.environ["TOTALS_TABLE"]
KEPT = 30 * 86_400  # seconds; no less than the serializer's RETENTION_DAYS


class Rejected(Exception):
    """Never wanted: it is parked."""


class Later(Exception):
    """Not now: tried again, after so many seconds where they are given."""

    def __init__(self, reason, after=None):
        super().__init__(reason)
        self.after = after


def handler(event: Deliveries, _context=None) -> Answer:
    """What Lambda calls. Whatever else it raises is tried again too."""
    try:
        for line in receive(event):
            # In one piece: `print` writes the line's end by itself, and there are other threads.
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    except Rejected as reason:
        return {"outcome": "reject", "error": str(reason)}
    except Later as reason:
        return {"outcome": "retry", "after": reason.after, "error": str(reason)}
    return {"outcome": "done"}


def apply(row: dict, delivery: Delivery):
    """Yours: changes the order's row, which has at most 400 KB with its ids.

    To write other rows with it, make `save` a `transact_write_items`. What cannot be in
    there, such as a mail, happens at least once: pass `delivery["id"]` on as an idempotency key.
    """
    if delivery["topic"] == "app/uninstalled":
        raise Rejected("nobody here wants to know")
    body = delivery["body"]
    body = json.loads(base64.b64decode(body) if delivery["body_is_base64"] else body)
    # No provider keeps the sequence in which things happened.
    if delivery["age"] == "older":
        return
    row["topic"] = delivery["topic"]
    if total := body.get("total_price"):
        row["total"] = str(total)


# ---- in order and once ----------------------------------------------------


def receive(event: Deliveries) -> list[dict]:
    """Applies each delivery that was not, all or none."""
    row = claim(event["entity_key"], event["fencing_token"])
    applied = row.setdefault("applied", {})
    lines = []
    for delivery in event["deliveries"]:
        outcome = "repeated" if delivery["id"] in applied else "applied"
        if outcome == "applied":
            apply(row, delivery)
            applied[delivery["id"]] = int(time.time())
        shown = {name: delivery[name] for name in ("id", "delivery_id", "topic", "sequence", "attempt", "age")}
        shown |= {name: event[name] for name in ("source", "entity_key", "fencing_token")}
        lines.append({"outcome": outcome, **shown})
    save(row, event["fencing_token"])
    return lines


def claim(order: str, token: int) -> dict:
    try:
        answer = DYNAMODB.update_item(
            TableName=TABLE,
            Key={"order": order},
            UpdateExpression="SET fencing_token = :token",
            ConditionExpression="attribute_not_exists(fencing_token) OR fencing_token <= :token",
            ExpressionAttributeValues={":token": token},
            ReturnValues="ALL_NEW",
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
        )
    except DYNAMODB.exceptions.ConditionalCheckFailedException as failed:
        newest = failed.response["Item"]["fencing_token"]["N"]
        raise Later(f"token {token} is older than {newest}") from None
    return answer["Attributes"]


def save(row: dict, token: int):
    oldest = time.time() - KEPT
    row["applied"] = {id: at for id, at in row["applied"].items() if at > oldest}
    try:
        DYNAMODB.put_item(
            TableName=TABLE,
            Item=row,
            ConditionExpression="fencing_token = :token",
            ExpressionAttributeValues={":token": token},
        )
    except DYNAMODB.exceptions.ConditionalCheckFailedException:
        raise Later(f"token {token} was replaced by a newer one") from None


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
