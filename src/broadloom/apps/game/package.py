"""Programs of games that do not come with Broadloom: published in a lobby, and downloaded by players.

A program is one Python file with one class of a game, which takes the number of players. A package is its text, what
it says about itself, and a picture. **A download never runs**: a player reads the file, compares its hash, and passes
it to `load_program`, or to a command with `--program`.
"""

import hashlib
import importlib.util
import inspect
import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from broadloom.apps.game.entry import is_text
from broadloom.apps.game.errors import GameError
from broadloom.apps.game.game import Game
from broadloom.apps.game.games import PROGRAMS, Program
from broadloom.mailboxes.limits import PAGE_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    game: str
    title: str
    about: str
    program: str
    """The text of the Python file."""
    picture: str = ""
    """An SVG image."""

    @property
    def sha256(self) -> str:
        return _sha256(self.program)

    def encode(self) -> bytes:
        """Raises `GameError` if it is too large."""
        data = json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":")).encode()
        if len(data) > PAGE_BYTES_MAX:
            raise GameError(
                f"program and picture have {len(data):,} bytes: at most {PAGE_BYTES_MAX:,} can be published"
            )
        return data

    @classmethod
    def decode(cls, data: bytes) -> "Package | None":
        """None if it is malformed."""
        try:
            values = json.loads(data)
            found = cls(**{each.name: values[each.name] for each in fields(cls)})
            is_valid = all(isinstance(each, str) for each in (found.program, found.picture))
            return found if is_valid and all(map(is_text, (found.game, found.title, found.about))) else None
        except (KeyError, TypeError, ValueError, RecursionError):
            return None


def load_program(path: Path) -> type[Game]:
    """Run the program of a game, and make the game known to this process. Only for files that you trust: the program
    can do everything that you can. Raises `GameError`, or `OSError`."""
    text = path.read_text(encoding="utf-8")
    name = f"broadloom_game_{_sha256(text)}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GameError(f"{path} is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise GameError(f"{path} cannot be run: {problem!r}") from problem
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, Game) and each.__module__ == name and not inspect.isabstract(each)
    ]
    if len(found) != 1:
        raise GameError(f"{path} has {len(found)} games: a program has one, a subclass of broadloom.apps.game.Game")
    PROGRAMS[found[0].name] = Program(found[0], _sha256(text))
    return found[0]


def package_of(path: Path, picture: Path | None = None) -> Package:
    """Load a program, and describe it. Raises `GameError`, or `OSError`."""
    game = load_program(path)
    image = picture.read_text(encoding="utf-8") if picture is not None else ""
    text = path.read_text(encoding="utf-8")
    return Package(game=game.name, title=game.title, about=game.about, program=text, picture=image)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
