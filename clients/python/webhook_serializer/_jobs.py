"""Jobs that run once for each tick, whatever host calls them: what the synchronous and asynchronous ones share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, Literal, TypedDict, TypeVar

from ._aws import Write, tables_of
from ._machine import Event, Machine
from .errors import LeaseError, time_of

T = TypeVar("T")


class _Due(TypedDict):
    schedule: str
    """Five cron fields, such as `0 3 * * *`, or a rate, such as `every 6 hours`: the same on all hosts."""


class JobTerms(_Due, total=False):
    """When a job is due, and what becomes of a tick whose process died."""

    zone: str | None
    """The time zone of the cron fields, such as `Europe/Berlin`. Default: UTC."""
    on_crash: Literal["again", "skip"]
    """Whether a tick runs again if its process died: at most three times in all, or never. Default: `again`."""
    length: float
    """The length of the job's lease in seconds, from 1 s to 10 min. It is renewed. Default: 30."""
    on_lost: Callable[[LeaseError], None]
    """Called if the lease is lost: by a thread of its own; with asyncio, by the event loop."""


class JobRun:
    """The run of a tick."""

    def __init__(self, machine: Machine, job: str, due: Event) -> None:
        self.job = job
        #: When the tick was due: the same for each start.
        self.tick = time_of(due["tick"])
        #: The fencing token. Send it along with every effect elsewhere.
        self.token: int = due["token"]
        self._machine = machine
        self._writes: list[Write] = []
        self._tables: list[str] = []

    @property
    def is_lost(self) -> bool:
        """Whether the job's lease has ended early, as far as this process knows."""
        return self._machine.error is not None or self._machine.is_elsewhere

    def commit(self, writes: Sequence[Write]) -> None:
        """Makes at most 99 writes exactly once, in the transaction that records the tick once the function has ended.

        The writes are `TransactItems`, as boto3's `transact_write_items` takes them. If a condition does not hold,
        nothing is written, the tick is recorded as failed, and the call raises `NotCommitted`.
        """
        self._tables = tables_of(writes)
        self._writes = list(writes)


class JobCall(Generic[T]):
    """One call of a job, which runs its due ticks."""

    def __init__(self, machine: Machine, job: str) -> None:
        self.machine = machine
        self._job = job
        self._values: list[T] = []
        self._failure: Exception | None = None

    def due(self, event: Event) -> JobRun | None:
        """Returns the run that an event of the session asks for, if it does."""
        return JobRun(self.machine, self._job, event) if event["is"] == "due" else None

    def done(self, run: JobRun, value: T) -> Future[Event]:
        """Records that a run went well. The result is the session's next event."""
        self._values.append(value)
        return self.machine.command({"do": "done", "tables": run._tables}, run._writes)

    def failed(self, error: Exception) -> Future[Event]:
        """Records that a run, or the record of its success, failed. The result is the session's next event."""
        self._failure = self._failure or error
        if self.machine.error or self.machine.is_over:
            raise error
        # A half of a surrogate pair has no UTF-8.
        name = type(error).__name__
        try:
            message = f"{name}: {error}".encode(errors="replace").decode()
        except Exception:
            message = f"{name}, without a text"
        return self.machine.command({"do": "failed", "error": message})

    def result(self) -> list[T]:
        """Returns what the runs returned. Raises the first error of a run."""
        if self._failure:
            raise self._failure
        return self._values
