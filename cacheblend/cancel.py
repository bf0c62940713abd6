"""Stopping long work between two steps."""

from __future__ import annotations

import threading


class Cancelled(Exception):
    """The work was stopped because its user asked for that."""


def check(cancel: threading.Event | None) -> None:
    """Raise Cancelled if the event is set."""
    if cancel is not None and cancel.is_set():
        raise Cancelled
