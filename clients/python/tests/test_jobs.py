"""Jobs as a program uses them. tests/clients has the cases of all languages."""

import asyncio
import signal
import threading
import unittest
from datetime import datetime, timezone
from functools import partial, wraps

from store import Program, client, environment, put
from webhook_serializer import AsyncLeases, LeaseInvalid, Leases, NotCommitted

JOB = """
import sys
from webhook_serializer import Leases

@Leases.from_env().once(sys.argv[1], schedule="* * * * *")
def report(run):
    print(run.token, flush=True)
    input()

report()
"""


class TestJobs(unittest.TestCase):
    def setUp(self):
        env = environment()
        given = {"table": env["ENTITIES_TABLE"], "inbox_table": env["INBOX_TABLE"], "dynamodb": client("dynamodb")}
        self.leases, self.async_leases = Leases(**given), AsyncLeases(**given)
        self.job = self.id().rpartition(".")[2]

    def starts(self):
        key = {"entity": {"S": f"cron/{self.job}"}}
        row = client("dynamodb").get_item(TableName=environment()["ENTITIES_TABLE"], Key=key)["Item"]
        return int(row["starts"]["N"]) if "starts" in row else 0

    def test_decorated_function_keeps_its_name_and_returns_values(self):
        @self.leases.once(self.job, schedule="every minute")
        def report(run):
            """Draws up the report."""
            self.assertLess(run.tick, datetime.now(timezone.utc))
            self.assertFalse(run.is_lost)
            return run.job

        self.assertEqual((report.__name__, report.__doc__), ("report", "Draws up the report."))
        self.assertEqual(report(), [self.job])

    def test_mistakes_are_named_where_the_function_is_defined(self):
        for text, name, terms in (
            ("a job's name is 1 to", "Report", {"schedule": "every minute"}),
            ("is never due", "report", {"schedule": "0 0 30 2 *"}),
            ("is not a time zone of the IANA database", "report", {"schedule": "0 3 * * *", "zone": "Berlin"}),
            ("unknown variant", "report", {"schedule": "0 3 * * *", "on_crash": "never"}),
        ):
            for leases in (self.leases, self.async_leases):
                with self.assertRaises(LeaseInvalid) as caught:
                    leases.once(name, **terms)
                self.assertIn(text, str(caught.exception))

        async def work(run):
            self.fail("nobody awaits it")

        with self.assertRaisesRegex(LeaseInvalid, "work is asynchronous: use AsyncLeases"):
            self.leases.once(self.job, schedule="every minute")(work)
        with self.assertRaisesRegex(LeaseInvalid, "fail is not asynchronous: begin it with `async def`"):
            self.async_leases.once(self.job, schedule="every minute")(self.fail)

        @wraps(self.fail)
        async def wrapper(run):
            self.fail("nobody awaits it")

        self.async_leases.once(self.job, schedule="every minute")(wrapper)
        self.async_leases.once(self.job, schedule="every minute")(lambda run: work(run))
        with self.assertRaisesRegex(LeaseInvalid, "is asynchronous: use AsyncLeases"):
            self.leases.once(self.job, schedule="every minute")(partial(work))

        def generator(run):
            yield self.fail("its body would not run")

        for leases in (self.leases, self.async_leases):
            with self.assertRaisesRegex(LeaseInvalid, "generator is a generator, whose body would not run"):
                leases.once(self.job, schedule="every minute")(generator)
        for leases in (self.leases, self.async_leases):
            with self.assertRaisesRegex(LeaseInvalid, "the work is None, and must be a function"):
                leases.once(self.job, schedule="every minute")(None)
        without = Leases(table="entities", dynamodb=client("dynamodb"))
        with self.assertRaisesRegex(LeaseInvalid, "set INBOX_TABLE"):
            without.once("report", schedule="every minute")

    def test_misspelt_term_is_named(self):
        for leases in (self.leases, self.async_leases):
            with self.assertRaisesRegex(TypeError, "'on_crsh'"):
                leases.once(self.job, schedule="every minute", on_crsh="skip")

    def test_refused_writes_fail_the_tick(self):
        put_before = put(self.job)["Put"]
        client("dynamodb").put_item(TableName=put_before["TableName"], Item=put_before["Item"])

        @self.leases.once(self.job, schedule="every minute")
        def report(run):
            run.commit([put(self.job)])

        with self.assertRaises(NotCommitted) as caught:
            report()
        self.assertEqual(caught.exception.refused, [0])
        self.assertEqual(self.starts(), 0)

    def test_malformed_write_or_own_table_fails_the_tick(self):
        own = {"Delete": {"TableName": environment()["INBOX_TABLE"], "Key": {"entity": {"S": "a/b"}}}}
        for number, writes in enumerate([[{"Put": {}}], [own]]):
            with self.assertRaises(LeaseInvalid):
                self.leases.once(f"{self.job}{number}", schedule="every minute")(lambda run: run.commit(writes))()

    def test_interrupted_run_counts_as_crashed(self):
        main = threading.main_thread().ident
        # A process in the background of a shell ignores SIGINT.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, before)

        @self.leases.once(self.job, schedule="every minute")
        def report(run):
            signal.pthread_kill(main, signal.SIGINT)
            threading.Event().wait(10)

        with self.assertRaises(KeyboardInterrupt):
            report()
        self.assertEqual(self.starts(), 1)

    def test_killed_process_leaves_its_tick_to_others(self):
        with Program(JOB, self.job) as program:
            self.assertGreater(int(program.line()), 0)
        self.assertEqual(self.starts(), 1)
        self.assertEqual(self.leases.once(self.job, schedule="* * * * *")(lambda run: run.tick)(), [])

    def test_cancelled_task_counts_as_crashed(self):
        async def main():
            begun = asyncio.Event()

            @self.async_leases.once(self.job, schedule="every minute")
            async def report(run):
                begun.set()
                await asyncio.sleep(60)

            task = asyncio.ensure_future(report())
            await begun.wait()
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        self.assertEqual(self.starts(), 1)

    def test_error_of_the_function_is_raised_after_its_record(self):
        async def failing(run):
            raise KeyError("no paper \ud83d")

        with self.assertRaises(KeyError):
            asyncio.run(self.async_leases.once(self.job, schedule="every minute")(failing)())
        self.assertEqual(self.starts(), 0)

    def test_error_without_a_text_fails_the_tick(self):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no text")

        @self.leases.once(self.job, schedule="every minute")
        def report(run):
            raise Mute

        with self.assertRaises(Mute):
            report()
        self.assertEqual(self.starts(), 0)
        self.assertFalse(self.leases.lookup(f"cron/{self.job}").held)


if __name__ == "__main__":
    unittest.main()
