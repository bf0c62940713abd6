"""Every codec on random, real and hostile input, against oracles written a second time."""

from __future__ import annotations

import random
import struct
import threading
import tracemalloc
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.fusion.extend import prefill_chunk
from cacheblend.kv import ChunkKey, ChunkKV, ChunkLostError, LayerKV
from cacheblend.kv.codecs import CODECS, LEVELS, codec, decode
from cacheblend.kv.codecs.arrays import Reader, floats, place
from cacheblend.kv.codecs.cachegen import CacheGen
from cacheblend.kv.codecs.entropy import Coder, pack, unpack
from cacheblend.kv.encoded import EncodedChunk, materialise
from cacheblend.models.layerwise import LayerwiseModel
from tests.tiny import random_ids, tiny

LOSSY = [name for name in CODECS if name != "lossless"]
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
SHAPES = [(0, 2, 8), (1, 2, 8), (2, 1, 1), (9, 1, 4), (10, 3, 64), (11, 2, 8), (137, 3, 16)]


def random_layer(shape=(64, 2, 16), dtype=torch.bfloat16, seed=0) -> LayerKV:
    """Keys with offsets and scales by channel, values with scales by token, as models make them."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda *size: torch.randn(*size, generator=generator)  # noqa: E731
    keys = 3 * normal(1, *shape[1:]) + normal(1, *shape[1:]).exp() * normal(*shape)
    values = (0.3 * normal(shape[0], 1, 1)).exp() * normal(*shape)
    return LayerKV(keys.to(dtype), values.to(dtype))


def empty_like(kv: LayerKV) -> LayerKV:
    """Tensors to decode into, full of what must be overwritten."""
    return LayerKV(torch.full_like(kv.keys, torch.nan), torch.full_like(kv.values, torch.nan))


def round_trip(name: str, kv: LayerKV, layer: int = 0, num_layers: int = 1) -> LayerKV:
    """Encode and decode."""
    out = empty_like(kv)
    decode(name, codec(name).encode(kv, layer, num_layers), out)
    return out


def relative_error(out: torch.Tensor, kv: torch.Tensor) -> float:
    """L2 distance as a share of the original's norm."""
    return float((out.float() - kv.float()).norm() / kv.float().norm())


