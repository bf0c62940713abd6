"""Long work at a shell: how Ctrl-C ends it, and how long the rest takes, in words."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

STOPPED = 130  # what a shell makes of Ctrl-C


@contextmanager
def stoppable() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that what is being written is finished; a second one ends the process at once."""
    cancel = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGINT, before)
        cancel.set()

    signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


def duration(seconds: float) -> str:
    """Whole seconds, minutes and seconds, or hours and minutes."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
