"""Provide a browser for the page's tests: an installed Chromium, else Playwright's own, else Debian's when root.

`python tests/browser/provide.py` prints where the browser is, or fails with a sentence that says what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Error, sync_playwright

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-sync"]
ARGUMENTS += ["--disable-background-networking", "--disable-component-update"]
INSTALL_S = 600
NO_BROWSER = (
    "The browser tests need Chromium, and none could be installed here: install the package chromium "
    "(or run `playwright install --with-deps chromium`) and start the tests again."
)


def find() -> str | None:
    """Return the path of a Chromium that starts, None if there is none."""
    return next((path for path in _candidates() if starts(path)), None)


def starts(path: str) -> bool:
    """Tell whether a headless browser comes up: a file alone may lack its libraries."""
    try:
        with sync_playwright() as playwright:
            playwright.chromium.launch(executable_path=path, args=ARGUMENTS).close()
    except Error:
        return False
    return True


def provide() -> str:
    """Return the path of a Chromium, installing one if it must; SystemExit says what to do if that fails."""
    for install in (_nothing, _playwright, _debian):
        install()
        if path := find():
            return path
    raise SystemExit(NO_BROWSER)


def _candidates() -> list[str]:
    named = [path for name in INSTALLED if (path := shutil.which(name))]
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    return [*named, *([own] if Path(own).is_file() else [])]


def _nothing() -> None:
    """What is installed already is taken first."""


def _playwright() -> None:
    _run(sys.executable, "-m", "playwright", "install", "chromium")


def _debian() -> None:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _run("apt-get", "update", "-q")
        _run("apt-get", "install", "-y", "-q", "--no-install-recommends", "chromium")


def _run(*command: str) -> None:
    """Run an installer; whether it helped is seen by looking for the browser again."""
    sys.stderr.write(f"Looking for a browser: {' '.join(command)}\n")
    try:
        subprocess.run(command, check=False, stdout=sys.stderr, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"Gave up after {INSTALL_S} seconds.\n")


if __name__ == "__main__":
    sys.stdout.write(f"{provide()}\n")