# Round trips


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_and_dtype_comes_back_near(name, dtype, shape):
    kv = random_layer(shape, dtype)
    out = round_trip(name, kv)
    for decoded, original in ((out.keys, kv.keys), (out.values, kv.values)):
        assert decoded.isfinite().all()
        if original.numel():
            assert relative_error(decoded, original) < 0.35


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("constant", [0.0, -2.5, 1e30, 1e-30])
def test_constant_channels_come_back(name, constant):
    kv = LayerKV(torch.full((23, 2, 4), constant), torch.full((23, 2, 4), constant))
    out = round_trip(name, kv)
    assert torch.allclose(out.keys, kv.keys, rtol=1e-3, atol=0)
    assert torch.allclose(out.values, kv.values, rtol=1e-3, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_int8_is_within_half_a_step_of_every_number(dtype):
    kv = random_layer((50, 2, 8), dtype)
    out = round_trip("int8", kv)
    for decoded, original, dims in ((out.keys, kv.keys, (0,)), (out.values, kv.values, (1, 2))):
        exact = original.double()
        step = (exact.amax(dims, keepdim=True) - exact.amin(dims, keepdim=True)) / 255
        rounding = torch.finfo(dtype).eps * exact.abs()  # of the dtype that is written
        assert ((decoded.double() - exact).abs() <= 0.501 * step + rounding).all()


def oracle(tensor: torch.Tensor, bins: float, power: float) -> torch.Tensor:
    """CacheGen's quantisation alone, number by number in double precision: no delta, no coder, no outliers."""
    tokens, heads, dims = tensor.shape
    values = tensor.double()
    peak = values.abs().max()
    scaled, means, factors = (
        torch.zeros_like(values),
        torch.zeros(heads, dims).double(),
        torch.zeros(tokens, heads).double(),
    )
    for head in range(heads):
        for dim in range(dims):
            means[head, dim] = float((values[:, head, dim] / peak).mean().half())
        for token in range(tokens):
            size = (values[token, head] / peak).square().mean().sqrt()
            factors[token, head] = 2 ** (torch.round(4 * power * size.log2()) / 4)
            scaled[token, head] = (values[token, head] / peak - means[head]) / factors[token, head]
    step = bins * scaled.std(dim=0, correction=0).mean()
    return (torch.round(scaled / step) * step * factors[:, :, None] + means) * peak


def test_cachegen_is_its_quantisation_and_nothing_else():
    kv = random_layer((40, 2, 8), torch.float32)
    kv = LayerKV(kv.keys, kv.keys.flip(0))  # without outliers
    level = CacheGen(name="x", bins=(0.3, 0.3, 0.3))
    out = empty_like(kv)
    level.decode(level.encode(kv, 0, 1), out)
    for decoded, original, power in zip((out.keys, out.values), (kv.keys, kv.values), level.powers, strict=True):
        near = (decoded.double() - oracle(original, 0.3, power)).abs() < 1e-5 * original.abs().max()
        assert near.float().mean() > 0.99  # a number halfway between two may fall to either side


@pytest.mark.parametrize("coder", Coder)
@pytest.mark.parametrize("shares", [(0,), (4,), (1, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("group", [2, 10, 255])
def test_neither_deltas_nor_the_coder_change_a_single_number(coder, shares, group):
    kv = with_outlier(20)  # an anchor in every group size below but one
    plain = CacheGen(name="plain", bins=(0.2, 0.2, 0.2), shares=(0,))
    other = CacheGen(name="other", bins=(0.2, 0.2, 0.2), shares=shares, group=group, coder=coder)
    expected, out = empty_like(kv), empty_like(kv)
    plain.decode(plain.encode(kv, 0, 1), expected)
    other.decode(other.encode(kv, 0, 1), out)
    assert torch.equal(out.keys, expected.keys)
    assert torch.equal(out.values, expected.values)


def test_deltas_pay_where_neighbouring_tokens_are_alike_and_do_no_harm_elsewhere():
    generator = torch.Generator().manual_seed(1)
    slow = torch.randn(60, 2, 16, generator=generator).repeat_interleave(10, dim=0)
    alike = slow + 0.2 * torch.randn(600, 2, 16, generator=generator)
    shuffled = alike[torch.randperm(600, generator=generator)]
    size = {
        (name, shares): len(CacheGen(name="x", bins=(0.1,) * 3, shares=shares).encode(LayerKV(kv, kv), 0, 1))
        for name, kv in (("alike", alike), ("shuffled", shuffled))
        for shares in ((0,), (4,), (0, 1, 2, 3, 4))
    }
    free = (0, 1, 2, 3, 4)
    assert size["alike", free] < 0.8 * size["alike", (0,)]
    assert size["shuffled", free] <= 1.002 * size["shuffled", (0,)] < size["shuffled", (4,)]


def test_rounding_keeps_the_largest_half_finite():
    out = torch.empty(2, dtype=torch.float16)
    place(np.array([65530.0, -70000.0], np.float32), out)
    assert out.tolist() == [65504.0, -65504.0]


def with_outlier(token: int) -> LayerKV:
    """A layer in which one token's keys lie far outside the range of their channels."""
    kv = random_layer((133, 2, 16), torch.float32)
    kv.keys[:, :, 0] += 40
    kv.keys[token] = 1e-4 * torch.randn(2, 16, generator=torch.Generator().manual_seed(3))
    return kv


def test_a_token_far_out_of_range_is_kept_in_sixteen_bits():
    kv = with_outlier(5)
    out = round_trip("cachegen-3", kv)
    assert (out.keys[5] - kv.keys[5]).abs().max() <= kv.keys[5].abs().max() / 32767


def test_small_tokens_are_kept_as_exactly_as_large_ones():
    kv = random_layer((100, 2, 16), torch.float32)
    kv.values[7] /= 50
    out = round_trip("cachegen-2", kv)
    errors = [relative_error(out.values[token], kv.values[token]) for token in range(100)]
    assert errors[7] < 3 * float(np.median(errors))


# Sizes, levels, determinism


def test_levels_get_smaller_and_less_exact():
    kv = random_layer((512, 3, 64))
    names = ["lossless", "int8", *(level.name for level in LEVELS)]
    sizes = [len(codec(name).encode(kv, 0, 1)) for name in names]
    errors = [relative_error(round_trip(name, kv).keys, kv.keys) for name in names]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)
    assert errors == sorted(errors)
    assert kv.nbytes / sizes[names.index("cachegen-2")] > 3.2


def test_bins_belong_to_thirds_of_the_layers():
    kv = random_layer((64, 2, 16))
    level = CacheGen(name="x", bins=(0.1, 0.3, 0.9))
    sizes = [len(level.encode(kv, layer, 6)) for layer in range(6)]
    assert sizes[0] == sizes[1] > sizes[2] == sizes[3] > sizes[4] == sizes[5]


@pytest.mark.parametrize("name", CODECS)
def test_the_same_input_gives_the_same_bytes_and_is_not_changed(name):
    kv, same = random_layer(), random_layer()
    assert codec(name).encode(kv, 1, 5) == codec(name).encode(same, 1, 5) == codec(name).encode(kv, 1, 5)
    assert torch.equal(kv.keys, same.keys) and torch.equal(kv.values, same.values)


@pytest.mark.parametrize("name", CODECS)
def test_views_are_encoded_and_decoded_into(name):
    whole = random_layer((90, 2, 16))
    part = whole.rows(20, 60)
    buffers = empty_like(whole)
    decode(name, codec(name).encode(part, 0, 1), buffers.rows(5, 45))
    copied = round_trip(name, LayerKV(part.keys.clone(), part.values.clone()))
    assert torch.equal(buffers.keys[5:45], copied.keys)
    assert buffers.keys[:5].isnan().all() and buffers.keys[45:].isnan().all()


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_is_refused(name, bad, dtype):
    kv = random_layer(dtype=dtype)
    kv.values[3, 1, 2] = bad
    with pytest.raises(ValueError, match="lossless"):
        codec(name).encode(kv, 0, 1)


@pytest.mark.parametrize("name", LOSSY)
def test_other_dtypes_are_refused(name):
    kv = random_layer(dtype=torch.float64)
    with pytest.raises(ValueError, match="float64"):
        codec(name).encode(kv, 0, 1)


def test_settings_that_cannot_be_are_refused():
    for wrong in (
        {"bins": (0.0, 1, 1)},
        {"group": 1},
        {"group": 256},
        {"shares": ()},
        {"shares": (5,)},
        {"powers": (2, 0)},
    ):
        with pytest.raises(ValueError):
            CacheGen(**{"name": "x", "bins": (1.0, 1.0, 1.0), **wrong})


@pytest.mark.parametrize("name", LOSSY)
def test_a_model_s_chunk_goes_through_its_stored_form(name):
    model = LayerwiseModel(tiny("qwen3"))
    ids = tuple(random_ids(50, seed=2))
    chunk = ChunkKV(ChunkKey.of("m", ids), ids, prefill_chunk(model, torch.tensor(ids)))
    decoded = materialise(EncodedChunk.of(chunk, codec(name)))
    assert decoded.codec == name
    for out, layer in zip(decoded.layers, chunk.layers, strict=True):
        assert relative_error(out.keys, layer.keys) < 0.35 and relative_error(out.values, layer.values) < 0.35


def test_threads_may_decode_at_once():
    kv = random_layer((256, 2, 16))
    payloads = {name: codec(name).encode(kv, 0, 1) for name in LOSSY}
    expected = {name: round_trip(name, kv) for name in LOSSY}
    wrong: list[str] = []

    def work(name: str) -> None:
        for _ in range(10):
            out = empty_like(kv)
            decode(name, payloads[name], out)
            if not torch.equal(out.values, expected[name].values):
                wrong.append(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in 2 * LOSSY]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# Damage


@pytest.mark.parametrize("name", CODECS)
def test_every_shortened_or_lengthened_payload_is_refused(name):
    kv = random_layer((12, 1, 8))
    payload = codec(name).encode(kv, 0, 1)
    for wrong in (*(payload[:end] for end in range(len(payload))), payload + b"\0", b""):
        with pytest.raises(ValueError):
            decode(name, wrong, empty_like(kv))


@pytest.mark.parametrize("name", LOSSY)
def test_another_shape_and_another_codec_s_payload_are_refused(name):
    kv = random_layer((12, 2, 8))
    for shape in ((11, 2, 8), (12, 1, 16), (12, 8, 2), (24, 2, 4)):
        with pytest.raises(ValueError):
            decode(name, codec(name).encode(kv, 0, 1), empty_like(random_layer(shape)))
    other = "int8" if name != "int8" else "cachegen-1"
    with pytest.raises(ValueError):
        decode(name, codec(other).encode(kv, 0, 1), empty_like(kv))


@pytest.mark.parametrize("name", LOSSY)
def test_damaged_payloads_decode_to_something_or_are_refused(name):
    kv = random_layer((40, 2, 8))
    payload = codec(name).encode(kv, 0, 1)
    rng, refused = random.Random(0), 0
    for _ in range(600):
        damaged = bytearray(payload)
        for _ in range(rng.choice((1, 1, 2, 8))):
            position = rng.randrange(len(damaged))
            damaged[position] = rng.randrange(256)
        start, length = rng.randrange(len(damaged)), rng.choice((0, 0, 4, 40))
        damaged[start : start + length] = rng.randbytes(length)
        try:
            out = empty_like(kv)
            with np.errstate(all="ignore"):  # damaged scales overflow
                decode(name, bytes(damaged), out)
            assert out.keys.isfinite().all() and out.values.isfinite().all()
        except ValueError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("name", LOSSY)
@settings(deadline=None)
@given(data=st.binary(max_size=300))
def test_noise_is_refused(name, data):
    kv = random_layer((4, 1, 4))
    header = codec(name).encode(kv, 0, 1)[:14]
    for noise in (data, header + data):
        try:
            with np.errstate(all="ignore"):
                decode(name, noise, empty_like(kv))
        except ValueError:
            continue
        assert noise.startswith(header)


def test_a_payload_cannot_ask_for_more_than_the_layer_holds():
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    blob = bomb.compress(bytes(50_000_000)) + bomb.flush()
    tracemalloc.start()
    with pytest.raises(ValueError, match="damaged"):
        unpack(Reader(packed([0] * 8, blob)), 16, 8)
    with pytest.raises(ValueError, match="ends early"):
        Reader(b"1234").take("<f4", 2**31, 2**31)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def packed(table_of: list[int], blob: bytes) -> bytes:
    """What `pack` would write with one table."""
    return bytes((Coder.HUFFMAN, 1, *table_of)) + struct.pack("<I", len(blob)) + blob


def test_a_column_without_a_table_is_refused():
    empty = zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    with pytest.raises(ValueError, match="damaged"):
        unpack(Reader(packed([1, 1], empty)), 16, 2)


def test_an_outlier_behind_the_last_token_is_refused():
    kv = with_outlier(20)
    payload = bytearray(codec("cachegen-3").encode(kv, 0, 1))
    where = 14 + 8 + 2 * 32  # behind the header, two numbers and the means of 32 channels
    assert struct.unpack_from("<II", payload, where) == (1, 20)
    struct.pack_into("<I", payload, where + 4, 133)
    with pytest.raises(ValueError, match="last token"):
        decode("cachegen-3", bytes(payload), empty_like(kv))


def test_ans_notices_a_flipped_bit():
    numbers = np.random.default_rng(0).normal(0, 4, (64, 8)).round().astype(np.int8)
    blob = bytearray(pack(numbers, 1, Coder.ANS))
    for position in range(len(blob) - 200, len(blob)):
        blob[position] ^= 1
        with pytest.raises(ValueError):
            unpack(Reader(bytes(blob)), 64, 8)
        blob[position] ^= 1


def test_a_damaged_layer_of_a_stored_chunk_is_a_lost_chunk():
    kv = random_layer((12, 2, 8))
    chunk = EncodedChunk.of(ChunkKV(ChunkKey("k"), tuple(range(12)), (kv,)), codec("cachegen-2"))
    with pytest.raises(ChunkLostError):
        materialise(EncodedChunk(chunk.header, (chunk.payloads[0][:-3],)))


# The parts


@settings(deadline=None)
@given(
    st.integers(0, 40), st.integers(1, 20), st.integers(1, 8), st.integers(0, 7), st.sampled_from(Coder), st.integers()
)
def test_integers_come_back_exactly(length, columns, num_tables, bits, coder, seed):
    rng = np.random.default_rng(seed % 2**32)
    numbers = (rng.normal(0, 2.0**bits / 3, (length, columns))).clip(-128, 127).astype(np.int8)
    reader = Reader(pack(numbers, num_tables, coder))
    assert np.array_equal(unpack(reader, length, columns), numbers)
    reader.end()


@pytest.mark.parametrize("coder", Coder)
def test_coding_comes_near_the_entropy(coder):
    numbers = np.random.default_rng(0).normal(0, 4, (512, 192)).round().astype(np.int8)
    counts = np.unique(numbers, return_counts=True)[1] / numbers.size
    entropy_bytes = -(counts * np.log2(counts)).sum() * numbers.size / 8
    assert entropy_bytes * 0.99 < len(pack(numbers, 8, coder)) < entropy_bytes * 1.03


@pytest.mark.parametrize("dtype", DTYPES)
def test_rounding_to_a_dtype_is_torch_s_own(dtype):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1000, generator=generator) * 10.0 ** torch.randint(-6, 4, (1000,), generator=generator)
    halfway = torch.tensor([1.00390625, 1.01171875, -1.00390625, 0.0, -0.0])  # bfloat16's ties
    values = torch.cat((values, halfway))
    out = torch.empty(len(values), dtype=dtype)
    place(values.numpy(), out)
    assert torch.equal(out, values.to(dtype))
    assert np.array_equal(floats(out), out.float().numpy())
