"""Relay models for tests, and three independent ways to run them: TVM's host, our region in NumPy, our library."""
from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor
from tvm.relay.backend import Executor, Runtime

import byoc_accel.relay as ba
from byoc_accel.quantize.interpret import interpret as interpret_qregion
from byoc_accel.quantize.quantize import quantize
from byoc_accel.region.interpret import interpret as interpret_region
from byoc_accel.region.ports import to_device, to_host
from byoc_accel.relay.importer import Imported, import_function
from byoc_accel.relay.report import PartitionReport

TARGET = "llvm -mtriple=x86_64-linux-gnu"
Arrays = dict[str, np.ndarray]


def module(output: relay.Expr, *inputs: relay.Var) -> tvm.IRModule:
    """A typed module main(inputs) = output; the inputs are the free variables when none are given."""
    params = list(inputs) or relay.analysis.free_vars(output)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, output)))


def const(array: object, dtype: str | None = None) -> relay.Expr:
    return relay.const(np.asarray(array, dtype))


def normal(*shape: int, seed: int = 0) -> relay.Expr:
    return const(np.random.default_rng(seed).normal(size=shape), "float32")


def float_input(*shape: int, name: str = "x") -> relay.Var:
    return relay.var(name, shape=shape, dtype="float32")


def conv(x: relay.Expr, channels: int = 4, in_channels: int = 4, layout: str = "NCHW", seed: int = 0) -> relay.Expr:
    shape = (channels, in_channels, 3, 3) if layout == "NCHW" else (3, 3, in_channels, channels)
    return relay.nn.conv2d(x, normal(*shape, seed=seed), channels=channels, kernel_size=(3, 3), padding=(1, 1),
                           data_layout=layout, kernel_layout="OIHW" if layout == "NCHW" else "HWIO")


def int8_input(*shape: int, name: str = "x") -> relay.Var:
    return relay.var(name, shape=shape, dtype="int8")


def shaped(layout: str, n: int, h: int, w: int, c: int) -> tuple[int, ...]:
    """The sizes in the order of `layout`."""
    return tuple({"N": n, "H": h, "W": w, "C": c}[a] for a in layout)


def random_inputs(mod: tvm.IRModule, seed: int = 0) -> Arrays:
    """An array for every input of main: full-range int8, or floats of variance 1."""
    rng = np.random.default_rng(seed)
    out = {}
    for variable in mod["main"].params:
        shape = [int(d) for d in variable.checked_type.shape]
        dtype = str(variable.checked_type.dtype)
        values = rng.integers(-128, 128, shape) if dtype == "int8" else rng.standard_normal(shape)
        out[variable.name_hint] = values.astype(dtype)
    return out


def build(mod: tvm.IRModule) -> tvm.relay.backend.executor_factory.ExecutorFactoryModule:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(mod, target=TARGET)


def run_library(library: object, inputs: Arrays) -> list[np.ndarray]:
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input(**inputs)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def run(mod: tvm.IRModule, inputs: Arrays) -> list[np.ndarray]:
    """Outputs under the graph executor, in this process."""
    return run_library(build(mod), inputs)


def run_vm(mod: tvm.IRModule, inputs: Arrays) -> list[np.ndarray]:
    with tvm.transform.PassContext(opt_level=3):
        executable = relay.vm.compile(mod, target=TARGET)
    machine = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    result = machine.run(**inputs)
    fields = result if isinstance(result, tvm.runtime.container.ADT) else [result]
    return [field.numpy() for field in fields]


def run_aot(mod: tvm.IRModule, inputs: Arrays, folder: Path) -> list[np.ndarray]:
    """Outputs of an exported AOT library for the C++ runtime."""
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target=TARGET, executor=Executor("aot", {"interface-api": "packed"}),
                              runtime=Runtime("cpp"))
    library.export_library(str(folder / "aot.so"))
    executor = tvm.runtime.executor.AotModule(tvm.runtime.load_module(str(folder / "aot.so"))["default"](tvm.cpu()))
    for name, array in inputs.items():
        executor.get_input(name).copyfrom(array)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def external_functions(mod: tvm.IRModule) -> dict[str, relay.Function]:
    """Our external functions by symbol, in the order of their numbers."""
    found = {v.name_hint: f for v, f in mod.functions.items() if v.name_hint.startswith("wia_")}
    return dict(sorted(found.items(), key=lambda item: int(item[0].split("_")[-2])))


