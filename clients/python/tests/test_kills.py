"""Functions that only count, killed while they answer, beside the whole deployment: each delivery counts once."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import boto3
from store import CONFIG

SUITE = Path(__file__).parents[3] / "target/clients/suite/dist"
SECRET = "whsec_Zm9yIHRoZSB0ZXN0IG9mIGtpbGxz"
KEY = "dev-secret"
ROUNDS = 8

COUNTER = """
import os
import random
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from webhook_serializer.receiver import answer_with, commit

def count(deliveries):
    time.sleep(random.uniform(0, 0.05))
    return commit([{"Update": {
        "TableName": "totals",
        "Key": {"order": {"S": delivery.delivery_id}},
        "UpdateExpression": "ADD times :one",
        "ExpressionAttributeValues": {":one": {"N": "1"}},
    }} for delivery in deliveries])

receiver = answer_with(count, secret=os.environ["SECRET"])

class Endpoint(BaseHTTPRequestHandler):
    def do_POST(self):
        reply = receiver.reply(self.headers, self.rfile.read(int(self.headers["content-length"])))
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(reply.body.encode())

    def log_message(self, *_):
        pass

ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Endpoint).serve_forever()
"""

SOURCE = """
[sources.{name}]
provider = "shopify"
secrets = ["{key}"]
handler = "forward"
retry = {{ attempts = 1000, first = "50ms", longest = "200ms" }}
forward = {{ url = "http://127.0.0.1:{port}/", secret = "{secret}", allow_private = true, commit = ["totals"] }}
"""


def free_ports(count):
    """Returns different ports."""
    with contextlib.ExitStack() as bound:
        return [bound.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


class Process:
    """A process that is killed and started again, with all that it has started."""

    def __init__(self, command, port, **env):
        self.command, self.port, self.env, self.kills = command, port, {**os.environ, **env}, 0
        self.start()

    def start(self):
        self.child = subprocess.Popen(self.command, env=self.env, stdout=subprocess.DEVNULL, start_new_session=True)
        while self.child.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{self.command[0]} has ended")

    def kill(self):
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()

    def restart(self):
        self.kill()
        self.kills += 1
        self.start()


class Sender:
    """Sends webhooks to a source, each until it is answered."""

    def __init__(self, port, source):
        self.port, self.source, self.answered, self.is_over = port, source, [], False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.is_over:
            number = len(self.answered)
            webhook = f"{self.source}-{number}"
            while not self.is_answered(webhook, b'{"id": %d}' % (number % 4)):
                time.sleep(0.05)
            self.answered.append(webhook)

    def is_answered(self, webhook, body):
        signature = base64.b64encode(hmac.new(KEY.encode(), body, hashlib.sha256).digest()).decode()
        headers = {
            "content-type": "application/json",
            "x-shopify-topic": "orders/updated",
            "x-shopify-hmac-sha256": signature,
            "x-shopify-webhook-id": webhook,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", f"/webhooks/{self.source}", body, headers)
            return connection.getresponse().status in (200, 202)
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def end(self):
        self.is_over = True
        self.thread.join()


def counts(env_file):
    """Returns how often each delivery was counted."""
    env = dict(line.split("=", 1) for line in Path(env_file).read_text().splitlines() if "=" in line)
    store = boto3.client(
        "dynamodb",
        endpoint_url=env["AWS_ENDPOINT_URL_DYNAMODB"],
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=CONFIG,
    )
    rows = [row for page in store.get_paginator("scan").paginate(TableName="totals") for row in page["Items"]]
    store.close()
    # A delivery's id begins with shop and topic.
    return {row["order"]["S"].rpartition("/")[2]: int(row["times"]["N"]) for row in rows if "times" in row}


class TestKills(unittest.TestCase):
    def test_each_delivery_counts_once(self):
        if not (SUITE / "counter.js").is_file():
            self.skipTest("target/clients/suite is missing: run .ci/client")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        web, console, *ports = free_ports(4)
        commands = {
            "python": [sys.executable, "-c", COUNTER],
            "typescript": [os.environ.get("NODE", "node"), str(SUITE / "counter.js")],
        }
        started = zip(commands.values(), ports)
        functions = [self.started(command, port, SECRET=SECRET, PORT=str(port)) for command, port in started]
        sources, env_file = f"{folder.name}/sources.toml", f"{folder.name}/env"
        texts = [SOURCE.format(name=name, key=KEY, port=port, secret=SECRET) for name, port in zip(commands, ports)]
        Path(sources).write_text("".join(texts))
        local = [os.environ["SERIALIZER"], "local", "--port", str(web), "--console-port", str(console), "--json"]
        local += ["--sources", sources, "--data", f"{folder.name}/data", "--env-file", env_file]
        deployment = self.started(local, web)

        senders = [Sender(web, name) for name in commands]
        for number in range(ROUNDS):
            time.sleep(random.uniform(0.2, 0.8))
            for function in functions:
                function.restart()
            if number % 7 == 6:
                deployment.restart()
        for sender in senders:
            sender.end()

        answered = [webhook for sender in senders for webhook in sender.answered]
        # A killed worker's lease expires first.
        status = [os.environ["SERIALIZER"], "status", f"--local=http://127.0.0.1:{web}"]
        for _ in range(240):
            shown = subprocess.run(status, capture_output=True, text=True, timeout=60, check=True).stdout
            if re.match(r"\d+ orders: 0 wait, 0 are tried again, 0 are blocked\. ", shown):
                break
            time.sleep(0.5)
        counted = counts(env_file)
        self.assertEqual(set(answered) - set(counted), set(), "none is lost")
        self.assertEqual({webhook: times for webhook, times in counted.items() if times != 1}, {}, "none counts twice")
        kills = sum(function.kills for function in functions)
        print(f"{len(answered)} counted once, beside {kills} kills of functions and {deployment.kills} of all else")

    def started(self, command, port, **env):
        process = Process(command, port, **env)
        self.addCleanup(process.kill)
        return process


if __name__ == "__main__":
    unittest.main()
