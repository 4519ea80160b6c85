"""Options of a region, carried through TVM as attributes of its external function.

Each attribute is an array of one string: a string itself would be copied into the graph of TVM's executor, where
nothing reads it (the ranges of ResNet-50 took 174 KB of every exported library).
"""
from __future__ import annotations

import json
from dataclasses import dataclass, field

import tvm
from tvm import relay

from ..errors import HostError
from ..quantize.activations import Ranges
from ..quantize.methods import DEFAULT, Method
from ..target import Target, from_numbers

ROUNDINGS = ("tvm", "tflite")
SCALES = ("multiplier", "fixed_point")


@dataclass(frozen=True)
class Options:
    """scale: "multiplier" or "fixed_point". rounding: "tvm" or "tflite". ranges: of a float region, else None.
    method: how to find `ranges`; it is no attribute, what it found is."""

    target: Target
    scale: str = "multiplier"
    rounding: str = "tvm"
    region_name: str = "region"
    ranges: Ranges | None = field(default=None)
    method: Method = DEFAULT

    def __post_init__(self) -> None:
        if self.scale not in SCALES:
            raise HostError(f"scale {self.scale!r} is unknown; use one of {', '.join(SCALES)}")
        if self.rounding not in ROUNDINGS:
            raise HostError(f"rounding {self.rounding!r} is unknown; use one of {', '.join(ROUNDINGS)}")


def attach(function: relay.Function, options: Options) -> relay.Function:
    """`function` with `options` as attributes."""
    for name, text in to_attrs(options).items():
        function = function.with_attr(name, [text])
    return function


def to_attrs(options: Options) -> dict[str, str]:
    """Attribute name -> text; equal options give equal text."""
    target = {"name": options.target.name, "numbers": options.target.numbers()}
    attrs = {"wia_target": json.dumps(target), "wia_scale": options.scale, "wia_rounding": options.rounding,
             "wia_region": options.region_name}
    if options.ranges is not None:
        attrs["wia_ranges"] = options.ranges.to_json()
    return attrs


def read(function: relay.Function) -> Options:
    """Inverse of `attach`; raises HostError for a function that was not partitioned by this package."""
    values = {} if function.attrs is None else {k: function.attrs[k] for k in function.attrs.keys()}
    symbol = values.get("global_symbol", "without a name")
    attrs = {k: str(v[0]) for k, v in values.items() if k.startswith("wia_") and isinstance(v, tvm.ir.Array)}
    missing = [name for name in ("wia_target", "wia_scale", "wia_rounding", "wia_region") if name not in attrs]
    if missing:
        raise HostError(f"function {symbol} has no attribute {missing[0]}; partition the module with "
                        "byoc_accel.relay.partition")
    try:
        target = json.loads(attrs["wia_target"])
        ranges = Ranges.from_json(attrs["wia_ranges"]) if "wia_ranges" in attrs else None
        return Options(from_numbers(target["name"], tuple(target["numbers"])), attrs["wia_scale"],
                       attrs["wia_rounding"], attrs["wia_region"], ranges)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise HostError(f"function {symbol} has malformed attributes ({error}); partition the module again") from error


