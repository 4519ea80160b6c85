"""When the input of a convolution is worth storing as strips: a kernel row of few channels fills few lanes of a tile,
the whole kernel in one run fills them all. Strips are made by the loads, from memory outside."""
from __future__ import annotations

from ..quantize.qregion import QTensor
from ..target import Target
from .plan import Blocks, ConvStep, Layout, Step, Strips, result_shape


def strips(step: Step, layout: Layout, y: QTensor, blocks: Blocks, external: bool, target: Target) -> Strips | None:
    """Strips of the step's input, of row-major `layout`, where they take fewer cycles; None where they do not.

    external: the input stays outside and is loaded block by block, while the block before is computed; otherwise it is
    a network's input that is loaded as a whole before.
    """
    if not isinstance(step, ConvStep) or step.part is not None or step.residual == step.x:
        return None
    if step.conv.groups > 1 or step.conv.dilation != (1, 1):
        return None
    height, width, channels = result_shape(step, y)
    _, kernel_y, kernel_x, depth = step.conv.weight.shape
    found = Strips(width, kernel_x, step.conv.stride[1])
    passes = height * width * -(-channels // target.array_columns)
    plain_array = kernel_y * -(-kernel_x * depth // target.array_rows) * passes
    array = -(-kernel_y * kernel_x * depth // target.array_rows) * passes
    staged = blocks.count * ((blocks.rows - 1) * step.conv.stride[0] + kernel_y)
    strip_row = width * -(-kernel_x * depth // target.dma_bytes_per_cycle)
    plain_row = -(-layout.width * depth // target.dma_bytes_per_cycle)
    beside = max(array, staged * strip_row)
    if external:
        return found if beside < max(plain_array, staged * plain_row) else None
    plain = plain_array + layout.height * plain_row
    if found.count * layout.rows * kernel_x * depth <= target.sram_bytes // 2:
        return found if array + layout.height * strip_row < plain else None
    copied = 2 * layout.bytes // target.dma_bytes_per_cycle  # spilled, with a border, before it is loaded
    return found if beside + copied < plain else None
