"""One visitor's documents: what is added is found, what is bad is said, and threads do not lose anything."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from cacheblend.collection import Collection
from cacheblend.documents import DocumentKind, Limits
from cacheblend.retrieval import Ordering
from tests.unit.documents.uploads import docx_bytes, pdf_bytes, tiny_tokenizer

WORDS = ("ship", "keeper", "lamp", "storm", "harbour", "letter", "winter", "island", "bread", "river")


class Words:
    """Counts the words above: texts that share them are near."""

    def encode(self, texts: list[str]) -> np.ndarray:
        counts = np.array([[text.count(word) for word in WORDS] for text in texts], dtype=np.float32) + 1e-3
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture
def collection() -> Collection:
    return Collection(tiny_tokenizer(), Words(), chunk_tokens=64, max_documents=12, limits=Limits(max_bytes=100_000))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Ten documents, one about each word."""
    paths = []
    for word in WORDS:
        path = tmp_path / f"{word}.txt"
        path.write_text("\n\n".join(f"Of the {word} there is this to say, number {i}." for i in range(9)))
        paths.append(path)
    return paths


def names(collection: Collection) -> list[str]:
    return [info.name for info in collection.documents]


def test_added_documents_are_described_and_found(collection: Collection, files: Sequence[Path]) -> None:
    report = collection.add(files)
    assert report.failures == () and report.added == collection.documents
    info = collection.documents[3]
    own = [chunk for chunk in collection.chunks if chunk.document == "storm.txt"]
    assert (info.name, info.kind, info.pages, info.warnings) == ("storm.txt", DocumentKind.TEXT, None, ())
    assert info.characters == len(files[3].read_text())
    assert info.num_chunks == len(own) > 1 and info.tokens == sum(len(chunk.token_ids) for chunk in own)
    hits = collection.search("What of the storm?", top_k=2)
    assert [hit.chunk.document for hit in hits] == ["storm.txt", "storm.txt"]


def test_pages_of_a_pdf_and_kinds(collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf_bytes("The ship.", "The lamp."))
    (tmp_path / "b.docx").write_bytes(docx_bytes("The keeper."))
    collection.add([tmp_path / "a.pdf", tmp_path / "b.docx"])
    assert [(i.kind, i.pages) for i in collection.documents] == [(DocumentKind.PDF, 2), (DocumentKind.DOCX, None)]


def test_one_bad_file_among_ten_leaves_nine(collection: Collection, files: list[Path]) -> None:
    files[4].write_bytes(b"\x89PNG\r\n\x1a\n")
    report = collection.add(files)
    assert len(report.added) == 9 and "harbour.txt" not in names(collection)
    assert report.failures == ("harbour.txt is a PNG image: upload a PDF, DOCX, HTML, Markdown or text file.",)
    assert collection.search("river", 1)[0].chunk.document == "river.txt"


def test_same_text_is_refused_and_same_name_is_numbered(collection: Collection, files: list[Path]) -> None:
    report = collection.add([files[0], files[0], files[1], files[2]], names=["a.txt", "b.txt", "a.txt", "a.txt"])
    assert names(collection) == ["a.txt", "a (2).txt", "a (3).txt"]
    assert report.failures == ("b.txt was not added: it has the same text as a.txt, which is already here.",)
    assert {chunk.document for chunk in collection.chunks} == set(names(collection))


def test_removal(collection: Collection, files: list[Path]) -> None:
    collection.add(files)
    collection.remove("storm.txt")
    assert "storm.txt" not in names(collection)
    assert "storm.txt" not in {hit.chunk.document for hit in collection.search("storm", top_k=99)}
    with pytest.raises(ValueError, match=r"there is no document named storm\.txt"):
        collection.remove("storm.txt")
    assert collection.add([files[3]]).failures == ()
    assert collection.search("storm", 1)[0].chunk.document == "storm.txt"


def test_nothing_to_search(collection: Collection, files: list[Path]) -> None:
    with pytest.raises(ValueError, match="There are no documents yet: upload some"):
        collection.search("ship")
    collection.add(files[:1])
    with pytest.raises(ValueError, match="The question is empty"):
        collection.search(" \n")


def test_orderings(collection: Collection, files: list[Path]) -> None:
    collection.add(files)
    found = {o: collection.search("the ship and the lamp", 6, o, seed=1) for o in Ordering}
    assert len({frozenset(hit.chunk.label for hit in hits) for hits in found.values()}) == 1
    indices = [hit.chunk.index for hit in found[Ordering.DOCUMENT] if hit.chunk.document == "ship.txt"]
    assert indices == sorted(indices)
    assert found[Ordering.SHUFFLED] == collection.search("the ship and the lamp", 6, Ordering.SHUFFLED, seed=1)


def test_full_collection_says_so(files: list[Path]) -> None:
    collection = Collection(tiny_tokenizer(), Words(), max_documents=2)
    report = collection.add(files[:3])
    assert report.failures == ("lamp.txt was not added: the limit is 2 documents; remove some first.",)


def test_limits_reach_the_parsers(collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("ship " * 30_000)
    assert "big.txt is larger than 0.1 MB, the limit" in collection.add([tmp_path / "big.txt"]).failures[0]


def test_progress_and_cancel(collection: Collection, files: list[Path]) -> None:
    seen: list[tuple[int, int, str]] = []
    report = collection.add(
        files[:4], progress=lambda *step: seen.append(step), cancel=lambda: len(collection.documents) == 2
    )
    assert seen == [(0, 4, "ship.txt"), (1, 4, "keeper.txt"), (2, 4, "lamp.txt"), (3, 4, "storm.txt"), (4, 4, "done")]
    assert names(collection) == ["ship.txt", "keeper.txt"]
    assert report.failures[0] == "lamp.txt was not added: stopped before it was finished." and len(report.failures) == 2


def test_chunk_length_is_checked_before_anything_is_added() -> None:
    with pytest.raises(ValueError, match="chunk_tokens must be at least 16, got 4"):
        Collection(tiny_tokenizer(), Words(), chunk_tokens=4)


def test_names_must_match_the_files(collection: Collection, files: list[Path]) -> None:
    with pytest.raises(ValueError, match="2 files need as many names, got 1"):
        collection.add(files[:2], names=["a.txt"])


def test_threads_add_remove_and_search_together(collection: Collection, files: list[Path]) -> None:
    collection.add(files[:1])
    errors: list[ValueError] = []

    def guarded(work: Callable[..., None], *args: object) -> None:
        try:
            for _ in range(5):
                work(*args)
        except ValueError as error:
            errors.append(error)

    def come_and_go(path: Path) -> None:
        collection.add([path])
        collection.remove(path.name)

    def look() -> None:
        assert collection.search("ship", 1)[0].chunk.document == "ship.txt"

    threads = [threading.Thread(target=guarded, args=(come_and_go, path)) for path in files[1:6]]
    threads += [threading.Thread(target=guarded, args=(look,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and names(collection) == ["ship.txt"]
    assert {chunk.document for chunk in collection.chunks} == {"ship.txt"}
