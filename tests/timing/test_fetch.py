"""The stream of the program against the formulas of docs/ISA.md, "Fetch", word by word."""
from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.target import Target, load_target
from byoc_accel.timing.fetch import Fetch

REFERENCE = load_target("reference")


def words_of(items: list[tuple[int, int]], target: Target, first_issue: int) -> list[int]:
    """Cycles in which the last bytes of items are taken; an item is its bytes, and cycles from the one before on."""
    width, latency = target.fetch_bytes_per_cycle, target.fetch_latency_cycles
    slots = target.fetch_fifo_bytes // width
    issue: list[int] = []
    available: list[int] = []
    freed: list[int] = []
    out, position, free = [], 0, 0
    for count, gap in items:
        begin = free + gap
        position += count
        while len(issue) * width < position:
            k = len(issue)
            issue.append(max(issue[-1] + 1 if k else first_issue, freed[k - slots] if k >= slots else 0))
            available.append(issue[k] + latency + 1)
            if (k + 1) * width <= position:
                freed.append(max(begin, available[k]))
        while len(freed) < position // width:
            freed.append(max(begin, available[len(freed)]))
        out.append(max(begin, available[(position - 1) // width]))
        free = out[-1] + 1
    return out


@given(st.lists(st.tuples(st.integers(1, 48), st.sampled_from((0, 0, 1, 7, 40))), min_size=1, max_size=120),
       st.sampled_from((16, 8, 4, 1)), st.sampled_from((256, 1000)), st.integers(0, 40))
def test_items_of_a_cycle(items, width, fifo_bytes, latency):
    target = replace(REFERENCE, fetch_bytes_per_cycle=width, fetch_fifo_bytes=fifo_bytes, fetch_latency_cycles=latency)
    fetch, free, out = Fetch(target), 0, []
    for count, gap in items:
        out.append(fetch.take(count, free + gap))
        free = out[-1] + 1
    assert out == words_of(items, target, 0)


def test_a_jump_empties_the_fifo():
    fetch = Fetch(REFERENCE)
    fetch.take(500, 0)
    fetch.restart(100)
    assert [fetch.take(8, 101), fetch.take(8, 102)] == [133, 134]


def test_an_item_larger_than_the_fifo():
    target = replace(REFERENCE, fetch_bytes_per_cycle=4, fetch_fifo_bytes=64)
    assert Fetch(target).take(256, 0, 16) == words_of([(16, 0)] * 16, target, 0)[-1]
