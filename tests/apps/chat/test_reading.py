"""What was read outlives the process; a file that cannot be read costs marks, not messages."""

from pathlib import Path

import pytest

from broadloom.apps.chat.read_state import ReadState
from broadloom.apps.chat.storage import read_path, store_path
from broadloom.groups import MessageId
from broadloom.groups.intervals import IntervalSet


def test_read_state_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "x.read"
    reading = ReadState(path)
    for sequence in (1, 2, 3, 7):
        reading.mark_read(5, MessageId(1 << 63, sequence))
    reading.save()
    assert not reading.has_changed
    again = ReadState(path)
    assert not again.load_error
    assert again.is_read(5, MessageId(1 << 63, 7))
    assert not again.is_read(5, MessageId(1 << 63, 4))
    assert not again.is_read(6, MessageId(1 << 63, 1))
    assert again.unread_count(5, {1 << 63: IntervalSet([(1, 10)]), 2: IntervalSet([(1, 3)])}) == 6 + 3
    again.forget_group(5)
    again.save()
    assert not ReadState(path).is_read(5, MessageId(1 << 63, 7))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2, "groups": {}}', '{"format": 1, "groups": {"x": {}}}'])
def test_unreadable_read_state_counts_everything_as_unread(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.read"
    path.write_text(text)
    reading = ReadState(path)
    assert str(path) in reading.load_error
    assert not reading.is_read(1, MessageId(1, 1))


def test_each_name_and_channel_has_its_own_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    names = ["Anna", "anna/..", "..", ".", "a b", "漢字", "x" * 128, "x" * 127 + "y", "%2E"]
    channels = ["chat/lobby", "chat/" + "s" * 100, "chat/" + "s" * 200, "chat/" + "s" * 200 + "t"]
    paths = [store_path(channel, name) for channel in channels for name in names]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.parent.parent == tmp_path / "broadloom" / "chat"
        assert len(path.name) < 200
        assert read_path(path).parent == path.parent
    assert store_path("chat/lobby", "Anna").name == "Anna.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store_path("chat/lobby", "Anna").is_relative_to(tmp_path / "home" / ".local" / "share")
