"""Lifetimes -> SRAM addresses: every request gets a range that no request alive at the same time overlaps."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """`bytes` of SRAM from step `first` to step `last`, both inclusive."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Overflow:
    """No placement: `step` is where demand is highest, `demand_bytes` what is alive there."""

    step: int
    demand_bytes: int


def allocate(requests: list[Request], capacity_bytes: int, alignment_bytes: int) -> dict[str, int] | Overflow:
    """First fit, largest request first (ties by name); addresses by name, or where it does not fit.

    Largest-first keeps fragmentation low; where it leaves a request without a range, other orders are tried. SRAM ports
    read any contiguous bytes, so alignment is only for legibility.
    """
    failed = None
    for key in _ORDERS:
        found = _first_fit(sorted(requests, key=key), capacity_bytes, alignment_bytes)
        if isinstance(found, dict):
            return found
        failed = failed or found
    assert failed is not None
    return _overflow(requests, failed)


#: Orders of requests: largest first, longest first, those of most bytes times steps, as they come.
_ORDERS = (lambda r: (-r.bytes, r.first, r.name),
           lambda r: (r.first - r.last, -r.bytes, r.first, r.name),
           lambda r: (-r.bytes * (r.last - r.first + 1), r.first, r.name),
           lambda r: (r.first, -r.last, -r.bytes, r.name))


def _first_fit(order: list[Request], capacity_bytes: int, alignment_bytes: int) -> dict[str, int] | Request:
    """Addresses by name, or the first request that does not fit."""
    placed: list[tuple[int, int, Request]] = []
    addresses: dict[str, int] = {}
    for request in order:
        busy = sorted((start, end) for start, end, other in placed
                      if other.first <= request.last and request.first <= other.last)
        address = 0
        for start, end in busy:
            if address + request.bytes <= start:
                break
            address = max(address, -(-end // alignment_bytes) * alignment_bytes)
        if address + request.bytes > capacity_bytes:
            return request
        addresses[request.name] = address
        placed.append((address, address + request.bytes, request))
    return addresses


def _overflow(requests: list[Request], failed: Request) -> Overflow:
    demand = {step: sum(r.bytes for r in requests if r.first <= step <= r.last)
              for step in range(failed.first, failed.last + 1)}
    step = max(demand, key=lambda s: (demand[s], -s))
    return Overflow(step, demand[step])
