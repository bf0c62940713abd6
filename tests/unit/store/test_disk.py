"""The disk tier: what comes back is bit for bit what was put, or a miss, whatever happened to the folder."""

from __future__ import annotations

import errno
import gc
import logging
import os
import random
import resource
import signal
import subprocess
import tempfile
import threading
import time
import traceback
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cacheblend.kv import ChunkKey, ChunkLostError
from cacheblend.kv.chunk import as_bytes
from cacheblend.kv.codecs import CODECS
from cacheblend.kv.encoded import EncodedChunk
from cacheblend.loading import Place
from cacheblend.store.base import Tier, TierFullError
from cacheblend.store.chunkfile import ALIGNMENT
from cacheblend.store.disk import DiskTier, Health
from tests.chunks import content, random_chunk, read

ROOMY = 1 << 30


class Zipped:
    """A codec that is not lossless by name, so its payloads are handed out as bytes."""

    name = "zipped"

    def encode(self, kv, layer, num_layers):
        return zlib.compress(as_bytes(kv.keys).tobytes() + as_bytes(kv.values).tobytes())

    def decode(self, payload, out):
        try:
            raw = zlib.decompress(payload)
        except zlib.error as error:
            raise ValueError(str(error)) from error
        CODECS["lossless"].decode(raw, out)


@pytest.fixture
def zipped(monkeypatch) -> Zipped:
    monkeypatch.setitem(CODECS, "zipped", Zipped())
    return Zipped()


def keys_of(tier: Tier) -> list[ChunkKey]:
    return [entry.key for entry in tier.entries()]


def file_of(folder: Path, key: ChunkKey) -> Path:
    return folder / f"{key.digest}.kv"


def put(tier: Tier, chunk) -> None:
    tier.put(tier.prepare(chunk))


# What comes back


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("tokens", [1, 3, 130])
def test_a_round_trip_keeps_every_bit(tmp_path, dtype, tokens):
    made = random_chunk(7, tokens=tokens, layers=3, dtype=dtype)
    tier = DiskTier(tmp_path, ROOMY)
    put(tier, made)
    found = DiskTier(tmp_path, ROOMY).get(made.key)
    assert found is not None and content(found) == content(made)
    assert (found.key, found.token_ids, found.num_tokens) == (made.key, made.token_ids, tokens)
    assert (found.num_layers, found.nbytes, found.place, found.codec) == (3, made.nbytes, Place.DISK, "lossless")
    assert found.empty_layer().keys.dtype is dtype
    assert tier.take(made.key).payloads == tuple(content(made))


def test_layers_are_read_into_the_rows_of_a_larger_buffer(tmp_path):
    made, tier = random_chunk(1, tokens=4), DiskTier(tmp_path, ROOMY)
    put(tier, made)
    whole = random_chunk(2, tokens=9).layers[0]
    before = whole.keys.clone()
    assert tier.get(made.key).fetch(1, whole.rows(3, 7)) is None
    assert torch.equal(whole.keys[3:7].view(torch.int16), made.layers[1].keys.view(torch.int16))
    assert torch.equal(whole.keys[[0, 1, 2, 7, 8]].view(torch.int16), before[[0, 1, 2, 7, 8]].view(torch.int16))


def test_a_buffer_of_another_shape_is_refused(tmp_path):
    made, tier = random_chunk(1, tokens=4), DiskTier(tmp_path, ROOMY)
    put(tier, made)
    with pytest.raises(ChunkLostError):
        tier.get(made.key).fetch(0, random_chunk(2, tokens=5).layers[0])
    assert made.key in tier


def test_payloads_are_aligned_for_direct_reading(tmp_path):
    made, tier = random_chunk(1, tokens=600, layers=3), DiskTier(tmp_path, ROOMY)  # a header longer than a page
    put(tier, made)
    raw = file_of(tmp_path, made.key).read_bytes()
    for layer in content(made):
        assert raw.index(layer) % ALIGNMENT == 0
    assert b"pickle" not in raw and raw.startswith(b"cbchunk1")


def test_a_header_longer_than_the_first_read(tmp_path):
    made, tier = random_chunk(99_999, tokens=5000, head_dim=1, kv_heads=1), DiskTier(tmp_path, ROOMY)
    put(tier, made)
    assert content(tier.get(made.key)) == content(made)


