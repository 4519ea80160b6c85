"""int8 TFLite files as Regions, read with the flatbuffers classes of the `tflite` package: no TVM, no importer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from byoc_accel.region.region import INT8, Add, Conv2d, Pool, Port, Region, Reshape, Tensor

DTYPES = {0: np.float32, 2: np.int32, 9: np.int8}


@dataclass(frozen=True)
class Op:
    """One operator: its nodes (a dense layer may have a reshape before it) and tensor numbers."""

    kind: str
    nodes: tuple
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    output: int


class Reader:
    """rounding: "tvm" or "tflite", whose kernels the regions stand for."""

    def __init__(self, path: Path, rounding: str):
        import tflite

        self.t, self.tflite = tflite, rounding == "tflite"
        self.model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        self.graph = self.model.Subgraphs(0)
        self.names = {v: k for k, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int)}

    def ops(self) -> list[Op]:
        """Every operator up to the softmax."""
        out = []
        for index in range(self.graph.OperatorsLength()):
            op = self.graph.Operators(index)
            code = self.model.OperatorCodes(op.OpcodeIndex())
            kind = self.names[max(code.BuiltinCode(), code.DeprecatedBuiltinCode())]
            if kind == "SOFTMAX":
                break
            out.append(self.op(kind, index, op))
        return out

    def scale(self, number: int) -> np.ndarray:
        return np.asarray(self.graph.Tensors(number).Quantization().ScaleAsNumpy(), np.float32)

    def tensor(self, number: int) -> Tensor:
        t = self.graph.Tensors(number)
        shape = tuple(int(n) for n in t.ShapeAsNumpy())
        shape = shape if len(shape) == 4 else (shape[0], 1, 1, int(np.prod(shape[1:])))
        return Tensor(f"t{number}", shape, INT8, float(self.scale(number)[0]), int(t.Quantization().ZeroPoint(0)))

    def constant(self, number: int) -> np.ndarray:
        t = self.graph.Tensors(number)
        data = self.model.Buffers(t.Buffer()).DataAsNumpy().tobytes()
        return np.frombuffer(data, DTYPES[t.Type()]).reshape(t.ShapeAsNumpy())

    def options(self, op, name: str):
        table = op.BuiltinOptions()
        options = getattr(self.t, name)()
        options.Init(table.Bytes, table.Pos)
        return options

    def clip(self, activation: int, y: Tensor) -> tuple[float, float] | None:
        if activation == 0:
            return None
        top = 127 if activation == 1 else min(127, y.zero_point + round(6.0 / y.scale))
        return float(y.zero_point), float(top)

    def op(self, kind: str, index: int, op) -> Op:
        inputs = tuple(int(op.Inputs(i)) for i in range(op.InputsLength()))
        x, y = self.tensor(inputs[0]), self.tensor(int(op.Outputs(0)))
        name = f"{kind.lower()}_{index}"
        if kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            return self.conv(kind, name, op, inputs, x, y)
        if kind == "FULLY_CONNECTED":
            return self.dense(name, op, inputs, x, y)
        if kind == "ADD":
            clip = self.clip(self.options(op, "AddOptions").FusedActivationFunction(), y)
            x2 = self.tensor(inputs[1])
            node = Add(name, x.name, x2.name, y.name, clip, "double" if self.tflite else "upward")
            return Op(kind, (node,), (x, x2, y), inputs, int(op.Outputs(0)))
        if kind == "AVERAGE_POOL_2D":
            o = self.options(op, "Pool2DOptions")
            node = Pool(name, x.name, y.name, "avg", (o.FilterHeight(), o.FilterWidth()), (o.StrideH(), o.StrideW()),
                        raw=True, rounding="nearest" if self.tflite else "upward")
            return Op(kind, (node,), (x, y), inputs[:1], int(op.Outputs(0)))
        assert kind == "RESHAPE", kind
        return Op(kind, (Reshape(name, x.name, y.name),), (x, y), inputs[:1], int(op.Outputs(0)))

    def conv(self, kind: str, name: str, op, inputs: tuple[int, ...], x: Tensor, y: Tensor) -> Op:
        depthwise = kind != "CONV_2D"
        o = self.options(op, "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions")
        weight = self.constant(inputs[1])
        weight = np.ascontiguousarray(weight.transpose(3, 1, 2, 0)) if depthwise else weight
        stride, padding = (o.StrideH(), o.StrideW()), (0, 0, 0, 0)
        if o.Padding() == 0:  # SAME
            total = [max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(x.shape[1:3], stride, weight.shape[1:3])]
            padding = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
        return self.layer(kind, name, inputs, x, y, weight, stride=stride, padding=padding,
                          groups=x.shape[3] if depthwise else 1, rounding="double" if self.tflite else "upward",
                          clip=self.clip(o.FusedActivationFunction(), y), output=int(op.Outputs(0)))

    def dense(self, name: str, op, inputs: tuple[int, ...], x: Tensor, y: Tensor) -> Op:
        weight = self.constant(inputs[1])
        clip = self.clip(self.options(op, "FullyConnectedOptions").FusedActivationFunction(), y)
        return self.layer("FULLY_CONNECTED", name, inputs, x, y, weight.reshape(len(weight), 1, 1, -1), clip=clip,
                          output=int(op.Outputs(0)))

    def layer(self, kind: str, name: str, inputs: tuple[int, ...], x: Tensor, y: Tensor, weight: np.ndarray, *,
              output: int, **fields) -> Op:
        scales = np.broadcast_to(self.scale(inputs[1]), len(weight)).copy()
        acc_scale = np.float32(x.scale) * scales  # as TVM's importer: a float32 product
        nodes, tensors, source = [], [x, y], x.name
        if kind == "FULLY_CONNECTED" and x.shape[1:3] != (1, 1):
            flat = Tensor(f"{name}_flat", (x.shape[0], 1, 1, int(np.prod(x.shape[1:]))), INT8, x.scale, x.zero_point)
            nodes.append(Reshape(f"{name}_reshape", x.name, flat.name))
            tensors.insert(1, flat)
            source = flat.name
        nodes.append(Conv2d(name, source, y.name, weight, self.constant(inputs[2]), weight_scale=scales,
                            acc_scale=acc_scale, **fields))
        return Op(kind, tuple(nodes), tuple(tensors), inputs[:1], output)


def region_of(ops: list[Op]) -> Region:
    """One region of consecutive operators, from the first one's inputs to the last one's output."""
    tensors = {t.name: t for op in ops for t in op.tensors}
    produced = {node.y for op in ops for node in op.nodes}
    used = [f"t{i}" for op in ops for i in op.inputs]
    sources = list(dict.fromkeys(n for n in used if n not in produced))
    ports = [Port(n, tensors[n].shape, INT8, (0, 1, 2, 3)) for n in [*sources, f"t{ops[-1].output}"]]
    order = [*sources, *(node.y for op in ops for node in op.nodes)]
    return Region("tflite", tuple(tensors[n] for n in order), tuple(n for op in ops for n in op.nodes),
                  tuple(ports[:-1]), tuple(ports[-1:]))
