"""The simulator's decoder of codec lanes alone, for proofs about programs: the C part without a machine."""
from __future__ import annotations

import numpy as np

from ._wia_sim import ffi, lib
from .isa.inst import Inst
from .target import Target


class LaneReader:
    """Decodes like isa/lane_decode.LaneDecoder, some hundred times faster. kernel: a number of sim.KERNELS."""

    def __init__(self, target: Target, kernel: int = lib.WIA_SIM_KERNEL_AUTO):
        self._rows = target.array_rows
        self._block = ffi.new("char[]", lib.wia_lanes_size())
        self._lanes = ffi.cast("wia_lanes_t *", self._block)
        lib.wia_lanes_init(self._lanes, target.array_columns, target.decoder_rows_per_cycle, kernel)

    def load(self, wtab: Inst) -> None:
        """Take the table of a wtab, which must be a legal one; the first must be fresh."""
        lib.wia_lanes_set_table(self._lanes, wtab.payload, wtab.centre, bool(wtab.masks), bool(wtab.fresh))

    def decode(self, payload: bytes, runs: int, run_rows: int, columns: int) -> np.ndarray | None:
        """Weights int8 (runs * run_rows, columns) of a conv (a dwc is one run of its taps); None if no encoder makes
        such a payload."""
        values = np.empty((runs * run_rows, columns), np.int8)
        good = lib.wia_lanes_decode(self._lanes, payload, len(payload), columns, runs, run_rows, self._rows,
                                    ffi.from_buffer("int8_t[]", values))
        return values if good else None
