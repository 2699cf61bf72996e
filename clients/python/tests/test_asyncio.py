"""`AsyncLeases`, on the embedded DynamoDB of `serializer local`."""

import asyncio
import threading
import time
import unittest

from store import Proxy, environment, put, threads_end
from webhook_serializer import AsyncLeases, LeaseContended, LeaseInvalid, LeaseLost, LeaseOutOfTime, NotCommitted


class TestAsyncLeases(unittest.IsolatedAsyncioTestCase):
    def setUp(self):
        self.proxy = Proxy()
        self.addCleanup(self.proxy.end)
        self.key = f"test/{self.id().rpartition('.')[2]}"
        self.leases = AsyncLeases(table=environment()["ENTITIES_TABLE"], dynamodb=self.proxy.client())

    async def test_uncontended_lease_costs_two_requests(self):
        async with self.leases.acquire(self.key) as lease:
            self.assertGreater(lease.token, 0)
        self.assertEqual(self.proxy.requests, ["UpdateItem"] * 2)

    async def test_forms_run_commit_and_look(self):
        async def token(lease):
            return lease.token

        async def write(lease):
            return lease.token, [put(self.key)]

        first = await self.leases.run(self.key, token)
        self.assertGreater(await self.leases.commit(self.key, write), first)
        with self.assertRaises(NotCommitted):
            await self.leases.commit(self.key, write)
        lease = await self.leases.acquire(self.key, wait=0)
        self.assertTrue((await self.leases.lookup(self.key)).held)
        self.assertIsNone(await self.leases.run_unless_held(self.key, token))
        with self.assertRaises(LeaseContended):
            await self.leases.run(self.key, token, wait=0)
        await lease.extend()
        await lease.release()
        self.assertGreater(await self.leases.run_unless_held(self.key, token), lease.token)

    async def test_many_tasks_hold_a_lease_one_at_a_time(self):
        inside = 0
        tokens = []

        async def enter(lease):
            nonlocal inside
            inside += 1
            self.assertEqual(inside, 1)
            await asyncio.sleep(0.001)
            tokens.append(lease.token)
            inside -= 1

        await asyncio.gather(*(self.leases.run(self.key, enter) for _ in range(10)))
        self.assertEqual(len(tokens), 10)
        self.assertEqual(tokens, sorted(set(tokens)))

    async def test_lost_lease_cancels_work(self):
        ended = []

        async def work(lease):
            self.proxy.is_down = True
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(lease.is_lost)

        with self.assertRaises(LeaseLost):
            await self.leases.run(self.key, work, length=1)
        self.assertEqual(ended, [True])

    async def test_work_that_is_not_asynchronous_is_refused(self):
        with self.assertRaisesRegex(LeaseInvalid, "begin it with `async def`, or use Leases"):
            await self.leases.run(self.key, lambda lease: "ran")
        self.assertFalse((await self.leases.lookup(self.key)).held)

    async def test_on_lost_runs_in_the_event_loop(self):
        told = asyncio.Event()
        threads = []

        def on_lost(error):
            threads.append(threading.current_thread())
            told.set()

        with self.assertRaises(LeaseOutOfTime):
            async with self.leases.acquire(self.key, within=3, on_lost=on_lost):
                await told.wait()
        self.assertEqual(threads, [threading.current_thread()])
        await (await self.leases.acquire(self.key, wait=0)).release()

    async def test_blocked_event_loop_keeps_its_lease(self):
        async with self.leases.acquire(self.key, length=1):
            time.sleep(2.5)
            with self.assertRaises(LeaseContended):
                await self.leases.acquire(self.key, wait=0)

    async def test_cancelled_wait_sends_no_later_request(self):
        holder = await self.leases.acquire(self.key)
        waiter = asyncio.ensure_future(self.leases.run(self.key, asyncio.sleep, wait=60))
        while "GetItem" not in self.proxy.requests:
            await asyncio.sleep(0.01)
        waiter.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiter
        await holder.release()
        await (await self.leases.acquire(self.key)).release()
        self.assertTrue(threads_end(self.key))

    async def test_cancelled_work_releases_its_lease(self):
        started = asyncio.Event()

        async def work(lease):
            started.set()
            await asyncio.Event().wait()

        task = asyncio.ensure_future(self.leases.run(self.key, work))
        await started.wait()
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        await (await self.leases.acquire(self.key, wait=0)).release()


if __name__ == "__main__":
    unittest.main()
