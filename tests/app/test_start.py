"""`python app.py` serves the page, on this machine alone, before any model is loaded."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time

import httpx

START_S = 180  # a cold start on a busy machine compiles and reads a lot
# A test run in the background of a shell inherits deaf ears for Ctrl-C; app.py is started with its own.
LISTENING = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "runpy.run_path('app.py', run_name='__main__')"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_page_is_served_from_the_command_line():
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", LISTENING, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        page = wait_for(f"http://127.0.0.1:{port}/config")
        assert page["title"] == "CacheBlend Studio"
        assert "not loaded" in str(page["components"])
    finally:
        process.send_signal(signal.SIGINT)  # as Ctrl-C does: the private folder is cleared away
        process.wait(60)


def wait_for(url: str) -> dict:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            return httpx.get(url).json()
        except httpx.TransportError:
            time.sleep(0.2)
    raise AssertionError(f"nothing was served at {url} within {START_S} s")
