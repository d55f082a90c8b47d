"""Store errors name the file and the remedy, and tell the reasons apart. Everything here really happens to a file."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from broadloom import StoreCorruptError, StoreFullError, StoreReadOnlyError
from broadloom.groups import SqliteStore
from broadloom.groups.model import Post
from tests.groups.group_bus import GroupBus
from tests.small_disk import fill, make_read_only, small_disk
from tests.test_sqlite_file import check_message

__all__ = ["small_disk"]

GROUP = 7


def make_store(path: Path, posts: int = 1000) -> Path:
    store = SqliteStore(path)
    for sequence in range(1, posts + 1):
        store.history(GROUP).add(Post(1, sequence, None, 0, bytes(200)), "Anna")
    store.close()
    return path


def test_damaged_store_is_reported_as_corrupt(tmp_path: Path) -> None:
    path = make_store(tmp_path / "member.db")
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xa5" * (path.stat().st_size - 12 * 4096))
    with pytest.raises(StoreCorruptError) as error:
        SqliteStore(path).history(GROUP).stored()
    check_message(error, path, "Restore a backup")


def test_damaged_group_record_is_reported_as_corrupt(tmp_path: Path) -> None:
    path = make_store(tmp_path / "member.db")
    database = sqlite3.connect(path)
    database.execute("insert into groups values (1, x'00', 1)")
    database.commit()
    database.close()
    store = SqliteStore(path)
    with pytest.raises(StoreCorruptError) as error:
        store.groups()
    check_message(error, path, "Restore a backup")
    store.close()


@pytest.mark.parametrize("name", ["member.db", "new.db"])
def test_read_only_disk_is_reported_as_read_only(small_disk: Path, name: str) -> None:
    make_store(small_disk / "member.db", posts=10)
    make_read_only(small_disk)
    with pytest.raises(StoreReadOnlyError) as error:
        SqliteStore(small_disk / name)
    check_message(error, small_disk / name, "writable")


NOBODY = 65534
"""The user id of `nobody`."""


@contextmanager
def without_root() -> Iterator[None]:
    """As another user if this is root, who may write read-only files."""
    user = os.geteuid()
    os.seteuid(NOBODY if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_read_only_file_is_reported_as_read_only() -> None:
    with TemporaryDirectory() as folder:  # the parent directories of `tmp_path` are private
        Path(folder).chmod(0o755)
        path = make_store(Path(folder) / "member.db", posts=10)
        path.chmod(0o444)
        with without_root(), pytest.raises(StoreReadOnlyError):
            SqliteStore(path)


def test_full_disk_fails_send_until_space_is_freed(small_disk: Path) -> None:
    bus = GroupBus()
    store = SqliteStore(small_disk / "member.db")
    member, other = bus.add("a", store), bus.add("b")
    member.participant.create("a group", group=GROUP)
    bus.run(10.0)
    other.participant.join(GROUP)
    bus.run(10.0)
    ballast = fill(small_disk)

    def post_until_full() -> None:
        for _ in range(100):
            member.participant.post(GROUP, bytes(10_000))

    with pytest.raises(StoreFullError) as error:
        post_until_full()
    check_message(error, small_disk / "member.db", "free disk space")
    ballast.unlink()
    sent = member.send_text(GROUP, "there is space again")
    bus.run(2.0)
    assert other.delivered[-1].id == sent.id
    bus.kill(member)
    store.close()


_LIMITED = """
import resource, sys
from pathlib import Path
from broadloom import StoreFullError
from tests.groups.test_store_errors import make_store

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    make_store(Path(sys.argv[1]))
except StoreFullError as error:
    print(error)
"""


def test_file_size_limit_is_reported_as_full(tmp_path: Path) -> None:
    path = tmp_path / "member.db"
    done = subprocess.run([sys.executable, "-c", _LIMITED, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{path} cannot grow")
    assert "limit on file sizes" in done.stdout