def test_what_a_codec_made_is_handed_out_and_stays_as_it_is(tmp_path, zipped):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY, zipped)
    put(tier, made)
    found = tier.get(made.key)
    assert isinstance(found.fetch(0, found.empty_layer()), bytes)
    assert found.codec == "zipped" and content(found) == content(made)
    moved = DiskTier(tmp_path / "below", ROOMY)  # lossless by default: does not decode what was lossy
    put(moved, tier.take(made.key))
    assert moved.get(made.key).codec == "zipped" and content(moved.get(made.key)) == content(made)


def test_tensors_that_went_through_a_codec_are_not_called_lossless(tmp_path, zipped):
    made = random_chunk(1)
    lossy = type(made)(made.key, made.token_ids, made.layers, "zipped")
    assert DiskTier(tmp_path, ROOMY).prepare(lossy).codec == "zipped"


def test_what_is_lossless_is_encoded_on_its_way_down(tmp_path, zipped):
    made = random_chunk(1)
    lossless = EncodedChunk.of(made, CODECS["lossless"])
    assert DiskTier(tmp_path, ROOMY, zipped).prepare(lossless).codec == "zipped"


def test_an_unknown_codec_is_a_counted_miss(tmp_path, zipped, monkeypatch):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY, zipped)
    put(tier, made)
    monkeypatch.delitem(CODECS, "zipped")
    assert tier.get(made.key) is None and tier.losses == 1


def test_prepared_bytes_are_the_bytes_of_the_file(tmp_path):
    tier = DiskTier(tmp_path, ROOMY)
    prepared = tier.prepare(random_chunk(1, tokens=77))
    assert tier.prepare(prepared) is prepared
    tier.put(prepared)
    assert tier.nbytes == prepared.nbytes == file_of(tmp_path, prepared.key).stat().st_size


# Use, order, restart


def test_a_restart_continues_in_the_order_of_use(tmp_path):
    made = [random_chunk(n) for n in range(6)]
    tier = DiskTier(tmp_path, ROOMY)
    for chunk in made:
        put(tier, chunk)
    for n in (0, 3):
        assert tier.get(made[n].key) is not None
    assert tier.take(made[1].key) is not None, "does not count as a use"
    assert made[2].key in tier, "neither does this"
    expected = [made[n].key for n in (1, 2, 4, 5, 0, 3)]
    again = DiskTier(tmp_path, ROOMY)
    assert keys_of(tier) == keys_of(again) == expected
    assert tier.nbytes == again.nbytes
    assert again.oldest({expected[0], expected[1]}) == expected[2]
    times = [entry.used_at for entry in again.entries()]
    assert times == sorted(times) and abs(times[-1] - time.time()) < 60


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "get", "take", "remove", "restart", "clear"]), st.integers(0, 5)),
        max_size=25,
    )
)
def test_it_is_a_dictionary_in_order_of_use(steps):
    """Against a naive model, through restarts."""
    with tempfile.TemporaryDirectory() as folder:
        tier, model = DiskTier(Path(folder), ROOMY), OrderedDict()
        for n, (verb, name) in enumerate(steps):
            made = random_chunk(name, tokens=1 + n % 3, seed=n)
            chunk = type(made)(random_chunk(name, tokens=1).key, made.token_ids, made.layers)
            if verb == "put":
                put(tier, chunk)
                model.pop(chunk.key, None)
                model[chunk.key] = content(chunk)
            elif verb == "get":
                found = tier.get(chunk.key)
                assert (content(found) if found else None) == model.get(chunk.key)
                if found:
                    model.move_to_end(chunk.key)
            elif verb == "take":
                taken = tier.take(chunk.key)
                assert (list(taken.payloads) if taken else None) == model.get(chunk.key)
            elif verb == "remove":
                tier.remove(chunk.key)
                model.pop(chunk.key, None)
            elif verb == "restart":
                tier.close()
                tier = DiskTier(Path(folder), ROOMY)
            elif name == 0:
                tier.clear()
                model.clear()
            assert keys_of(tier) == list(model)
            assert len(tier) == len(model) == len(os.listdir(folder))
            assert tier.oldest() == next(iter(model), None)
            assert tier.nbytes == sum(file.stat().st_size for file in Path(folder).iterdir())
            assert (chunk.key in tier) == (chunk.key in model)
        assert tier.losses == tier.refusals == 0


