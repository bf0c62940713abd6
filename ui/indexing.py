"""Documents in: files or a sample become chunks with caches, with progress all the way. Knows nothing of Gradio."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ui import notices, words
from ui.background import stream
from ui.documents_list import render
from ui.ownership import forget, note_owned
from ui.sessions import Session
from ui.studio import Studio

if TYPE_CHECKING:
    import threading

    from cacheblend.collection import AddReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What the documents pane shows; None leaves the list as it is."""

    status: str = notices.IDLE
    documents: str | None = None


def add_uploads(studio: Studio, session: Session, paths: Sequence[str]) -> Iterator[Listing]:
    """Add uploaded files and delete them: their text is all that is kept."""
    try:
        yield from _add(studio, session, paths)
    finally:
        for path in paths:
            Path(path).unlink(missing_ok=True)


def add_sample(studio: Studio, session: Session, slug: str) -> Iterator[Listing]:
    """Put a sample's documents in place of another sample's; the visitor's own stay."""
    sample = studio.samples.get(slug)
    if sample is None:
        raise ValueError("There is no such sample collection: choose one of those shown.")
    _remove_sample(studio, session)
    session.sample = slug
    yield from _add(studio, session, [str(path) for path in sample.paths])


def remove(studio: Studio, session: Session | None, name: str) -> Listing:
    """Remove one document, and all that the store keeps of it in any form; ValueError if it is not there."""
    if session is None or session.collection is None:
        raise ValueError("There are no documents to remove.")
    engine = studio.engine_of(session, lambda _: None)
    note_owned(engine, session)
    session.collection.remove(name)
    for key in forget(engine, session, name):
        engine.store.remove(key)
    return Listing(documents=render(session.collection.documents))


def _add(studio: Studio, session: Session, paths: Sequence[str]) -> Iterator[Listing]:
    with session.job() as cancel:
        collection = yield from stream(lambda say: studio.collection(session, say), _said)
        report = yield from stream(
            lambda tell: collection.add(paths, progress=tell, cancel=cancel.is_set),
            lambda done, total, name: Listing(status=notices.progress(f"Reading {name}", done, total)),
        )
        listing = Listing(documents=render(collection.documents))
        yield replace(listing, status=notices.progress("Computing the chunks' caches"))
        skipped = yield from _precompute(studio, session, report, cancel)
        yield replace(listing, status=outcome(report, skipped))


def _precompute(
    studio: Studio, session: Session, report: AddReport, cancel: threading.Event
) -> Generator[Listing, None, int]:
    """Compute the new chunks' caches; returns how many did not fit into the store."""
    engine = studio.engine_of(session, lambda _: None)
    added = {info.name for info in report.added}
    chunks = [chunk for chunk in session.chunks if chunk.document in added]
    note_owned(engine, session)
    done = yield from stream(
        lambda tell: engine.precompute(chunks, progress=tell, cancel=cancel),
        lambda done, total: Listing(status=notices.progress(f"Computing chunk caches: {done} of {total}", done, total)),
    )
    return done.skipped


def outcome(report: AddReport, skipped: int = 0) -> str:
    """Say what was added, how many chunks' caches found no room, and a sentence for each file that was not."""
    if not report.added:
        return notices.failed(report.failures)
    num_chunks = sum(info.num_chunks for info in report.added)
    caches = without_room(skipped) if skipped else "caches ready."
    said = f"{words.count(len(report.added), 'document')} added: {words.count(num_chunks, 'chunk')}, {caches}"
    return notices.done(said) + (notices.failed(report.failures) if report.failures else "")


def without_room(skipped: int) -> str:
    """Say what becomes of chunks whose caches do not fit into the store."""
    return f"{words.count(skipped, 'cache')} did not fit into the store and will be computed when asked for."


def _said(sentence: str) -> Listing:
    return Listing(status=notices.progress(sentence))


def _remove_sample(studio: Studio, session: Session) -> None:
    if session.sample is None or session.collection is None:
        return
    names = {path.name for path in studio.samples[session.sample].paths}
    for info in session.collection.documents:
        if info.name in names:
            session.collection.remove(info.name)
