"""Rules of codec lanes: where stretches begin and end, tables, and payloads that an encoder could have made."""
from __future__ import annotations

from ..errors import EncodeError
from ..isa.inst import Inst
from ..isa.lane_table import unpack_table
from ..lane_reader import LaneReader
from ..target import Target
from .limits import BrokenRule, require


class Stretches:
    """Follows the executed wtab, conv and dwc; decodes each once.

    A stretch is a straight line from a fresh wtab to the next loop or endl, so what its lanes hold at an instruction is
    the same in every iteration, as long as the tiles of the instructions before are.
    """

    def __init__(self, target: Target):
        self._decoder = LaneReader(target)
        self._open = False
        self._again = False  # the stretch has been decoded in an earlier iteration
        self._decoded: dict[int, tuple[int, int]] = {}  # index of a wtab, conv or dwc -> runs, rows of a run

    def close(self) -> None:
        """loop and endl."""
        self._open = False

    def table(self, index: int, wtab: Inst) -> None:
        """Execute a wtab; raises BrokenRule."""
        try:
            unpack_table(wtab.payload, wtab.centre, bool(wtab.masks))
        except EncodeError as error:
            raise BrokenRule(error.args[0].split(": ", 2)[2]) from None
        require(bool(wtab.fresh) or self._open, "goes on with a stretch that a loop or endl has ended; set fresh = 1")
        if wtab.fresh:
            self._again = index in self._decoded
        self._open = True
        if not self._again:
            self._decoded[index] = (0, 0)
            self._decoder.load(wtab)

    def weights(self, index: int, inst: Inst, g: Inst) -> None:
        """Execute a conv or dwc of codec lanes with geometry `g`; raises BrokenRule."""
        require(self._open, "uses codec lanes without a fresh wtab since the last loop or endl; put one before")
        tiles = (1, g.runs_y * g.runs_x) if inst.mnemonic == "dwc" else (g.runs_y * g.runs_x, g.run_bytes)
        if self._again:
            require(self._decoded[index] == tiles, f"has {tiles[0]} runs of {tiles[1]} rows and had others in an "
                    "earlier iteration, which changes what the lanes hold; set ageo in the loop")
            return
        self._decoded[index] = tiles
        require(self._decoder.decode(inst.payload, *tiles, inst.columns) is not None,
                f"payload of {len(inst.payload)} bytes is not what the weights of this ageo take; encode them again")
