"""Codec lanes: streams worked out by hand, round trips, worst cases, refusals, sizes of the six MLPerf Tiny models."""
from __future__ import annotations

import heapq
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byoc_accel.errors import EncodeError
from byoc_accel.isa.lane_decode import LaneDecoder
from byoc_accel.isa.lane_layout import LaneShape, Work, conv_work, dwc_work
from byoc_accel.isa.lane_table import CLASSES, MAX_CODE_BITS, VALUE_CLASS, Table, code_lengths, unpack_table
from byoc_accel.isa.lanes import analyse, choose_table, encode, encode_steps, plan_tables

WTAB_BYTES = 20
SHAPE = LaneShape(16, 2)


def table(centre: int = 0, masks: bool = False, **lengths: int) -> Table:
    """A table from keywords like c7=1: the code word of class 7 has 1 bit."""
    all_lengths = [0] * CLASSES
    for name, length in lengths.items():
        all_lengths[int(name[1:])] = length
    return Table(tuple(all_lengths), centre, masks)


def work(*rows: tuple[int, ...], tiles: tuple[int, ...] = ()) -> Work:
    return Work(np.array(rows, np.int8), tiles or (len(rows),))


def words(*values: int) -> bytes:
    return np.array(values, "<u2").tobytes()


def stretch(layers: list[list[Work]], shape: LaneShape) -> list[tuple[Table, list[Work]]]:
    """Works of all layers under the planned tables."""
    parts, start = [], 0
    for chosen, count, _ in plan_tables(layers, shape):
        parts.append((chosen, [w for layer in layers[start:start + count] for w in layer]))
        start += count
    return parts


def check_round_trip(parts: list[tuple[Table, list[Work]]], shape: LaneShape) -> list[list[bytes]]:
    payloads = encode(parts, shape)
    decoder = LaneDecoder(shape)
    for index, ((chosen, works), part) in enumerate(zip(parts, payloads)):
        decoder.load(unpack_table(chosen.pack(), chosen.centre, chosen.masks), fresh=index == 0)
        for one, payload in zip(works, part):
            assert len(payload) % 4 == 0
            decoded = decoder.decode(payload, one.tiles, one.values.shape[1])
            np.testing.assert_array_equal(decoded.values, one.values)
            assert decoded.problem == ""
            starts = np.cumsum((0, *one.tiles))
            zero = [not one.values[a:b].any() for a, b in zip(starts, starts[1:])]
            assert decoded.present.tolist() == [not (z and chosen.masks) for z in zero]
    return payloads


def stream_bytes(payloads: list[list[bytes]]) -> int:
    return sum(len(payload) for part in payloads for payload in part)


# ---- by hand ----

def test_symbols_by_hand() -> None:
    # Code words: 1 or -1 = 0s, one zero = 10, 2 or -2 = 11s. Lane of column 0: 1, 2 = 00 110; of column 1: -1, 0 =
    # 01 10. Both lanes ask for two words first and for a third, which nothing is left for, before their second symbol.
    code = table(c7=1, c8=2, c0=2)
    payloads = encode([(code, [work((1, -1), (2, 0))])], LaneShape(2, 1))
    assert payloads == [[words(0b00_110 << 11, 0, 0b01_10 << 12, 0)]]


def test_two_rows_a_cycle_have_lanes_of_their_own() -> None:
    # Rows 0 and 2 go to the lanes of parity 0, row 1 to those of parity 1.
    code = table(c7=1, c8=2, c0=2)
    payloads = encode([(code, [work((1,), (2,), (-1,))])], LaneShape(1, 2))
    assert payloads == [[words(0b0001 << 12, 0, 0b110 << 13, 0)]]


def test_bucket_offset_comes_before_the_sign() -> None:
    # |v| = 71: m = 70 is in the first bucket of the octave 64..127 (class 7 + 20), offset 6 of 16.
    code = table(c27=1, c31=1)
    assert encode([(code, [work((-71,), (127,))])], LaneShape(1, 1)) == [[words(0b0_0110_1_10 << 8, 0)]]


