"""What was read outlives the process; a file that cannot be read costs marks, not messages."""

from pathlib import Path

import pytest

from weft.apps.chat.places import read_path, store_path
from weft.apps.chat.reading import Reading
from weft.groups import MessageId
from weft.groups.intervals import Intervals


def test_it_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "x.read"
    reading = Reading(path)
    for sequence in (1, 2, 3, 7):
        reading.read(5, MessageId(1 << 63, sequence))
    reading.save()
    assert not reading.has_changed
    again = Reading(path)
    assert not again.problem
    assert again.was_read(5, MessageId(1 << 63, 7))
    assert not again.was_read(5, MessageId(1 << 63, 4))
    assert not again.was_read(6, MessageId(1 << 63, 1))
    assert again.unread(5, {1 << 63: Intervals([(1, 10)]), 2: Intervals([(1, 3)])}) == 6 + 3
    again.forget(5)
    again.save()
    assert not Reading(path).was_read(5, MessageId(1 << 63, 7))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 2, "groups": {}}', '{"format": 1, "groups": {"x": {}}}'])
def test_a_file_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.read"
    path.write_text(text)
    reading = Reading(path)
    assert str(path) in reading.problem
    assert not reading.was_read(1, MessageId(1, 1))


def test_one_file_for_each_name_and_channel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    names = ["Anna", "anna/..", "..", ".", "a b", "漢字", "x" * 128, "x" * 127 + "y", "%2E"]
    channels = ["chat/lobby", "chat/" + "s" * 100, "chat/" + "s" * 200, "chat/" + "s" * 200 + "t"]
    paths = [store_path(channel, name) for channel in channels for name in names]
    assert len(set(paths)) == len(paths)
    for path in paths:
        assert path.parent.parent == tmp_path / "weft" / "chat"
        assert len(path.name) < 200
        assert read_path(path).parent == path.parent
    assert store_path("chat/lobby", "Anna").name == "Anna.db"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert store_path("chat/lobby", "Anna").is_relative_to(tmp_path / "home" / ".local" / "share")