def test_an_eviction_does_not_hurt_a_reader_and_files_are_closed(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY)
    put(tier, made)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    found = tier.get(made.key)
    tier.remove(made.key)
    assert tier.get(made.key) is None and len(tier) == tier.nbytes == tier.losses == 0
    assert content(found) == content(made)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    del found
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_threads_at_once(tmp_path):
    tier, failures = DiskTier(tmp_path, ROOMY), []
    made = [random_chunk(n) for n in range(4)]
    expected = {chunk.key: content(chunk) for chunk in made}

    def work(seed: int) -> None:
        choose = random.Random(seed)
        try:
            for _ in range(25):
                chunk = choose.choice(made)
                verb = choose.choice(["put", "remove", "take"])
                if verb == "put":
                    put(tier, chunk)
                elif verb == "remove":
                    tier.remove(chunk.key)
                else:
                    tier.take(chunk.key)
                found = tier.get(chunk.key)
                if found is not None and content(found) != expected[chunk.key]:
                    failures.append("wrong bytes")
        except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert tier.nbytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert {file_of(tmp_path, key) for key in keys_of(tier)} == set(tmp_path.iterdir())


# Two processes, one folder


def test_what_another_process_changes_is_seen(tmp_path):
    one, other = DiskTier(tmp_path, ROOMY), DiskTier(tmp_path, ROOMY)
    first, second, third = (random_chunk(n) for n in range(3))
    put(one, first)
    put(other, second)
    assert content(one.get(second.key)) == content(second)
    assert len(one) == len(other) == 2 and one.nbytes == other.nbytes
    put(one, third)
    assert keys_of(other) == keys_of(one) == [first.key, second.key, third.key]
    time.sleep(0.06)  # longer than the tick within which two uses count as one
    assert other.get(first.key) is not None
    assert one.oldest() == second.key, "the other's use counts"
    other.remove(second.key)
    assert one.get(second.key) is None and second.key not in one and one.oldest() == third.key
    assert one.losses == 0


