"""Leases as a program uses them, on the embedded DynamoDB of `serializer local`."""

import copy
import os
import pickle
import signal
import threading
import time
import unittest
import warnings
from datetime import datetime, timezone
from unittest import mock

import boto3
from botocore.config import Config
from store import CONFIG, Program, Proxy, client, environment, put, threads_end
from webhook_serializer import (
    LeaseContended,
    LeaseError,
    LeaseInvalid,
    LeaseKeyInvalid,
    LeaseLost,
    LeaseOutOfTime,
    LeaseRefused,
    Leases,
    LeaseUnreachable,
    NotCommitted,
)


class Local(unittest.TestCase):
    def setUp(self):
        self.proxy = Proxy()
        self.addCleanup(self.proxy.end)
        self.key = f"test/{self.id().rpartition('.')[2]}"
        self.leases = self.make()
        self.others = self.make()

    def make(self, dynamodb=None, **more):
        env = environment()
        given = dynamodb or self.proxy.client()
        return Leases(table=env["ENTITIES_TABLE"], queue_url=env["QUEUE_URL"], dynamodb=given, sqs=client("sqs"), **more)

    def total(self):
        key = {"order": {"S": self.key}}
        return client("dynamodb").get_item(TableName=environment()["TOTALS_TABLE"], Key=key).get("Item")

    def assert_invalid(self, text, call, *arguments, **more):
        with self.assertRaises(LeaseInvalid) as caught:
            call(*arguments, **more)
        self.assertIn(text, str(caught.exception))
        # Only a key can be the fault of whoever calls the program.
        self.assertNotIsInstance(caught.exception, LeaseKeyInvalid)