def test_runs_by_hand() -> None:
    # 5 zeros are class 2 with 1 of 2 bits; after the last weight zeros go on to the end.
    code = table(c2=1, c6=2, c7=2)
    column = work(*[(v,) for v in (0, 0, 0, 0, 0, 1, 0, 0)])
    assert encode([(code, [column])], LaneShape(1, 1)) == [[words(0b0_01_11_0_10 << 8, 0)]]


def test_a_long_run_is_cut() -> None:
    # 70 zeros = 63 (class 5, 31) and 7 (class 2, 3).
    code = table(c5=1, c2=2, c7=2)
    values = np.array([[0]] * 70 + [[1]], np.int8)
    assert encode([(code, [Work(values, (71,))])], LaneShape(1, 1)) == [[words(0b0_11111_10_11_11_0 << 3, 0)]]


def test_a_centre_moves_every_value() -> None:
    # Around -13: -13 is a zero, -12 is 1, -14 is -1; a value wraps modulo 256.
    code = table(centre=-13, c7=1, c0=2, c26=2)
    payload = encode([(code, [work((-12,), (-13,), (-14,))])], LaneShape(1, 1))
    assert payload == [[words(0b00_10_01 << 10, 0)]]
    check_round_trip([(table(centre=100, c7=1, c0=1), [work((101,), (100,), (99,))])], LaneShape(1, 1))


def test_masks_by_hand() -> None:
    # Tile 0: rows 0 and 2 of 3 (11 101). Tile 1: none (10). Tile 2 of the second work: as remembered (0).
    code = table(masks=True, c7=1, c0=1)
    first = work((1, 1), (0, 0), (1, 1), (0, 0), tiles=(3, 1))
    second = work((1, 1), (0, 0), (-1, 1), tiles=(3,))
    # Words 1s for 1 or -1, 0 for a zero. The control lane asks for 3 words, then for one more before its second symbol;
    # a weight lane for 2 and one more. The zero words after the last bits are left out.
    control = 0b0_11101_10_0_0 << 6
    left, right = 0b10_10_10_11 << 8, 0b10_10_10_10 << 8
    assert encode([(code, [first, second])], LaneShape(2, 1)) == [[words(control, 0, 0, 0, left, 0, right, 0), b""]]
    check_round_trip([(code, [first, second])], LaneShape(2, 1))


def test_column_mask_by_hand() -> None:
    code = table(masks=True, c7=1, c0=1)
    one = work((0, 1, 0, 0, 0, -1))
    control = 0b1_010001_0 << 8
    assert encode([(code, [one])], LaneShape(6, 1)) == [[words(control, 0, 0, 0, 0b10 << 14, 0, 0b11 << 14, 0)]]


def test_a_word_too_many_stays_in_the_decoder() -> None:
    # One lane: the first work asks for 2 words, the next ones for a third, and so on; payloads hold pairs.
    code = table(c27=1, c30=1)
    works = [work((-71,)) for _ in range(12)]  # 6 bits each, the last word asked for has no bits left
    payloads = encode([(code, works)], LaneShape(1, 1))[0]
    # Words asked for: 2, 3, 3, 4, 4, 4, 5, 5, ... The 72 bits of all symbols fill 5 words; one zero word pads.
    assert [len(p) for p in payloads] == [4, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0]
    check_round_trip([(code, works)], LaneShape(1, 1))


def test_words_of_each_group_are_reported() -> None:
    code = table(c27=1, c30=1)
    payloads = encode([(code, [work(*[(-71, -71)] * 5)])], LaneShape(2, 2))
    decoder = LaneDecoder(LaneShape(2, 2))
    decoder.load(code, fresh=True)
    # 4 lanes start with 2 words; before their second symbol each asks for one more; row 4 is alone in its group, its
    # lanes have used 12 bits and have already asked for the third word.
    assert decoder.decode(payloads[0][0], (5,), 2).words == ((0, 8, 4, 0),)


