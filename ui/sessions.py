"""Visitors: each has documents and runs of their own, found by an unguessable id and forgotten after a while.

The browser's state holds the id alone. Knows nothing of Gradio or models.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cacheblend.collection import Collection
from cacheblend.controller import RatioChoice
from cacheblend.loading import LoadConfig
from cacheblend.retrieval import Hit
from cacheblend.trace import Comparison, Trace
from ui.ownership import Owned

if TYPE_CHECKING:
    from cacheblend.config import BlendConfig
    from cacheblend.documents import Chunk
    from cacheblend.kv import ChunkKey
    from cacheblend.recipes import RecipeBook
    from ui.performed import Performed

MAX_RUNS = 4  # per visitor; an inspected run of 4,000 tokens holds some MB
MAX_EXPERIMENTS = 12  # results per visitor, and the questions they were measured on
TIME_TO_LIVE_S = 2 * 3600.0


def new_id() -> str:
    """Return an id that cannot be guessed."""
    return secrets.token_urlsafe(18)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """A prompt run again. loading: how its caches were to come in; choice: what the controller would choose for that.

    choice is None where the controller does not know the device or the codec.
    """

    trace: Trace
    loading: LoadConfig
    choice: RatioChoice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A comparison on screen; hits and blend are None for a recorded one, whose model is not here.

    reloaded: the same prompt once more, its caches brought in another way; the last time alone is kept.
    """

    id: str
    comparison: Comparison
    hits: Sequence[Hit] | None = None
    blend: BlendConfig | None = None
    max_new_tokens: int = 0
    reloaded: Reloaded | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """Something under way for a visitor."""

    cancel: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Session:
    """One visitor: their documents, their last runs, and their current job.

    experiments: what they measured, the last few; tenant: the salt of their chunk caches; noted: chunks whose keys are
    known, owned: what each entry is of (ownership.py); recipes: which of their chunks are alike, None without a model.
    """

    id: str = field(default_factory=new_id)
    tenant: str = field(default_factory=new_id, repr=False)
    collection: Collection | None = None
    sample: str | None = None
    runs: OrderedDict[str, Run] = field(default_factory=OrderedDict)
    experiments: deque[Performed] = field(default_factory=lambda: deque(maxlen=MAX_EXPERIMENTS))
    noted: set[tuple[int, ...]] = field(default_factory=set)
    noted_similar: set[tuple[int, ...]] = field(default_factory=set)
    owned: dict[ChunkKey, Owned] = field(default_factory=dict)
    recipes: RecipeBook | None = None
    used_at: float = 0.0
    _job: Job | None = None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """Every chunk of the visitor's documents."""
        return self.collection.chunks if self.collection else ()

    @contextmanager
    def job(self) -> Iterator[threading.Event]:
        """Hold while a job runs; the event is set by `stop`, and when the job is left by whoever followed it."""
        job = self._job = Job()
        try:
            yield job.cancel
        finally:
            job.cancel.set()
            job.ended.set()

    def stop(self, wait_s: float = 0.0) -> None:
        """Ask the current job to end, and wait at most so long until it has."""
        if (job := self._job) is not None:
            job.cancel.set()
            job.ended.wait(wait_s)

    def keep(self, run: Run) -> None:
        """Remember a run, forgetting the oldest beyond MAX_RUNS; the same id replaces."""
        self.runs[run.id] = run
        while len(self.runs) > MAX_RUNS:
            self.runs.popitem(last=False)


class Sessions:
    """All visitors by id; those not seen for `time_to_live_s` are dropped when somebody else arrives."""

    def __init__(self, time_to_live_s: float = TIME_TO_LIVE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._by_id: dict[str, Session] = {}
        self._lock = threading.Lock()
        self._time_to_live_s = time_to_live_s
        self._clock = clock

    def __len__(self) -> int:
        return len(self._by_id)

    def open(self, session_id: str | None, secret: str | None = None) -> Session:
        """Return the visitor's session, a new one if the id is None, unknown or expired.

        secret: what the visitor's browser is known by across restarts, None if by nothing.
        """
        with self._lock:
            self._drop_expired()
            session = self._by_id.get(session_id or "") or Session(tenant=secret or new_id())
            self._by_id[session.id] = session
            session.used_at = self._clock()
            return session

    def find(self, session_id: str | None) -> Session | None:
        """Return the visitor's session without making one."""
        with self._lock:
            return self._by_id.get(session_id or "")

    def find_run(self, run_id: str) -> Run | None:
        """Return the run with this id; whoever presents the id was given it."""
        with self._lock:
            return next((s.runs[run_id] for s in self._by_id.values() if run_id in s.runs), None)

    def close(self, session_id: str | None) -> None:
        """Stop and forget a visitor."""
        with self._lock:
            session = self._by_id.pop(session_id or "", None)
        if session is not None:
            session.stop()

    def stop(self, wait_s: float) -> None:
        """Ask every visitor's job to end, and wait at most so long until they have."""
        deadline = time.monotonic() + wait_s
        with self._lock:
            visitors = list(self._by_id.values())
        for session in visitors:
            session.stop()
        for session in visitors:
            session.stop(max(0.0, deadline - time.monotonic()))

    def _drop_expired(self) -> None:
        oldest = self._clock() - self._time_to_live_s
        for session in [s for s in self._by_id.values() if s.used_at < oldest]:
            session.stop()
            del self._by_id[session.id]
