"""Each test has a directory of its own for the sockets of visible peers, beside those of whoever else runs here."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import short_directory


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory itself; processes of the test inherit its name."""
    directory = short_directory()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    for name in ("BROADLOOM_KEY", "BROADLOOM_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)
    yield directory / "broadloom"
    shutil.rmtree(directory, ignore_errors=True)