# ---- tables ----

def test_classes_by_hand() -> None:
    expected = {1: 7, -1: 7, 2: 8, 8: 14, 9: 15, 10: 15, 11: 16, 16: 18, 17: 19, 20: 19, 64: 26, 65: 27, 112: 29,
                113: 30, 126: 30, 127: 31, -127: 31, -128: 30, -126: 30, -9: 15}
    assert {v: int(VALUE_CLASS[v & 255]) for v in expected} == expected


def test_codes_are_canonical() -> None:
    code = table(c3=2, c9=1, c10=3, c30=3)
    assert {i: int(code.codes()[i]) for i in (9, 3, 10, 30)} == {9: 0b0, 3: 0b10, 10: 0b110, 30: 0b111}
    assert code.pack().hex() == "00200000" "10030000" "00000000" "00000003"
    assert unpack_table(code.pack(), 0, False) == code


@given(st.lists(st.integers(0, 1 << 20), min_size=CLASSES, max_size=CLASSES))
def test_lengths_are_those_of_huffman_when_the_limit_allows(counts: list[int]) -> None:
    lengths = code_lengths(counts)
    assert max(lengths) <= MAX_CODE_BITS
    assert sum(2.0 ** -n for n in lengths if n) == 1
    assert all(n > 0 for n, count in zip(lengths, counts) if count)
    heap = [(count, index) for index, count in enumerate(counts) if count]
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        a, b = heapq.heappop(heap), heapq.heappop(heap)
        total += a[0] + b[0]
        heapq.heappush(heap, (a[0] + b[0], CLASSES + len(heap)))
    bits = sum(n * count for n, count in zip(lengths, counts))
    if sum(1 for count in counts if count) > 1:
        assert bits >= total
        unlimited = code_lengths(counts, CLASSES)
        assert sum(n * count for n, count in zip(unlimited, counts)) == total


def test_limited_lengths_are_the_best() -> None:
    counts = [1, 2, 4, 8, 16]
    complete = [n for n in product(range(1, 4), repeat=5) if sum(2.0 ** -x for x in n) <= 1]
    best = min(sum(a * b for a, b in zip(n, counts)) for n in complete)
    assert sum(a * b for a, b in zip(code_lengths(counts, 3), counts)) == best


@pytest.mark.parametrize("lengths", [[1], [1, 1, 1], [12, 1], [0] * 32, [16] * 32])
def test_incomplete_tables_are_refused(lengths: list[int]) -> None:
    with pytest.raises(EncodeError):
        Table(tuple(lengths + [0] * (CLASSES - len(lengths))))


def test_neighbouring_layers_share_a_table_and_different_ones_do_not() -> None:
    rng = np.random.default_rng(1)
    small = [Work(np.clip(rng.normal(0, 20, (64, 16)).round(), -127, 127).astype(np.int8), (16,) * 4) for _ in "ab"]
    narrow = Work(rng.integers(-2, 3, (256, 16)).astype(np.int8), (16,) * 16)
    assert [n for _, n, _ in plan_tables([[small[0]], [small[1]], [narrow]], SHAPE)] == [2, 1]


def test_the_analysis_of_a_single_layer_serves_its_table() -> None:
    """One layer around 0, one around 30, one with zero rows: each has a table of its own."""
    rng = np.random.default_rng(6)
    layers = [[Work(rng.normal(30 * i, 9, (320, 16)).round().astype(np.int8), (16,) * 20)] for i in (0, 1)]
    layers.append([Work(layers[0][0].values * (rng.random((320, 1)) < 0.7).astype(np.int8), (16,) * 20)])
    planned = plan_tables(layers, SHAPE)
    assert [(p.layers, p.table.masks) for p in planned] == [(1, False), (1, False), (1, True)]
    assert planned[1].table.centre > 20 and all(p.batch is not None for p in planned)
    parts = [(p.table, works) for p, works in zip(planned, layers)]
    again = encode_steps(parts, SHAPE, [p.batch for p in planned])
    assert [[e.payload for e in part] for part in again] == check_round_trip(parts, SHAPE)


