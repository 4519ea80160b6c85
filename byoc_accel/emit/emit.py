"""Plan -> Program: instructions of every step in order, with the source map."""
from __future__ import annotations

from ..errors import ProgramError
from ..isa.encode import encode
from ..isa.inst import Inst
from ..quantize.qregion import QTensor
from ..schedule.geometry import input_spans, is_depthwise
from ..schedule.plan import ChainStep, ConvStep, Plan, PoolStep, Step, StepPlan, result_shape
from ..target import Target
from .builder import Draft
from .chain import emit_chain
from .context import Context
from .conv import emit_conv
from .moves import clear, fill_border, load_input, store_result
from .pool import emit_element, emit_pool
from .program import Layer, Program
from .weights import CODEC_CHOICES, encode_weights


def emit(plan: Plan, target: Target, codec: str = "auto") -> Program:
    """The program of `plan`; deterministic: equal plans give equal bytes.

    codec: weights "raw", as "lanes", or "auto", by layer what costs less. Raises ProgramError for another one.
    """
    if codec not in CODEC_CHOICES:
        raise ProgramError(f"{plan.name}: codec {codec!r} is unknown; use one of {', '.join(CODEC_CHOICES)}")
    code, layers = _assemble(plan, encode_weights(draft(plan, target), target, codec))
    return Program(plan.name, code, plan.buffers, plan.ports, layers, target.digest)


def draft(plan: Plan, target: Target) -> tuple[Draft, ...]:
    """The instructions of `plan`, whose weights are still to be encoded."""
    ctx = Context(plan, target)
    for index, step in enumerate(plan.steps):
        ctx.builder.layer = index
        _emit_step(ctx, step)
    ctx.builder.control("halt")
    return ctx.builder.finish()


def _emit_step(ctx: Context, plan: StepPlan) -> None:
    for name in plan.loads:
        if name in plan.fills:
            fill_border(ctx, name)
        rows = ctx.places[name].layout.height
        if name == plan.step.x and plan.blocks.heights:  # the other rows are loaded behind the borders of results
            rows = input_spans(plan.step, plan.blocks.heights, rows)[0][1]
        load_input(ctx, name, 0, rows)
    for name in plan.fills:
        if name not in plan.loads:
            fill_border(ctx, name)
    part = getattr(plan.step, "part", None)
    if part is not None and part.clear is not None:
        clear(ctx, plan.step.y, part.clear)
    if isinstance(plan.step, ConvStep):
        emit_conv(ctx, plan)
    elif isinstance(plan.step, ChainStep):
        emit_chain(ctx, plan)
    elif isinstance(plan.step, PoolStep):
        emit_pool(ctx, plan)
    else:
        emit_element(ctx, plan)
    if plan.stage(plan.step.y) is None:
        for name, sink in plan.stores:
            store_result(ctx, name, sink)


def _assemble(plan: Plan, instructions: list[tuple[Inst, int]]) -> tuple[bytes, tuple[Layer, ...]]:
    pieces = [encode(instruction) for instruction, _ in instructions]
    sizes, weights = [0] * len(plan.steps), [0] * len(plan.steps)
    for (instruction, owner), piece in zip(instructions, pieces):
        sizes[owner] += len(piece)
        if instruction.mnemonic in ("conv", "dwc", "wtab"):
            weights[owner] += len(piece)
    layers, start = [], 0
    tensors = {t.name: t for t in plan.tensors}
    for step, size, weight_bytes in zip(plan.steps, sizes, weights):
        layers.append(Layer(step.step.name, layer_kind(step.step), start, start + size, macs(step.step, tensors),
                            weight_bytes))
        start += size
    return b"".join(pieces), tuple(layers)


def layer_kind(step: Step) -> str:
    """What a report calls the step."""
    if isinstance(step, ConvStep):
        dense = step.conv.weight.shape[1:3] == (1, 1) and not any(step.conv.padding)
        kind = "depthwise" if is_depthwise(step) else "conv1x1" if dense else "conv2d"
        return kind + ("+add" if step.add else "") + ("+table" if step.table else "")
    if isinstance(step, PoolStep):
        return f"{step.pool.kind}_pool"
    if isinstance(step, ChainStep):
        return ", ".join(layer_kind(each) for each in (*step.members, *((step.pool,) if step.pool else ())))
    return "add" if step.add else "table" if step.table else "copy"


def macs(step: Step, tensors: dict[str, QTensor]) -> int:
    """Multiply-accumulates of the model's operator (padding counted, as TFLite and Vela do)."""
    if isinstance(step, ChainStep):
        return sum(macs(member, tensors) for member in step.members)
    if not isinstance(step, ConvStep):
        return 0
    height, width, _ = result_shape(step, tensors[step.y])
    return height * width * step.conv.weight.size
