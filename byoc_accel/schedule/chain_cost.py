"""Cycles that a cut of a chain takes; see cost.py."""
from __future__ import annotations

from ..quantize.qregion import QTensor
from ..target import Target
from .chain import Stripe, areas, heights_of, input_span, results, spans, stripes
from .cost import LOOP_CYCLES, Operands, array_cycles, load_cycles, post_cycles, program_bytes, result_moves
from .plan import Blocks, ChainStep, ConvStep, Layout, Strips
from .strips import strips

#: Program bytes that one cycle less is worth: pieces and stripes that are written out hold their weights once more.
BYTES_PER_CYCLE = 2
#: Of a group of channels of a pool: program bytes, and what the array waits for its next parameters behind them.
POOL_BYTES, POOL_CYCLES = 90, 45
#: Layout of an input where it does not matter.
ANYWHERE = Layout(0, 0, 0)


class ChainCost:
    """Costs of the cuts of one chain; what equal stripes take is computed once."""

    def __init__(self, chain: ChainStep, y: QTensor, target: Target):
        self.chain, self.y, self.target = chain, y, target
        self.heights = heights_of(chain, y)
        self._stripes: dict[tuple[Stripe, Strips | None], list[tuple[int, int]]] = {}

    def cycles(self, operands: Operands, blocks: Blocks, paired: bool, code_bytes: int = -1) -> int:
        """Cycles from the first load of the chain to the end of its last store; arguments as of `step_cycles`."""
        turns = stripes(self.chain, self.y, blocks)
        work = [self._work(Stripe(turn.first, turn.rows), operands.strips) for turn in turns]
        width, latency = self.target.fetch_bytes_per_cycle, self.target.dma_latency_cycles
        if code_bytes >= 0:
            width *= sum(size for members in work for _, size in members) / code_bytes
        around = self.target.array_latency_cycles + self.target.post_latency_cycles
        cycles = 0.0
        for turn, members in zip(turns, work):
            compute = sum(max(busy, size / width) + around for busy, size in members)
            compute += self.target.fetch_latency_cycles * (turn.count > 1)
            load, store = self._moves(turn, operands)
            ends = (load + latency) * (load > 0) + (store + latency) * (store > 0)
            if turn.count == 1:
                cycles += compute + ends
            elif paired:
                cycles += max(compute, load, store) * turn.count + ends + LOOP_CYCLES
            else:
                cycles += (compute + ends) * turn.count + LOOP_CYCLES
        return int(cycles)

    def copied_bytes(self, operands: Operands, blocks: Blocks) -> int:
        """Program bytes that pieces and stripes add, because they hold weights once more."""
        once = self._bytes(Stripe(self.y.shape[1] - 1, 1), operands)
        return sum(self._bytes(Stripe(turn.first, turn.rows), operands)
                   for turn in stripes(self.chain, self.y, blocks)) - once

    def _bytes(self, stripe: Stripe, operands: Operands) -> int:
        return sum(size for _, size in self._work(stripe, operands.strips))

    def strips(self, operands: Operands, blocks: Blocks) -> Strips | None:
        """Strips of an input outside where they take fewer cycles."""
        if self.chain.residual == self.chain.x:
            return None
        start, end = self._rows(Stripe(0, blocks.rows))[0]
        head = Operands(operands.x, results(self.chain, self.y)[0], None, True)
        return strips(self.chain.members[0], head, Blocks(end - start, blocks.count, blocks.columns), self.target)

    def stage_rows(self, operands: Operands, rows: int) -> int:
        """Most rows of the chain's input behind `rows` rows of its result."""
        unclipped = (1 << 30,) * len(self.heights)
        start, end = input_span(self.chain.members[0], spans(self.chain, 1 << 20, rows, unclipped)[0][1])
        return min(end - start, operands.x.rows)

    def _rows(self, stripe: Stripe) -> list[tuple[int, int]]:
        """Rows of each member's result."""
        return [inside for _, inside in spans(self.chain, stripe.first, stripe.rows, self.heights)]

    def _work(self, stripe: Stripe, lying: Strips | None) -> list[tuple[int, int]]:
        """Of each member the cycles of array or post unit for one stripe, and its program bytes."""
        if (stripe, lying) not in self._stripes:
            self._stripes[stripe, lying] = [
                self._member(step, Operands(ANYWHERE, y, lying if number == 0 else None), end - start,
                             stripe.rows if step is self.chain.members[-1] else 0)
                for number, (step, y, (start, end)) in enumerate(zip(self.chain.members, results(self.chain, self.y),
                                                                     self._rows(stripe)))]
        return self._stripes[stripe, lying]

    def _member(self, step: ConvStep, operands: Operands, rows: int, pooled: int) -> tuple[int, int]:
        """Cycles and bytes for `rows` rows; the last one's post unit takes `pooled` rows of a pool, too."""
        pieces, columns = areas(step, operands.y, rows, self.target)
        blocks = [Blocks(piece, 1, columns) for piece in pieces]
        array, post, size = (sum(cost(step, operands, block, self.target) for block in blocks)
                             for cost in (array_cycles, post_cycles, program_bytes))
        if self.chain.pool and pooled:
            block = Blocks(pooled, 1, self.y.shape[2])
            pool = self.chain.pool.pool
            copied = pool.padding[0] * operands.y.shape[2]
            groups = -(-self.y.shape[3] // self.target.array_columns)
            post += post_cycles(self.chain.pool, Operands(ANYWHERE, self.y), block, self.target) + groups * copied
            array += groups * POOL_CYCLES
            size += groups * POOL_BYTES
        return max(array, post), size

    def _moves(self, stripe: Stripe, operands: Operands) -> tuple[int, int]:
        """Cycles of dma_in and dma_out for one stripe."""
        last, block, load = self.chain.members[-1], Blocks(stripe.rows, 1, 1), 0
        if operands.x_outside:
            start, end = self._rows(stripe)[0]
            head = Operands(operands.x, results(self.chain, self.y)[0], operands.strips, True)
            load = load_cycles(self.chain.members[0], head, Blocks(end - start, 1, 1), self.target)
        result = result_moves(last, operands, block, self.target)
        if operands.residual_outside and self.chain.residual != self.chain.x:
            load += result
        return load, result if operands.y_outside else 0
