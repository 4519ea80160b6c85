"""The TVM glue: argument checks, conversions against NumPy float32, threads, statistics."""
from __future__ import annotations

import itertools
import subprocess
import threading
from pathlib import Path

import numpy as np
import pytest

from byoc_accel.container.image import Image, pack
from byoc_accel.emit.program import Buffer
from byoc_accel.isa.inst import inst
from byoc_accel.sim import simulate_program
from byoc_accel.target import load_target
from tests.runtime_c import building, images, tvm_abi
from tests.runtime_c.tvm_abi import Library, aligned, int64s, tensor

TINY = load_target("tiny")
REFERENCE = load_target("reference")
SHAPE = (2, 3, 4, 5)  # no two axes alike


@pytest.fixture(scope="module")
def glue(c_folder: Path) -> Library:
    return Library(tvm_abi.build(c_folder))


def quantize(x: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    """qnn.quantize: float32 quotient, halves away from zero, NaN -> 127."""
    with np.errstate(all="ignore"):
        quotient = (x.astype(np.float32) * (np.float32(1) / np.float32(scale))).astype(np.float64)
    rounded = np.trunc(np.clip(np.nan_to_num(quotient, nan=1e9, posinf=1e9, neginf=-1e9), -1e9, 1e9)
                       + np.copysign(0.5, quotient))
    return np.where(np.isnan(quotient), 127, np.clip(rounded + zero_point, -128, 127)).astype(np.int8)


def dequantize(q: np.ndarray, scale: float, zero_point: int) -> np.ndarray:
    return (q.astype(np.int32) - zero_point).astype(np.float32) * np.float32(scale)


def through(x: np.ndarray, perm: tuple[int, ...]) -> np.ndarray:
    """Host order -> device order: the inverse of transpose(perm)."""
    return x.transpose(np.argsort(perm))


def identity(dtypes: tuple[str, str], perms: tuple[tuple[int, ...], tuple[int, ...]] = ((0, 1, 2, 3),) * 2,
             scales: tuple[float, float] = (0.5, 0.25), zero_points: tuple[int, int] = (0, 0), name: str = "same",
             shape: tuple[int, int, int, int] = SHAPE) -> Image:
    """device y = device x."""
    size = int(np.prod(shape))
    code = [inst("load", row_bytes=size, signal=("dma_out",)),
            inst("store", binding=1, row_bytes=size, wait=("dma_in",)), inst("halt")]
    ports = tuple(images.port(n, shape, i, dtype=dtypes[i], perm=perms[i], scale=scales[i], zero_point=zero_points[i])
                  for i, n in enumerate("xy"))
    buffers = (Buffer("x", "input", size), Buffer("y", "output", size))
    return pack(images.program(TINY, code, buffers, ports, name), TINY)


def test_every_permutation(glue: Library) -> None:
    x = np.arange(120, dtype=np.int8)
    for perm in itertools.permutations(range(4)):
        other = perm[::-1]
        host = np.ascontiguousarray(x.reshape([SHAPE[p] for p in perm]))
        y = np.zeros([SHAPE[p] for p in other], np.int8)
        assert glue.call(aligned(identity(("int8", "int8"), (perm, other)).data), [host, y]) == ""
        assert np.array_equal(y, through(host, perm).transpose(other))


@pytest.mark.parametrize("nchw", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("target", [TINY, REFERENCE], ids=lambda t: t.name)
def test_convolution(glue: Library, target, dtype: str, nchw: bool) -> None:
    random = np.random.default_rng(7)
    perm = (0, 3, 1, 2) if nchw else (0, 1, 2, 3)
    shape = [(1, 2, 3, images.CHANNELS)[p] for p in perm]
    image = aligned(images.conv_image(target, dtype=dtype, nchw=nchw).data)
    for _ in range(3):
        if dtype == "float32":
            x = random.normal(0, 3, shape).astype(np.float32)
            device = through(quantize(x, 0.05, -7), perm)
            expected = dequantize(images.conv_result(device), 0.1, 3).transpose(perm)
        else:
            x = random.integers(-128, 128, shape).astype(np.int8)
            expected = images.conv_result(through(x, perm)).transpose(perm)
        y = np.full(expected.shape, 99, x.dtype)
        assert glue.call(image, [x, y]) == ""
        assert np.array_equal(y, expected)
        assert len(np.unique(y)) > 5


@pytest.mark.parametrize(("scale", "zero_point"), [(1.0, 0), (0.5, -128), (0.0235, 127), (3e-38, 5), (1e37, -1)])
def test_quantize_edges(glue: Library, scale: float, zero_point: int) -> None:
    s = np.float32(scale)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 0.49999997, -0.49999997, 0.5, -0.5, 1.5, -1.5, 2.5,
                        1e-45, -1e-45, 3e38, -3e38, 511.5, 512.5, -511.5, 254.5, 255.5, 126.5, 127.5, -128.5, -129.5],
                       np.float32)
    with np.errstate(all="ignore"):
        ties = (np.arange(-260, 260, dtype=np.float32) + np.float32(0.5)) * s
        values = np.concatenate([special, special * s, ties, np.nextafter(ties, np.float32(1e38)),
                                 np.nextafter(ties, np.float32(-1e38)),
                                 np.random.default_rng(1).normal(0, 80, 1000).astype(np.float32) * s])
    values = np.resize(values, 2 * ((values.size + 1) // 2)).astype(np.float32)
    image = identity(("float32", "int8"), scales=(float(s), 1.0), zero_points=(zero_point, 0),
                     shape=(1, 1, 2, values.size // 2))
    y = np.zeros((1, 1, 2, values.size // 2), np.int8)
    assert glue.call(aligned(image.data), [values.reshape(y.shape), y]) == ""
    assert np.array_equal(y.ravel(), quantize(values, scale, zero_point))


@pytest.mark.parametrize(("scale", "zero_point"), [(1.0, 0), (0.1, -128), (1e-30, 127), (1 / 3, 3)])
def test_dequantize_all_values(glue: Library, scale: float, zero_point: int) -> None:
    x = np.arange(-128, 128, dtype=np.int8).reshape(1, 4, 8, 8)
    y = np.zeros(x.shape, np.float32)
    image = identity(("int8", "float32"), scales=(1.0, scale), zero_points=(0, zero_point), shape=(1, 4, 8, 8))
    assert glue.call(aligned(image.data), [x, y]) == ""
    assert np.array_equal(y, dequantize(x, scale, zero_point))


def test_several_tensors_and_what_else_is_passed(glue: Library) -> None:
    random = np.random.default_rng(2)
    first = random.integers(-128, 128, (1, 1, 2, 8)).astype(np.int8)
    second = random.integers(-128, 128, (1, 2, 4, 4)).astype(np.int8)
    a, b, c = np.zeros_like(second), np.zeros_like(first), np.zeros_like(first)
    image = aligned(images.twins_image(TINY).data)
    assert glue.call(image, [first, second, a, b, c, None, None], [7, 13, 7, 7, 13, 0, 3]) == ""
    assert np.array_equal(a, second) and np.array_equal(b, first) and np.array_equal(c, first)


def test_layouts_of_host_tensors(glue: Library) -> None:
    image = aligned(identity(("float32", "float32"), scales=(1.0, 1.0)).data)
    x = np.arange(-60, 60, dtype=np.float32).reshape(SHAPE)
    y = np.zeros_like(x)
    for change in ("offset", "odd address", "strides", "one-element stride", "aot"):
        y[...] = 7
        moved = tensor(x)
        keep = None
        if change == "offset":
            keep = np.concatenate([np.zeros(3, np.float32), x.ravel()])
            moved.data, moved.byte_offset = keep.ctypes.data, 12
        elif change == "odd address":
            keep = np.frombuffer(b"?" + x.tobytes(), np.uint8)
            moved.data = keep.ctypes.data + 1
        elif change == "strides":
            moved.strides = int64s([60, 20, 5, 1])
        elif change == "one-element stride":
            moved.strides = int64s([60, 20, 5, 1])
            x1 = aligned(identity(("float32", "float32"), scales=(1.0, 1.0), shape=(1, 3, 4, 5)).data)
            one = tensor(np.ascontiguousarray(x[:1]))
            one.strides = int64s([12345, 20, 5, 1])
            out = np.zeros((1, 3, 4, 5), np.float32)
            assert glue.call(x1, [one, out]) == "" and np.array_equal(out, x[:1])
        else:  # the AOT executor passes nothing but data
            moved.ndim, moved.code, moved.bits, moved.shape = 0, tvm_abi.OPAQUE, 64, None
        assert glue.call(image, [moved, y]) == "", change
        assert np.array_equal(y, x), change
        del keep


def bad_tensor(change: str) -> object:
    x = np.zeros(SHAPE, np.float32)
    made = tensor(x)
    if change == "device":
        made.device_type = 2
    elif change == "no data":
        made.data = None
    elif change == "lanes":
        made.lanes = 4
    elif change == "rank":
        made.ndim = 3
    elif change == "negative rank":
        made.ndim = -1
    elif change == "strided":
        return np.zeros((2, 3, 4, 10), np.float32)[..., ::2]
    elif change == "transposed":
        return np.zeros((5, 4, 3, 2), np.float32).T
    elif change == "shape":
        return np.zeros((2, 3, 5, 4), np.float32)
    elif change == "null":
        return None
    else:
        return np.zeros(SHAPE, change)
    made.keep = x
    return made


@pytest.mark.parametrize(("change", "words"), [
    ("device", "is on device type 2, expected the CPU: WIA_E_BINDING"), ("no data", "has no data: WIA_E_BINDING"),
    ("lanes", "expected float32 (2, 3, 4, 5): WIA_E_SHAPE"), ("rank", "is float32 (2, 3, 4), expected float32 (2, 3"),
    ("negative rank", "is float32 (), expected"), ("strided", "is a view with gaps, expected compact rows"),
    ("transposed", "is a view with gaps"), ("shape", "is float32 (2, 3, 5, 4), expected float32 (2, 3, 4, 5)"),
    ("null", "expected a tensor: WIA_E_BINDING"), ("float64", "is float64 (2, 3, 4, 5), expected float32"),
    ("int8", "is int8 (2, 3, 4, 5), expected float32"), ("int32", "is int32"), ("uint8", "is type8"),
])
@pytest.mark.case("B21")
@pytest.mark.case("B35")
def test_wrong_tensors(glue: Library, change: str, words: str) -> None:
    """One line says region, argument, found and expected; outputs stay as they were."""
    image = aligned(identity(("float32", "float32")).data)
    good = np.ones(SHAPE, np.float32)
    for index in (0, 1):
        arguments: list[object] = [good.copy(), good.copy()]
        arguments[index] = bad_tensor(change)
        text = glue.call(image, arguments)
        assert text.startswith(f'run: region "same": argument {index} "{"xy"[index]}" ') and words in text, text
        assert "\n" not in text
        assert index == 1 or np.array_equal(arguments[1], good)


def test_wrong_calls(glue: Library) -> None:
    x, y = np.ones(SHAPE, np.float32), np.ones(SHAPE, np.float32)
    image = aligned(identity(("float32", "float32")).data)
    assert "1 arguments, expected 1 inputs and 1 outputs" in glue.call(image, [x])
    assert "0 arguments" in glue.call(image, [])
    assert "argument 1 \"y\" has type code 0, expected a tensor" in glue.call(image, [x, y], [7, 0])
    assert np.array_equal(y, np.ones(SHAPE))


def test_damaged_images(glue: Library) -> None:
    x, y = np.ones(SHAPE, np.float32), np.full(SHAPE, 5, np.float32)
    # Verified images are known by address and checksum: here neither may repeat.
    data = identity(("float32", "float32"), name="damaged").data
    keep = []
    for at in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        keep.append(aligned(bytes(damaged)))
        text = glue.call(keep[-1], [x, y])
        assert text.startswith("run: region \"?\": image refused at byte ") and "WIA_E_" in text
    assert "WIA_E_TRUNCATED" in glue.call(aligned(data), [x, y], image_bytes=len(data) - 1)
    assert "WIA_E_TRUNCATED" in glue.call(aligned(data), [x, y], image_bytes=0)
    block = aligned(b"pad!" + data)
    assert "WIA_E_ARGUMENT" in glue.call(block[4:], [x, y])
    assert np.array_equal(y, np.full(SHAPE, 5))
    assert glue.call(aligned(data), [x, y]) == ""


def test_another_image_at_the_same_address(glue: Library) -> None:
    """The cache of verified images goes by address, so it must notice."""
    x = np.arange(120, dtype=np.int8).reshape(SHAPE)
    place = aligned(identity(("int8", "int8")).data)
    y = np.zeros(SHAPE, np.int8)
    assert glue.call(place, [x, y]) == "" and np.array_equal(y, x)
    other = identity(("int8", "int8"), ((0, 1, 2, 3), (1, 0, 2, 3)))
    assert len(other.data) == place.size
    place[...] = np.frombuffer(other.data, np.uint8)
    y = np.zeros((3, 2, 4, 5), np.int8)
    assert glue.call(place, [x, y]) == "" and np.array_equal(y, x.transpose(1, 0, 2, 3))


def test_statistics(glue: Library) -> None:
    found: list[dict] = []

    def work() -> None:  # a thread of its own: its counters start at zero
        assert glue.stats() == {"runs": 0, "cycles": 0, "regions": []}
        conv = images.conv_image(TINY, name='c"o\\n\tv é')
        x = np.ones((1, 2, 3, images.CHANNELS), np.int8)
        y = np.zeros((1, 2, 3, images.OUT), np.int8)
        place, other = aligned(conv.data), aligned(images.copy_image(TINY).data)
        for _ in range(3):
            assert glue.call(place, [x, y]) == ""
        z = np.zeros((1, 4, 4, 4), np.int8)
        assert glue.call(other, [z, z.copy()]) == ""
        assert glue.call(place, [y, x]) != ""  # does not count
        found.append(glue.stats())
        glue.reset()
        found.append(glue.stats())
        assert glue.call(place, [x, y]) == ""
        found.append(glue.stats())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    stats, zero, again = found
    image = images.conv_image(TINY, name='c"o\\n\tv é')
    _, result = simulate_program(image.program, TINY, {"x": np.ones(30, np.int8)})
    region, copied = stats["regions"]
    assert region["name"] == image.name and copied["name"] == "copy"
    assert region["crc32"] == image.header["crc32"]
    assert (stats["runs"], region["runs"], copied["runs"]) == (4, 3, 1)
    assert region["cycles"] == 3 * result.cycles
    assert stats["cycles"] == region["cycles"] + copied["cycles"]
    assert region["macs"] == 3 * result.total.macs == 3 * 6 * 5 * 3
    assert region["bytes"] == {name: 3 * count for name, count in result.total.bytes}
    for unit in result.total.units:
        assert region["units"][unit.name] == {"busy": 3 * unit.busy_cycles,
                                              "stalls": {reason: 3 * n for reason, n in unit.stalls}}
    (layer,) = region["layers"]
    assert layer["name"] == "layer" and layer["kind"] == "test" and layer["cycles"] == region["cycles"]
    assert zero["runs"] == zero["cycles"] == 0 and zero["regions"][0]["layers"][0]["cycles"] == 0
    assert again["cycles"] == result.cycles


@pytest.mark.case("B36")
def test_eight_threads(glue: Library) -> None:
    """Threads share library and images; each gets right results and its own counters."""
    made = [(aligned(images.conv_image(target, seed, name=f"r{seed}").data), seed)
            for seed, target in ((1, TINY), (2, TINY), (3, REFERENCE), (4, REFERENCE))]
    failures: list[str] = []
    counts: list[tuple[int, int]] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        for step in range(40):
            image, seed = made[(number + step) % len(made)]
            x = random.integers(-128, 128, (1, 2, 3, images.CHANNELS)).astype(np.int8)
            y = np.zeros((1, 2, 3, images.OUT), np.int8)
            text = glue.call(image, [x, y])
            if text or not np.array_equal(y, images.conv_result(x, seed)):
                failures.append(text or f"thread {number}, step {step}: wrong result")
        stats = glue.stats()
        counts.append((stats["runs"], len(stats["regions"])))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]
    assert counts == [(40, 4)] * 8


def test_only_the_entry_points_are_visible(c_folder: Path) -> None:
    path = tvm_abi.build(c_folder)
    listing = subprocess.run(["nm", "-D", str(path)], check=True, capture_output=True, text=True).stdout
    words = [line.split() for line in listing.splitlines()]
    defined = {name for *address, letter, name in words if address and letter in "TDBRVW"}
    assert defined == {"wia_tvm_stats", "wia_tvm_reset_stats", "__TVMAPISetLastError", "TVMAPISetLastError",
                       "shim_error", "shim_call"}
    undefined = {line.split()[-1].split("@")[0] for line in listing.splitlines() if " U " in line}
    assert not {name for name in undefined if "TVM" in name}  # weak ones only: nothing of TVM is needed to link


def test_glue_compiles_as_cpp(tmp_path: Path) -> None:
    for source in building.TVM:
        building.run_cc(["-x", "c++", "-std=c++14", "-fsyntax-only", *building.WARNINGS,
                         *[f"-I{i}" for i in building.INCLUDES], source], "g++")
        building.run_cc(["-std=gnu11", "-fsyntax-only", *building.WARNINGS, *[f"-I{i}" for i in building.INCLUDES],
                         source])


def test_threads_and_unloading_under_the_sanitizer(c_folder: Path, tmp_path: Path) -> None:
    """Threads end, live on past dlclose, and end the process: no leak, no use after free."""
    library = tvm_abi.build(c_folder, sanitize=True)
    program = c_folder / "test_tvm_threads"
    building.run_cc(["-std=gnu11", *building.SANITIZERS, *building.WARNINGS, *[f"-I{i}" for i in building.INCLUDES],
                     "tests/runtime_c/test_tvm_threads.c", "-o", str(program), "-lpthread", "-ldl"])
    image = tmp_path / "copy.wia"
    image.write_bytes(images.copy_image(TINY).data)
    assert building.run(program, library, image) == ""
