"""What partition did: every op with its region or the reason why it stays on the host, regions, quantization."""
from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from ..modelinfo import ModelInfo, OpRow
from ..quantize.report import QuantReport


@dataclass(frozen=True)
class RegionRow:
    """One region: its symbol in the library, its name inside the image, and its share of the model."""

    symbol: str
    name: str
    ops: int
    inputs: int
    outputs: int
    macs: int


@dataclass(frozen=True)
class PartitionReport:
    """`macs` counts one run of the whole model on a host without accelerator. `quantization` has one entry per
    region."""

    model: str
    ops: tuple[OpRow, ...]
    regions: tuple[RegionRow, ...]
    macs: int
    macs_offloaded: int
    quantization: tuple[QuantReport, ...]

    def model_info(self) -> ModelInfo:
        """The record that a library carries for the command line."""
        return ModelInfo(self.model, "relay", self.macs, self.macs_offloaded, self.ops)

    def to_text(self) -> str:
        """A table of the ops, then regions and the quantization of each."""
        share = 100.0 * self.macs_offloaded / self.macs if self.macs else 0.0
        lines = [f"{self.model}: {len(self.regions)} regions, {self.macs_offloaded:,} of {self.macs:,} MACs "
                 f"({share:.1f} %) on the accelerator"]
        width = max([len(op.name) for op in self.ops] + [4])
        lines += [f"  {op.name:<{width}} {op.macs:>13,}  {op.region or 'host: ' + op.reason}" for op in self.ops]
        lines += [f"region {r.symbol} ({r.name}): {r.ops} ops, {r.inputs} inputs, {r.outputs} outputs, "
                  f"{r.macs:,} MACs" for r in self.regions]
        return "\n".join(lines) + "\n" + "".join(q.to_text() for q in self.quantization)

    def to_json(self) -> str:
        """The same, for tools."""
        data = {"model": self.model, "macs": self.macs, "macs_offloaded": self.macs_offloaded,
                "ops": [asdict(op) for op in self.ops], "regions": [asdict(r) for r in self.regions],
                "quantization": [json.loads(q.to_json()) for q in self.quantization]}
        return json.dumps(data, indent=1)
