"""A store for the tests: `serializer local`, and a proxy in front of it that drops connections."""

import atexit
import functools
import http.client
import os
import subprocess
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from botocore.config import Config

CONFIG = Config(connect_timeout=1, read_timeout=1, retries={"total_max_attempts": 1})


@functools.cache
def environment():
    """Starts `serializer local`, once. Returns the variables that programs need."""
    command = [os.environ["SERIALIZER"], "local", "--no-functions", "--port", "0", "--console-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def end():
        process.terminate()
        process.communicate()

    atexit.register(end)
    env = {}
    for line in process.stdout:
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").strip().partition("=")
            env[name] = value
        if line.startswith("Ctrl-C stops"):
            # Whatever it prints later must not fill the pipe.
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return env
    raise RuntimeError("serializer local did not start")


def client(service, endpoint=None):
    """Returns a boto3 client as `Leases` takes it."""
    env = environment()
    return boto3.client(
        service,
        endpoint_url=endpoint or env[f"AWS_ENDPOINT_URL_{service.upper()}"],
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=CONFIG,
    )


def put(order):
    """Returns a write that lands once for `order`."""
    return {
        "Put": {
            "TableName": environment()["TOTALS_TABLE"],
            "Item": {"order": {"S": order}},
            "ConditionExpression": "attribute_not_exists(#o)",
            "ExpressionAttributeNames": {"#o": "order"},
        }
    }


def threads_end(key):
    """Waits for the threads of the lease of `key`. Returns whether all have ended."""
    threads = [thread for thread in threading.enumerate() if key in thread.name]
    for thread in threads:
        thread.join(20)
    return not any(thread.is_alive() for thread in threads)


class Proxy(ThreadingHTTPServer):
    """Passes requests on to the store, until it is `down`."""

    daemon_threads = True

    def __init__(self):
        self.store = urllib.parse.urlparse(environment()["AWS_ENDPOINT_URL_DYNAMODB"]).netloc
        self.is_down = False
        #: The operations requested.
        self.requests = []
        #: Called with each operation before and after it is passed on.
        self.arrived = lambda operation: None
        self.passed = lambda operation: None
        super().__init__(("127.0.0.1", 0), _Passing)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def client(self):
        return client("dynamodb", f"http://127.0.0.1:{self.server_port}")

    def end(self):
        self.shutdown()
        self.server_close()


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        operation = self.headers["x-amz-target"].split(".")[1]
        self.server.requests.append(operation)
        if self.server.is_down:
            self.close_connection = True
            return
        self.server.arrived(operation)
        store = http.client.HTTPConnection(self.server.store, timeout=10)
        given = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        store.request("POST", "/", body, given)
        answer = store.getresponse()
        content = answer.read()
        store.close()
        self.server.passed(operation)
        self.send_response_only(answer.status)
        for name in ("content-type", "date"):
            self.send_header(name, answer.headers[name])
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        try:
            self.wfile.write(content)
        except BrokenPipeError:
            # The client waits no longer.
            self.close_connection = True

    def log_message(self, *_):
        pass


class Program:
    """A Python program of its own, which uses the local store. It is killed at the end of its `with` block."""

    def __init__(self, text, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            env={**os.environ, **environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self):
        return self.process.stdout.readline().rstrip("\n")

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()
