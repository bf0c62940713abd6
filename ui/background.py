"""A blocking job as a stream of what it reports, so that a handler can show progress while it waits."""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Report = TypeVar("Report")
Shown = TypeVar("Shown")
Result = TypeVar("Result")


def stream(
    job: Callable[[Callable[[Report], None]], Result], show: Callable[[Report], Shown]
) -> Generator[Shown, None, Result]:
    """Run `job(report)` in a thread; yield each report as shown, return the job's result or raise what it raised."""
    reports: queue.SimpleQueue = queue.SimpleQueue()
    executor = ThreadPoolExecutor(max_workers=1)
    future = executor.submit(job, reports.put)
    future.add_done_callback(reports.put)  # put once, last
    executor.shutdown(wait=False)
    while (item := reports.get()) is not future:
        yield show(item)
    return future.result()