def region_count(mod: tvm.IRModule) -> int:
    return len(external_functions(mod))


def host_ops(report: PartitionReport) -> list[str]:
    return [row.op for row in report.ops if not row.region]


def reason(report: PartitionReport, op: str) -> str:
    """Why the first op of that name stays on the host."""
    return next(row.reason for row in report.ops if row.op == op and not row.region)


def run_imported(imported: Imported, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The region's meaning in NumPy (the float graph, or the integers of the quantized one), in host layouts."""
    region = imported.region
    device = {port.tensor: to_device(port, region.tensor(port.tensor).shape, array)
              for port, array in zip(region.inputs, inputs)}
    if region.tensors[0].dtype == "int8":
        qregion, _ = quantize(region)
        values = interpret_qregion(qregion, [device[port.tensor] for port in region.inputs])
    else:
        values = interpret_region(region, device)
    return [to_host(port, values[port.tensor]) for port in region.outputs]


def check_region(mod: tvm.IRModule, seed: int = 0, ops_left: Sequence[str] = (), **options: object) -> Imported:
    """Partition `mod`, which must become one region and nothing else; its meaning must be TVM's own result.

    Quantized: every byte. Float: the region's float graph within 1e-4 of the largest value.
    """
    inputs = random_inputs(mod, seed)
    expected = run(mod, inputs)
    options.setdefault("calibration", [inputs])
    part, report = ba.partition(mod, **options)
    assert host_ops(report) == list(ops_left), report.to_text()
    assert region_count(part) == 1, report.to_text()
    (function,) = external_functions(part).values()
    imported = import_function(function)
    compare(run_imported(imported, [inputs[v.name_hint] for v in mod["main"].params]), expected)
    return imported


def compare(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected):
        assert a.shape == b.shape
        if b.dtype == np.int8:
            np.testing.assert_array_equal(a, b)
        else:
            limit = 1e-4 * max(1.0, float(np.abs(b).max()))
            assert float(np.abs(a - b).max()) <= limit


def check_library(mod: tvm.IRModule, seed: int = 0, regions: int | None = None, **options: object) -> PartitionReport:
    """Partition, build and run `mod` on the simulator; every byte of the result must be TVM's own."""
    inputs = random_inputs(mod, seed)
    part, report = ba.partition(mod, **options)
    if regions is not None:
        assert region_count(part) == regions, report.to_text()
    compare(run(part, inputs), run(mod, inputs))
    return report


# Quantized layers. Scales are drawn so that results spread over int8; weights are random, no two rows alike.


def qconv2d(x: relay.Expr, channels: int, kernel: tuple[int, int], rng: np.random.Generator, *, in_channels: int,
            layout: str = "NHWC", kernel_layout: str = "", groups: int = 1, zp: tuple[int, int] = (-5, 7),
            scales: tuple[float, float] = (0.05, 0.06), bias: str = "bias_add", per_channel: bool = True,
            clip: tuple[int, int] | None = None, rounding: str = "None", **attrs: object) -> relay.Expr:
    """qnn.conv2d + bias + requantize (+ clip); zp and scales are those of operand and result."""
    kernel_layout = kernel_layout or {"NHWC": "HWIO", "NCHW": "OIHW"}[layout]
    sizes = {"O": channels, "I": in_channels // groups, "H": kernel[0], "W": kernel[1]}
    if kernel_layout == "HWOI":
        sizes.update(O=in_channels, I=channels // in_channels)
    weight = rng.integers(-127, 128, [sizes[a] for a in kernel_layout]).astype("int8")
    taps = kernel[0] * kernel[1] * in_channels // groups
    w_scale = rng.uniform(0.5, 1.5, channels if per_channel else 1).astype("float32") * np.float32(
        40 * scales[1] / (scales[0] * 70 * 70 * np.sqrt(taps)))
    w_scale_expr = const(w_scale) if per_channel else const(w_scale[0])
    axis = layout.index("C")
    y = relay.qnn.op.conv2d(x, const(weight), const(zp[0], "int32"), const(0, "int32"), const(scales[0], "float32"),
                            w_scale_expr, kernel_size=kernel, channels=channels, data_layout=layout, groups=groups,
                            kernel_layout=kernel_layout, out_dtype="int32", **attrs)
    return _qtail(y, channels, axis, len(layout), rng, zp, scales, w_scale, bias, per_channel, clip, rounding)


def qdense(x: relay.Expr, units: int, rng: np.random.Generator, *, in_units: int, zp: tuple[int, int] = (-5, 7),
           scales: tuple[float, float] = (0.05, 0.06), bias: str = "bias_add", per_channel: bool = False,
           clip: tuple[int, int] | None = None, rounding: str = "None") -> relay.Expr:
    """qnn.dense + bias + requantize (+ clip)."""
    weight = rng.integers(-127, 128, (units, in_units)).astype("int8")
    w_scale = rng.uniform(0.5, 1.5, units if per_channel else 1).astype("float32") * np.float32(
        40 * scales[1] / (scales[0] * 70 * 70 * np.sqrt(in_units)))
    y = relay.qnn.op.dense(x, const(weight), const(zp[0], "int32"), const(0, "int32"), const(scales[0], "float32"),
                           const(w_scale) if per_channel else const(w_scale[0]), units, "int32")
    return _qtail(y, units, 1, 2, rng, zp, scales, w_scale, bias, per_channel, clip, rounding)


def _qtail(y: relay.Expr, channels: int, axis: int, rank: int, rng: np.random.Generator, zp: tuple[int, int],
           scales: tuple[float, float], w_scale: np.ndarray, bias: str, per_channel: bool,
           clip: tuple[int, int] | None, rounding: str) -> relay.Expr:
    values = rng.integers(-20000, 20000, channels).astype("int32")
    if bias == "bias_add":
        y = relay.nn.bias_add(y, const(values), axis=axis)
    elif bias in ("add", "add_left"):
        shaped = const(values.reshape([channels if a == axis else 1 for a in range(axis, rank)]))
        y = relay.add(y, shaped) if bias == "add" else relay.add(shaped, y)
    acc_scale = np.float32(scales[0]) * w_scale
    y = relay.qnn.op.requantize(y, const(acc_scale) if per_channel else const(acc_scale[0]), const(0, "int32"),
                                const(scales[1], "float32"), const(zp[1], "int32"), axis=axis, rounding=rounding,
                                out_dtype="int8")
    return y if clip is None else relay.clip(y, *clip)


def qadd(a: relay.Expr, b: relay.Expr, sa: tuple[float, int], sb: tuple[float, int],
         sy: tuple[float, int]) -> relay.Expr:
    """qnn.add; every pair is (scale, zero point)."""
    pairs = [const(v, t) for s in (sa, sb, sy) for v, t in zip(s, ("float32", "int32"))]
    return relay.qnn.op.add(a, b, *pairs)


def qconcat(parts: Sequence[relay.Expr], scales: Sequence[tuple[float, int]], out: tuple[float, int],
            axis: int) -> relay.Expr:
    """qnn.concatenate; every pair is (scale, zero point)."""
    return relay.qnn.op.concatenate(
        relay.Tuple(list(parts)), relay.Tuple([const(s, "float32") for s, _ in scales]),
        relay.Tuple([const(z, "int32") for _, z in scales]), const(out[0], "float32"), const(out[1], "int32"), axis)


def nm(*arguments: str | Path) -> list[str]:
    """Lines of the command nm."""
    result = subprocess.run(["nm", *arguments], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()
