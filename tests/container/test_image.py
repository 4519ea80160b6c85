"""pack and unpack are inverses; every damaged byte is refused with the right words."""
from __future__ import annotations

import dataclasses
import hashlib
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.container import layout
from byoc_accel.container.dump import find_images, to_text
from byoc_accel.container.image import Image, digest, pack, unpack, verify
from byoc_accel.container.writer import with_checksum
from byoc_accel.emit.program import Buffer, HostPort, Layer, Program
from byoc_accel.errors import C_ERRORS, ImageError
from byoc_accel.isa.table import ISA_VERSION
from byoc_accel.region.region import Port
from byoc_accel.target import Target, load_target
from tests.runtime_c import images

TEXT = {error.name: error.text for error in C_ERRORS}
TINY = load_target("tiny")
REFERENCE = load_target("reference")


def refused(data: bytes) -> str:
    """The message of the ImageError that `data` gives."""
    with pytest.raises(ImageError) as info:
        unpack(data)
    assert "\n" not in str(info.value)
    return str(info.value)


NAMES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=12)


@st.composite
def any_program(draw) -> Program:
    """A program with arbitrary names and numbers; its code is noise, which the container does not look at."""
    shapes = draw(st.lists(st.tuples(*[st.integers(1, 5)] * 4), min_size=1, max_size=4))
    kinds = sorted(draw(st.lists(st.sampled_from(["input", "output"]), min_size=len(shapes), max_size=len(shapes))))
    kinds[-1] = "output"
    buffers, ports = [], []
    for shape, kind in zip(shapes, kinds):
        n, h, w, c = shape
        perm = tuple(draw(st.permutations(range(4))))
        host = tuple(shape[p] for p in perm) if draw(st.booleans()) else (n * h, w * c)
        scale = draw(st.floats(2.0 ** -126, 2.0 ** 126, allow_nan=False))
        ports.append(HostPort(Port(draw(NAMES), host, draw(st.sampled_from(["float32", "int8"])), perm), shape, scale,
                              draw(st.integers(-128, 127)), len(buffers)))
        buffers.append(Buffer(draw(NAMES), kind, n * h * w * c))
        if draw(st.booleans()):
            buffers.append(Buffer(draw(NAMES), "scratch", draw(st.integers(1, 1 << 20))))
    code = draw(st.binary(min_size=1, max_size=20)) * 4
    cuts = sorted(draw(st.lists(st.integers(0, len(code)), max_size=3)))
    bounds = [0, *cuts, len(code)]
    layers = tuple(Layer(draw(NAMES), draw(NAMES), a, b, draw(st.integers(0, 2 ** 60)), draw(st.integers(0, 2 ** 40)))
                   for a, b in zip(bounds, bounds[1:]))
    return Program(draw(NAMES), code, tuple(buffers), tuple(ports), layers, TINY.digest)


@given(any_program())
def test_unpack_inverts_pack(program: Program) -> None:
    image = pack(program, TINY)
    assert unpack(image.data) == (program, TINY)
    assert pack(*unpack(image.data)) == image
    assert pack(program, TINY).data == image.data
    assert image.name == program.name
    assert digest(image) == hashlib.sha256(image.data).hexdigest()[:32]


def test_header_as_the_document_says() -> None:
    image = images.conv_image(REFERENCE)
    data = image.data
    assert data[:8] == b"\x89WIA\r\n\x1a\n"
    version, isa, header, total, crc, count, name = struct.unpack_from("<HHIIIII", data, 8)
    assert (version, isa, header, total, count, name) == (1, ISA_VERSION, 64, len(data), 6, 0)
    assert crc == zlib.crc32(data[:20] + data[24:])
    assert data[32:48] == REFERENCE.digest
    sections = [struct.unpack_from("<4I", data, 64 + 16 * i) for i in range(6)]
    kind, offset, size, _ = sections[5]
    assert kind == 6 and offset % 64 == 0 and data[offset:offset + size] == image.program.code
    assert offset + size == total
    kind, offset, size, _ = sections[4]
    assert data[offset:offset + 5] == b"conv\0"
    kind, offset, size, unit = sections[0]
    assert (kind, unit) == (1, 100)
    assert struct.unpack_from("<24I", data, offset) == REFERENCE.numbers()


@pytest.mark.case("B35")
def test_every_truncation_is_refused() -> None:
    data = images.copy_image(TINY).data
    for length in range(len(data)):
        assert TEXT["WIA_E_TRUNCATED"] in refused(data[:length])


