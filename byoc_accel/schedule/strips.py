"""When the input of a convolution is worth storing as strips: a kernel row of few channels fills few lanes of a tile,
the whole kernel in one run fills them all; and a 1x1 kernel with a stride needs some positions only. Strips are made by
loads, from memory outside."""
from __future__ import annotations

from dataclasses import replace

from ..target import Target
from .cost import Operands, array_cycles, load_cycles
from .geometry import is_depthwise
from .plan import Blocks, ConvStep, Step, Strips, result_shape


def possible(step: Step, operands: Operands) -> Strips | None:
    """Strips in which the input of the step may lie."""
    if not isinstance(step, ConvStep) or step.part is not None or step.residual == step.x:
        return None
    conv = step.conv
    if conv.groups > 1 or is_depthwise(step) or conv.dilation != (1, 1):
        return None
    _, width, _ = result_shape(step, operands.y)
    _, kernel_y, kernel_x, _ = conv.weight.shape
    skips = conv.stride[0] if operands.x_outside and kernel_y == 1 and not any(conv.padding) else 1
    return Strips(width, kernel_x, conv.stride[1], skips)


def strips(step: Step, operands: Operands, blocks: Blocks, target: Target) -> Strips | None:
    """Strips of the step's input where they take fewer cycles, None where they do not.

    An input outside is loaded block by block, while the block before is computed; otherwise it is a network's input
    that is loaded as a whole before.
    """
    found = possible(step, operands)
    if found is None:
        return None
    plain, strip = replace(operands, strips=None), replace(operands, strips=found)
    times = [(array_cycles(step, o, blocks, target) * blocks.count,
              load_cycles(step, replace(o, x_outside=True, residual_outside=False), blocks, target) * blocks.count)
             for o in (plain, strip)]
    (plain_array, plain_load), (array, load) = times
    if operands.x_outside:
        return found if (max(array, load), load) < (max(plain_array, plain_load), plain_load) else None
    layout = operands.x
    whole = layout.height * found.count * -(-found.columns * layout.channels // target.dma_bytes_per_cycle)
    plain_cycles = plain_array + layout.height * -(-layout.width * layout.channels // target.dma_bytes_per_cycle)
    if replace(layout, strips=found).bytes <= target.sram_bytes // 2:
        return found if array + whole < plain_cycles else None
    copied = 2 * layout.bytes // target.dma_bytes_per_cycle  # spilled, with a border, before it is loaded
    return found if max(array, load) + copied < plain_cycles else None
