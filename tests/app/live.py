"""A served page around a fake engine, for clients and browsers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.app.fakes import FakeEngine, fake_studio, sample
from ui.serving import serve
from ui.studio import Studio


@dataclass(frozen=True)
class Live:
    url: str
    studio: Studio
    engine: FakeEngine


@contextmanager
def live(folder, pause_s: float = 0.0) -> Iterator[Live]:
    """Serve a studio with two small samples until the block is left."""
    engine = FakeEngine(pause_s)
    studio = fake_studio(engine, [sample(folder, "first"), sample(folder, "second", 2)])
    blocks, url = serve(studio, host="127.0.0.1", port=None, block=False)
    try:
        yield Live(url=url, studio=studio, engine=engine)
    finally:
        blocks.close()
