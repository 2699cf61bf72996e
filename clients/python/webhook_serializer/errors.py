"""Why a lease was not granted, was lost, or may not have been released: a class for each reaction."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any


class LeaseError(Exception):
    """Why a lease was not granted, was lost, or may not have been released."""

    def __str__(self) -> str:
        return str(self.args[0])


class LeaseContended(LeaseError):
    """Another holder still had the lease when the wait ended. The work was not started. Try again later."""

    def __init__(self, message: str, by: str, until: datetime) -> None:
        super().__init__(message, by, until)
        #: The holder, as operators see it.
        self.by = by
        #: When the other holder's lease expires unless it is renewed.
        self.until = until


class LeaseLost(LeaseError):
    """The lease was lost, and another holder may already work. Stop the work."""


class LeaseOutOfTime(LeaseError):
    """The caller's time (`within`) ended before the work was done. The lease was released."""


class LeaseThrottled(LeaseError):
    """DynamoDB throttles. The work was not started. Try again later and less often."""


class LeaseUnreachable(LeaseError):
    """DynamoDB did not answer. The work was not started."""


class LeaseUnknown(LeaseError):
    """DynamoDB did not confirm the release or commit. The work is done, but its last write may not have landed."""


class LeaseRefused(LeaseError):
    """DynamoDB or a row refuses the request. A retry does not help."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message, reason)
        #: `missing_table`, `denied`, `unreadable_row`, `other_schedule` or `refused`.
        self.reason = reason


class LeaseInvalid(LeaseError, ValueError):
    """The key, the terms, the job, the settings or the writes are invalid. Nothing was sent."""


class LeaseKeyInvalid(LeaseInvalid):
    """The key is invalid. Keys often have parts that a caller chose; all else that is invalid is the program's own
    mistake."""


class NotCommitted(LeaseError):
    """A condition of the commit's writes did not hold. Nothing was written."""

    def __init__(self, message: str, refused: list[int]) -> None:
        super().__init__(message, refused)
        #: The numbers of the writes whose conditions did not hold, from 0.
        self.refused = refused


_PLAIN: dict[str, type[LeaseError]] = {
    "lost": LeaseLost,
    "out_of_time": LeaseOutOfTime,
    "throttled": LeaseThrottled,
    "unreachable": LeaseUnreachable,
    "unknown": LeaseUnknown,
    "invalid": LeaseInvalid,
    "invalid_key": LeaseKeyInvalid,
}


def error_of(event: dict[str, Any]) -> LeaseError:
    """Returns the error that an event of the core reports."""
    kind, message = event["is"], event["message"]
    if kind == "contended":
        return LeaseContended(message, event["by"], time_of(event["until"]))
    if kind == "not_committed":
        return NotCommitted(message, event["refused"])
    if kind in _PLAIN:
        return _PLAIN[kind](message)
    return LeaseRefused(message, kind)


def time_of(millis: int) -> datetime:
    """Returns the time that is so many milliseconds after 1970."""
    return datetime.fromtimestamp(millis / 1000, timezone.utc)
