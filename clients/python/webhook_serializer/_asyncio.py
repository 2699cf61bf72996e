"""The same for asyncio. boto3's requests run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import wraps
from inspect import CO_ITERABLE_COROUTINE, iscoroutinefunction, isfunction, ismethod
from typing import TYPE_CHECKING, Any

from ._aws import Write
from ._jobs import JobCall, JobRun, JobTerms
from ._leases import LeaseBase, LeasesBase, SeenLease, T, Terms, check_work, pair, seen
from ._machine import Machine
from .errors import LeaseContended, LeaseError, LeaseInvalid

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack


class AsyncLease(LeaseBase):
    """A granted lease. At the end of its `async with` block, it is released."""

    async def extend(self) -> None:
        """Renews the lease for its full length."""
        await asyncio.wrap_future(self._machine.command({"do": "extend"}))

    async def release(self) -> None:
        """Releases the lease. Success proves that no other holder had it since it was granted."""
        await asyncio.wrap_future(self._machine.command({"do": "release"}))

    async def commit(self, writes: Sequence[Write]) -> None:
        """Makes at most 99 writes and releases the lease, all in one transaction; see `Lease.commit`."""
        await asyncio.wrap_future(self._commit(writes))

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases the lease unless that was done. Raises if the lease was lost, unless the block has raised."""
        try:
            if not (self._machine.is_over or self._machine.error):
                await self.release()
        except LeaseError:
            if not (self._machine.error or error):
                raise
        if self._machine.error:
            await asyncio.wrap_future(self._machine.ended)
            # The caller gets the block's error, which matters more.
            if error is None:
                raise self._machine.error


class _Acquiring:
    """What `acquire` returns: `async with` it, or await it."""

    def __init__(self, acquire: Callable[[], Awaitable[AsyncLease]]) -> None:
        self._acquire = acquire
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return self._acquire().__await__()

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None, "the block was entered"
        await self._lease.__aexit__(kind, error, trace)


class AsyncLeases(LeasesBase):
    """As `Leases`, for asyncio. boto3's requests run in threads, so none blocks the event loop."""

    def acquire(self, key: str, *, renew: bool = True, **terms: Unpack[Terms]) -> _Acquiring:
        """Acquires the lease of `key`, and renews it until it is released.

        Use it in an `async with` statement, which releases it. With `await` instead, call `release`.
        """
        return _Acquiring(lambda: self._acquire(key, renew, terms))

    async def run(self, key: str, work: Callable[[AsyncLease], Awaitable[T]], **terms: Unpack[Terms]) -> T:
        """Acquires the lease of `key`, runs `work`, and releases the lease.

        A result proves that no other holder had the lease meanwhile. If the lease is lost, this cancels `work`, and
        raises `LeaseLost`.
        """
        check_work(work)
        return await self._run(await self._acquire(key, True, terms), work)

    async def run_unless_held(
        self, key: str, work: Callable[[AsyncLease], Awaitable[T]], **terms: Unpack[Terms]
    ) -> T | None:
        """As `run`, but returns `None` at once if another holder has the lease, or if waiting deliveries go first."""
        check_work(work)
        terms["wait"] = 0
        try:
            lease = await self._acquire(key, True, terms)
        except LeaseContended:
            return None
        return await self._run(lease, work)

    async def commit(
        self, key: str, work: Callable[[AsyncLease], Awaitable[tuple[T, Sequence[Write]]]], **terms: Unpack[Terms]
    ) -> T:
        """As `run`, and makes the writes that `work` returns beside its value in one transaction with the release.

        Raises `NotCommitted` if a condition of the writes does not hold.
        """

        check_work(work)

        async def committed(lease: AsyncLease) -> T:
            value, writes = pair(await work(lease))
            await lease.commit(writes)
            return value

        return await self.run(key, committed, **terms)

    def once(
        self, name: str, **terms: Unpack[JobTerms]
    ) -> Callable[[Callable[[JobRun], Awaitable[T]]], Callable[[], Awaitable[list[T]]]]:
        """Makes an asynchronous function a job that runs once for each due tick; see `Leases.once`.

        If the lease is lost, this cancels the function, and the call raises `LeaseLost`. If the call is cancelled, the
        tick counts as crashed.
        """

        def decorated(work: Callable[[JobRun], Awaitable[T]]) -> Callable[[], Awaitable[list[T]]]:
            check_work(work)
            # Before a tick is recorded as failed.
            if _is_synchronous(work):
                told = f"{work.__qualname__} is not asynchronous: begin it with `async def`, or use Leases"
                raise LeaseInvalid(told)

            @wraps(work)
            async def call() -> list[T]:
                on_lost = terms.get("on_lost")
                job: JobCall[T] = JobCall(begin(_told_in_loop(on_lost)), name)
                try:
                    event = await asyncio.wrap_future(job.machine.begin())
                    while run := job.due(event):
                        try:
                            value = await _unless_lost(job.machine, work(run))
                            event = await asyncio.wrap_future(job.done(run, value))
                        except Exception as error:
                            event = await asyncio.wrap_future(job.failed(error))
                    return job.result()
                except BaseException:
                    # Such as CancelledError: the tick counts as crashed. Nothing is left to drop after other errors.
                    job.machine.drop()
                    raise

            return call

        begin = self._job(name, **terms)
        return decorated

    async def lookup(self, key: str) -> SeenLease:
        """Reads who has the lease of `key`."""
        return seen(await asyncio.wrap_future(self._look(key).begin()))

    async def _acquire(self, key: str, renew: bool, terms: Terms) -> AsyncLease:
        on_lost = _told_in_loop(terms.get("on_lost"))
        if on_lost is not None:
            terms = {**terms, "on_lost": on_lost}
        machine = self._request(key, renew=renew, **terms)
        try:
            return AsyncLease(machine, key, await asyncio.wrap_future(machine.begin()))
        except asyncio.CancelledError:
            machine.abandon()
            raise

    async def _run(self, lease: AsyncLease, work: Callable[[AsyncLease], Awaitable[T]]) -> T:
        async with lease:
            return await _unless_lost(lease._machine, work(lease))


def _is_synchronous(work: Any) -> bool:
    """Whether a function is known to return no awaitable. Only a call shows that of a lambda, or of what wraps others."""
    if not (isfunction(work) or ismethod(work)) or iscoroutinefunction(work) or hasattr(work, "__wrapped__"):
        return False
    return work.__name__ != "<lambda>" and not work.__code__.co_flags & CO_ITERABLE_COROUTINE


async def _unless_lost(machine: Machine, work: Awaitable[T]) -> T:
    """Awaits `work`. Cancels it if the lease is lost, and raises why."""
    if not isinstance(work, Awaitable):
        raise LeaseInvalid("the work is not asynchronous: begin it with `async def`, or use Leases")
    task: asyncio.Future[T] = asyncio.ensure_future(work)
    lost: asyncio.Future[Any] = asyncio.wrap_future(machine.lost)
    try:
        await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise lost.result()
    finally:
        lost.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _told_in_loop(on_lost: Callable[[LeaseError], None] | None) -> Callable[[LeaseError], None] | None:
    """Returns what tells `on_lost` in the event loop that runs now."""
    if on_lost is None:
        return None
    loop = asyncio.get_running_loop()
    return lambda error: _tell(loop, lambda: on_lost(error))


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # The loop is closed, and nobody is left to tell.
        pass
