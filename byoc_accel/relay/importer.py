"""External function -> Region: the same matcher as in `partition`, on the function's body."""
from __future__ import annotations

from dataclasses import dataclass

from tvm import relay

from ..errors import HostError
from ..quantize.activations import Ranges
from ..region.region import Region
from ..support.build import Built, Conflict, ConflictError, build_region
from ..target import Target
from .ir.constants import ConstantEvaluator
from .ir.graph import Graph, build_graph
from .match.layers import find_layers
from .options import Options, read


@dataclass(frozen=True)
class Imported:
    """A region and the options that its function carried; `compile_region` takes all of them."""

    region: Region
    target: Target
    ranges: Ranges | None
    scale: str
    rounding: str


def import_function(function: relay.Function) -> Imported:
    """The region of an external function made by `partition`.

    Raises HostError when the function has no options, or holds an op that `partition` would not have put there.
    """
    options = read(function)
    try:
        built = import_body(function, options)
    except ConflictError as error:
        raise HostError(f"region {options.region_name}: {error}; partition the module with "
                        "byoc_accel.relay.partition") from error
    return Imported(built.region, options.target, options.ranges, options.scale, options.rounding)


def import_body(function: relay.Function, options: Options) -> Built:
    """Region of the body of a typed function, with the name in `options`.

    Names of layers in `Built.layers`, and of readers and values in conflicts, are node numbers of the function's
    graph. Raises ConflictError when the body is no single region.
    """
    graph = build_graph(function)
    layers = find_layers(graph, ConstantEvaluator(), options.target, {})
    outputs = output_nodes(graph)
    unknown = [Conflict(str(i), str(i), f"{graph.nodes[i].op} cannot be compiled ({reason})")
               for i, reason in sorted(layers.reasons.items())
               if not graph.nodes[i].constant and not (i == graph.result and graph.nodes[i].op == "tuple")]
    if unknown:
        raise ConflictError(unknown)
    number = {node.expr.handle.value: node.index for node in graph.nodes}
    inputs = [number[v.handle.value] for v in function.params if v.handle.value in number]
    if len(inputs) != len(function.params):
        raise HostError(f"region {options.region_name}: a parameter is not used; partition the module again")
    return build_region(options.region_name, [f.candidate for f in layers.found], [graph.value(i) for i in inputs],
                        [graph.value(i) for i in outputs], rounding=options.rounding)


def output_nodes(graph: Graph) -> tuple[int, ...]:
    """Nodes whose values the function returns, in order."""
    result = graph.nodes[graph.result]
    return result.inputs if result.op == "tuple" else (graph.result,)


__all__ = ["ConflictError", "Imported", "import_body", "import_function", "output_nodes"]