@pytest.mark.parametrize("rows", [4095, 4096, 4097])  # below 65,536 weights bytes are counted, then pairs of them
def test_values_are_counted(rows: int) -> None:
    values = np.random.default_rng(7).integers(-128, 128, (rows, 16)).astype(np.int8)
    values[:3] = 5
    found = analyse([Work(values, (1,) * rows)], LaneShape(16, 1), 5, False)
    assert found.by_value.tolist() == [int((values == value).sum()) for value in (*range(128), *range(-128, 0))]
    odd = values.reshape(-1)[:-1][None]
    assert analyse([Work(odd, (1,))], LaneShape(odd.size, 1), 0, False).by_value.sum() == odd.size


def test_an_off_centre_layer_gets_a_centre() -> None:
    values = np.random.default_rng(2).normal(-13, 5, (256, 16)).round().astype(np.int8)
    chosen, _ = choose_table([Work(values, (16,) * 16)], SHAPE)
    assert chosen.centre == -13


def test_equal_weights_cost_a_symbol_per_lane() -> None:
    """Sums of average pools: around a centre of 1 all is one run, of one bit in each lane of an instruction."""
    pools = [Work(np.ones((15, 16), np.int8), (15,)) for _ in range(36)]
    chosen, _ = choose_table(pools, SHAPE)
    # 36 bits are 3 words in each of 32 lanes; the two words that a lane holds ahead are zeros.
    assert chosen.centre == 1 and stream_bytes(encode([(chosen, pools)], SHAPE)) <= 32 * 3 * 2


# ---- round trips ----

