"""The index finds what is near, forgets what is removed, and hits are ordered by what is asked; MiniLM is real."""

import socket

import numpy as np
import pytest

from cacheblend.documents import Chunk
from cacheblend.retrieval import Hit, Index, Ordering, load_embedder, order_hits


class Letters:
    """Counts letters: texts of the same letters are near."""

    def encode(self, texts: list[str]) -> np.ndarray:
        counts = np.array([[text.count(letter) for letter in "abcdefgh"] for text in texts], dtype=np.float32) + 1e-3
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def chunk(document: str, index: int, text: str) -> Chunk:
    return Chunk(document, index, text, (index,))


CHUNKS = [
    chunk(name, i, letter * 5)
    for i, pair in enumerate(("ab", "cd", "ef"))
    for name, letter in zip("xy", pair, strict=True)
]


@pytest.fixture
def index() -> Index:
    filled = Index(Letters())
    filled.add(CHUNKS)
    return filled


def test_every_chunk_is_nearest_to_itself(index: Index) -> None:
    for wanted in CHUNKS:
        (hit,) = index.search(wanted.text, 1)
        assert hit.chunk == wanted and hit.score == pytest.approx(1)


def test_search_equals_a_sort_by_cosine(index: Index) -> None:
    question = "aabcccdeef"
    scores = Letters().encode([c.text for c in CHUNKS]) @ Letters().encode([question])[0]
    hits = index.search(question, 4)
    np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1][:4], atol=1e-6)


def test_removal_takes_one_document_and_keeps_the_others_findable(index: Index) -> None:
    index.remove("x")
    kept = [c for c in CHUNKS if c.document == "y"]
    assert list(index.chunks) == kept
    assert [index.search(c.text, 1)[0].chunk for c in kept] == kept
    assert len(index.search("a", 99)) == len(kept)
    with pytest.raises(KeyError):
        index.remove("x")
    index.add([chunk("x", 0, "aaaaa")])
    assert index.search("a", 1)[0].chunk.document == "x"


def test_empty_index_finds_nothing() -> None:
    index = Index(Letters())
    index.add([])
    assert index.search("a", 3) == []


def test_nonsense_is_refused(index: Index) -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        index.search("a", 0)
    with pytest.raises(ValueError, match="1 chunks need as many vectors"):
        index.add_vectors(CHUNKS[:1], np.zeros((2, 8), np.float32))


HITS = [
    Hit(chunk("b", 4, ""), 0.9),
    Hit(chunk("a", 2, ""), 0.8),
    Hit(chunk("b", 1, ""), 0.7),
    Hit(chunk("a", 0, ""), 0.6),
]


@pytest.mark.parametrize("given", [HITS, HITS[::-1]])
def test_orderings(given: list[Hit]) -> None:
    def order(ordering: Ordering, seed: int = 0) -> list[tuple[str, int]]:
        return [(hit.chunk.document, hit.chunk.index) for hit in order_hits(given, ordering, seed)]

    assert order(Ordering.RELEVANCE) == [("b", 4), ("a", 2), ("b", 1), ("a", 0)]
    assert order(Ordering.DOCUMENT) == [("b", 1), ("b", 4), ("a", 0), ("a", 2)]
    shuffles = [order(Ordering.SHUFFLED, seed) for seed in range(20)]
    assert shuffles == [order(Ordering.SHUFFLED, seed) for seed in range(20)]
    assert all(sorted(shuffle) == sorted(shuffles[0]) for shuffle in shuffles) and len(set(map(tuple, shuffles))) > 5


def test_shuffle_is_the_same_for_hits_given_in_any_order() -> None:
    assert order_hits(HITS, Ordering.SHUFFLED, 3) == order_hits(HITS[::-1], Ordering.SHUFFLED, 3)


PASSAGES = [
    "Ada Lovelace wrote the first published program, for a machine that was never built.",
    "The lighthouse on the northern cape was switched from oil to electricity in 1931.",
    "Bread rises because yeast turns sugar into carbon dioxide, which the dough holds back.",
    "The river floods every spring, when the snow in the mountains melts within a few days.",
]


def test_embedded_model_finds_the_passage_and_stays_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_address: object) -> None:
        raise AssertionError("a connection was attempted")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    embedder = load_embedder()
    vectors = embedder.encode(PASSAGES)
    assert vectors.dtype == np.float32 and vectors.shape == (4, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    index = Index(embedder)
    index.add([chunk("passages", i, text) for i, text in enumerate(PASSAGES)])
    questions = ["Who was the first programmer?", "When did the beacon get electric light?", "Why does dough grow?"]
    assert [index.search(question, 1)[0].chunk.index for question in questions] == [0, 1, 2]
    # The end of a chunk of some 450 word pieces counts too.
    tail = embedder.encode(["word " * 400 + ending for ending in ("lighthouse", "bread")])
    assert not np.allclose(tail[0], tail[1], atol=1e-4)