class TestForms(Local):
    def test_uncontended_lease_costs_two_requests(self):
        with self.leases.acquire(self.key) as lease:
            self.assertGreater(lease.token, 0)
        self.assertEqual(self.proxy.requests, ["UpdateItem"] * 2)
        self.leases.commit(self.key, lambda lease: (None, [put(self.key)]))
        self.assertEqual(self.proxy.requests[2:], ["UpdateItem", "TransactWriteItems"])

    def test_contended_lease_names_holder_and_end(self):
        holders = self.make(holder="the checkout")
        with holders.acquire(self.key) as lease:
            with self.assertRaises(LeaseContended) as caught:
                self.leases.acquire(self.key, wait=0)
            seen = self.leases.lookup(self.key)
            self.assertIsNone(self.leases.run_unless_held(self.key, lambda lease: "ran"))
        self.assertEqual((caught.exception.by, seen.by, seen.kind), ("the checkout", "the checkout", "exclusive"))
        self.assertEqual((seen.held, seen.token, seen.waiting), (True, lease.token, 0))
        self.assertEqual(caught.exception.until, seen.until)
        self.assertGreater(seen.until, datetime.now(timezone.utc))
        self.assertFalse(self.leases.lookup(self.key).held)
        self.assertEqual(self.leases.run_unless_held(self.key, lambda lease: "ran"), "ran")

    def test_waiter_is_granted_after_release(self):
        lease = self.others.acquire(self.key)
        granted = []
        waiter = threading.Thread(target=lambda: granted.append(self.leases.run(self.key, lambda lease: lease.token)))
        waiter.start()
        while self.leases.lookup(self.key).held and "GetItem" not in self.proxy.requests:
            pass
        lease.release()
        waiter.join()
        self.assertGreater(granted[0], lease.token)

    def test_committed_writes_land_once(self):
        self.assertEqual(self.leases.commit(self.key, lambda lease: ("value", [put(self.key)])), "value")
        with self.assertRaises(NotCommitted) as caught:
            self.leases.commit(self.key, lambda lease: (None, [put(f"{self.key}-2"), put(self.key)]))
        self.assertEqual(caught.exception.refused, [1])
        with self.leases.acquire(self.key, wait=0) as lease:
            with self.assertRaises(NotCommitted):
                lease.commit([put(self.key)])
            self.assertFalse(lease.is_lost)
            lease.commit([put(f"{self.key}-2")])
        self.assert_invalid("was released before", lease.extend)

    def test_error_of_work_is_raised_after_release(self):
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            self.leases.run(self.key, lambda lease: 1 // 0)
        self.leases.acquire(self.key, wait=0).release()

    def test_commands_of_several_threads_run_in_turn(self):
        with self.leases.acquire(self.key) as lease:
            threads = [threading.Thread(target=lease.extend) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(self.proxy.requests, ["UpdateItem"] * 10)


class TestEnds(Local):
    def test_lease_is_renewed_while_work_runs(self):
        with self.leases.acquire(self.key, length=1) as lease:
            time.sleep(2.5)
            with self.assertRaises(LeaseContended):
                self.others.acquire(self.key, wait=0)
            self.assertFalse(lease.is_lost)

    def test_forgotten_lease_expires(self):
        lease = self.leases.acquire(self.key, length=1)
        del lease
        self.others.acquire(self.key, wait=20).release()

    def test_unreachable_store_ends_lease_and_calls_on_lost(self):
        told = threading.Event()
        errors = []

        def on_lost(error):
            errors.append(error)
            told.set()

        with self.assertRaises(LeaseLost), self.leases.acquire(self.key, length=1, on_lost=on_lost) as lease:
            self.proxy.is_down = True
            self.assertTrue(told.wait(20))
            self.assertTrue(lease.is_lost)
            with self.assertRaises(LeaseLost):
                lease.extend()
        self.assertIsInstance(errors[0], LeaseLost)
        self.assertEqual(len(errors), 1)
        with self.assertRaises(LeaseUnreachable):
            self.leases.acquire(self.key, wait=0)

    def test_past_time_grants_nothing(self):
        with self.assertRaises(LeaseOutOfTime):
            self.leases.acquire(self.key, within=-1)

    def test_lease_out_of_time_is_released_before_its_block_ends(self):
        def delay(operation):
            if self.proxy.requests.count("UpdateItem") == 2:
                time.sleep(0.5)

        with self.assertRaises(LeaseOutOfTime), self.leases.acquire(self.key, within=3) as lease:
            self.proxy.arrived = delay
            while not lease.is_lost:
                time.sleep(0.01)
            with self.assertRaises(LeaseOutOfTime):
                lease.commit([put(self.key)])
        self.others.acquire(self.key, wait=0).release()

    def test_release_out_of_time_does_not_wait_for_on_lost(self):
        released, told, seen = threading.Event(), threading.Event(), []
        self.proxy.passed = lambda operation: self.proxy.requests.count("UpdateItem") == 2 and released.set()

        def on_lost(error):
            seen.append(released.wait(10))
            told.set()
            raise ValueError("a failing callback changes nothing")

        with self.assertLogs("webhook_serializer"), self.assertRaises(LeaseOutOfTime):
            with self.leases.acquire(self.key, within=3, on_lost=on_lost):
                self.assertTrue(told.wait(20))
                self.assertTrue(threads_end("on_lost"))
        self.assertEqual(seen, [True])

    def test_failed_wake_up_is_logged_and_the_release_succeeds(self):
        env = environment()
        queue = client("sqs", "http://127.0.0.1:1")
        given = {"queue_url": env["QUEUE_URL"], "dynamodb": self.proxy.client(), "sqs": queue}
        leases = Leases(table=env["ENTITIES_TABLE"], **given)
        with self.assertLogs("webhook_serializer", "WARNING") as logged, leases.acquire(self.key):
            client("dynamodb").update_item(
                TableName=env["ENTITIES_TABLE"],
                Key={"entity": {"S": self.key}},
                UpdateExpression="ADD tail :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )
        self.assertIn(f"the lease of {self.key} was released, but no wake-up could be sent", logged.output[0])
        self.assertFalse(leases.lookup(self.key).held)

    def test_acquire_that_lands_after_its_error_is_released(self):
        def land_late(operation):
            self.proxy.passed = lambda operation: None
            time.sleep(2)

        self.proxy.passed = land_late
        with self.assertRaises(LeaseUnreachable):
            self.leases.acquire(self.key, wait=0)
        self.others.acquire(self.key, wait=8, length=10).release()

    def test_missing_region_is_named(self):
        with mock.patch.dict("os.environ", {"AWS_CONFIG_FILE": "/dev/null"}):
            for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
                os.environ.pop(name, None)
            self.assert_invalid("the dynamodb client has no region: set AWS_REGION", Leases, table="entities")

    def test_interrupted_wait_sends_no_later_request(self):
        with self.others.acquire(self.key):
            self.proxy.passed = lambda operation: operation == "GetItem" and interrupt()
            main = threading.main_thread().ident

            def interrupt():
                self.proxy.passed = lambda operation: None
                signal.pthread_kill(main, signal.SIGINT)

            with self.assertRaises(KeyboardInterrupt):
                self.leases.acquire(self.key, wait=60)
        self.leases.acquire(self.key).release()
        self.assertTrue(threads_end(self.key))

    def test_fork_has_no_lease(self):
        with self.leases.acquire(self.key) as lease:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                try:
                    with lease:
                        pass
                except LeaseInvalid:
                    os._exit(int(not lease.is_lost))
                finally:
                    os._exit(2)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def frozen(self, work):
        """Runs `work` in a process that is frozen for longer than its lease. Returns what it prints."""
        program = f"""
import os, sys
from webhook_serializer import *
leases = Leases.from_env()
def work(lease):
    print("held", lease.token, flush=True)
    sys.stdin.readline()
    return {work}
try:
    leases.{"commit" if "put" in work else "run"}(sys.argv[1], work, length=1)
    print("success", flush=True)
except LeaseError as error:
    print(type(error).__name__, error, flush=True)
"""
        with Program(program.replace("put", repr(put(self.key))), self.key) as holder:
            held, token = holder.line().split()
            self.assertEqual(held, "held")
            holder.process.send_signal(signal.SIGSTOP)
            with self.leases.acquire(self.key, wait=20) as lease:
                self.assertGreater(lease.token, int(token))
                holder.go_on()
                holder.process.send_signal(signal.SIGCONT)
                return holder.line()

    def test_frozen_process_learns_that_its_lease_is_lost(self):
        self.assertTrue(self.frozen("None").startswith(f"LeaseLost the lease of {self.key} was lost"))

    def test_frozen_process_commits_nothing(self):
        self.assertTrue(self.frozen("None, [put]").startswith("LeaseLost"))
        self.assertIsNone(self.total())

    def test_lease_of_killed_process_is_taken_over(self):
        program = """
import signal, sys
from webhook_serializer import Leases
lease = Leases.from_env().acquire(sys.argv[1], length=1)
print(lease.token, flush=True)
signal.pause()
"""
        with Program(program, self.key) as holder:
            token = int(holder.line())
            holder.process.kill()
            with self.leases.acquire(self.key, wait=20) as lease:
                self.assertGreater(lease.token, token)

    def test_process_with_forgotten_lease_ends(self):
        program = """
import sys
from webhook_serializer import Leases
lease = Leases.from_env().acquire(sys.argv[1])
"""
        with Program(program, self.key) as holder:
            self.assertEqual(holder.process.wait(), 0)


class TestRefusals(Local):
    def test_invalid_keys_terms_and_settings_are_named(self):
        for form in (self.leases.acquire, self.leases.lookup):
            with self.assertRaisesRegex(LeaseKeyInvalid, "a key is a namespace and a name joined by '/'"):
                form("order")
        for text, key, terms in [
            ("a lease lasts from 1 s to 15 min, not 999 ms", self.key, {"length": 0.9995}),
            ("a lease lasts from 1 s to 15 min, not 15000000 ms", self.key, {"length": 15_000}),
            ("wait: -1 is not a time in seconds", self.key, {"wait": -1}),
            ("wait: nan is not a time in seconds", self.key, {"wait": float("nan")}),
            ("wait: None is not a time in seconds", self.key, {"wait": None}),
            ("within: '3' is not a time in seconds", self.key, {"within": "3"}),
        ]:
            self.assert_invalid(text, self.leases.acquire, key, **terms)
        self.assert_invalid("ENTITIES_TABLE: is not set", Leases.from_env, {})
        queue = {"ENTITIES_TABLE": "entities", "QUEUE_URL": "nonsense"}
        self.assert_invalid('"nonsense" is not the URL of a queue: set QUEUE_URL', Leases.from_env, queue)
        with mock.patch.dict("os.environ", {**environment(), "RETENTION_DAYS": "", "QUEUE_URL": ""}):
            self.assertFalse(Leases.from_env().lookup(self.key).held)
        days = {"ENTITIES_TABLE": "entities", "RETENTION_DAYS": "x"}
        self.assert_invalid('RETENTION_DAYS: "x" is not a whole number', Leases.from_env, days)
        self.assert_invalid("the retention of 0 days", Leases.from_env, {**days, "RETENTION_DAYS": "0"})
        self.assert_invalid("the name of the entities table is not given", Leases, table="", dynamodb=client("dynamodb"))
        self.assertEqual(self.proxy.requests, [])

    def test_asynchronous_work_is_refused(self):
        async def work(lease):
            self.fail("it would run after the release")

        for form in (self.leases.run, self.leases.run_unless_held, self.leases.commit):
            self.assert_invalid("work is asynchronous, and has not run: use AsyncLeases", form, self.key, work)
        self.assertFalse(self.leases.lookup(self.key).held)

    def test_work_that_is_no_function_takes_no_lease(self):
        for form in (self.leases.run, self.leases.run_unless_held, self.leases.commit):
            self.assert_invalid("the work is None, and must be a function", form, self.key, None)
        self.assertEqual(self.proxy.requests, [])

    def test_empty_key_or_half_character_is_refused(self):
        for key in ("", "order/\ud83d"):
            with self.assertRaises(LeaseKeyInvalid):
                self.leases.run(key, lambda _: None)

    def test_commit_names_what_its_work_must_return(self):
        for returned, text in (("a text", "not a pair (value, writes)"), ((1, None), "the writes are None, not a list")):
            self.assert_invalid(text, self.leases.commit, self.key, lambda _, returned=returned: returned)
        self.assertFalse(self.leases.lookup(self.key).held)

    def test_clients_that_retry_or_wait_long_are_refused(self):
        self.assert_invalid("the dynamodb client retries by itself", self.make, boto3.client("dynamodb", "us-east-1"))
        self.assert_invalid("give a client, as boto3.client('dynamodb') returns", self.make, client("sqs"))
        resource = boto3.resource("dynamodb", "us-east-1")
        self.assert_invalid("give a client", self.make, resource)
        slow = CONFIG.merge(Config(read_timeout=3))
        leases = self.make(boto3.client("dynamodb", "us-east-1", config=slow))
        text = "the dynamodb client waits 3 s for an answer, longer than a third of the lease of 8 s: create"
        self.assert_invalid(text, leases.acquire, self.key, length=8)

    def test_invalid_writes_are_named_and_keep_the_lease(self):
        with self.leases.acquire(self.key) as lease:
            own = {"Delete": {"TableName": environment()["ENTITIES_TABLE"], "Key": {"entity": {"S": "a/b"}}}}
            self.assert_invalid("write 1 is to entities, the serializer's own table", lease.commit, [put("a"), own])
            self.assert_invalid("at most 99 writes, not 100", lease.commit, [put("a")] * 100)
            half = {"Put": {"TableName": "totals\ud83d", "Item": {}}}
            for write in ({}, {"Put": {}}, "Put", {**put("a"), **own}, half):
                self.assert_invalid("write 0 is not of the form", lease.commit, [write])
            self.assertFalse(lease.is_lost)

    def test_write_that_boto3_refuses_is_not_repeated(self):
        misspelt = copy.deepcopy(put(self.key))
        misspelt["Put"]["Itme"] = misspelt["Put"].pop("Item")
        with self.assertRaises(LeaseRefused) as caught:
            self.leases.commit(self.key, lambda lease: (None, [misspelt]))
        self.assertEqual(caught.exception.reason, "refused")
        self.assertIn("Itme", str(caught.exception))
        self.assertNotIn("TransactWriteItems", self.proxy.requests)

    def test_missing_table_and_newer_row_are_refused(self):
        leases = Leases(table="nowhere", dynamodb=client("dynamodb"))
        with self.assertRaisesRegex(LeaseRefused, "nowhere.* does not exist") as caught:
            leases.acquire(self.key, wait=0)
        self.assertEqual(caught.exception.reason, "missing_table")
        other = Leases(table=environment()["TOTALS_TABLE"], dynamodb=client("dynamodb"))
        with self.assertRaisesRegex(LeaseRefused, "totals.* has another key .*: check its name"):
            other.lookup(self.key)

        self.leases.acquire(self.key).release()
        client("dynamodb").update_item(
            TableName=environment()["ENTITIES_TABLE"],
            Key={"entity": {"S": self.key}},
            UpdateExpression="SET #v = :v",
            ExpressionAttributeNames={"#v": "v"},
            ExpressionAttributeValues={":v": {"N": "99"}},
        )
        with self.assertRaisesRegex(LeaseRefused, "format 99.*: update this package") as caught:
            self.leases.acquire(self.key, wait=0)
        self.assertEqual(caught.exception.reason, "unreadable_row")

    def test_missing_credentials_are_named(self):
        program = """
from webhook_serializer import *
try:
    Leases.from_env().acquire("test/credentials", wait=0)
except LeaseRefused as error:
    print(error.reason, error)
"""
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        kept = {name: environment().pop(name) for name in names}
        self.addCleanup(environment().update, kept)
        environment()["AWS_EC2_METADATA_DISABLED"] = "true"
        with Program(program) as holder:
            self.assertRegex(holder.line(), "denied NoCredentialsError: .*: set AWS_ACCESS_KEY_ID")

    def test_errors_can_be_pickled(self):
        until = datetime.now(timezone.utc)
        for error in (
            LeaseContended("held", "a worker", until),
            LeaseRefused("no", "denied"),
            NotCommitted("no", [1]),
            LeaseLost("lost"),
        ):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), vars(again)), (type(error), str(error), vars(error)))
            self.assertIsInstance(again, LeaseError)


if __name__ == "__main__":
    unittest.main()
