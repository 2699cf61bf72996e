"""Exclusive leases on orders, under the rules of webhook-serializer. `webhook_serializer.receiver` has receivers.

    leases = Leases.from_env()
    with leases.acquire("shop/order/1", wait=10) as lease:
        charge(order, token=lease.token)
"""

from typing import TYPE_CHECKING, Any

from ._jobs import JobRun, JobTerms
from ._leases import Lease, Leases, SeenLease, Terms
from .errors import (
    LeaseContended,
    LeaseError,
    LeaseInvalid,
    LeaseKeyInvalid,
    LeaseLost,
    LeaseOutOfTime,
    LeaseRefused,
    LeaseThrottled,
    LeaseUnknown,
    LeaseUnreachable,
    NotCommitted,
)

if TYPE_CHECKING:
    from ._asyncio import AsyncLease, AsyncLeases

__all__ = [
    "AsyncLease",
    "AsyncLeases",
    "JobRun",
    "JobTerms",
    "Lease",
    "LeaseContended",
    "LeaseError",
    "LeaseInvalid",
    "LeaseKeyInvalid",
    "LeaseLost",
    "LeaseOutOfTime",
    "LeaseRefused",
    "LeaseThrottled",
    "LeaseUnknown",
    "LeaseUnreachable",
    "Leases",
    "NotCommitted",
    "SeenLease",
    "Terms",
]


def __getattr__(name: str) -> Any:
    # Importing asyncio takes longer than all else here.
    if name in ("AsyncLease", "AsyncLeases"):
        from . import _asyncio

        return getattr(_asyncio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
