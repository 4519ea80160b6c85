"""Plan: where every tensor lives and how every step is cut into blocks. Pure data, no instructions yet."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from ..quantize.qregion import QAdd, QConv, QLut, QPool, QTensor, Requant
from .ports import Buffer, HostPort


@dataclass(frozen=True)
class Strips:
    """How the input of a convolution lies so that all rows of its kernel are one contiguous run: `count` strips, one
    per output column; strip i holds, row after row, the `columns` positions from i * `step` on, borders included.

    Positions that several output columns read are stored several times. Of every `row_step` rows one is stored.
    """

    count: int
    columns: int
    step: int
    row_step: int = 1

    def rows(self, rows: int) -> int:
        """Rows stored of so many rows of the tensor."""
        return -(-rows // self.row_step)


@dataclass(frozen=True)
class Layout:
    """How a tensor of `height` x `width` x `channels` lies in a memory: row-major NHWC with a physical border, or as
    `strips`.

    border is (top, left, bottom, right) positions that hold `value`, so that address generators never test for
    edges; without a value nobody reads it.
    """

    height: int
    width: int
    channels: int
    border: tuple[int, int, int, int] = (0, 0, 0, 0)
    value: int | None = 0
    strips: Strips | None = None

    @property
    def pitch_bytes(self) -> int:
        """Bytes from one row to the next (of the same strip)."""
        if self.strips is not None:
            return self.strips.columns * self.channels
        return (self.border[1] + self.width + self.border[3]) * self.channels

    @property
    def position_bytes(self) -> int:
        """Bytes from one position, or strip, to the next."""
        return self.channels if self.strips is None else self.rows * self.pitch_bytes

    @property
    def rows(self) -> int:
        return self.border[0] + self.height + self.border[2]

    @property
    def bytes(self) -> int:
        return self.rows * self.pitch_bytes * (1 if self.strips is None else self.strips.count)

    @property
    def is_tight(self) -> bool:
        """True when the tensor has no border."""
        return self.border == (0, 0, 0, 0)

    @property
    def is_bordered(self) -> bool:
        """True when a border has to be written."""
        return not self.is_tight and self.value is not None

    def offset(self, y: int, x: int) -> int:
        """Bytes from the start to position (y, x) of the tensor itself; borders have negative coordinates.

        In strips: to the first position of row y in the strip of output column x.
        """
        left = self.border[1] if self.strips is None else 0
        return (self.border[0] + y) * self.pitch_bytes + (left + x) * self.position_bytes


@dataclass(frozen=True)
class Part:
    """The part of `y` that a step writes: its result (height, width, channels) at positions origin + i * step.

    origin is (y, x, channel). `clear` is a value to write into all of y before.
    """

    shape: tuple[int, int, int]
    origin: tuple[int, int, int] = (0, 0, 0)
    step: tuple[int, int] = (1, 1)
    clear: int | None = None


@dataclass(frozen=True)
class Place:
    """Where a tensor lives: in SRAM at `address`, or in external buffer `buffer` from byte `address` on."""

    layout: Layout
    address: int
    buffer: int | None = None

    @property
    def in_sram(self) -> bool:
        return self.buffer is None

    def start(self, part: Part | None, row: int) -> int:
        """Address of row `row` of the tensor, or of a part of it."""
        if part is None:
            return self.address + self.layout.offset(row, 0)
        y, x, channel = part.origin
        return self.address + self.layout.offset(y + row * part.step[0], x) + channel

    def row_bytes(self, part: Part | None) -> int:
        """Bytes from one row of the tensor, or of a part of it, to the next."""
        return self.layout.pitch_bytes * (part.step[0] if part is not None else 1)

    def position_bytes(self, part: Part | None) -> int:
        """Bytes from one position along x to the next."""
        return self.layout.position_bytes * (part.step[1] if part is not None else 1)


@dataclass(frozen=True)
class ConvStep:
    """conv, then optionally `+ residual` and a lookup table, written to `y` by the post unit in one go.

    `add_first` is True when the conv result is the add's first operand.
    """

    name: str
    conv: QConv
    x: str
    y: str
    add: QAdd | None = None
    residual: str | None = None
    add_first: bool = True
    table: QLut | None = None
    part: Part | None = None


@dataclass(frozen=True)
class PoolStep:
    """Max pooling in the post unit, or average pooling as a depthwise convolution with unit weights."""

    name: str
    pool: QPool
    x: str
    y: str


@dataclass(frozen=True)
class ElementStep:
    """Copy, requantize, add and/or table lookup from SRAM to SRAM in the post unit.

    requant: y = clamp(requantize(x - x.zero_point, requant, rounding) + y.zero_point), before add and table.
    """

    name: str
    x: str
    y: str
    add: QAdd | None = None
    residual: str | None = None
    table: QLut | None = None
    requant: Requant | None = None
    rounding: str = "upward"
    part: Part | None = None


@dataclass(frozen=True)
class ChainStep:
    """Convolutions that take turns block by block, so that what lies between them never exists as a whole.

    inner: the tensors between the members, and before the pool. Only the last member may have a residual, and none
    writes a part. direct: the input, if it is one of the network's that has no border outside; then its staging buffer
    gets one. pool: a max pool at the end; the post unit takes it while the array is at the next channels.
    """

    members: tuple[ConvStep, ...]
    inner: tuple[QTensor, ...]
    direct: QTensor | None = None
    pool: PoolStep | None = None

    @property
    def name(self) -> str:
        return "+".join(step.name for step in (*self.members, *((self.pool,) if self.pool else ())))

    @property
    def key(self) -> tuple[str, bool]:
        """Tells the chains of a region from each other."""
        return self.name, self.direct is not None

    @property
    def x(self) -> str:
        return self.members[0].x

    @property
    def y(self) -> str:
        return (self.pool or self.members[-1]).y

    @property
    def residual(self) -> str | None:
        return self.members[-1].residual


Step = Union[ConvStep, PoolStep, ElementStep, ChainStep]


@dataclass(frozen=True)
class Stage:
    """SRAM buffer that holds one block of an external operand of a step, as rows or as strips.

    With `StepPlan.stage_spacing_bytes` there is a second one at that distance, for the blocks of odd number, except
    for tensors inside a chain.
    """

    tensor: str
    address: int
    bytes: int
    strips: Strips | None = None


@dataclass(frozen=True)
class Blocks:
    """Cut of a step's output: `count` blocks of `rows` rows (the last may overlap the one before), each computed
    in column chunks of at most `columns` positions.

    heights: rows of each block instead, for a first layer whose blocks are written out one after another, so that
    each is computed as soon as the rows of the input behind it are loaded; `rows` is then the largest. channels: of
    blocks that are written out, too, but have all rows and these channels of the result each; 0 if they have all.
    """

    rows: int
    count: int
    columns: int
    heights: tuple[int, ...] = ()
    channels: int = 0


@dataclass(frozen=True)
class Source:
    """Where an input tensor starts: `buffer` index and byte offset (batch items lie one after another)."""

    buffer: int
    offset: int


@dataclass(frozen=True)
class StepPlan:
    """One step with its cut, its staging buffers, and the moves around it.

    stage_spacing_bytes: distance of the second set of stages, 0 when there is one set only. inner: buffers of the
    tensors inside a chain.
    loads: inputs copied from their buffer into SRAM before the step; fills: tensors whose border is written before
    the step; stores: results copied to an output buffer after (each block of) the step.
    """

    step: Step
    blocks: Blocks
    stages: tuple[Stage, ...]
    stage_spacing_bytes: int
    loads: tuple[str, ...]
    fills: tuple[str, ...]
    stores: tuple[tuple[str, Source], ...]
    inner: tuple[Stage, ...] = ()

    def stage(self, tensor: str) -> Stage | None:
        """The staging buffer of an external operand, or None when it lives in SRAM."""
        return next((s for s in self.stages if s.tensor == tensor), None)


@dataclass(frozen=True)
class Plan:
    """The whole schedule. `places` has one entry per stored tensor; aliases share a Place.

    sources and sinks tell where input and output tensors lie in their external buffers. border_row_bytes is the
    size of an SRAM area at `border_row_address` that is used to write borders of external tensors.
    """

    name: str
    tensors: tuple[QTensor, ...]
    steps: tuple[StepPlan, ...]
    places: tuple[tuple[str, Place], ...]
    sources: tuple[tuple[str, Source], ...]
    sinks: tuple[tuple[str, Source], ...]
    buffers: tuple[Buffer, ...]
    ports: tuple[HostPort, ...]
    border_row_address: int
    border_row_bytes: int


def result_shape(step: Step, y: QTensor) -> tuple[int, int, int]:
    """(height, width, channels) of what a step computes: all of `y`, or its part."""
    part = getattr(step, "part", None)
    return part.shape if part is not None else y.shape[1:]  # type: ignore[return-value]


def step_inputs(step: Step) -> tuple[str, ...]:
    """Tensors that a step reads."""
    residual = getattr(step, "residual", None)
    return (step.x,) if residual is None else (step.x, residual)
