"""The stages of the compiler, measured where they are called."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from _common import Meter

from byoc_accel import compile as pipeline
from byoc_accel.relay.regions import search as relay_search

#: Where the stages are looked up, and what a report calls them.
STAGES = {
    "calibrate": (relay_search, "calibrate_and_quantize"), "quantize": (relay_search, "quantize"),
    "quantize_again": (pipeline, "quantize"), "prune": (pipeline, "prune"), "schedule": (pipeline, "schedule"),
    "emit": (pipeline, "emit"), "verify_program": (pipeline, "verify_program"), "pack": (pipeline, "pack"),
    "verify_image": (pipeline, "verify_image")}


@contextmanager
def staged(meter: Meter) -> Iterator[None]:
    """Let `meter` measure every stage of the compiler that is called inside."""
    real = {name: getattr(*place) for name, place in STAGES.items()}
    for name, (module, attribute) in STAGES.items():
        setattr(module, attribute, lambda *a, _name=name, **k: meter.run(_name, lambda: real[_name](*a, **k)))
    try:
        yield
    finally:
        for name, (module, attribute) in STAGES.items():
            setattr(module, attribute, real[name])
