"""Options of a region, carried through TVM as string attributes of its external function."""
from __future__ import annotations

import json
from dataclasses import dataclass, field

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
        function = function.with_attr(name, text)
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
    attrs = {} if function.attrs is None else {k: function.attrs[k] for k in function.attrs.keys()}
    symbol = attrs.get("global_symbol", "without a name")
    missing = [name for name in ("wia_target", "wia_scale", "wia_rounding", "wia_region") if name not in attrs]
    if missing:
        raise HostError(f"function {symbol} has no attribute {missing[0]}; partition the module with "
                        "byoc_accel.relay.partition")
    try:
        target = json.loads(str(attrs["wia_target"]))
        ranges = Ranges.from_json(str(attrs["wia_ranges"])) if "wia_ranges" in attrs else None
        return Options(from_numbers(target["name"], tuple(target["numbers"])), str(attrs["wia_scale"]),
                       str(attrs["wia_rounding"]), str(attrs["wia_region"]), ranges)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise HostError(f"function {symbol} has malformed attributes ({error}); partition the module again") from error


