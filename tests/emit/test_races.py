"""Race verdicts of the verifier against brute force on random programs with tokens removed or chained.

The oracle knows no clocks: it builds the graph of start and completion events that docs/ISA.md (Units and order,
Tokens) promises, and looks for two conflicting accesses without a path from the first's completion to the
second's start.
"""
from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byoc_accel.emit import races
from byoc_accel.emit.program import Layer, Program
from byoc_accel.emit.verify import verify
from byoc_accel.errors import ProgramError
from byoc_accel.isa.encode import decode_all, encode_all
from byoc_accel.isa.footprint import footprint, intervals
from byoc_accel.isa.inst import Inst
from byoc_accel.target import load_target
from tests.strategies_isa import SYNCS, Case, _Access, _Builder, programs

TINY = load_target("tiny")
SYNC_NAMES = set(SYNCS.values())


def unit_insts(insts: list[Inst]) -> list[int]:
    return [i for i, x in enumerate(insts) if x.unit != "control"]


def token_pairs(insts: list[Inst]) -> list[tuple[int, int]]:
    """(giver, taker) of every token; the k-th give of a pair of units belongs to the k-th take."""
    queues: dict[tuple[str, str], list[int]] = {}
    pairs = []
    for i, x in enumerate(insts):
        pairs += [(queues[unit, x.unit].pop(0), i) for unit in x.wait_units]
        for unit in x.signal_units:
            queues.setdefault((x.unit, unit), []).append(i)
    return pairs


def accesses(insts: list[Inst]) -> tuple[dict[int, _Access], dict[int, dict[str, Inst]]]:
    """Byte masks of every instruction of a program without loops, and the state it finds."""
    walker = _Builder(None, TINY, np.random.default_rng(0))
    masks, states = {}, {}
    for i, x in enumerate(insts):
        if x.mnemonic in ("ageo", "par", "addp", "lut", "pgeo"):
            walker.settings[x.mnemonic] = x
        elif x.mnemonic in SYNC_NAMES:
            masks[i] = _Access({}, {})
        elif x.unit != "control":
            masks[i] = walker.access(x)
        states[i] = dict(walker.settings)
    return masks, states


def happens_before(insts: list[Inst], pairs: list[tuple[int, int]]) -> np.ndarray:
    """reach[a, b]: event a is never after event b; event 2 i is the start, 2 i + 1 the completion of i."""
    edges = np.eye(2 * len(insts), dtype=bool)
    previous: dict[str, int] = {}
    following: dict[int, int] = {}
    for i in unit_insts(insts):
        edges[2 * i, 2 * i + 1] = True
        if insts[i].unit in previous:
            p = previous[insts[i].unit]
            edges[2 * p, 2 * i] = edges[2 * p + 1, 2 * i + 1] = True
            following[p] = i
        previous[insts[i].unit] = i
    before = {b: a for a, b in following.items()}
    for giver, taker in pairs:
        if insts[giver].mnemonic in ("conv", "dwc") and insts[giver].chain:
            edges[2 * giver, 2 * taker] = True
            if giver in before:
                edges[2 * before[giver] + 1, 2 * taker] = True
            edges[2 * giver + 1, 2 * taker + 1] = True  # the taker completes later
            if taker in following:
                edges[2 * giver + 1, 2 * following[taker]] = True
        else:
            edges[2 * giver + 1, 2 * taker] = True
    for middle in range(len(edges)):
        edges |= edges[:, middle, None] & edges[None, middle]
    return edges


def legal(insts: list[Inst], pairs: list[tuple[int, int]], states: dict[int, dict[str, Inst]]) -> bool:
    """Chain rule, and every conflict ordered."""
    chained = {}
    for giver, taker in pairs:
        give, take = insts[giver], insts[taker]
        if give.mnemonic in ("conv", "dwc") and give.chain:
            if take.mnemonic != "post" or take.source_sram or take.acc_base != give.acc_base:
                return False
            a, p = states[giver]["ageo"], states[taker]["pgeo"]
            if a.width * a.height != p.width * p.height:
                return False
            chained[taker] = giver
    for x in insts:
        if x.mnemonic in ("conv", "dwc") and x.chain and set(x.signal) - {"post"}:
            return False
    masks, _ = accesses(insts)
    reach = happens_before(insts, pairs)
    return all(reach[2 * i + 1, 2 * j]
               or not masks[i].conflicts(masks[j], without="acc" if chained.get(j) == i else None)
               for j in masks for i in masks if i < j and insts[i].unit != insts[j].unit)


def drop_token(insts: list[Inst], pair: tuple[int, int]) -> None:
    giver, taker = pair
    give, take = insts[giver], insts[taker]
    insts[giver] = give.replace(signal=tuple(u for u in give.signal if u != take.unit))
    insts[taker] = take.replace(wait=tuple(u for u in take.wait if u != give.unit))


@pytest.mark.parametrize("kind", ["drop", "chain"])
def test_verdicts_equal_brute_force(kind: str) -> None:
    seen = {True: 0, False: 0}

    @settings(max_examples=120)
    @given(programs(TINY, steps=14, loops=False), st.data())
    def check(case: Case, data: st.DataObject) -> None:
        insts = [x for _, x in decode_all(case.program.code)]
        pairs = token_pairs(insts)
        if kind == "drop" and pairs and data.draw(st.integers(0, 3)):
            drop_token(insts, data.draw(st.sampled_from(pairs)))
        candidates = [i for i, x in enumerate(insts) if x.mnemonic in ("conv", "dwc") and x.signal]
        if kind == "chain" and candidates:
            index = data.draw(st.sampled_from(candidates))
            insts[index] = insts[index].replace(chain=1 - insts[index].chain)
        expected = legal(insts, token_pairs(insts), accesses(insts)[1])
        seen[expected] += 1
        assert accepts(case.program, insts) == expected

    check()
    assert min(seen.values()) > 5, seen


def accepts(program: Program, insts: list[Inst]) -> bool:
    code = encode_all(insts)
    changed = dataclasses.replace(program, code=code, layers=(Layer("all", "conv", 0, len(code), 0, 0),))
    try:
        verify(changed, TINY)
    except ProgramError as error:
        assert "may still use them" in str(error) or "chain" in str(error)
        return False
    return True


@pytest.mark.parametrize("few", [0, 1000], ids=["many entries", "few entries"])
def test_conflicts_in_a_log(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """However many entries are looked through, the first that shares a byte is found, and none that is known done."""
    monkeypatch.setattr(races, "FEW", few)
    random = np.random.default_rng(8)
    shapes = [footprint(4), footprint(2, (8, 5)), footprint(1, (3, 4), (40, 2))]
    log, entries = races._Log(), []
    for number in range(16):
        entries.append((number, int(random.integers(0, 400)), shapes[random.integers(3)]))
        log.add(*entries[-1], label=100 + number)
    bytes_of = {shape: np.concatenate([np.arange(a, b) for a, b in zip(*intervals(shape))]) for shape in shapes}
    for _ in range(500):
        after, start, shape = int(random.integers(-1, 17)), int(random.integers(0, 400)), shapes[random.integers(3)]
        touched = set((start + bytes_of[shape]).tolist())
        expected = [100 + n for n, at, other in entries if n > after and touched & set((at + bytes_of[other]).tolist())]
        assert log.conflict(after, start, shape) == (expected[0] if expected else None)
