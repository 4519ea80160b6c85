"""Codec lanes: symbols of a lane -> its 16-bit words, and the step in which the decoder asks for each."""
from __future__ import annotations

import numpy as np

WORD_BITS = 16
LANE_WORDS_AHEAD = 2  # before a symbol a lane has asked for this many words beyond those it has begun
CONTROL_WORDS_AHEAD = 3  # the same for the control lane, whose symbols have up to 2 + array.rows bits


def control_words(steps: np.ndarray, symbols: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Steps in which the control lane asks for its words, and the words; those beyond its bits are zero.

    steps, symbols, sizes: for each symbol the step in which it is decoded, its bits and how many, by rising step.
    """
    if not len(steps):
        return np.zeros(0, np.int64), np.zeros(0, np.uint16)
    sizes = sizes.astype(np.int64)
    begin = np.cumsum(sizes) - sizes
    asked = -(-begin // WORD_BITS) + CONTROL_WORDS_AHEAD
    count = int(asked[-1])
    shifted = symbols.astype(np.uint64) << (64 - begin % WORD_BITS - sizes).astype(np.uint64)
    words = np.zeros(count + 3, np.int64)
    for place in range(CONTROL_WORDS_AHEAD + 1):
        part = (shifted >> np.uint64(WORD_BITS * (3 - place)) & np.uint64(0xFFFF)).astype(np.int64)
        words[place:] += np.bincount(begin // WORD_BITS, part, len(words) - place).astype(np.int64)
    return np.repeat(steps, np.diff(asked, prepend=0)), words[:count].astype(np.uint16)


def lane_words(steps: np.ndarray, symbols: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for the weight lanes of one parity, lane after lane.

    steps (rows,); symbols uint16 and sizes uint8 (lanes, rows): at most 16 bits each, size 0 for none. So every word up
    to the last one has a symbol that begins in it and, but for that one's end, ends in it or in the next.
    """
    lanes, rows = sizes.shape
    used = np.flatnonzero(sizes)
    if not len(used):
        return np.zeros(0, np.int64), np.zeros(0, np.uint16)
    size = sizes.ravel()[used]
    begin = np.cumsum(size, dtype=np.int32 if len(size) < (1 << 31) // WORD_BITS else np.int64) - size
    edges = np.searchsorted(used, np.arange(lanes + 1) * rows)
    filled = np.flatnonzero(np.diff(edges))
    for first, end in zip(edges[filled], edges[filled + 1]):
        begin[first:end] -= begin[first]
    changed = np.ones(len(used), bool)
    word = begin >> 4  # WORD_BITS is 2^4; a division takes several times as long
    np.not_equal(word[1:], word[:-1], out=changed[1:])
    changed[edges[filled]] = True
    starts = np.flatnonzero(changed)  # the first symbol of every word
    offset = (begin & 15).astype(np.uint8)
    shifted = symbols.ravel()[used].astype(np.uint32) << (2 * WORD_BITS - offset - size)
    upto = np.cumsum(shifted, dtype=np.uint32)[np.append(starts[1:], len(used)) - 1]
    pairs = np.diff(upto, prepend=np.uint32(0))  # two words of bits: the sums wrap, what lies between two of them fits
    after = starts + (offset[starts] == 0)  # the symbol that asks for the word LANE_WORDS_AHEAD further on

    first = np.searchsorted(starts, edges)
    count = np.zeros(lanes, np.int64)
    count[filled] = np.diff(first)[filled] + 1 + (offset[edges[filled + 1] - 1] > 0)
    out = np.cumsum(count) - count
    words, asked = np.zeros(int(count.sum()), np.uint16), np.empty(int(count.sum()), np.int64)
    for lane in filled.tolist():
        pair = pairs[first[lane]:first[lane + 1]]
        mine = words[out[lane]:out[lane] + count[lane]]
        mine[:len(pair)] = pair >> WORD_BITS
        mine[1:len(pair) + 1] |= pair.astype(np.uint16)
        asks = np.concatenate([edges[[lane] * LANE_WORDS_AHEAD], after[first[lane]:first[lane + 1]]])[:count[lane]]
        asked[out[lane]:out[lane] + count[lane]] = steps[used[asks] - lane * rows]
    return asked, words
