"""The image fuzz target without a fuzzer: the committed corpus, and mutations of it, under sanitizers."""
from __future__ import annotations

import random
from pathlib import Path

import pytest

from byoc_accel.container.image import unpack
from byoc_accel.target import load_target
from tests.runtime_c import building, images

CORPUS = Path(__file__).parent / "corpus" / "image"
TINY = load_target("tiny")
SEEDS = {"copy": images.copy_image, "twins": images.twins_image, "conv": images.conv_image}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """fuzz_image.c with replay.c as its main."""
    folder = tmp_path_factory.mktemp("fuzz")
    flags = ["-std=gnu11", *building.SANITIZERS, *building.WARNINGS, *[f"-I{i}" for i in building.INCLUDES]]
    shared = building.objects(folder / "objects", [*building.CORE, "runtime_c/hal/hal_sim.c", *building.SIMULATOR],
                              ["-std=gnu11", *building.SANITIZERS])
    path = folder / "fuzz_image"
    building.run_cc([*flags, "tests/fuzz/fuzz_image.c", "tests/fuzz/replay.c", *shared, "-o", str(path)])
    return path


def mutations(data: bytes, count: int, seed: int) -> list[bytes]:
    """`count` damaged copies: a few bytes, words or bits changed, mostly in the records and the program."""
    choice = random.Random(seed)
    made = []
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(choice.choice((1, 1, 1, 2, 4))):
            at = choice.randrange(len(data)) if choice.random() < 0.3 else choice.randrange(160, len(data))
            kind = choice.randrange(4)
            if kind == 0:
                damaged[at] = choice.choice((0, 1, 3, 4, 127, 128, 255))
            elif kind == 1:
                damaged[at] ^= 1 << choice.randrange(8)
            elif kind == 2:
                damaged[at] = (damaged[at] + choice.choice((-1, 1))) & 255
            else:
                word = choice.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)).to_bytes(4, "little")
                damaged[at // 4 * 4:at // 4 * 4 + 4] = word
        if choice.random() < 0.05:
            del damaged[choice.randrange(len(damaged)):]
        made.append(bytes(damaged[:len(data)]))
    return made


def test_corpus_holds_the_seeds() -> None:
    """Regenerate with tests/fuzz/corpus/image when the format changes; each seed is a valid image."""
    for name, make in SEEDS.items():
        assert (CORPUS / f"{name}.wia").read_bytes() == make(TINY).data
        unpack((CORPUS / f"{name}.wia").read_bytes())


def test_replay(target: Path) -> None:
    files = sorted(CORPUS.iterdir())
    assert building.run(target, *files) == f"{len(files)} inputs\n"


def test_mutations(target: Path, tmp_path: Path) -> None:
    names = []
    for seed, name in enumerate(SEEDS):
        for index, data in enumerate(mutations((CORPUS / f"{name}.wia").read_bytes(), 1500, seed)):
            path = tmp_path / f"{name}{index}"
            path.write_bytes(data)
            names.append(path)
    assert building.run(target, *names) == f"{len(names)} inputs\n"
