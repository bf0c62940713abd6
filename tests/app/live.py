"""A served page around a fake engine, for clients and browsers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cacheblend.loading import StoreConfig
from tests.app.fakes import FakeEngine, fake_studio, sample
from ui.serving import serve
from ui.studio import Studio


@dataclass(frozen=True)
class Live:
    url: str
    studio: Studio
    engine: FakeEngine


@contextmanager
def live(
    folder, pause_s: float = 0.0, *, store: StoreConfig | None = None, shares_caches: bool = False
) -> Iterator[Live]:
    """Serve a studio with two small samples until the block is left."""
    engine = FakeEngine(pause_s, store)
    samples = [sample(folder, "first"), sample(folder, "second", 2)]
    studio = fake_studio(engine, samples, shares_caches=shares_caches)
    blocks, url = serve(studio, host="127.0.0.1", port=None, block=False)
    try:
        yield Live(url=url, studio=studio, engine=engine)
    finally:
        blocks.close()
        studio.close()
