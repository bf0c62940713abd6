"""Runs a parser in a process of its own, so that a hostile file can waste neither this one's time nor its memory.

A thread cannot be stopped and a parser cannot be trusted to end: Python's own HTML parser takes hours over a few
megabytes of unclosed comments. Plain text and Markdown are decoded here, in time proportional to their length.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cacheblend.documents.document import DocumentError, DocumentKind, Extract
from cacheblend.documents.limits import Limits
from cacheblend.documents.text import parse_text

logger = logging.getLogger(__name__)

_ROOT = Path(__file__).resolve().parents[2]  # where the package is imported from


def extract_apart(kind: DocumentKind, name: str, data: bytes, limits: Limits) -> Extract:
    """Parse a file; raise DocumentError if it is refused, damaged, or exceeds its time or memory."""
    if kind in (DocumentKind.TEXT, DocumentKind.MARKDOWN):
        return parse_text(name, data, limits)
    reply = _run(kind, name, data, limits)
    if "refusal" in reply:
        raise DocumentError(reply["refusal"])
    found = reply["extract"]
    return Extract(text=found["text"], num_pages=found["num_pages"], warnings=tuple(found["warnings"]))


def _run(kind: DocumentKind, name: str, data: bytes, limits: Limits) -> dict[str, Any]:
    """Return the worker's reply."""
    header = json.dumps({"kind": kind, "name": name, "limits": asdict(limits)}).encode()
    try:
        worker = subprocess.run(
            [sys.executable, "-m", "cacheblend.documents.worker"],
            input=header + b"\n" + data,
            capture_output=True,
            timeout=limits.max_seconds,
            cwd=_ROOT,
            check=True,
        )
    except subprocess.TimeoutExpired as error:
        raise DocumentError(
            f"{name} takes more than {limits.max_seconds:g} seconds to read, the limit: upload a part of it."
        ) from error
    except subprocess.CalledProcessError as error:
        logger.warning("parsing a %s file failed: %s", kind, error.stderr.decode(errors="replace")[-300:])
        raise DocumentError(
            f"{name} is damaged, cut short or too complex: save it again in its own program and upload the new file."
        ) from error
    reply: dict[str, Any] = json.loads(worker.stdout)
    return reply
