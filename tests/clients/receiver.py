"""The package's receivers for `tests/forward`, behind FastAPI or Flask, with ids and tokens in a store."""

import json
import os
import socket
import sys

from webhook_serializer import receiver as received
from webhook_serializer.receiver import Refused, apply_once

ORDERS = """CREATE TABLE IF NOT EXISTS orders (entity_key text PRIMARY KEY, last_topic text NOT NULL,
  last_body jsonb NOT NULL, deliveries integer NOT NULL)"""


def show(delivery, outcome):
    line = {"outcome": outcome}
    for name in ("delivery_id", "source", "topic", "entity_key", "fencing_token", "age"):
        line[name] = getattr(delivery, name)
    # In one piece: `print` writes the line's end by itself, and there are other threads.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def check(delivery):
    if delivery.topic == "app/uninstalled":
        raise Refused(410, "nobody here wants to know")
    json.loads(delivery.body)


def in_memory():
    return received.memory(), lambda delivery, _: check(delivery)


def in_postgres(url):
    import psycopg
    from psycopg_pool import ConnectionPool

    pool = ConnectionPool(url, open=True, timeout=2, check=ConnectionPool.check_connection)
    with pool.connection() as database:
        database.execute(received.POSTGRES_TABLES + ORDERS)

    def apply(delivery, database):
        check(delivery)
        if delivery.topic == "orders/caught":
            # The error aborts the transaction, whether it is caught or not.
            try:
                database.execute("SELECT 1/0")
            except psycopg.Error:
                pass
            return
        if delivery.topic == "orders/cut":
            database.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        database.execute(
            """INSERT INTO orders VALUES (%s, %s, %s, 1) ON CONFLICT (entity_key) DO UPDATE SET
            last_topic = excluded.last_topic, last_body = excluded.last_body, deliveries = orders.deliveries + 1""",
            (delivery.entity_key, delivery.topic, delivery.body.decode()),
        )

    return received.postgres(pool.connection), apply


def in_dynamodb(table):
    import boto3

    client = boto3.client("dynamodb", region_name=os.environ["AWS_REGION"])
    if table not in client.list_tables()["TableNames"]:
        client.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )

    def apply(delivery, writes):
        check(delivery)
        update = {
            "TableName": "totals",
            "Key": {"order": {"S": delivery.entity_key}},
            "UpdateExpression": "SET topic = :topic ADD deliveries :one",
            "ExpressionAttributeValues": {":topic": {"S": delivery.topic}, ":one": {"N": "1"}},
        }
        writes.append({"Update": update})

    return received.dynamodb(table), apply


def chosen():
    if "DATABASE_URL" in os.environ:
        return in_postgres(os.environ["DATABASE_URL"])
    return in_dynamodb(os.environ["IDS_TABLE"]) if "IDS_TABLE" in os.environ else in_memory()


def ready(port):
    print(f"http://127.0.0.1:{port}/", flush=True)


def fastapi(receiver):
    import uvicorn
    from fastapi import FastAPI, Request

    app = FastAPI()
    app.add_route("/", receiver.starlette, methods=["POST"])

    @app.post("/parsed")
    async def parsed(request: Request, body: dict):
        return await receiver.starlette(request)

    @app.post("/read")
    async def read(request: Request):
        return await receiver.starlette(request)

    @app.middleware("http")
    async def reads(request, call_next):
        if request.url.path == "/read":
            async for _ in request.stream():
                pass
        return await call_next(request)

    listener = socket.create_server(("127.0.0.1", 0))
    ready(listener.getsockname()[1])
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([listener])


def flask(receiver):
    from flask import Flask, request
    from werkzeug.serving import WSGIRequestHandler, make_server

    app = Flask(__name__)

    @app.post("/")
    def webhooks():
        return receiver.reply(request.headers, request.get_data())

    @app.post("/read")
    def read():
        request.stream.read()
        return receiver.reply(request.headers, request.get_data())

    class Quiet(WSGIRequestHandler):
        def log_request(self, *_):
            pass

    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    ready(server.server_port)
    server.serve_forever()


store, apply = chosen()
serve = {"fastapi": fastapi, "flask": flask}[os.environ["FRAMEWORK"]]
serve(apply_once(apply, secret=os.environ["SECRET"].split(), store=store, on_applied=show))
