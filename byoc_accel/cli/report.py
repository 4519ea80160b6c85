"""byoc-accel report: cycles of a library, layer by layer, beside the least that the machine allows."""
from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..report import RegionReport

EPILOG = """\
bound is the least number of cycles that the machine allows: the largest of MACs / multipliers,
program bytes / fetch width, and input and output bytes / DMA width. Utilisation is the share of the
multipliers' cycles that the model's MACs fill. Stalls are cycles in which the array waited.
Program bytes by kind: weights and the tables that decode them; headers of weight instructions;
channel parameters; geometry, post instructions, transfers and control with their addresses.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("library", type=Path, metavar="OUT.so", help="library made by byoc-accel compile")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(args: argparse.Namespace) -> int:
    from ..report import report_library, to_json, totals
    from .libraries import read_library
    from .table import percent

    library = read_library(args.library)
    regions = report_library(library.images, library.info)
    macs = library.info.macs if library.info else None
    if args.json:
        print(json.dumps({"model": library.info.model if library.info else None, **to_json(regions, macs)},
                         indent=2))
        return 0
    for region in regions:
        print_region(region)
    total = totals(regions, macs)
    print(f"{total['cycles']:,} cycles, bound {total['bound_cycles']:,} "
          f"({_ratio(total['cycles'], total['bound_cycles'])}); "
          f"{percent(total['macs_offloaded'], total['macs'])} of {total['macs']:,} MACs offloaded; "
          f"{total['program_bytes']:,} program bytes")
    return 0


def print_region(region: RegionReport) -> None:
    """One table: a row per layer, and the region's own numbers below."""
    from .table import print_table

    columns = ("layer", "kind", ">MACs", ">cycles", ">bound", ">utilisation", ">program B", "array stalls")
    rows = [(x.name, x.kind, x.macs, x.cycles, x.bound_cycles, _utilisation(x.utilisation), x.program_bytes,
             _stalls(x.stalls)) for x in region.layers]
    often = f", {region.calls} times" if region.calls > 1 else ""
    print_table(f"{region.name} on {region.target}{often}", columns, rows,
                ("region", "", region.macs, region.cycles, region.bound_cycles, _utilisation(region.utilisation),
                 region.program_bytes, _stalls(region.stalls)))
    print(f"program bytes: {_kinds(region.program_bytes_by_kind)}\n")


def _utilisation(share: float) -> str:
    return f"{100 * share:.1f} %"


def _ratio(cycles: int, bound: int) -> str:
    return f"{cycles / bound:.2f} x" if bound else "-"


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {size_bytes:,}" for kind, size_bytes in kinds.items() if size_bytes)


def _stalls(stalls: Mapping[str, int]) -> str:
    """The three longest reasons."""
    longest = sorted(stalls.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{reason} {cycles:,}" for reason, cycles in longest if cycles)