@pytest.mark.case("B35")
@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\x89WIA\r\n\x1a\n", b"TFL3" * 30, bytes(64), bytes(10000)])
def test_what_is_no_image(data: bytes) -> None:
    expected = "WIA_E_TRUNCATED" if len(data) < 64 else "WIA_E_MAGIC"
    assert TEXT[expected] in refused(data)


def test_bytes_behind_the_image_are_refused() -> None:
    assert TEXT["WIA_E_LAYOUT"] in refused(images.copy_image(TINY).data + b"\0")


def expected_code(at: int, data: bytes) -> str:
    """What a reader must call an image whose byte `at` was changed, by the order of checks in FORMAT.md."""
    if at < 8:
        return "WIA_E_MAGIC"
    if at < 12:
        return "WIA_E_VERSION"
    total = struct.unpack_from("<I", data, 16)[0]
    if 16 <= at < 20:
        return "WIA_E_TRUNCATED" if total > len(data) else "WIA_E_LAYOUT"
    return "WIA_E_CRC"


@pytest.mark.case("B35")
def test_every_flipped_bit_is_refused() -> None:
    data = images.copy_image(TINY).data
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            assert TEXT[expected_code(at, damaged)] in refused(bytes(damaged)), (at, bit)


def test_flipped_bits_behind_a_right_checksum() -> None:
    """Damage that the checksum cannot show: each is refused, or is another image that packs to these bytes."""
    data = images.twins_image(TINY).data
    accepted = 0
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            try:
                program, target = unpack(with_checksum(bytes(damaged)))
            except ImageError:
                continue
            accepted += 1
            assert pack(program, target).data == with_checksum(bytes(damaged))
    assert accepted  # names, numbers and instructions may change


def test_random_bytes_behind_a_right_checksum() -> None:
    data = images.conv_image(REFERENCE).data
    choice = random.Random(5)
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(choice.randint(1, 4)):
            damaged[choice.randrange(len(data))] = choice.choice((0, 1, 127, 128, 255, choice.randrange(256)))
        try:
            unpack(with_checksum(bytes(damaged)))
        except ImageError:
            pass


@pytest.mark.case("B35")
@pytest.mark.parametrize("at, known", [(8, 1), (10, ISA_VERSION)])
def test_newer_versions_are_refused_whatever_follows(at: int, known: int) -> None:
    data = bytearray(images.copy_image(TINY).data)
    data[at] += 1
    assert f"found {known + 1}, this version knows {known}" in refused(with_checksum(bytes(data)))
    assert TEXT["WIA_E_VERSION"] in refused(bytes(data[:70]))  # named before anything else of a newer format


@pytest.mark.case("B35")
def test_other_target_names_the_number() -> None:
    image = images.copy_image(REFERENCE)
    verify(image, None)
    verify(image, REFERENCE)
    with pytest.raises(ImageError, match=r"array.rows 16 instead of 4.*recompile"):
        verify(image, TINY)
    with pytest.raises(ImageError, match="compile it for that target"):
        pack(image.program, TINY)


def test_a_renamed_target_is_the_same_target() -> None:
    other = dataclasses.replace(TINY, name="other")
    program, target = unpack(pack(images.copy_image(TINY).program, other).data)
    assert target == other
    verify(pack(program, other), TINY)


def changed(**fields: object) -> Program:
    return dataclasses.replace(images.copy_image(TINY).program, **fields)


def with_port(index: int, **fields: object) -> Program:
    ports = list(images.copy_image(TINY).program.ports)
    inner = {k: fields.pop(k) for k in ("tensor", "host_shape", "host_dtype", "perm") if k in fields}
    ports[index] = dataclasses.replace(ports[index], port=dataclasses.replace(ports[index].port, **inner), **fields)
    return changed(ports=tuple(ports))


