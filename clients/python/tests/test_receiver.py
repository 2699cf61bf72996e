"""Signatures, settings and answers of receivers. tests/forward runs whole receivers, with the npm package's."""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time
import unittest

from webhook_serializer.receiver import Refused, answer_with, apply_once, commit, memory, verify

SECRET, FORMER = "whsec_d2FyZWhvdXNlLWRldmVsb3BtZW50LXNlY3JldA==", "whsec_Zm9ybWVyLWRldmVsb3BtZW50LXNlY3JldA=="
NOW = 1_800_000_000
NAMES = ("delivery-id", "source", "topic", "entity-key", "fencing-token", "sequence", "attempt", "age")
DELIVERY = {f"serializer-{name}": "1" for name in NAMES}


def signed(body, secret=SECRET, at=NOW):
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"1.{at}.".encode() + body, hashlib.sha256)).decode()
    return {"webhook-id": "1", "Webhook-Timestamp": str(at), "webhook-signature": f"v1a,x v1,x v1,{signature}"}


class TestVerify(unittest.TestCase):
    def refusal(self, *arguments):
        with self.assertRaises(Refused) as raised:
            verify(*arguments, now=NOW)
        return raised.exception.status, str(raised.exception)

    def test_signature_by_any_secret_is_accepted(self):
        verify(SECRET, signed(b"{}"), b"{}", now=NOW)
        verify([SECRET, FORMER], signed(b"{}", FORMER), b"{}", now=NOW + 300)

    def test_wrong_old_or_missing_signature_is_refused(self):
        unknown = (401, "no known secret makes this signature")
        self.assertEqual(self.refusal(SECRET, signed(b"{}", FORMER), b"{}"), unknown)
        self.assertEqual(self.refusal(SECRET, signed(b"{}"), b"{ }"), unknown)
        for at in (NOW - 301, NOW + 301):
            expected = (401, "signed too long ago, or in the future")
            self.assertEqual(self.refusal(SECRET, signed(b"{}", at=at), b"{}"), expected)
        self.assertEqual(self.refusal(SECRET, {}, b"{}"), (400, "there is no webhook-id"))
        for timestamp in ("x", "", "1" * 5000, "١"):
            self.assertEqual(self.refusal(SECRET, {**signed(b""), "Webhook-Timestamp": timestamp}, b"")[0], 401)

    def test_empty_secret_is_an_error(self):
        for secret in ("", "whsec_", "whsec_*", []):
            with self.assertRaises(ValueError):
                apply_once(lambda delivery, _: None, secret=secret, store=memory())


class TestReceiver(unittest.TestCase):
    def test_frameworks_and_drivers_are_imported_only_when_used(self):
        names = ("boto3", "botocore", "fastapi", "flask", "psycopg", "starlette")
        text = f"import sys, webhook_serializer.receiver\nprint([name for name in {names} if name in sys.modules])"
        printed = subprocess.run([sys.executable, "-c", text], capture_output=True, check=True, text=True).stdout
        self.assertEqual(printed, "[]\n")

    def test_asynchronous_functions_are_refused(self):
        async def apply(*_):
            pass

        with self.assertRaisesRegex(TypeError, "apply must be a plain function"):
            apply_once(apply, secret=SECRET, store=memory())
        with self.assertRaisesRegex(TypeError, "work must be a plain function"):
            answer_with(apply, secret=SECRET)
        # Of a lambda, only the result shows it.
        receiver = apply_once(lambda *both: apply(*both), secret=SECRET, store=memory())
        with self.assertLogs("webhook_serializer") as logs:
            reply = receiver.reply({**DELIVERY, **signed(b"{}", at=int(time.time()))}, b"{}")
        self.assertEqual(reply.status, 500)
        self.assertIn("apply must be a plain function", logs.output[0])

    def test_text_of_an_error_is_logged_and_not_sent(self):
        receiver = answer_with(lambda deliveries: {}["a password"], secret=SECRET)
        with self.assertLogs("webhook_serializer") as logs:
            reply = receiver.reply({**DELIVERY, **signed(b"{}", at=int(time.time()))}, b"{}")
        self.assertEqual((reply.status, reply.body), (500, "it failed"))
        self.assertIn("a password", logs.output[0])

    def test_bytes_of_a_commit_are_in_base64(self):
        put = {"Put": {"TableName": "totals", "Item": {"raw": {"B": b"\x00\xff"}, "all": {"BS": [b"a"]}}}}
        item = commit([put])["commit"][0]["Put"]["Item"]
        self.assertEqual(item, {"raw": {"B": "AP8="}, "all": {"BS": ["YQ=="]}})
        json.dumps(commit([put]))


if __name__ == "__main__":
    unittest.main()
