"""Files and words that do not fit are told in one sentence, before anything is joined."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from broadloom.apps.chat.placeholders import LOBBY
from broadloom.apps.chat.storage import ChatStoreError, names_with_store, open_chat_files, store_path
from broadloom.cli import chat as chat_command
from broadloom.cli.main import app


@pytest.fixture(autouse=True)
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_store_of_ones_own(data: Path) -> None:
    kept = open_chat_files(LOBBY, "Anna", None, memory=False)
    assert kept.store is not None
    path = store_path(LOBBY, "Anna")
    assert path.is_file()
    assert data.stat().st_mode & 0o077 == 0, "for this user alone"
    with pytest.raises(ChatStoreError, match="Anna is in this chat already"):
        open_chat_files(LOBBY, "Anna", None, memory=False)
    kept.close()
    kept.close()
    open_chat_files(LOBBY, "Anna", None, memory=False).close()
    open_chat_files(LOBBY, "Ben", None, memory=False).close()
    assert names_with_store(LOBBY) == ["Anna", "Ben"]
    assert open_chat_files(LOBBY, "Cleo", None, memory=True).store is None
    assert names_with_store(LOBBY) == ["Anna", "Ben"], "nothing is kept"


@pytest.mark.parametrize("name", ["", "  ", "x" * 129, "a\0b"])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(ChatStoreError, match="choose another one"):
        open_chat_files(LOBBY, name, None, memory=False)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ChatStoreError, match="not both"):
        open_chat_files(LOBBY, "Anna", tmp_path / "x", memory=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ChatStoreError, match="cannot make the folder"):
        open_chat_files(LOBBY, "Anna", tmp_path / "file" / "deeper" / "x.db", memory=False)
    with pytest.raises(ChatStoreError, match=str(tmp_path)):
        open_chat_files(LOBBY, "Anna", tmp_path, memory=False)
    (tmp_path / "nonsense").write_bytes(os.urandom(5000))
    with pytest.raises(ChatStoreError, match="name another file"):
        open_chat_files(LOBBY, "Anna", tmp_path / "nonsense", memory=False)


@pytest.mark.parametrize("words", [["Anna"], ["join", "Anna"], ["Anna", "--channel", "chat/club", "--ephemeral"]])
def test_a_name_alone_joins_and_needs_a_terminal(words: list[str]) -> None:
    result = CliRunner().invoke(app, ["chat", *words])
    assert result.exit_code == 2
    assert "the chat needs a terminal" in result.stderr


def test_the_words_know_the_same_channel() -> None:
    assert chat_command.LOBBY == LOBBY
