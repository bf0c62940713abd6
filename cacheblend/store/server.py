"""A Redis or Valkey server that may be slow, away or wrong: asked patiently, and never with another exception.

Knows nothing of what is kept there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)
T = TypeVar("T")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 30.0  # after a failure, before the server is asked again
NONSENSE = (ValueError, TypeError, LookupError, AttributeError)  # what the client makes of answers in no protocol
NO_ANSWER = (redis.RedisError, OSError, *NONSENSE)


class TroubleError(Exception):
    """The server did not do what it was asked; is_outage: it cannot be reached, rather than unwilling."""

    def __init__(self, why: str, *, is_outage: bool) -> None:
        super().__init__(why)
        self.is_outage = is_outage


class Server:
    """A client that is patient with its server: after a failure it waits longer and longer before it asks again."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.address = check_url(url)
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            socket_read_size=1 << 20,  # a layer is hundreds of kilobytes
            retry=Retry(NoBackoff(), 0),  # waiting is decided here
            protocol=2,
        )
        self.outages = 0
        self._lock = threading.Lock()
        self._wait_s, self._ask_at = 0.0, 0.0  # _ask_at: on the monotonic clock
        self._complaints: set[str] = set()  # already logged

    def ask(self, work: Callable[[redis.Redis], T]) -> T:
        """Do something with the client; TroubleError if that fails, at once while a failed server is left in peace."""
        with self._lock:
            if time.monotonic() < self._ask_at:
                raise TroubleError(f"{self.address} was not reached a moment ago", is_outage=True)
        try:
            answer = work(self._client)
        except redis.ResponseError as error:
            self._complain(str(error))
            raise TroubleError(str(error), is_outage=False) from error
        except NO_ANSWER as error:
            self._give_up(error)
            raise TroubleError(f"{self.address} cannot be reached ({error})", is_outage=True) from error
        with self._lock:
            is_back, self._wait_s = self._wait_s > 0, 0.0
        if is_back:
            logger.warning("The cache server %s answers again.", self.address)
        return answer

    def close(self) -> None:
        """Close the connections; the next question opens one."""
        self._client.close()

    def _give_up(self, error: Exception) -> None:
        with self._lock:
            if time.monotonic() < self._ask_at:  # another thread has just failed too
                return
            is_new = self._wait_s == 0
            self._wait_s = min(max(FIRST_WAIT_S, 2 * self._wait_s), LONGEST_WAIT_S)
            self._ask_at = time.monotonic() + self._wait_s
            self.outages += is_new
        if is_new:
            logger.warning("The cache server %s cannot be reached (%s); going on without it.", self.address, error)

    def _complain(self, why: str) -> None:
        kind = why.partition(" ")[0]
        with self._lock:
            is_new = kind not in self._complaints
            self._complaints.add(kind)
        if is_new:
            logger.warning("The cache server %s refuses: %s; going on without.", self.address, why)


def check_url(url: str) -> str:
    """The server's address without user and password; ValueError if the URL names no server."""
    try:
        parts = urlsplit(url)
        place = parts.path if parts.scheme == "unix" else parts.hostname
        address = f"{parts.scheme}://{place}" + (f":{parts.port}" if parts.port else "")
        is_sound = parts.scheme in ("redis", "rediss", "unix") and bool(place) and set(parse_qs(parts.query)) <= {"db"}
    except ValueError:
        is_sound = False
    if not is_sound:
        raise ValueError(
            "a cache server is named redis://host:port/0, rediss://host:port/0 or unix:///path?db=0, with "
            "user:password@ in front of the host if need be; what was given is none of these."
        )
    return address