def forked(work: Callable[[], object]) -> int:
    """Run something in a child process that never returns into the test; its pid."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def test_two_writers_of_one_key_leave_one_valid_entry(tmp_path):
    key = random_chunk(0).key
    versions = [random_chunk(0, tokens=2000, seed=seed) for seed in (1, 2)]
    versions = [type(v)(key, v.token_ids, v.layers) for v in versions]
    valid = [content(v) for v in versions]

    def write(version) -> None:
        tier = DiskTier(tmp_path, ROOMY)
        for _ in range(15):
            put(tier, version)

    pids = [forked(lambda v=version: write(v)) for version in versions]
    tier, seen = DiskTier(tmp_path, ROOMY), 0
    while pids:
        found = tier.get(key)
        if found is not None:
            assert content(found) in valid
            seen += 1
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            assert status == 0
            pids.remove(pid)
    assert seen > 0 and tier.losses == 0
    assert [file.name for file in tmp_path.iterdir()] == [f"{key.digest}.kv"]
    assert content(tier.get(key)) in valid and len(tier) == 1


def test_a_writer_killed_at_any_moment_leaves_whole_entries_or_none(tmp_path):
    made = [random_chunk(n, tokens=300, layers=4, head_dim=32) for n in range(8)]
    prepared = [DiskTier(tmp_path / "elsewhere", ROOMY).prepare(chunk) for chunk in made]
    expected = {chunk.key: content(chunk) for chunk in made}
    folder, choose = tmp_path / "kv", random.Random(0)
    interrupted = written = 0

    def write(ready: int) -> None:
        tier = DiskTier(folder, ROOMY)
        os.write(ready, b".")
        while True:
            tier.put(choose.choice(prepared))

    for _ in range(40):
        reader, ready = os.pipe()
        pid = forked(lambda ready=ready: write(ready))
        os.read(reader, 1)
        time.sleep(choose.uniform(0, 0.02))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        os.close(ready)
        interrupted += any(name.endswith(".tmp") for name in os.listdir(folder))
        tier = DiskTier(folder, ROOMY)
        assert all(name.endswith(".kv") for name in os.listdir(folder)), "what was unfinished is swept away"
        for key in keys_of(tier):
            assert content(tier.get(key)) == expected[key]
        assert tier.losses == 0
        written += len(tier)
        if choose.random() < 0.3:
            tier.clear()
        choose.seed(choose.random())
    assert interrupted >= 5 and written > 0, f"{interrupted} of 40 kills hit a write"


def test_an_unfinished_file_of_a_living_writer_is_left_alone(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY)
    reader, ready = os.pipe()
    go, start = os.pipe()

    def write() -> None:
        real = os.fsync
        os.fsync = lambda fd: (os.write(ready, b"."), os.read(go, 1), real(fd))
        put(DiskTier(tmp_path, ROOMY), made)

    pid = forked(write)
    os.read(reader, 1)
    [unfinished] = os.listdir(tmp_path)
    DiskTier(tmp_path, ROOMY)
    assert os.listdir(tmp_path) == [unfinished] and made.key not in tier and len(tier) == 0
    os.write(start, b"..")
    assert os.waitpid(pid, 0)[1] == 0
    assert content(tier.get(made.key)) == content(made)


# Damage


def outcome(folder: Path, made) -> str:
    """What a reader gets of a chunk: never wrong bytes."""
    tier = DiskTier(folder, ROOMY)
    found = tier.get(made.key)
    if found is None:
        result = "miss"
    else:
        assert found.token_ids == made.token_ids
        try:
            assert content(found) == content(made), "wrong bytes"
            return "whole"
        except ChunkLostError:
            result = "lost"
    assert tier.losses == 1 and not file_of(folder, made.key).exists() and len(tier) == 0
    assert tier.take(made.key) is None
    return result


def test_a_flipped_byte_in_every_region_is_noticed(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY)
    prepared = tier.prepare(made)
    tier.put(prepared)
    path = file_of(tmp_path, made.key)
    sound = path.read_bytes()
    starts, end = prepared.offsets[:-1], prepared.offsets[-1]
    payload = {i for start, size in zip(starts, prepared.header.sizes, strict=True) for i in range(start, start + size)}
    head = set(range(len(prepared.head)))  # magic, length, checksum, JSON
    padding = set(range(len(prepared.head), end, 61)) - payload
    assert padding and end == len(sound)
    flip = random.Random(0)
    for region, expected in ((head, "miss"), (payload, "lost"), (padding, "whole")):
        for at in sorted(region):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << flip.randrange(8)
            path.write_bytes(damaged)
            assert outcome(tmp_path, made) == expected, f"byte {at}"


def test_a_file_cut_short_or_grown_is_noticed(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY)
    prepared = tier.prepare(made)
    tier.put(prepared)
    path = file_of(tmp_path, made.key)
    sound = path.read_bytes()
    edges = {0, 8, 16, 24, len(prepared.head), *prepared.offsets}
    cuts = {edge + d for edge in edges for d in (-1, 0, 1)} | set(range(0, len(sound), 97))
    for length in sorted(cut for cut in cuts if 0 <= cut < len(sound)):
        path.write_bytes(sound[:length])
        assert outcome(tmp_path, made) == "miss", length
    for more in (b"\0", sound):
        path.write_bytes(sound + more)
        assert outcome(tmp_path, made) == "miss"


def test_damage_while_a_chunk_is_read_is_noticed(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY)
    prepared = tier.prepare(made)
    tier.put(prepared)
    found = tier.get(made.key)
    assert read(found, 0) == content(made)[0]
    with open(file_of(tmp_path, made.key), "r+b") as file:
        file.truncate(prepared.offsets[1] + 5)
    with pytest.raises(ChunkLostError, match="layer 1"):
        read(found, 1)
    assert tier.losses == 1 and made.key not in tier


def test_damage_that_was_mended_meanwhile_removes_nothing(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path, ROOMY)
    put(tier, made)
    with open(file_of(tmp_path, made.key), "r+b") as file:
        file.seek(ALIGNMENT)
        file.write(bytes(64))
    found = tier.get(made.key)
    put(tier, made)
    with pytest.raises(ChunkLostError):
        read(found, 0)
    assert content(tier.get(made.key)) == content(made)


def test_a_file_under_another_chunks_name_is_a_miss(tmp_path):
    made, other, tier = random_chunk(1), random_chunk(2), DiskTier(tmp_path, ROOMY)
    put(tier, made)
    file_of(tmp_path, made.key).rename(file_of(tmp_path, other.key))
    assert tier.get(other.key) is None and tier.losses == 1 and len(tier) == 0


def test_verify_reads_everything_and_touches_nothing_foreign(tmp_path, caplog):
    made = [random_chunk(n) for n in range(5)]
    tier = DiskTier(tmp_path, ROOMY)
    for chunk in made:
        put(tier, chunk)
    with open(file_of(tmp_path, made[1].key), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))
    file_of(tmp_path, made[3].key).write_bytes(b"")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / f"{'0' * 64}.kv").mkdir()
    before = keys_of(tier)
    found = {finding.name: finding for finding in tier.verify()}
    for n, chunk in enumerate(made):
        finding = found.pop(f"{chunk.key.digest}.kv")
        assert finding.health is (Health.DAMAGED if n in (1, 3) else Health.GOOD)
        assert bool(finding.why) == (n in (1, 3))
    assert found.pop("notes.txt").health is Health.FOREIGN
    assert found.pop(f"{'0' * 64}.kv").health is Health.UNREADABLE and not found
    lost = {made[1].key, made[3].key}
    assert [key for key in keys_of(tier) if key != ChunkKey("0" * 64)] == [
        key for key in before if key not in lost and key != ChunkKey("0" * 64)
    ]
    tier.clear()
    assert (tmp_path / "notes.txt").read_text() == "mine"


# A medium that refuses


@contextmanager
def small_tmpfs(folder: Path, nbytes: int) -> Iterator[None]:
    """A file system of its own, so that it can be full."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={nbytes}", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here ({done.stderr.strip()}); the limited file size is tested instead")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def expect_refusals(tier: DiskTier, caplog, kind: int) -> None:
    """Two writes that fail: both are counted, the kind is logged once, nothing is left behind."""
    names = sorted(os.listdir(tier.folder))
    with caplog.at_level(logging.WARNING):
        for n in (90, 91):
            with pytest.raises(TierFullError):
                put(tier, random_chunk(n, tokens=4000))
    assert tier.refusals == 2 and sorted(os.listdir(tier.folder)) == names
    assert sum(errno.errorcode[kind] in record.getMessage() for record in caplog.records) == 1


