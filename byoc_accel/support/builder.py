"""Tensors and nodes of a region in the making, and where each host value lies in them."""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..region.region import FLOAT32, INT8, Node, Port, Region, Reshape, Tensor
from . import view as views
from .candidate import AddCandidate, Candidate, ConcatCandidate, ConvCandidate, Scale, Value
from .view import Shape4, View
from .wishes import Wish, device_shape

#: How `rounding="tflite"` requantizes; see docs/numerics.md.
TFLITE_ROUNDING = {"qnn.conv2d": "double", "qnn.conv2d_transpose": "double", "qnn.dense": "upward", "qnn.add": "double"}


@dataclass(frozen=True)
class Conflict:
    """Candidate `reader` cannot read value `value` where its producer leaves it; they need separate regions."""

    reader: str
    value: str
    reason: str


class ConflictError(Exception):
    """The candidates are no single region; `conflicts` has at least one entry."""

    def __init__(self, conflicts: Sequence[Conflict]):
        super().__init__("; ".join(c.reason for c in conflicts))
        self.conflicts = tuple(conflicts)


@dataclass(frozen=True)
class Built:
    """`layers` maps a node name of the region to the name of the candidate that it came from."""

    region: Region
    layers: dict[str, str]


@dataclass(frozen=True)
class Place:
    """A host value on the device: elements of tensor `tensor`, in the order `view`."""

    tensor: str
    view: View


class Builder:
    """Tensors and nodes made so far; `places` maps a host value's name to where it lies."""

    def __init__(self, rounding: str):
        self.tflite = rounding == "tflite"
        self.places: dict[str, Place] = {}
        self.tensors: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.inputs: list[Port] = []
        self.layers: dict[str, str] = {}
        self.conflicts: list[Conflict] = []
        self._counts: Counter[str] = Counter()

    def add_input(self, name: str, value: Value, wish: Wish) -> None:
        shape, view = wish.shape, wish.view
        if shape is None or view is None or views.find_perm(shape, view) is None:
            rank = len(value.shape)
            shape = device_shape(value.shape if rank <= 4 else (value.shape[0], math.prod(value.shape[1:])), "")
            view = views.row_major(math.prod(value.shape))
        scale = wish.scale or ((1.0, 0) if value.dtype == INT8 else None)
        self.tensors[name] = self.result(name, shape, scale)
        self.places[value.name] = Place(name, view)
        self.inputs.append(Port(name, tuple(value.shape), value.dtype, views.find_perm(shape, view)))

    def output(self, value: Value) -> Port:
        place = self.places[value.name]
        tensor = self.tensors[place.tensor]
        perm = views.find_perm(tensor.shape, place.view)
        if place.tensor in {port.tensor for port in self.inputs}:
            self.conflict(value.name, value.name, "nothing is computed between an input and this output")
        elif perm is None:
            self.conflict(value.name, value.name, "its result lies in an order of axes that no copy restores")
        return Port(place.tensor, tuple(value.shape), value.dtype, perm or views.NHWC)

    def conflict(self, reader: str, value: str, reason: str) -> None:
        self.conflicts.append(Conflict(reader, value, reason))

    def new_name(self, kind: str) -> str:
        """conv2d_0, add_1, ...: numbered through the region, the same for equal regions."""
        name = f"{kind}_{sum(self._counts.values())}"
        self._counts[kind] += 1
        return name

    def emit(self, candidate: Candidate, node: Node, y: Tensor, view: View) -> None:
        self.tensors[y.name] = y
        self.nodes.append(node)
        self.layers[node.name] = candidate.name
        self.places[candidate.y.name] = Place(y.name, view)

    def result(self, name: str, shape: Shape4, scale: tuple[float, int] | None) -> Tensor:
        """The tensor called `name`, int8 if it has a scale; one that a node writes has the node's name."""
        return Tensor(name, shape, FLOAT32) if scale is None else Tensor(name, shape, INT8, *scale)

    def scale_of(self, tensor: str) -> tuple[float, int] | None:
        t = self.tensors[tensor]
        return None if t.scale is None or t.zero_point is None else (t.scale, t.zero_point)

    def expect_scale(self, candidate: Candidate, value: Value, tensor: str, scale: Scale) -> None:
        """A conflict when `tensor`, which holds `value`, has another scale or zero point than `candidate` reads."""
        if self.scale_of(tensor) != (scale.scale, scale.zero_point):
            self.conflict(candidate.name, value.name, f"scale and zero point change from {self.scale_of(tensor)} to "
                                                      f"{(scale.scale, scale.zero_point)}")

    def lead(self, values: Sequence[Value]) -> Place:
        """Where the first of `values` lies that a layer made (else the first), which decides the layout."""
        inputs = {port.tensor for port in self.inputs}
        places = [self.places[v.name] for v in values]
        return next((p for p in places if p.tensor not in inputs), places[0])

    def read(self, candidate: Candidate, value: Value, shape: Shape4, view: View) -> str:
        """The tensor that holds `value` with exactly this shape and view, through a reshape if need be."""
        place = self.places[value.name]
        tensor = self.tensors[place.tensor]
        if place.view != view:
            self.conflict(candidate.name, value.name, "the order of axes changes between the two")
            return self._stand_in(value, shape, self.scale_of(place.tensor))
        if tensor.shape == shape:
            return place.tensor
        if tensor.shape[0] != shape[0]:
            self.conflict(candidate.name, value.name, f"the batch changes from {tensor.shape[0]} to {shape[0]}")
            return self._stand_in(value, shape, self.scale_of(place.tensor))
        name = self.new_name("reshape")
        self.nodes.append(Reshape(name, place.tensor, name))
        self.tensors[name] = self.result(name, shape, self.scale_of(place.tensor))
        self.layers[name] = candidate.name
        return name

    def stand_in(self, value: Value) -> None:
        """A place for a result to go on with after a conflict; the region is not used."""
        self.places[value.name] = Place(self._stand_in(value, device_shape((math.prod(value.shape),), ""), None),
                                        views.row_major(math.prod(value.shape)))

    def _stand_in(self, value: Value, shape: Shape4, scale: tuple[float, int] | None) -> str:
        """A tensor to go on with after a conflict."""
        name = self.new_name("conflict")
        self.tensors[name] = self.result(name, shape, scale or ((1.0, 0) if value.dtype == INT8 else None))
        return name

    def rounding(self, candidate: ConvCandidate | AddCandidate | ConcatCandidate, stated: str | None) -> str:
        own = TFLITE_ROUNDING.get(candidate.op) if self.tflite else None
        return own or stated or "upward"