CODE = images.copy_image(TINY).program.code
BAD = {
    "zero byte in a name": changed(name="a\0b"),
    "surrogate in a name": changed(name="\ud800"),
    "too long names": changed(name="n" * (1 << 20)),
    "no outputs": changed(ports=images.copy_image(TINY).program.ports[:1]),
    "output first": changed(ports=images.copy_image(TINY).program.ports[::-1]),
    "two ports for an input": changed(ports=(*images.copy_image(TINY).program.ports[:1],
                                             *images.copy_image(TINY).program.ports)),
    "no code": changed(code=b"", layers=()),
    "part of a word": changed(code=CODE + b"\1", layers=(Layer("l", "k", 0, len(CODE) + 1, 0, 0),)),
    "gap in the source map": changed(layers=(Layer("l", "k", 4, len(CODE), 0, 0),)),
    "layer that ends before it begins": changed(layers=(
        Layer("l", "k", 0, 16, 0, 0), Layer("m", "k", 16, 8, 0, 0), Layer("n", "k", 8, len(CODE), 0, 0))),
    "short source map": changed(layers=(Layer("l", "k", 0, 4, 0, 0),)),
    "negative macs": changed(layers=(Layer("l", "k", 0, len(CODE), -1, 0),)),
    "unknown buffer kind": changed(buffers=(Buffer("x", "weights", 64), *images.copy_image(TINY).program.buffers[1:])),
    "empty buffer": changed(buffers=(*images.copy_image(TINY).program.buffers, Buffer("z", "scratch", 0))),
    "huge buffer": changed(buffers=(*images.copy_image(TINY).program.buffers, Buffer("z", "scratch", 1 << 31))),
    "too many buffers": changed(buffers=images.copy_image(TINY).program.buffers + (Buffer("z", "scratch", 4),) * 254),
    "scratch port": with_port(1, buffer=2),
    "port without buffer": with_port(1, buffer=3),
    "negative buffer": with_port(1, buffer=-1),
    "perm with a repeat": with_port(0, perm=(0, 1, 1, 3)),
    "short perm": with_port(0, perm=(0, 1, 2)),
    "host shape of another size": with_port(0, host_shape=(63,)),
    "zero axis": with_port(0, host_shape=(64, 0)),
    "nine axes": with_port(0, host_shape=(64, 1, 1, 1, 1, 1, 1, 1, 1)),
    "device shape of another size": with_port(0, device_shape=(1, 4, 4, 5)),
    "unknown data type": with_port(0, host_dtype="float16"),
    "zero scale": with_port(0, scale=0.0),
    "negative scale": with_port(0, scale=-1.0),
    "NaN scale": with_port(0, scale=float("nan")),
    "infinite scale": with_port(0, scale=float("inf")),
    "denormal scale": with_port(0, scale=1e-40),
    "zero point outside of int8": with_port(0, zero_point=128),
}


@pytest.mark.parametrize("program", BAD.values(), ids=BAD.keys())
def test_what_cannot_be_packed(program: Program) -> None:
    with pytest.raises(ImageError) as info:
        pack(program, TINY)
    assert "\n" not in str(info.value)


def test_find_images_in_a_library() -> None:
    first, second = images.copy_image(TINY), images.conv_image(REFERENCE)
    broken = bytearray(second.data)
    broken[-1] ^= 1
    parts = [b"\x7fELF" + bytes(60), first.data, layout.MAGIC, second.data, bytes(broken), b"tail"]
    blob = bytearray()
    offsets = []
    for part in parts:
        offsets.append(len(blob))
        blob += part + bytes(-len(part) % 64)
    assert find_images(bytes(blob)) == [(offsets[1], first), (offsets[3], second)]
    assert find_images(b"x" + first.data) == []  # not aligned
    assert find_images(first.data[:-1]) == []
    assert find_images(b"") == []


def test_listing(golden) -> None:
    golden("container/conv_reference", to_text(images.conv_image(REFERENCE)))
    golden("container/twins_tiny", to_text(images.twins_image(TINY), instructions=False))


def test_listing_of_a_program_that_does_not_decode() -> None:
    buffers, ports = images.copy_image(TINY).program.buffers, images.copy_image(TINY).program.ports
    text = to_text(pack(images.program(TINY, b"\xff\0\0\0", buffers, ports), TINY))
    assert "0xff is no instruction" in text


def test_same_bytes_in_any_process(root: Path) -> None:
    script = ("from byoc_accel.target import load_target; from tests.runtime_c import images;"
              "from byoc_accel.container.image import digest;"
              "print(digest(images.twins_image(load_target('tiny'))))")
    found = {subprocess.run([sys.executable, "-c", script], cwd=root, check=True, capture_output=True, text=True,
                            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": str(root)}).stdout.strip()
             for seed in ("0", "1")}
    assert found == {digest(images.twins_image(TINY))}


def test_image_is_a_value() -> None:
    image = images.copy_image(TINY)
    assert image == Image(image.data) and hash(image) == hash(Image(image.data))
    with pytest.raises(dataclasses.FrozenInstanceError):
        image.data = b""  # type: ignore[misc]


def test_targets_survive() -> None:
    for target in (TINY, REFERENCE, load_target("tiny")):
        assert isinstance(unpack(images.copy_image(target).data)[1], Target)
        assert unpack(images.copy_image(target).data)[1] == target
