"""A blocking job as a stream of what it reports, so that a handler can show progress while it waits."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Shown = TypeVar("Shown")
Result = TypeVar("Result")

Tell = Callable[..., None]

THREADS = "studio job"  # how their names begin


def stream(job: Callable[[Tell], Result], show: Callable[..., Shown]) -> Generator[Shown, None, Result]:
    """Run `job(tell)` in a thread; yield show(…) of what it tells, return the job's result or raise what it raised."""
    told: queue.SimpleQueue[tuple[object, ...] | Future[Result]] = queue.SimpleQueue()
    executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREADS)
    future = executor.submit(job, lambda *what: told.put(what))
    future.add_done_callback(told.put)  # put once, last
    executor.shutdown(wait=False)
    while not isinstance(what := told.get(), Future):
        yield show(*what)
    return future.result()
