"""Build and run the C tests: public functions on both devices, HAL faults, damaged images."""
from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from byoc_accel.container import layout
from byoc_accel.container.image import Image, unpack
from byoc_accel.container.writer import with_checksum
from byoc_accel.errors import C_ERRORS, ImageError
from byoc_accel.target import load_target
from tests.container.test_image import expected_code
from tests.runtime_c import building, images

TINY = load_target("tiny")
REFERENCE = load_target("reference")
CODES = {error.name: error.code for error in C_ERRORS}
ANY = 1


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Images on disk by name."""
    folder = tmp_path_factory.mktemp("images")
    made = {"copy": images.copy_image(TINY), "twins": images.twins_image(TINY), "other": images.copy_image(REFERENCE),
            "conv": images.conv_image(TINY)}
    for name, image in made.items():
        (folder / f"{name}.wia").write_bytes(image.data)
    return {name: folder / f"{name}.wia" for name in made}


@pytest.mark.parametrize("device", ["sim", "record"])
def test_api(device: str, c_folder: Path, files: dict[str, Path]) -> None:
    program = building.program(c_folder, "tests/runtime_c/test_api.c")
    assert building.run(program, device, files["copy"], files["twins"], files["other"]) == ""


def test_faults(c_folder: Path, files: dict[str, Path]) -> None:
    assert building.run(building.program(c_folder, "tests/runtime_c/test_faults.c"), files["copy"]) == ""


class Cases:
    """Damaged images with the code that the runtime must give."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.count = 0

    def add(self, image: bytes, code: str | int) -> None:
        self.data += struct.pack("<iI", CODES[code] if isinstance(code, str) else code, len(image)) + image
        self.count += 1

    def run(self, folder: Path, c_folder: Path, healthy: Path) -> dict[int, int]:
        """How many images gave which code."""
        path = folder / "cases.bin"
        path.write_bytes(self.data)
        output = building.run(building.program(c_folder, "tests/runtime_c/test_reject.c"), path, healthy)
        counts = {int(code): int(n) for _, code, n in (line.split() for line in output.splitlines())}
        assert sum(counts.values()) == self.count
        return counts


def c_code(at: int, data: bytes) -> str:
    """As `expected_code`; but a device reads an image from a larger block, so a shorter size is no error in itself."""
    code = expected_code(at, data)
    total = struct.unpack_from("<I", data, 16)[0]
    return "WIA_E_CRC" if code == "WIA_E_LAYOUT" and total >= 64 + 6 * 16 else code


@pytest.mark.case("B35")
def test_truncated_flipped_and_foreign(tmp_path: Path, c_folder: Path, files: dict[str, Path]) -> None:
    data = images.copy_image(TINY).data
    cases = Cases()
    for length in range(len(data)):
        cases.add(data[:length], "WIA_E_TRUNCATED")
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            cases.add(bytes(damaged), c_code(at, damaged))
    for content in (b"", bytes(8), bytes(64), b"\x7fELF" * 40):
        cases.add(content, "WIA_E_TRUNCATED" if len(content) < 64 else "WIA_E_MAGIC")
    cases.add(images.conv_image(REFERENCE).data, "WIA_OK")  # the device of tiny refuses it: see test_api
    cases.add(data, "WIA_OK")
    counts = cases.run(tmp_path, c_folder, files["copy"])
    assert counts[0] == 2


def python_code(data: bytes) -> int:
    """What the Python reader says: 0, a code, or ANY where it checks more than the runtime."""
    try:
        unpack(data)
    except ImageError as error:
        text = str(error)
        stricter = ("differ from what pack writes", "utf-8", "its numbers give digest", "total_bytes: a section")
        if any(words in text for words in stricter):
            return ANY
        return next(e.code for e in C_ERRORS if e.code and e.text in text)
    return ANY  # the instructions may still be wrong


@pytest.mark.parametrize("name", ["copy", "twins", "conv"])
def test_damage_behind_a_right_checksum(name: str, tmp_path: Path, c_folder: Path, files: dict[str, Path]) -> None:
    """Both readers name the same check; AddressSanitizer watches the C one."""
    data = files[name].read_bytes()
    cases = Cases()
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            cases.add(with_checksum(bytes(damaged)), python_code(with_checksum(bytes(damaged))))
    choice = random.Random(name)
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(choice.randint(1, 3)):
            damaged[choice.randrange(len(data))] = choice.choice((0, 1, 127, 128, 255, choice.randrange(256)))
        cases.add(with_checksum(bytes(damaged)), python_code(with_checksum(bytes(damaged))))
    counts = cases.run(tmp_path, c_folder, files[name])
    assert {CODES["WIA_E_LAYOUT"], CODES["WIA_E_OPCODE"], CODES["WIA_E_BOUNDS"], CODES["WIA_E_TOKEN"], 0} <= set(counts)


def patched(data: bytes, at: int, value: bytes) -> bytes:
    """`value` at byte `at`, behind a right checksum."""
    return with_checksum(data[:at] + value + data[at + len(value):])


def test_handmade_layouts(tmp_path: Path, c_folder: Path, files: dict[str, Path]) -> None:
    """Values that a random mutation hardly finds."""
    image = images.copy_image(TINY)
    data = image.data
    port, strings, program = (image.sections[name][0] for name in ("ports", "strings", "program"))
    string_bytes = image.sections["strings"][1]
    assert strings + string_bytes < program  # there is padding to spoil
    rank = layout.PORT_RECORD.fields[3]
    shape = next(f for f in layout.PORT_RECORD.fields if f.name == "host_shape").offset
    assert rank.name == "host_rank"
    # 64 * 536838145 * 536903681 = 2^64 + 64: the right size only if the product wraps.
    wrapping = struct.pack("<H", 3), struct.pack("<8I", 64, 536838145, 536903681, 0, 0, 0, 0, 0)
    cases = Cases()
    for damaged in (
        patched(patched(data, port + rank.offset, wrapping[0]), port + shape, wrapping[1]),
        patched(data, 28, struct.pack("<I", string_bytes)),  # a name just behind the strings
        patched(data, strings + string_bytes, b"\1"),  # padding
        patched(data, program - 1, b"\1"),
        patched(data, strings + string_bytes - 1, b"x"),  # strings without an end
        patched(data, layout.HEADER.bytes - 1, b"\1"),  # reserved bytes
        patched(data, port + layout.PORT_RECORD.bytes - 1, b"\1"),
        patched(data, image.sections["buffers"][0] + layout.BUFFER_RECORD.bytes - 1, b"\1"),
        patched(data, 64 + 5 * 16 + 4, struct.pack("<I", 0xFFFFFFC0)),  # program offset that wraps
        patched(data, 64 + 5 * 16 + 8, struct.pack("<I", 0xFFFFFFFC)),
    ):
        cases.add(damaged, "WIA_E_LAYOUT")
    assert cases.run(tmp_path, c_folder, files["copy"]) == {CODES["WIA_E_LAYOUT"]: 10}


def test_corrupt_program_bytes_never_run(files: dict[str, Path]) -> None:
    """Image compares by content, so a test that mutates it by accident would show."""
    assert Image(files["copy"].read_bytes()) == images.copy_image(TINY)
