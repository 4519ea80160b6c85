"""docs/CONFORMANCE.md from the measured rows."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from byoc_accel.generated import first_line

from .measure import STEPS, Row, measure, measure_int8
from .nodes import OPS

GENERATOR = "python -m tests.conformance"
PATH = "docs/CONFORMANCE.md"

HEAD = """\
# ONNX conformance

The node tests of the package onnx 1.16.2 for the ops below: those whose graph is that one op. A test counts as passed
on the host when TVM alone imports it, builds it, and gives the expected outputs (types, shapes, values within 1e-3).
What passes there must pass after `partition` as well; a test of this project says so.

How results are compared: what stays on the host is not run again, as its module has no external function. Offloaded
float results are quantized, calibrated on the test's own input, and lie within {steps} int8 steps of the expected
result (a step is 1/255 of its range, 0 included); int8 results equal TVM's in every byte.
"""

CONSTANT = """
## Weights as constants

Every input but the first is bound as a constant, as in a deployed model.

"""

VARIABLE = """
## Weights as variables

The tests with several inputs as they are shipped: weights are inputs of the graph. Layers with weights then run on the
host.

"""

INT8 = """
## Quantized

The tests of ops that a region can consist of, as quantizers write them: QuantizeLinear and DequantizeLinear pairs of
int8 round the op, with scales from the test's own arrays, symmetric weights (of Conv per channel) and an int32 bias. A
test counts as passed on the host when TVM's own FakeQuantizationToInteger and build take it; what is offloaded equals
that in every byte.

"""


def text() -> str:
    """The document, measured anew."""
    return document(measure(), measure(variable=True), measure_int8())


def document(constant: Sequence[Row], variable: Sequence[Row], int8: Sequence[Row]) -> str:
    head = f"<!-- {first_line(GENERATOR, 'the node tests of onnx')} -->\n\n{HEAD.format(steps=STEPS)}"
    parts = [head, CONSTANT, *_table(constant), "\n", *_reasons(constant), VARIABLE, *_table(variable), INT8,
             *_table(int8), "\n", *_reasons(int8)]
    return "".join(parts)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "| op | tests | pass on the host | of these pass after partitioning | offloaded | largest error, steps |\n"
    yield "|---|---|---|---|---|---|\n"
    for op in (*OPS, "all"):
        mine = [r for r in rows if op in (r.op, "all")]
        if mine:
            yield _line(op, mine)


def _line(op: str, rows: Sequence[Row]) -> str:
    host = [r for r in rows if r.host]
    offloaded = [r for r in host if r.regions]
    steps = [r.steps for r in offloaded if r.steps is not None]
    return (f"| {op} | {len(rows)} | {len(host)} | {sum(r.passes for r in host)} | {len(offloaded)} | "
            f"{f'{max(steps):.1f}' if steps else ''} |\n")


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """Why ops stay on the host: the rule, without what breaks it in each test."""
    yield "Why the others stay on the host:\n\n| op | tests | reason |\n|---|---|---|\n"
    counts = Counter((OPS.index(r.op), r.reason.partition(": ")[0]) for r in rows if r.host and not r.regions)
    for (op, reason), count in sorted(counts.items(), key=lambda item: (item[0][0], -item[1], item[0][1])):
        yield f"| {OPS[op]} | {count} | {reason} |\n"
    missing = Counter(OPS.index(r.op) for r in rows if not r.host)
    yield "\nNot importable, not buildable or not equal on TVM's host alone: "
    yield ", ".join(f"{OPS[op]} {count}" for op, count in sorted(missing.items())) + ".\n"
