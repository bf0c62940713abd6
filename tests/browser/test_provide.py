"""Where the browser comes from: what is installed, then what can be installed, then a sentence."""

from __future__ import annotations

import pytest

from tests.browser import provide


@pytest.fixture
def commands(monkeypatch):
    """No browser anywhere, and installers that are noted instead of run."""
    ran: list[str] = []
    monkeypatch.setattr(provide, "_candidates", lambda: [f"/installed/{len(ran)}"])
    monkeypatch.setattr(provide, "starts", lambda path: False)
    monkeypatch.setattr(provide, "_run", lambda *command: ran.append(" ".join(command[-2:])))
    monkeypatch.setattr(provide.os, "geteuid", lambda: 0)
    monkeypatch.setattr(provide.shutil, "which", lambda name: f"/usr/bin/{name}")
    return ran


def test_without_any_browser_it_fails_in_a_sentence(commands):
    with pytest.raises(SystemExit, match="install the package chromium"):
        provide.provide()
    assert commands == ["install chromium", "update -q", "--no-install-recommends chromium"]


def test_nothing_is_installed_where_a_browser_starts(commands, monkeypatch):
    monkeypatch.setattr(provide, "starts", lambda path: True)
    assert provide.provide() == "/installed/0"
    assert commands == []


def test_the_first_installer_that_helps_is_the_last(commands, monkeypatch):
    monkeypatch.setattr(provide, "starts", lambda path: path == "/installed/1")
    assert provide.provide() == "/installed/1"
    assert commands == ["install chromium"]


def test_only_root_installs_debians(commands, monkeypatch):
    monkeypatch.setattr(provide.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit):
        provide.provide()
    assert commands == ["install chromium"]


def test_a_file_that_is_no_browser_does_not_start(tmp_path):
    fake = tmp_path / "chromium"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    assert not provide.starts(str(fake))
