"""Python face of hw_sim: run machine code on the cycle-level simulator.

`simulate_program` runs a compiled `Program` on named arrays; `simulate` runs bare code on buffers; `Machine`
keeps one simulator, and its memory contents, over several runs. Cycles are exact (docs/ISA.md, "Timing").
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ._wia_sim import ffi, lib
from .emit.program import Layer, Program
from .errors import RunError
from .isa.table import BY_OPCODE
from .sim_result import SimResult, read_counters
from .target import FIELDS, Target

MODES: tuple[str, ...] = ("full", "functional", "counts")
FILLS: tuple[str, ...] = ("zero", "ones", "noise")
KERNELS: tuple[str, ...] = ("auto", "portable", "avx2", "avx512")
TRACE_BYTES = 1 << 24
CACHE_BYTES = 1 << 30  # at most, for decoded weights

#: Code of the runtime (errors.C_ERRORS) by fault of the simulator.
_CODES = {
    lib.WIA_SIM_E_ARGUMENT: -1, lib.WIA_SIM_E_KERNEL: -1, lib.WIA_SIM_E_OPCODE: -8, lib.WIA_SIM_E_END: -9,
    lib.WIA_SIM_E_PAYLOAD: -8, lib.WIA_SIM_E_FIELD: -8, lib.WIA_SIM_E_SRAM: -10, lib.WIA_SIM_E_ACC: -10,
    lib.WIA_SIM_E_EXTERNAL: -10, lib.WIA_SIM_E_UNSET: -15, lib.WIA_SIM_E_LOOP: -11, lib.WIA_SIM_E_TOKEN: -12,
    lib.WIA_SIM_E_LIMIT: -16,
}


def kernels() -> tuple[str, ...]:
    """Names of the inner kernels that this processor can run; all give equal bytes."""
    return tuple(k for i, k in enumerate(KERNELS) if i and _can_run(i))


@dataclass(frozen=True)
class Prepared:
    """The decoded weights of a program, for any machine of the same array and decoder: `Machine.prepare` makes it.

    values: the weights themselves are there, which every mode but "counts" needs.
    """

    code: bytes
    decoder: tuple[int, ...]
    values: bool
    cache: np.ndarray = field(repr=False)


class Machine:
    """One simulated accelerator.

    mode "full" gives results and cycles, "functional" results only, "counts" the cycles of "full" without
    arithmetic (buffers stay as they are). fill is the content of the memories before the first run: "zero",
    "ones" (0xFF) or "noise" of `seed`. trace keeps one line per event in SimResult.trace. A run whose units are
    busy for more than work_limit_cycles together stops with a fault (0: 2**40).
    """

    def __init__(self, target: Target, *, mode: str = "full", fill: str = "zero", seed: int = 0, trace: bool = False,
                 kernel: str = "auto", work_limit_cycles: int = 0):
        self.target, self.mode = target, mode
        self._numbers = ffi.from_buffer("uint8_t[]", np.array(target.numbers(), "<u4").tobytes())
        self._trace = ffi.new("char[]", TRACE_BYTES) if trace else ffi.NULL
        desc = ffi.new("wia_sim_desc_t *", {
            "target": self._numbers, "mode": _choice("mode", mode, MODES), "fill": _choice("fill", fill, FILLS),
            "noise_seed": seed, "kernel": _choice("kernel", kernel, KERNELS), "work_limit_cycles": work_limit_cycles,
            "trace": self._trace, "trace_bytes": TRACE_BYTES if trace else 0})
        size = lib.wia_sim_size(desc)
        self._block = ffi.new("char[]", max(size, 1))
        self._sim = ffi.cast("wia_sim_t *", self._block)
        self._desc = desc
        self._prepared = self._unprepared(b"")
        self._forget()
        _check(lib.wia_sim_init(self._sim, size, desc), f"target {target.name}, kernel {kernel}")

    def prepare(self, code: bytes, prepared: Prepared | None = None) -> Prepared:
        """Decode the weights of `code` now, before its first run, or take what another machine has decoded.

        Machines may share one `Prepared`, one after the other. Raises RunError if `prepared` is of other code, of
        another array or decoder, or without the weights that this machine's mode needs.
        """
        if prepared is None:
            self._prepared = self._unprepared(code)
            program = ffi.new("wia_sim_program_t *", {
                "code": ffi.from_buffer("uint8_t[]", code), "code_bytes": len(code), **_cache(self._prepared)})
            _check(lib.wia_sim_load(self._sim, program), "program")
            lib.wia_sim_prepare(self._sim)
            return self._prepared
        usable = prepared.values or self.mode == "counts"
        if prepared.code != code or prepared.decoder != self._decoder() or not usable:
            raise RunError("weights were prepared for other code, another array or decoder, or for mode counts only; "
                           f"prepare them with a machine of target {self.target.name} in mode {self.mode}")
        self._prepared = prepared
        return prepared

    def run(self, code: bytes, buffers: Sequence[np.ndarray | None], writable: Sequence[bool],
            layers: Sequence[Layer] = ()) -> SimResult:
        """Run `code` to its halt; int8 `buffers` by binding, written in place where `writable`.

        Memories keep what an earlier run left. Cycles follow from the program alone: a run of the code, layers and
        sizes of buffers of the run before takes them from there (not with a trace). Raises RunError with offset and
        mnemonic on a fault.
        """
        if len(writable) != len(buffers):
            raise RunError(f"{len(buffers)} buffers but {len(writable)} writable flags; give one flag per buffer")
        keep = [_buffer(i, b, w) for i, (b, w) in enumerate(zip(buffers, writable))]
        shape = (code, tuple(layers), tuple(size for _, size in keep), tuple(map(bool, writable)))
        if shape != self._shape:
            self._forget()
        text = ffi.from_buffer("uint8_t[]", code)
        table = ffi.new("wia_sim_buffer_t[]", [(data, size, w) for (data, size), w in zip(keep, shape[3])])
        spans = ffi.new("wia_sim_span_t[]", [(layer.start, layer.end) for layer in layers])
        counters = ffi.new("wia_sim_counters_t[]", len(layers)) if self._result is None else self._counters
        program = ffi.new("wia_sim_program_t *", {
            "code": text, "code_bytes": len(code), "buffers": table, "buffer_count": len(keep), "spans": spans,
            "layers": counters, "span_count": len(layers), "total": self._total, **self._decoded(code)})
        _check(lib.wia_sim_load(self._sim, program), "program; its layers must be sorted and apart")
        fault = lib.wia_sim_run(self._sim)
        stats = ffi.new("wia_sim_stats_t *")
        lib.wia_sim_stats(self._sim, stats)
        if fault != lib.WIA_SIM_OK:
            self._forget()
            _check(fault, _place(code, stats.fault_offset))
        if self._result is None or self._trace != ffi.NULL:
            self._shape, self._counters = shape, counters
            self._result = SimResult(
                mode=self.mode, kernel=ffi.string(stats.kernel).decode(), macs_per_cycle=self.target.macs_per_cycle,
                total=read_counters(bytes(ffi.buffer(ffi.addressof(stats, "total"))))[0],
                layer_kinds=tuple((layer.name, layer.kind) for layer in layers),
                layer_counters=bytes(ffi.buffer(counters)),
                trace=_lines(self._trace, stats.trace_bytes), trace_lost=stats.trace_lost)
        return self._result

    def _forget(self) -> None:
        """Nothing is known about the next run."""
        self._shape: tuple[Any, ...] | None = None
        self._result: SimResult | None = None
        self._counters: Any = None
        self._total = ffi.new("wia_sim_counters_t *")

    def _decoder(self) -> tuple[int, ...]:
        t = self.target
        return t.array_rows, t.array_columns, t.decoder_rows_per_cycle

    def _unprepared(self, code: bytes) -> Prepared:
        """Room for the weights of `code`, which runs fill."""
        size = min(lib.wia_sim_cache_size(self._desc, ffi.from_buffer("uint8_t[]", code), len(code)), CACHE_BYTES)
        return Prepared(code, self._decoder(), self.mode != "counts", np.zeros(-(-size // 8), np.uint64))

    def _decoded(self, code: bytes) -> dict[str, Any]:
        """Where the simulator keeps the decoded weights of `code`: kept as long as the same code runs."""
        if code != self._prepared.code:
            self._prepared = self._unprepared(code)
        return _cache(self._prepared)


def _cache(prepared: Prepared) -> dict[str, Any]:
    if not prepared.cache.size:
        return {"cache": ffi.NULL, "cache_bytes": 0}
    return {"cache": ffi.cast("void *", prepared.cache.ctypes.data), "cache_bytes": prepared.cache.nbytes}


def simulate(code: bytes, target: Target, buffers: Sequence[np.ndarray | None], *, writable: Sequence[bool],
             mode: str = "full", fill: str = "zero", seed: int = 0, layers: Sequence[Layer] = (), trace: bool = False,
             kernel: str = "auto", work_limit_cycles: int = 0, prepared: Prepared | None = None) -> SimResult:
    """Run bare code once on a fresh `Machine`; see there for the options, `Machine.run` for the buffers, and
    `Machine.prepare` for `prepared`."""
    machine = Machine(target, mode=mode, fill=fill, seed=seed, trace=trace, kernel=kernel,
                      work_limit_cycles=work_limit_cycles)
    if prepared is not None:
        machine.prepare(code, prepared)
    return machine.run(code, buffers, writable, layers)


def simulate_program(program: Program, target: Target, inputs: Mapping[str, np.ndarray], *, mode: str = "full",
                     fill: str = "zero", seed: int = 0, trace: bool = False, kernel: str = "auto",
                     prepared: Prepared | None = None) -> tuple[dict[str, np.ndarray], SimResult]:
    """Run a compiled program: int8 arrays by tensor name in (NHWC bytes), int8 NHWC arrays by tensor name out.

    Output and scratch buffers start with the same fill as the memories. Raises RunError for a foreign target,
    missing, unknown or wrongly sized inputs, and faults.
    """
    if program.target_digest != target.digest:
        raise RunError(f"{program.name}: compiled for target {program.target_digest.hex()}, but {target.name} is "
                       f"{target.digest.hex()}; compile it for this target")
    random = np.random.default_rng(seed)
    buffers = [_program_buffer(program.name, b.name, b.kind, b.bytes, inputs, fill, random) for b in program.buffers]
    unknown = sorted(set(inputs) - {b.name for b in program.buffers if b.kind == "input"})
    if unknown:
        raise RunError(f"{program.name}: no input is called {unknown[0]!r}; inputs are "
                       + ", ".join(b.name for b in program.buffers if b.kind == "input"))
    result = simulate(program.code, target, buffers, writable=[b.kind != "input" for b in program.buffers], mode=mode,
                      fill=fill, seed=seed, layers=program.layers, trace=trace, kernel=kernel, prepared=prepared)
    shapes = {port.buffer: port.device_shape for port in program.ports}
    outputs = {b.name: data.reshape(shapes.get(i, (b.bytes,)))
               for i, (b, data) in enumerate(zip(program.buffers, buffers)) if b.kind == "output"}
    return outputs, result


def _program_buffer(program: str, name: str, kind: str, size: int, inputs: Mapping[str, np.ndarray], fill: str,
                    random: np.random.Generator) -> np.ndarray:
    if kind != "input":
        if fill == "noise":
            return random.integers(-128, 128, size, np.int8)
        return np.full(size, -1 if fill == "ones" else 0, np.int8)
    if name not in inputs:
        raise RunError(f"{program}: input {name!r} is missing; give int8 of {size} bytes")
    array = np.asarray(inputs[name])
    if array.dtype != np.int8 or array.size != size:
        raise RunError(f"{program}: input {name!r} is {array.dtype} with {array.size} values; "
                       f"give int8 with {size} values")
    return np.ascontiguousarray(array).reshape(-1)


def _can_run(kernel: int) -> bool:
    numbers = np.array([f.low for f in FIELDS], "<u4").tobytes()
    desc = ffi.new("wia_sim_desc_t *", {"target": ffi.from_buffer("uint8_t[]", numbers), "kernel": kernel})
    size = lib.wia_sim_size(desc)
    block = ffi.new("char[]", size)
    return bool(lib.wia_sim_init(ffi.cast("wia_sim_t *", block), size, desc) == lib.WIA_SIM_OK)


def _choice(what: str, name: str, names: tuple[str, ...]) -> int:
    if name not in names:
        raise RunError(f"{what} {name!r} is unknown; use one of {', '.join(names)}")
    return names.index(name)


def _buffer(index: int, array: np.ndarray | None, writable: bool) -> tuple[Any, int]:
    if array is None:
        return ffi.NULL, 0
    if array.dtype != np.int8 or not array.flags.c_contiguous or (writable and not array.flags.writeable):
        raise RunError(f"buffer {index} is {array.dtype}, contiguous {array.flags.c_contiguous}, "
                       f"writeable {array.flags.writeable}; give contiguous int8")
    if array.size == 0:
        return ffi.NULL, 0
    return ffi.from_buffer("char[]", array, require_writable=writable), array.size


def _place(code: bytes, offset: int) -> str:
    row = BY_OPCODE.get(code[offset]) if offset < len(code) else None
    return f"program byte {offset:#x}, {row.mnemonic if row else 'no instruction'}"


def _check(fault: int, where: str) -> None:
    if fault != lib.WIA_SIM_OK:
        raise RunError(f"{where}: {ffi.string(lib.wia_sim_fault_text(fault)).decode()}", _CODES[fault])


def _lines(trace: Any, used: int) -> tuple[str, ...]:
    return tuple(ffi.string(trace).decode().splitlines()) if used else ()
