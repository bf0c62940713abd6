"""Errors as sentences on the page: what a handler yields when its job fails or is stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

from cacheblend.cancel import Cancelled
from ui import notices

View = TypeVar("View")
EXPECTED = (ValueError, OSError, RuntimeError, MemoryError)  # refusals, files, and what torch raises when it gives up
STOPPED = notices.done("Stopped.")

logger = logging.getLogger(__name__)


def guarded(views: Iterator[View], with_status: Callable[[str], View]) -> Iterator[View]:
    """Pass views on; an expected error or a stop becomes a last view with its notice."""
    try:
        yield from views
    except Cancelled:
        yield with_status(STOPPED)
    except EXPECTED as error:
        logger.info("refused: %s", error)
        yield with_status(notices.failed([sentence(error)]))


def sentence(error: BaseException) -> str:
    """Return the error's first line, or its kind if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else f"Something went wrong ({type(error).__name__})."
