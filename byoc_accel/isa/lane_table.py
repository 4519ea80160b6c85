"""Codec lanes: the 32 symbol classes of a weight lane and the prefix code that a `wtab` instruction sends.

A symbol is the code word of its class (1 to 11 bits) followed by the extra bits of the class (0 to 5), most
significant bit first, so no symbol is longer than 16 bits:

class 0..5    a run of 2^class .. 2^(class+1) - 1 zeros; extra: run - 2^class
class 6       zeros to the end of the instruction
class 7..30   i = class - 7; m = |value| - 1 (for negative values ~value); i < 8: m = i; else with
              e = (i - 4) >> 2: m = ((4 + (i & 3)) << e) + offset; extra: offset (e bits), then the sign
class 31      |value| = 127, the largest weight of nearly every channel; extra: the sign

The value is counted from the table's centre, modulo 256: a layer whose weights lie around -13 is coded as well as
one around 0.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import EncodeError

CLASSES = 32
RUN_CLASSES = 6
REST = 6
FIRST_VALUE = 7
PEAK = 31
LONGEST_RUN = (1 << RUN_CLASSES) - 1
MAX_CODE_BITS = 11
TABLE_BYTES = CLASSES // 2


def _magnitude_bits(index: np.ndarray) -> np.ndarray:
    """Offset bits of value class FIRST_VALUE + index: four classes an octave, eight exact ones at the start."""
    return np.maximum((index - 4) >> 2, 0)


def _value_classes() -> tuple[np.ndarray, np.ndarray]:
    """Class uint8 (256,) and extra bits uint8 (256,) of the byte value & 255; those of 0 are not used."""
    values = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
    magnitude = np.where(values > 0, values - 1, ~values)
    octave = np.zeros(256, np.int64)
    for bits in range(1, 5):
        octave[magnitude >= 4 << bits] = bits
    group = (magnitude >> octave) + 4 * octave
    offset = magnitude & ((1 << octave) - 1)
    peak = magnitude == 126
    classes = np.where(peak, PEAK, FIRST_VALUE + group)
    extra = np.where(peak, 0, offset) << 1 | (values < 0)
    return classes.astype(np.uint8), extra.astype(np.uint8)


def _extra_bits() -> np.ndarray:
    index = np.arange(PEAK - FIRST_VALUE)
    return np.concatenate([np.arange(RUN_CLASSES), [0], _magnitude_bits(index) + 1, [1]])


#: Class of a byte value and its extra bits, by value & 255; extra bits of every class, by class.
VALUE_CLASS, VALUE_EXTRA = _value_classes()
EXTRA_BITS = _extra_bits()


@dataclass(frozen=True)
class Table:
    """State that `wtab` sets: `lengths` of the 32 code words in bits (0: the class is not used).

    centre: added to every decoded value, modulo 256. masks: instructions carry column and row masks.
    """

    lengths: tuple[int, ...]
    centre: int = 0
    masks: bool = False

    def __post_init__(self) -> None:
        if len(self.lengths) != CLASSES or not all(0 <= n <= MAX_CODE_BITS for n in self.lengths):
            raise EncodeError(f"wtab: {len(self.lengths)} lengths up to {max(self.lengths, default=0)} bits; "
                              f"give {CLASSES} of at most {MAX_CODE_BITS}")
        filled = sum(1 << (MAX_CODE_BITS - n) for n in self.lengths if n)
        if filled != 1 << MAX_CODE_BITS:
            raise EncodeError(f"wtab: the code words fill {filled} of {1 << MAX_CODE_BITS} codes; "
                              "their lengths must fill them exactly")
        if not -128 <= self.centre <= 127:
            raise EncodeError(f"wtab: centre = {self.centre}; allowed are -128 to 127")

    def codes(self) -> np.ndarray:
        """Code words, int64 (CLASSES,): ascending by length, then by class, from 0 on."""
        codes, code = np.zeros(CLASSES, np.int64), 0
        for length in range(1, MAX_CODE_BITS + 1):
            code <<= 1
            for index, bits in enumerate(self.lengths):
                if bits == length:
                    codes[index] = code
                    code += 1
        return codes

    def class_symbols(self, classes: np.ndarray, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Symbols uint16 and their lengths in bits uint8 of `classes` with their `extra` bits.

        Raises EncodeError naming a class without a code word.
        """
        lengths = np.array(self.lengths)
        symbols = self.codes()[classes] << EXTRA_BITS[classes] | extra
        if classes.size and not lengths[classes].all():
            missing = int(classes[lengths[classes] == 0].min())
            raise EncodeError(f"lanes: class {missing} has no code word in the table; make one from these weights")
        return symbols.astype(np.uint16), (lengths + EXTRA_BITS)[classes].astype(np.uint8)

    def value_symbols(self) -> tuple[np.ndarray, np.ndarray]:
        """Symbols uint16 (256,) and lengths uint8 (256,) by weight & 255; length 0 for the centre and what has none."""
        index = (np.arange(256) - self.centre) & 255
        classes = VALUE_CLASS[index].astype(np.int64)
        usable = (np.array(self.lengths)[classes] > 0) & (index != 0)
        symbols = self.codes()[classes] << EXTRA_BITS[classes] | VALUE_EXTRA[index]
        bits = (np.array(self.lengths) + EXTRA_BITS)[classes]
        return np.where(usable, symbols, 0).astype(np.uint16), np.where(usable, bits, 0).astype(np.uint8)

    def pack(self) -> bytes:
        """Payload of wtab: 4 bits per class, class 0 in the low half of the first byte."""
        return bytes(low | high << 4 for low, high in zip(self.lengths[::2], self.lengths[1::2]))


def unpack_table(payload: bytes, centre: int, masks: bool) -> Table:
    """Inverse of `Table.pack`; raises EncodeError when the bytes are no complete prefix code."""
    if len(payload) != TABLE_BYTES:
        raise EncodeError(f"wtab: payload of {len(payload)} bytes; it has {TABLE_BYTES}")
    return Table(tuple(n for byte in payload for n in (byte & 15, byte >> 4)), centre, masks)


def code_lengths(counts: Sequence[int], limit: int = MAX_CODE_BITS) -> tuple[int, ...]:
    """Lengths of the prefix code with the fewest bits for classes of these counts, none above `limit` bits.

    Package-merge (Larmore and Hirschberg 1990), equal weights in class order. At least two classes get a word, so that
    the code is complete.
    """
    used = [(int(count), (index,)) for index, count in enumerate(counts) if count]
    for index in range(len(counts)):
        if len(used) < 2 and not counts[index]:
            used.append((0, (index,)))
    used.sort(key=lambda item: item[0])
    level: list[tuple[int, tuple[int, ...]]] = []
    for _ in range(limit):
        packages = [(a[0] + b[0], a[1] + b[1]) for a, b in zip(level[::2], level[1::2])]
        level = sorted(used + packages, key=lambda item: item[0])
    lengths = [0] * len(counts)
    for _, members in level[: 2 * len(used) - 2]:
        for index in members:
            lengths[index] += 1
    return tuple(lengths)
