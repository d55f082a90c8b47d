"""Parts of a tape, packed keys, and the archive of Java's classes."""

import os
from pathlib import Path

import polars as pl
import pytest

from broadloom.pipeline.class_archive import ClassArchive
from broadloom.pipeline.engine.events import TEXT
from broadloom.pipeline.engine.keys import MessageKeys
from broadloom.pipeline.engine.parts import PART_ROWS, PART_ROWS_MAX, parts_of
from broadloom.pipeline.quarantine import FileReport


def file(path: str, rows: int, *peers: str, channel: str = "c") -> FileReport:
    return FileReport(path, 1, rows=rows, channel=channel, peers=frozenset(peers))


def test_files_that_share_a_peer_are_in_one_part() -> None:
    files = [file("1", 10, "a", "b"), file("2", 10, "c"), file("3", 10, "b", "d"), file("4", 10, "d"), file("5", 10)]
    parts = parts_of("tape", files, tasks_min=50)
    assert [each.files for each in parts] == [("tape/1", "tape/3", "tape/4"), ("tape/2",), ("tape/5",)]
    assert [each.rows for each in parts] == [30, 10, 10]


def test_small_parts_are_combined_but_channels_are_not() -> None:
    files = [file(str(number), 10, str(number), channel="cd"[number // 5]) for number in range(10)]
    parts = parts_of("tape", [*files, file("empty", 0, "x", channel="e")], tasks_min=1)
    assert [(each.channel, each.rows) for each in parts] == [("c", 50), ("d", 50)]
    assert len(parts_of("tape", files, tasks_min=4)) == 6


def test_large_part_is_cut() -> None:
    small, large = parts_of("t", [file("1", PART_ROWS_MAX, "a"), file("2", PART_ROWS_MAX + 1, "b")], tasks_min=1)
    assert small.cuts == 1
    assert large.cuts == PART_ROWS_MAX // PART_ROWS + 1


@pytest.mark.parametrize("sequences", [[1, 2, 3, 1], [0, 2**62, 5, 2**63 - 1], [-7, 3, -7, 2**40]])
def test_keys_are_distinct_and_reversible_for_any_sequence_number(sequences: list[int]) -> None:
    rows = pl.DataFrame(
        {
            "author": pl.Series(["a", "b", "a", "b"], dtype=TEXT),
            "receiver": pl.Series(["x", "x", "y", "y"], dtype=TEXT),
            "sequence": pl.Series(sequences, dtype=pl.Int64),
        }
    )
    keys = MessageKeys([rows["author"], rows["receiver"]], [rows["sequence"]])
    packed = rows.select(key=keys.delivery())
    assert packed["key"].n_unique() == 4
    assert packed["key"].null_count() == 0
    assert keys.unpack(packed, "key").select(rows.columns).equals(rows)
    assert rows.select(keys.message()).to_series().n_unique() == len({*zip("abab", sequences, strict=True)})


def test_unknown_sequence_number_has_no_key() -> None:
    """A reply may name any parent; it must not match another message."""
    rows = pl.DataFrame({"author": pl.Series(["a"], dtype=TEXT), "sequence": [3], "parent": [4]})
    keys = MessageKeys([rows["author"]], [rows["sequence"]])
    assert rows.select(keys.message(sequence="parent")).to_series().to_list() == [None]


def test_class_archive_is_used_once_it_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "broadloom").mkdir()
    java = tmp_path / "java"
    java.touch()
    archive = ClassArchive(java)
    (writing,) = [each for each in archive.options() if each.startswith("-XX:")]
    name, _, path = writing.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    archive.keep()  # Java ended without writing it
    assert "ArchiveClassesAtExit" in " ".join(ClassArchive(java).options())
    archive.options()
    Path(path).write_bytes(b"classes")
    archive.keep()
    (using,) = [each for each in ClassArchive(java).options() if each.startswith("-XX:")]
    assert using.startswith("-XX:SharedArchiveFile=")
    assert Path(using.partition("=")[2]).read_bytes() == b"classes"
    os.utime(java, (0, 0))  # another version
    assert "ArchiveClassesAtExit" in " ".join(ClassArchive(java).options())
