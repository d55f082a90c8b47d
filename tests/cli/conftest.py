"""Every test has a status socket directory of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.harness import short_directory


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory; child processes inherit it through the environment."""
    directory = short_directory()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    for name in ("BROADLOOM_KEY", "BROADLOOM_BOOTSTRAP", "BROADLOOM_RULES"):
        monkeypatch.delenv(name, raising=False)
    yield directory / "broadloom"
    shutil.rmtree(directory, ignore_errors=True)
