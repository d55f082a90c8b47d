"""Programs of games that do not come with Broadloom: published in a lobby, and downloaded by players.

A program is one Python file with one class of a game, which takes the number of players. A package is its text, what
it says about itself, and a picture. **A download never runs**: a player reads the file, compares its hash, and passes
it to `load_program`, or to a command with `--program`.
"""

import hashlib
import inspect
import json
import os
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType

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
            "".join((found.program, found.picture)).encode()  # raises unless both are texts that can be written
            return found if all(map(is_text, (found.game, found.title, found.about))) else None
        except (KeyError, TypeError, ValueError, RecursionError):
            return None


def load_program(path: str | os.PathLike[str]) -> type[Game]:
    """Run the program of a game, and make the game known to this process. Only for files that you trust: the program
    can do everything that you can. Raises `GameError`, or `OSError`."""
    return _run(Path(path), _read(path))


def package_of(path: str | os.PathLike[str], picture: str | os.PathLike[str] | None = None) -> Package:
    """Load a program, and describe it. Raises `GameError`, or `OSError`."""
    text = _read(path)
    game = _run(Path(path), text)
    image = _read(picture) if picture is not None else ""
    return Package(game=game.name, title=game.title, about=game.about, program=text, picture=image)


def _read(path: str | os.PathLike[str]) -> str:
    """Line ends stay as they are: the hash of the text is that of the file."""
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError:
        raise GameError(f"{path} is not text in UTF-8") from None


def _run(path: Path, text: str) -> type[Game]:
    """Run exactly this text, which was read from the file once: it is what the hash is of."""
    if path.suffix != ".py":
        raise GameError(f"{path} is not a Python file")
    sha256 = _sha256(text)
    module = ModuleType(f"broadloom_game_{sha256}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        game = _game_in(module, path, text)
    except BaseException:
        sys.modules.pop(module.__name__, None)
        raise
    PROGRAMS[game.name] = Program(game, sha256)
    return game


def _game_in(module: ModuleType, path: Path, text: str) -> type[Game]:
    try:
        exec(compile(text, str(path), "exec"), vars(module))
    except Exception as problem:
        raise GameError(f"{path} cannot be run: {problem!r}") from problem
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each)
        and issubclass(each, Game)
        and each.__module__ == module.__name__
        and not inspect.isabstract(each)
    ]
    if len(found) != 1:
        raise GameError(f"{path} has {len(found)} games: a program has one, a subclass of broadloom.apps.game.Game")
    return found[0]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
