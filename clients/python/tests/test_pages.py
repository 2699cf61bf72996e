"""The Python of docs/leases.md, docs/jobs.md and the package's README, run as it is printed."""

import contextlib
import http.client
import json
import re
import socket
import sys
import threading
import types
import unittest
import urllib.parse
from pathlib import Path
from unittest import mock

import uvicorn
from store import Program, client, environment
from webhook_serializer import Leases

ROOT = Path(__file__).parents[3]
NOWHERE = {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:1"}
INVOICE, CHECKOUT, FASTAPI = (0, 1, 2)


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def charge(body, token):
    return {"body": body, "token": token}


async def charge_async(body, token):
    return charge(body, token)


def text_of(answer):
    """Returns an answer's status and the text of its error."""
    status, body = answer
    (text,) = body.values()
    return status, text


def post(address, order, body):
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.request("POST", f"/checkout/{order}", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    content = json.load(answer)
    connection.close()
    return answer.status, content


class TestPages(unittest.TestCase):
    def setUp(self):
        self.patch("os.environ", environment())
        own = types.ModuleType("charge")
        own.charge, own.charge_async = charge, charge_async
        self.patch(sys.modules, {"charge": own})
        self.leases = Leases.from_env()

    def patch(self, mapping, more):
        patched = mock.patch.dict(mapping, more)
        patched.start()
        self.addCleanup(patched.stop)

    def printed(self, text):
        with Program(text) as program:
            return program.process.communicate()[0]

    def block(self, number):
        namespace = {}
        exec(compile(blocks("docs/leases.md")[number], "docs/leases.md", "exec"), namespace)
        return namespace

    def run_checkout(self, number, checkout):
        order = f"checkout-{number}"
        status, receipt = checkout(order, {"amount": 1})
        self.assertEqual((status, receipt["body"]), (200, {"amount": 1}))
        with self.leases.acquire(f"shop/order/{order}") as lease:
            self.assertGreater(lease.token, receipt["token"])
            with self.assertLogs(level="WARNING") as logged:
                self.assertEqual(text_of(checkout(order, {})), (409, "the order is being changed: try again"))
        self.assertIn(f"shop/order/{order} is held by ", logged.output[0])
        self.assertEqual(text_of(checkout("%07", {})), (400, "this is not an order"))

    def run_cut_off_checkout(self, checkout):
        with self.assertLogs(level="WARNING") as logged:
            self.assertEqual(text_of(checkout("checkout", {})), (503, "try again later"))
        self.assertIn("DynamoDB did not answer", logged.output[0])

    @contextlib.contextmanager
    def served(self, app):
        """Serves `app`. Yields its address."""
        listener = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(20)

    def test_each_block_is_known(self):
        self.assertEqual(len(blocks("docs/leases.md")), 3)
        self.assertEqual(len(blocks("clients/python/README.md")), 1)
        self.assertEqual(len(blocks("docs/jobs.md")), 1)

    def test_report_runs_once_for_its_tick(self):
        (report,) = blocks("docs/jobs.md")
        line = self.printed(report).strip()
        self.assertRegex(line, r"^\['the report of \d\d:\d\d, under token \d+'\]$")
        row = client("dynamodb").get_item(TableName="totals", Key={"order": {"S": "report"}})["Item"]
        self.assertIn(row["total"]["S"], line)
        # A minute may begin between the calls.
        again = [self.printed(report).strip() for _ in range(3)]
        self.assertGreaterEqual(again.count("[]"), 2)

    def test_invoice_is_drawn_up_or_skipped(self):
        invoice = blocks("docs/leases.md")[INVOICE]
        self.assertTrue(self.printed(invoice).startswith("drawn up under token "))
        with self.leases.acquire("invoice_gen/SUB-1234"):
            self.assertEqual(self.printed(invoice), "skipped: another run holds the lease\n")

    def test_readme_writes_the_total(self):
        (block,) = blocks("clients/python/README.md")
        total = self.printed(block).strip()
        row = client("dynamodb").get_item(TableName="totals", Key={"order": {"S": "shop/order/7"}})["Item"]
        self.assertEqual(row["total"], {"S": total})

    def test_checkout_charges_or_says_why_not(self):
        checkout = self.block(CHECKOUT)["checkout"]
        self.run_checkout(CHECKOUT, lambda order, body: checkout(urllib.parse.unquote(order), body))
        self.patch("os.environ", NOWHERE)
        self.run_cut_off_checkout(self.block(CHECKOUT)["checkout"])

    def test_fastapi_endpoint_does_the_same(self):
        with self.served(self.block(FASTAPI)["app"]) as address:
            self.run_checkout(FASTAPI, lambda order, body: post(address, order, body))
        self.patch("os.environ", NOWHERE)
        with self.served(self.block(FASTAPI)["app"]) as address:
            self.run_cut_off_checkout(lambda order, body: post(address, order, body))

    def test_fastapi_endpoint_charges_nobody_who_has_left(self):
        charged, begun, ended = [], threading.Event(), threading.Event()

        async def note(body, token):
            charged.append(body)

        self.patch(vars(sys.modules["charge"]), {"charge_async": note})
        app = self.block(FASTAPI)["app"]

        async def noting(scope, receive, send):
            begun.set()
            await app(scope, receive, send)
            if scope["type"] == "http":
                ended.set()

        with self.served(noting) as address, self.leases.acquire("shop/order/left") as lease:
            begun.clear()
            connection = http.client.HTTPConnection(*address)
            connection.request("POST", "/checkout/left", "{}", {"content-type": "application/json"})
            begun.wait(20)
            connection.close()
            lease.release()
            self.assertTrue(ended.wait(20))
        self.assertEqual(charged, [])


if __name__ == "__main__":
    unittest.main()