@st.composite
def layers(draw: st.DrawFn) -> tuple[list[list[Work]], LaneShape]:
    shape = LaneShape(draw(st.integers(1, 6)), draw(st.integers(1, 4)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    result = []
    for _ in range(draw(st.integers(1, 3))):
        works = []
        spread, zeros, dead = draw(st.sampled_from((0.3, 2, 30, 500))), draw(st.sampled_from((0, .5, .97))), draw(
            st.sampled_from((0, .3, .8)))
        centre = draw(st.sampled_from((0, 0, -13, 120)))
        for _ in range(draw(st.integers(1, 4))):
            tiles = tuple(draw(st.lists(st.integers(1, 32), min_size=1, max_size=5)))
            size = (sum(tiles), draw(st.integers(1, shape.columns)))
            values = np.clip(rng.normal(centre, spread, size).round(), -128, 127)
            values *= (rng.random(size) >= zeros) & (rng.random((size[0], 1)) >= dead) & (rng.random(size[1]) >= dead)
            works.append(Work(values.astype(np.int8), tiles))
        result.append(works)
    return result, shape


@given(layers())
def test_round_trip(case: tuple[list[list[Work]], LaneShape]) -> None:
    works, shape = case
    check_round_trip(stretch(works, shape), shape)


@given(layers(), st.booleans(), st.integers(-128, 127))
def test_round_trip_under_any_table(case: tuple[list[list[Work]], LaneShape], masks: bool, centre: int) -> None:
    works, shape = case
    flat = Table((5,) * CLASSES, centre, masks)
    check_round_trip([(flat, layer) for layer in works], shape)


def test_masks_of_far_tiles_are_remembered_modulo_256() -> None:
    values = np.zeros((600, 2), np.int8)
    values[::3] = 5
    parts = [(table(masks=True, c11=1, c0=1), [Work(values, (2,) * 300), Work(values, (2,) * 300)])]
    check_round_trip(parts, LaneShape(2, 1))


def test_conv_and_dwc_works_keep_the_order_of_tiles() -> None:
    weights = np.arange(2 * 3 * 5 * 4).reshape(2, 3, 5, 4).astype(np.int8)
    conv = conv_work(weights, 2)
    assert conv.tiles == (2, 2, 1) * 6
    np.testing.assert_array_equal(conv.values[7], weights[0, 1, 2])
    taps = dwc_work(weights[:, :, 0])
    assert taps.tiles == (6,)
    np.testing.assert_array_equal(taps.values[4], weights[1, 1, 0])


# ---- worst cases ----

@pytest.mark.parametrize("name, values, most", [
    ("zeros", np.zeros((1024, 16)), 20),
    ("all -128", np.full((1024, 16), -128), 128),
    ("all 5", np.full((1024, 16), 5), 128),
    ("one column", np.random.default_rng(3).integers(-128, 128, (1024, 1)), 1024 * 1.01 + 40),
    ("random", np.random.default_rng(4).integers(-128, 128, (1024, 16)), 16384 * 1.01),
    ("two values", np.random.default_rng(5).choice([-128, 127], (1024, 16)), 16384 * 4.02 / 8),
], ids=lambda p: p if isinstance(p, str) else "")
def test_worst_cases(name: str, values: np.ndarray, most: float) -> None:
    one = Work(values.astype(np.int8), (16,) * 64)
    chosen, _ = choose_table([one], SHAPE)
    assert stream_bytes(check_round_trip([(chosen, [one])], SHAPE)) <= most


def test_every_symbol_can_have_16_bits() -> None:
    # Classes 30 and 29 have the longest words and the most extra bits: a lane asks for at most one word per row.
    lengths = [0] * CLASSES
    for length, index in enumerate([7, 8, 9, 10, 11, 12, 13, 14, 15, 16], start=1):
        lengths[index] = length
    lengths[29] = lengths[30] = MAX_CODE_BITS
    one = Work(np.full((64, 16), -128, np.int8), (16,) * 4)
    payload = encode([(Table(tuple(lengths)), [one])], SHAPE)[0][0]
    assert len(payload) == 64 * 16 * 2
    decoder = LaneDecoder(SHAPE)
    decoder.load(Table(tuple(lengths)), fresh=True)
    groups = [n for tile in decoder.decode(payload, one.tiles, 16).words for n in tile]
    assert sorted(set(groups)) == [0, 32, 64]


# ---- refusals ----

def test_weights_without_a_code_word_are_refused() -> None:
    with pytest.raises(EncodeError, match="weight -3 "):
        encode([(table(c7=1, c0=1), [work((1,), (-3,))])], LaneShape(1, 1))
    with pytest.raises(EncodeError, match="class 6 "):
        encode([(table(c7=1, c0=1), [work((1,), (0,), (0,))])], LaneShape(1, 1))


def test_more_columns_than_the_array_are_refused() -> None:
    with pytest.raises(EncodeError, match="3 columns"):
        choose_table([work((1, 2, 3))], LaneShape(2, 1))


@pytest.mark.parametrize("values, tiles", [
    (np.zeros((4, 2)), (4,)), (np.zeros((4, 2), np.int8), (3,)), (np.zeros((0, 2), np.int8), ()),
    (np.zeros(4, np.int8), (4,))])
def test_malformed_works_are_refused(values: np.ndarray, tiles: tuple[int, ...]) -> None:
    with pytest.raises(EncodeError, match="lanes: "):
        Work(values, tiles)


def test_the_decoder_names_what_no_encoder_makes() -> None:
    code = table(c27=1, c30=1)
    works = [work((-71,)), work((-71,))]
    payloads = encode([(code, works)], LaneShape(1, 1))[0]
    decoder = LaneDecoder(LaneShape(1, 1))
    with pytest.raises(EncodeError, match="no table"):
        decoder.decode(payloads[0], (1,), 1)
    decoder.load(code, fresh=True)
    assert "leave 4 of them unused" in decoder.decode(payloads[0] + bytes(4), (1,), 1).problem
    decoder.load(code, fresh=True)
    assert decoder.decode(b"", (1,), 1).values.tolist() == [[65]]  # zero words: class 27, offset 0, positive
    assert "ended early" in decoder.decode(bytes(4), (1,), 1).problem


def test_a_stretch_ends_with_close() -> None:
    decoder = LaneDecoder(LaneShape(1, 1))
    code = table(c27=1, c30=1)
    with pytest.raises(EncodeError, match="no stretch to go on with"):
        decoder.load(code, fresh=False)
    decoder.load(code, fresh=True)
    decoder.close()
    with pytest.raises(EncodeError, match="no table"):
        decoder.decode(bytes(4), (1,), 1)
    with pytest.raises(EncodeError, match="no stretch to go on with"):
        decoder.load(code, fresh=False)


@given(st.binary(max_size=200).map(lambda data: data[:len(data) // 4 * 4]), st.booleans())
def test_any_bytes_are_weights(payload: bytes, masks: bool) -> None:
    decoder = LaneDecoder(LaneShape(4, 2))
    decoder.load(Table((5,) * CLASSES, 0, masks), fresh=True)
    for _ in range(2):
        assert decoder.decode(payload, (32, 5), 4).values.shape == (37, 4)
        assert decoder.carried_words <= 1


# ---- real models ----

MODELS = {
    # file: stream bytes, wtab instructions, bytes of Vela 5.2.0 for an Ethos-U55-256
    "ad01_int8": (172548, 9, 184464),
    "kws_ref_model": (21256, 4, 24016),
    "pretrainedResnet_quant": (71536, 4, 74576),
    "vww_96_int8": (34784, 18, 47328),
    "str_ww_ref_model": (44092, 6, 47424),
    "pretrainedResnet_large_int8": (384020, 9, 440880),
}


def model_weights(path: Path) -> list[list[Work]]:
    """Works per conv, depthwise or dense operator of a TFLite file, 16 output channels each, kernel rows as runs."""
    tflite = pytest.importorskip("tflite")
    model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
    graph = model.Subgraphs(0)
    kinds = tflite.BuiltinOperator
    result = []
    for index in range(graph.OperatorsLength()):
        operator = graph.Operators(index)
        code = model.OperatorCodes(operator.OpcodeIndex())
        kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        if kind not in (kinds.CONV_2D, kinds.DEPTHWISE_CONV_2D, kinds.FULLY_CONNECTED):
            continue
        tensor = graph.Tensors(operator.Inputs(1))
        weights = model.Buffers(tensor.Buffer()).DataAsNumpy().view(np.int8).reshape(tensor.ShapeAsNumpy())
        if kind == kinds.DEPTHWISE_CONV_2D:
            result.append([dwc_work(weights[0, :, :, c:c + 16]) for c in range(0, weights.shape[3], 16)])
            continue
        ohwi = weights.reshape(len(weights), *(weights.shape[1:3] if weights.ndim == 4 else (1, 1)), -1)
        rows = ohwi.transpose(1, 2, 3, 0).reshape(ohwi.shape[1], 1, -1, len(ohwi))
        result.append([conv_work(rows[..., c:c + 16], 16) for c in range(0, len(ohwi), 16)])
    return result


@pytest.mark.parametrize("name", MODELS)
def test_sizes_of_real_models(shared: Path, name: str) -> None:
    works = model_weights(shared / "models" / "mlperf_tiny" / f"{name}.tflite")
    parts = stretch(works, SHAPE)
    size = stream_bytes(check_round_trip(parts, SHAPE))
    assert (size, len(parts)) == MODELS[name][:2]
    assert size + WTAB_BYTES * len(parts) < MODELS[name][2]
