"""What the synchronous and the asynchronous leases share, and the synchronous ones."""

from __future__ import annotations

import json
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from functools import wraps
from types import CoroutineType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from . import _core
from ._aws import Aws, Write, tables_of
from ._jobs import JobCall, JobRun, JobTerms
from ._machine import Event, Machine, log
from .errors import LeaseContended, LeaseError, LeaseInvalid, LeaseKeyInvalid, time_of

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self, Unpack

T = TypeVar("T")


class Terms(TypedDict, total=False):
    """How long a lease lasts, and how long to wait for it, in seconds."""

    length: float
    """The length of the lease, from 1 s to 15 min. It is renewed each time a third has passed. Default: 15."""
    wait: float
    """How long to wait for a lease that another holder has. 0 does not wait. Default: 30."""
    within: float | None
    """The caller's remaining time, such as `context.get_remaining_time_in_millis() / 1000`. It limits wait and lease."""
    on_lost: Callable[[LeaseError], None]
    """Called if the lease ends early: by a thread of its own; with asyncio, by the event loop."""


class SeenLease(NamedTuple):
    """What `lookup` has read. Only the condition of a write proves who has a lease."""

    held: bool
    by: str | None
    #: `exclusive`, or `drain` for a worker.
    kind: str | None
    #: When the lease expires unless it is renewed.
    until: datetime | None
    token: int | None
    #: The number of deliveries that wait.
    waiting: int


class LeasesBase:
    """A connection to a table of leases."""

    def __init__(
        self,
        *,
        table: str,
        inbox_table: str | None = None,
        queue_url: str | None = None,
        dynamodb: Any = None,
        sqs: Any = None,
        holder: str | None = None,
        retention_days: int = 30,
    ) -> None:
        """Connects to the entities table.

        Only jobs need `inbox_table`. With `queue_url`, a release wakes a worker if deliveries wait. `dynamodb` and
        `sqs` are boto3 clients. Without them, boto3 reads region, credentials and endpoints from the environment.
        `holder` is what operators see, cut to 60 bytes; by default the name of the program. `retention_days` must
        equal the deployment's retention.
        """
        settings = {
            "table": table,
            "inboxTable": inbox_table,
            "queueUrl": queue_url,
            "holder": _program() if holder is None else holder,
            "retentionDays": retention_days,
        }
        self._settings = json.dumps(settings)
        self._given = (dynamodb, sqs, queue_url)
        self._connect()

    def _connect(self) -> None:
        self._process = os.getpid()
        try:
            self._core = _core.Client(self._settings)
        except ValueError as error:
            raise LeaseInvalid(str(error)) from None
        self._aws = Aws(*self._given)

    def _machine(self, start: dict[str, Any]) -> Machine:
        # A forked process must not share its parent's connections.
        if self._process != os.getpid():
            self._connect()
        return Machine(self._core, self._aws.send, start)

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> Self:
        """Connects to the table that `ENTITIES_TABLE` names.

        Also reads `INBOX_TABLE`, `QUEUE_URL` and `RETENTION_DAYS`.
        """
        table = env.get("ENTITIES_TABLE")
        if not table:
            raise LeaseInvalid(
                "ENTITIES_TABLE: is not set (the deployment's output EntitiesTable has the name; on this machine "
                "`serializer local --env-file` writes it to a file)"
            )
        days = env.get("RETENTION_DAYS") or "30"
        if not days.isdecimal():
            raise LeaseInvalid(f'RETENTION_DAYS: "{days}" is not a whole number from 1 to 3650')
        function = env.get("AWS_LAMBDA_FUNCTION_NAME")
        holder = f"{function} {env.get('AWS_LAMBDA_LOG_STREAM_NAME', '')}".strip() if function else None
        inbox_table, queue_url = env.get("INBOX_TABLE") or None, env.get("QUEUE_URL") or None
        return cls(
            table=table, inbox_table=inbox_table, queue_url=queue_url, holder=holder, retention_days=int(days)
        )

    def _request(
        self,
        key: str,
        *,
        length: float = 15,
        wait: float = 30,
        within: float | None = None,
        renew: bool = True,
        on_lost: Callable[[LeaseError], None] | None = None,
    ) -> Machine:
        _check_key(key)
        start = {
            "key": key,
            "leaseMs": _millis("length", length),
            "waitMs": _millis("wait", wait),
            "withinMs": None if within is None else _millis("within", within, is_past_allowed=True),
            "renew": renew,
        }
        return self._checked(start, length, on_lost)

    def _checked(
        self, start: dict[str, Any], length: float, on_lost: Callable[[LeaseError], None] | None
    ) -> Machine:
        machine = self._machine(start)
        self._aws.check_timeouts(length)
        if on_lost is not None:
            # The session's own thread may still have a lease to release, so `on_lost` must not block it.
            def start_telling(lost: Future[LeaseError]) -> None:
                name = f"on_lost of {start.get('key', '')}"
                threading.Thread(target=_tell, args=(on_lost, lost.result()), name=name, daemon=True).start()

            machine.lost.add_done_callback(start_telling)
        return machine

    def _job(
        self,
        name: str,
        *,
        schedule: str,
        zone: str | None = None,
        on_crash: str = "again",
        length: float = 30,
        on_lost: object = None,
    ) -> Callable[[Callable[[LeaseError], None] | None], Machine]:
        """Checks a job. Returns what begins a call of it."""
        start = {
            "job": name,
            "schedule": schedule,
            "zone": zone,
            "onCrash": on_crash,
            "leaseMs": _millis("length", length),
        }
        self._machine(start)
        return lambda on_lost: self._checked(start, length, on_lost)

    def _look(self, key: str) -> Machine:
        _check_key(key)
        return self._machine({"key": key, "look": True})


