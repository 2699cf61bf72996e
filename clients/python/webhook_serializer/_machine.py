"""Does what a session of the core asks for, and reports to it what came of it."""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from . import _core
from ._aws import Send, Write
from .errors import LeaseError, LeaseInvalid, LeaseLost, error_of

T = TypeVar("T")
Event = dict[str, Any]
log = logging.getLogger("webhook_serializer")

# Events after which the lease is still held, although a command failed.
_HARMLESS = ("invalid", "not_committed")


def _warned(event: Event) -> bool:
    """Logs an event that is a warning. Returns whether it was one."""
    if event["is"] != "warning":
        return False
    log.warning("%s", event["message"])
    return True


def _future(_: type[T]) -> Future[T]:
    """Creates a future that an asyncio task which no longer waits cannot cancel."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    return future


class _Command:
    def __init__(self, request: Event, writes: Sequence[Write] = ()) -> None:
        self.request, self.writes = request, writes
        self.done = _future(Event)


class Machine:
    """A session and the thread that drives it. Each request has a thread of its own, since boto3 cannot abort one."""

    def __init__(self, core: _core.Client, send: Send, start: dict[str, Any]) -> None:
        try:
            self._session = core.start(json.dumps(start))
        except ValueError as error:
            raise LeaseInvalid(str(error)) from None
        #: Why the lease ended early, if it did.
        self.error: LeaseError | None = None
        #: The same, once a granted lease does.
        self.lost = _future(LeaseError)
        self.is_over = False
        #: Resolved once no request follows. A lease whose time has ended is still released before.
        self.ended = _future(bool)
        self._send, self._key = send, start["key"] if "key" in start else start["job"]
        self._pid = os.getpid()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        # Held when a command is put and when the session ends, so that no command is left without an answer.
        self._ending = threading.Lock()
        # Only the thread uses these.
        self._replies: list[tuple[int, Event]] = []
        self._sent: set[int] = set()
        self._commands: deque[_Command] = deque()
        self._running: _Command | None = None
        self._wake_at: float | None = None
        self._is_granted = self._is_abandoned = self._knows_abandoned = False

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of the one that has the thread."""
        return os.getpid() != self._pid

    def begin(self) -> Future[Event]:
        """Begins the session. The result is its first event."""
        self._running = _Command({})
        done = self._running.done
        threading.Thread(target=self._run, name=f"lease of {self._key}", daemon=True).start()
        return done

    def command(self, request: Event, writes: Sequence[Write] = ()) -> Future[Event]:
        """Runs a command after earlier ones."""
        if self.is_elsewhere:
            raise LeaseInvalid(f"the lease of {self._key} belongs to the process that forked this one")
        command = _Command(request, writes)
        with self._ending:
            if self.is_over or self.error:
                raise self._last_error()
            self._inbox.put(lambda: self._commands.append(command))
        return command.done

    def abandon(self) -> None:
        """Gives up the wait for the lease. The core releases a lease that is granted all the same."""

        def abandon() -> None:
            self._is_abandoned = True

        self._inbox.put(abandon)

    def drop(self) -> None:
        """Drops the session. A lease that it holds lasts until it expires."""
        self._inbox.put(self._end)

    def _run(self) -> None:
        try:
            while not self.is_over:
                self._step()
                self._wait()
        except Exception as error:
            lost = LeaseLost(f"the lease of {self._key} can no longer be renewed: {error!r}")
            self._end(lost)
            self._fail(lost)

    def _wait(self) -> None:
        """Waits until the session must be told something, if only the time."""
        while not self.is_over:
            if self._replies or (self._commands and not self._running):
                return
            if self._is_abandoned and not self._knows_abandoned:
                return
            try:
                timeout = None if self._wake_at is None else max(0, self._wake_at - time.monotonic())
                self._inbox.get(timeout=timeout)()
            except Empty:
                return

    def _step(self) -> None:
        if self._is_abandoned and not self._knows_abandoned:
            self._knows_abandoned = True
            requests = [{"do": "abandon"}]
        elif self._commands and not self._running:
            self._running = self._commands.popleft()
            requests = [self._running.request]
        else:
            requests = []
        replies, self._replies = self._replies, []
        given = {
            "now": time.time_ns() // 1_000_000,
            "monotonic": time.monotonic() * 1000,
            "entropy": os.urandom(32).hex(),
            "replies": replies,
            "commands": requests,
        }
        todo = json.loads(self._session.step(json.dumps(given, default=_base64)))
        self._sent.difference_update(todo["cancelled"])
        self._wake_at = None if todo["wake"] is None else time.monotonic() + todo["wake"] / 1000
        events = [event for event in todo["events"] if not _warned(event)]
        self._is_granted |= any(event["is"] in ("granted", "due") for event in events)
        failures = [error_of(event) for event in events if "message" in event and event["is"] not in _HARMLESS]
        # Whoever gets the session's last event must find it over.
        if todo["over"]:
            self._end(failures[0] if failures else None)
        # A release is on its way before `on_lost` hears that the time has ended.
        for call in todo["calls"]:
            self._call(call)
        for event in events:
            self._handle(event, failures)
        if todo["over"]:
            # A command that crossed the session's end.
            self._answer(self._last_error())

    def _handle(self, event: Event, failures: list[LeaseError]) -> None:
        if "message" not in event:
            self._answer(event)
        elif event["is"] in _HARMLESS:
            self._answer(error_of(event))
        else:
            self._fail(failures.pop(0))

    def _fail(self, error: LeaseError) -> None:
        self.error = error
        self._answer(error)
        if self._is_granted:
            self.lost.set_result(error)

    def _answer(self, result: Event | LeaseError) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if isinstance(result, LeaseError):
            running.done.set_exception(result)
        else:
            running.done.set_result(result)

    def _call(self, call: dict[str, Any]) -> None:
        number, writes = call["id"], self._running.writes if self._running else ()

        def take(reply: Event) -> None:
            # A cancelled call's reply is ignored.
            if number in self._sent:
                self._sent.remove(number)
                self._replies.append((number, reply))

        def send() -> None:
            reply = self._send(call, writes)
            self._inbox.put(lambda: take(reply))

        self._sent.add(number)
        threading.Thread(target=send, name=f"{call['operation']} for {self._key}", daemon=True).start()

    def _end(self, error: LeaseError | None = None) -> None:
        with self._ending:
            if self.is_over:
                return
            self.is_over = True
            self.error = self.error or error
        while not self._inbox.empty():
            self._inbox.get()()
        for command in self._commands:
            command.done.set_exception(self._last_error())
        self.ended.set_result(True)

    def _last_error(self) -> LeaseError:
        return self.error or LeaseInvalid(f"the lease of {self._key} was released before")


def _base64(value: Any) -> str:
    """Encodes what boto3 returns beside JSON's types: bytes."""
    return base64.b64encode(value).decode() if isinstance(value, (bytes, bytearray)) else str(value)
