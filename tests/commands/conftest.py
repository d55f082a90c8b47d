"""Each test has a directory of its own for the sockets of visible peers, beside those of whoever else runs here."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.running import short_directory


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory itself; processes of the test inherit its name."""
    directory = short_directory()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    for name in ("WEFT_KEY", "WEFT_PORTALS"):
        monkeypatch.delenv(name, raising=False)
    yield directory / "weft"
    shutil.rmtree(directory, ignore_errors=True)