class LeaseBase:
    """A granted lease."""

    def __init__(self, machine: Machine, key: str, granted: Event) -> None:
        self.key = key
        #: The fencing token. Send it along with every effect elsewhere.
        self.token: int = granted["token"]
        self.id: str = granted["id"]
        self._machine = machine
        # A lease that is forgotten is no longer renewed. At exit nobody renews it anyway.
        weakref.finalize(self, machine.drop).atexit = False

    @property
    def is_lost(self) -> bool:
        """Whether the lease has ended early, as far as this process knows. Only the store's answer proves that it
        has not: that of `extend`, `release` or `commit`."""
        return self._machine.error is not None or self._machine.is_elsewhere

    def _commit(self, writes: Sequence[Write]) -> Future[Event]:
        return self._machine.command({"do": "commit", "tables": tables_of(writes)}, list(writes))


class Lease(LeaseBase):
    """A granted lease. At the end of its `with` block, it is released."""

    def extend(self) -> None:
        """Renews the lease for its full length."""
        self._machine.command({"do": "extend"}).result()

    def release(self) -> None:
        """Releases the lease. Success proves that no other holder had it since it was granted."""
        self._machine.command({"do": "release"}).result()

    def commit(self, writes: Sequence[Write]) -> None:
        """Makes at most 99 writes and releases the lease, all in one transaction.

        The writes are `TransactItems`, as boto3's `transact_write_items` takes them. After `NotCommitted` nothing was
        written, and the lease is still held.
        """
        self._commit(writes).result()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Releases the lease unless that was done. Raises if the lease was lost, unless the block has raised."""
        try:
            if not (self._machine.is_over or self._machine.error):
                self.release()
        except LeaseError:
            if not (self._machine.error or error):
                raise
        if self._machine.error:
            self._machine.ended.result()
            # The caller gets the block's error, which matters more.
            if error is None:
                raise self._machine.error


class Leases(LeasesBase):
    """Grants exclusive leases on orders: while you hold one, workers and other holders wait.

    Any number of threads may use it. A process that forks keeps the leases that it holds; its child has none of them.
    """

    def acquire(self, key: str, *, renew: bool = True, **terms: Unpack[Terms]) -> Lease:
        """Acquires the lease of `key`, and renews it in a thread until it is released.

        Use it in a `with` statement, which releases it. A lease that is forgotten is no longer renewed, and expires.
        """
        machine = self._request(key, renew=renew, **terms)
        try:
            return Lease(machine, key, machine.begin().result())
        except LeaseError:
            raise
        except BaseException:
            # Such as KeyboardInterrupt.
            machine.abandon()
            raise

    def run(self, key: str, work: Callable[[Lease], T], **terms: Unpack[Terms]) -> T:
        """Acquires the lease of `key`, runs `work`, and releases the lease.

        A result proves that no other holder had the lease meanwhile. Otherwise this raises `LeaseLost` once `work` has
        ended. `on_lost` learns it at once.
        """
        check_work(work)
        with self.acquire(key, **terms) as lease:
            return _done(work(lease))

    def run_unless_held(self, key: str, work: Callable[[Lease], T], **terms: Unpack[Terms]) -> T | None:
        """As `run`, but returns `None` at once if another holder has the lease, or if waiting deliveries go first."""
        check_work(work)
        terms["wait"] = 0
        try:
            lease = self.acquire(key, **terms)
        except LeaseContended:
            return None
        with lease:
            return _done(work(lease))

    def commit(self, key: str, work: Callable[[Lease], tuple[T, Sequence[Write]]], **terms: Unpack[Terms]) -> T:
        """As `run`, and makes the writes that `work` returns beside its value in one transaction with the release.

        Raises `NotCommitted` if a condition of the writes does not hold.
        """
        check_work(work)
        with self.acquire(key, **terms) as lease:
            value, writes = pair(_done(work(lease)))
            lease.commit(writes)
            return value

    def once(
        self, name: str, **terms: Unpack[JobTerms]
    ) -> Callable[[Callable[[JobRun], T]], Callable[[], list[T]]]:
        """Makes a function a job that runs once for each due tick, on whatever host and in whatever language.

            @leases.once("nightly-report", schedule="0 3 * * *", zone="Europe/Berlin")
            def report(run):
                ...

        `report()` then runs the due ticks that no other call has started, and returns what the function returned:
        usually nothing or one value. Call it more often than the schedule says. If the function raises an exception,
        the tick is recorded as failed and does not run again. If the process dies, the lease is lost, or the function
        raises `KeyboardInterrupt` or `SystemExit`, the tick counts as crashed, and `on_crash` decides.
        """
        begin = self._job(name, **terms)

        def decorated(work: Callable[[JobRun], T]) -> Callable[[], list[T]]:
            from inspect import iscoroutinefunction

            check_work(work)
            # Before a tick is recorded as failed.
            if iscoroutinefunction(work):
                raise LeaseInvalid(f"{getattr(work, '__qualname__', repr(work))} is asynchronous: use AsyncLeases")

            @wraps(work)
            def call() -> list[T]:
                job: JobCall[T] = JobCall(begin(terms.get("on_lost")), name)
                event = job.machine.begin().result()
                while run := job.due(event):
                    try:
                        event = job.done(run, _done(work(run))).result()
                    except Exception as error:
                        event = job.failed(error).result()
                    except BaseException:
                        # Such as KeyboardInterrupt: the tick counts as crashed.
                        job.machine.drop()
                        raise
                return job.result()

            return call

        return decorated

    def lookup(self, key: str) -> SeenLease:
        """Reads who has the lease of `key`."""
        return seen(self._look(key).begin().result())


def seen(event: Event) -> SeenLease:
    """Returns what an event `seen` says."""
    until = event.get("until")
    return SeenLease(
        held=event["held"],
        by=event.get("by"),
        kind=event.get("kind"),
        until=None if until is None else time_of(until),
        token=event.get("token"),
        waiting=event["waiting"],
    )


def _done(value: T) -> T:
    """Refuses a coroutine: it has not begun, and would run after the release."""
    if isinstance(value, CoroutineType):
        value.close()
        raise LeaseInvalid(f"{value.__qualname__} is asynchronous, and has not run: use AsyncLeases")
    return value


def pair(returned: tuple[T, Sequence[Write]]) -> tuple[T, Sequence[Write]]:
    """Checks what the work of `commit` has returned."""
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise LeaseInvalid(f"the work of commit returned {returned!r}, not a pair (value, writes)")
    return returned


def _tell(on_lost: Callable[[LeaseError], None], error: LeaseError) -> None:
    try:
        on_lost(error)
    except Exception:
        log.exception("on_lost failed")


def _program() -> str:
    return os.path.basename(sys.argv[0] if sys.argv else "") or "python"


def _check_key(key: str) -> None:
    """Refuses a half of a surrogate pair, which JSON can carry, and UTF-8 has no form for."""
    if isinstance(key, str):
        try:
            key.encode()
        except UnicodeEncodeError:
            raise LeaseKeyInvalid("the key has a half of a surrogate pair, which is no character") from None


def check_work(work: object) -> None:
    """Checks before a lease is taken or a tick is started, so that a mistake leaves no trace."""
    from inspect import isasyncgenfunction, isgeneratorfunction

    if isgeneratorfunction(work) or isasyncgenfunction(work):
        raise LeaseInvalid(f"{work.__qualname__} is a generator, whose body would not run: use `return`, not `yield`")
    if not callable(work):
        raise LeaseInvalid(f"the work is {work!r}, and must be a function")


def _millis(name: str, seconds: float, *, is_past_allowed: bool = False) -> int:
    if not isinstance(seconds, (int, float)) or not (seconds >= 0 or (is_past_allowed and seconds < 0)):
        raise LeaseInvalid(f"{name}: {seconds!r} is not a time in seconds")
    return int(min(max(0, seconds) * 1000, 2**53))