def test_a_full_disk_is_a_counted_refusal(tmp_path, caplog):
    with small_tmpfs(tmp_path / "kv", 200_000):
        tier, small = DiskTier(tmp_path / "kv", ROOMY), random_chunk(1)
        put(tier, small)
        expect_refusals(tier, caplog, errno.ENOSPC)
        assert content(tier.get(small.key)) == content(small) and len(tier) == 1
        put(tier, random_chunk(2))
        assert len(tier) == 2, "room for small ones is still used"
        del tier
        gc.collect()


def test_a_folder_that_became_read_only_can_still_be_read(tmp_path, caplog):
    with small_tmpfs(tmp_path / "kv", 1_000_000):
        tier, small = DiskTier(tmp_path / "kv", ROOMY), random_chunk(1)
        put(tier, small)
        subprocess.run(["mount", "-o", "remount,ro", tmp_path / "kv"], check=True)
        expect_refusals(tier, caplog, errno.EROFS)
        assert content(tier.get(small.key)) == content(small)
        tier.remove(small.key)
        assert len(tier) == 0, "an eviction does not try the same entry for ever"


def test_a_limited_file_size_is_a_counted_refusal(tmp_path, caplog):
    tier = DiskTier(tmp_path, ROOMY)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        expect_refusals(tier, caplog, errno.EFBIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    put(tier, random_chunk(90, tokens=4000))
    assert len(tier) == 1


def test_a_folder_that_vanished_is_misses_and_refusals(tmp_path, caplog):
    tier, made = DiskTier(tmp_path / "kv", ROOMY), random_chunk(1)
    put(tier, made)
    file_of(tmp_path / "kv", made.key).unlink()
    (tmp_path / "kv").rmdir()
    assert tier.get(made.key) is None and len(tier) == tier.nbytes == 0 and tier.oldest() is None
    assert list(tier.verify()) == []
    with pytest.raises(TierFullError):
        put(tier, made)
    assert tier.refusals == 1


def test_a_useless_folder_or_capacity_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="choose another folder"):
        DiskTier(tmp_path / "file", ROOMY)
    with pytest.raises(ValueError, match="capacity"):
        DiskTier(tmp_path, 0)


def test_files_are_for_their_owners_eyes(tmp_path):
    made, tier = random_chunk(1), DiskTier(tmp_path / "kv", ROOMY)
    put(tier, made)
    assert (tmp_path / "kv").stat().st_mode & 0o077 == 0
    assert file_of(tmp_path / "kv", made.key).stat().st_mode & 0o077 == 0
