"""Programs of games: published in a lobby, downloaded without being run, and loaded by those who trust them."""

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from broadloom.apps.game import GameError, NoGameError, make_game
from broadloom.apps.game import lobby as lobbies
from broadloom.apps.game.games import PROGRAMS
from broadloom.apps.game.package import Package, load_program, package_of
from broadloom.mailboxes.model import ChangeKind
from tests.apps.game.test_lobby import opened, put
from tests.channel.owned import owned_channel
from tests.support import eventually

PROGRAM = """
from pathlib import Path

from broadloom.apps import game

Path(__file__).with_name("ran").touch()


class Count(game.Game):
    name, title, about, help = "count", "Count", "Count to three.", "any key"
    order = game.GameOrder.AGREED

    def __init__(self, players):
        self.roles = {"player": players}

    def begin(self, players, chance):
        return {"count": 0}

    def apply(self, state, action, by, chance):
        return {"count": state["count"] + 1}

    def over(self, state):
        return game.Result("player 1", "three") if state["count"] == 3 else None
"""


@pytest.fixture(autouse=True)
def no_programs() -> Iterator[None]:
    yield
    PROGRAMS.clear()


def written(path: Path, text: str = PROGRAM) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


async def test_program_is_published_and_downloaded_without_being_run(tmp_path: Path) -> None:
    program, picture = written(tmp_path / "count.py"), written(tmp_path / "count.svg", "<svg/>")
    async with opened() as lobby:
        published = await lobby.publish(str(program), str(picture))
        listing = await lobby.register("board-1", "count", 2)
        assert listing.program == published.sha256
        (tmp_path / "ran").unlink()
        PROGRAMS.clear()
        found = lobby.package("count")
        assert (found, found.picture, found.about) == (published, "<svg/>", "Count to three.")
        assert not (tmp_path / "ran").exists()
        with pytest.raises(NoGameError, match="load its program"):
            listing.make_game()
        load_program(str(written(tmp_path / "downloaded.py", found.program)))
        assert listing.make_game().seats() == ["player 1", "player 2"]
        load_program(written(tmp_path / "changed.py", f"{found.program}\n# changed"))
        with pytest.raises(NoGameError, match="another version"):
            listing.make_game()
        with pytest.raises(NoGameError, match="has no program of 'go'"):
            lobby.package("go")


async def test_publisher_is_the_name_on_a_ticket(tmp_path: Path) -> None:
    program = written(tmp_path / "count.py")
    async with opened() as lobby:
        package = await lobby.publish(program)
        await eventually(lambda: lobby.packages == [(package, "")], "the program, published by anyone")
    async with owned_channel(2) as owned:
        one, two = owned.members
        async with lobbies.opened(one) as here, lobbies.opened(two) as there:
            await here.publish(program)
            await eventually(lambda: there.packages == [(package, "member 0")], "the program, published by its owner")


async def test_member_cannot_replace_the_program_of_another() -> None:
    package = {"game": "go", "title": "Go", "about": "", "program": "pass", "picture": ""}
    async with owned_channel(1) as owned, lobbies.opened(owned.members[0]) as lobby:
        put(lobby, "packages/go", package, "zoe")
        put(lobby, "packages/go", {**package, "title": "The same program"}, "Mallory")
        assert lobby.package("go").program == "pass"
        put(lobby, "packages/go", {**package, "program": "import this"}, "Mallory")
        with pytest.raises(GameError, match=r"choose their owner .*: Mallory \(\w{12}\), zoe \(d74ff0ee8da3\)"):
            lobby.package("go")
        assert lobby.package("go", "zoe").program == "pass"
        assert [(each.program, owner) for each, owner in lobby.packages] == [
            ("import this", "Mallory"),
            ("pass", "zoe"),
        ]
        with pytest.raises(NoGameError, match="of Eve"):
            lobby.package("go", "Eve")
        put(lobby, "packages/go", {}, "Mallory", ChangeKind.GONE)
        assert lobby.package("go").program == "pass"
        chess = {**package, "game": "chess"}
        malformed: list[object] = [[], package, {**chess, "program": 7}, {**chess, "title": "\ud800"}]
        malformed += [{**chess, "program": "\ud800"}, {**chess, "picture": "\udfff"}, {**chess, "picture": None}]
        for wrong in malformed:
            put(lobby, "packages/chess", wrong)
        with pytest.raises(NoGameError):
            lobby.package("chess")


def test_file_that_is_not_the_program_of_one_game_is_refused(tmp_path: Path) -> None:
    two = f"{PROGRAM}\nclass Two(Count): ..."
    for text, says in (("x = 1", "has 0 games"), ("1 / 0", "ZeroDivisionError"), (two, "has 2 games")):
        with pytest.raises(GameError, match=says):
            load_program(written(tmp_path / "game.py", text))
    with pytest.raises(GameError, match="not a Python file"):
        load_program(written(tmp_path / "game.txt"))
    (tmp_path / "latin.py").write_bytes(b"name = '\xe9'")
    with pytest.raises(GameError, match="not text in UTF-8"):
        load_program(tmp_path / "latin.py")
    with pytest.raises(GameError, match="at most 65,536"):
        Package(game="go", title="", about="", program="x" * 70_000).encode()


@pytest.mark.parametrize("text", ["import sys; loaded = sys.modules[__name__]; 1 / 0", "raise SystemExit", "x = 1"])
def test_program_that_fails_is_not_left_among_the_modules(text: str, tmp_path: Path) -> None:
    before = set(sys.modules)
    with pytest.raises((GameError, SystemExit)):
        load_program(written(tmp_path / "game.py", text))
    assert set(sys.modules) == before


def test_hash_is_that_of_the_file_and_of_the_code_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "count.py"
    data = PROGRAM.replace("\n", "\r\n").encode()
    path.write_bytes(data)
    package = package_of(path)
    assert package.program.encode() == data
    assert package.sha256 == hashlib.sha256(data).hexdigest() == PROGRAMS["count"].sha256
    times = path.stat().st_atime, path.stat().st_mtime
    path.write_bytes(data.replace(b"Count to three", b"Count to seven"))
    os.utime(path, times)
    assert load_program(path).about == "Count to seven.", "although a compiled file of this time and size could exist"
    assert not (tmp_path / "__pycache__").exists()


def test_number_of_players_that_a_program_refuses_is_reported_with_the_reason(tmp_path: Path) -> None:
    load_program(written(tmp_path / "count.py", PROGRAM.replace("self.roles", "assert players < 5; self.roles")))
    with pytest.raises(NoGameError, match="cannot be made for 9 players"):
        make_game("count", 9)
